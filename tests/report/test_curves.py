import numpy as np
import pandas as pd
import pytest
from PIL import Image, ImageColor
from rich.console import Console

from compositefl.report.curves import final, latex, plot, ratios, save, table
from compositefl.report.style import COLOURS, styles


def history(trials=3, rounds=20, accuracy=True, scale=1.0):
    rows = [
        {
            "round": t,
            "trial": k,
            "psi": 1 + scale * (1 + 0.1 * k) / (1 + t),
            "natural_residual_sq": scale * 0.8**t,
            "zeros": t / 40,
            "bytes_up": 1e6 * t,
            "seconds": 0.1 * t,
        }
        | ({"accuracy": 0.5 + 0.02 * t} if accuracy else {})
        for t in range(0, rounds + 1, 2)
        for k in range(trials)
    ]
    return pd.DataFrame(rows)


def text_of(thing):
    console = Console(width=200)
    with console.capture() as captured:
        console.print(thing)
    return captured.get()


def test_final_is_the_mean_over_trials_of_the_last_round():
    assert final(history())["psi"] == pytest.approx(1 + 1.1 / 21)
    assert final(history())["round"] == 20


def test_table():
    text = text_of(table({"A": history(), "B": history(accuracy=False)}, title="Final"))
    (a,) = (line.split() for line in text.splitlines() if line.split()[:1] == ["A"])
    (b,) = (line.split() for line in text.splitlines() if line.split()[:1] == ["B"])
    assert a == ["A", "1.0524", "1.15e-02", "50.0%", "90.0%", "20", "2.00"]
    assert b[4] == "-"


def colours(path):
    picture = np.asarray(Image.open(path).convert("RGB")).reshape(-1, 3).astype(int)
    wanted = [tuple(int(c[i : i + 2], 16) for i in (1, 3, 5)) for c in COLOURS]
    return [bool((abs(picture - np.array(c)).max(axis=1) < 12).any()) for c in wanted]


@pytest.mark.parametrize("accuracy", [True, False])
def test_plot_draws_every_method(accuracy, tmp_path):
    runs = {f"Method{i}": history(accuracy=accuracy, scale=1 + i) for i in range(3)}
    plot(runs, tmp_path / "p.png", title="A title", gamma=4.0)
    assert colours(tmp_path / "p.png")[:4] == [True, True, True, False]
    assert (tmp_path / "p.png").stat().st_size < 150_000


def test_plot_of_extreme_values(tmp_path):
    flat = history(trials=1)
    flat["psi"] = 2.0
    flat["natural_residual_sq"] = 0.0
    broken = history(trials=2)
    broken.loc[broken["round"] > 10, ["psi", "natural_residual_sq"]] = np.inf
    broken.loc[broken["round"] > 16, ["psi", "natural_residual_sq"]] = np.nan
    one_row = history(trials=1, rounds=0)
    plot({"flat": flat, "broken": broken, "one": one_row}, tmp_path / "p.png")
    plot({"one": one_row.assign(psi=np.nan)}, tmp_path / "q.png")
    assert (tmp_path / "q.png").exists()


def test_plot_of_thirty_methods(tmp_path):
    plot({f"Method{i}": history(scale=1 + i) for i in range(30)}, tmp_path / "p.png")
    assert (tmp_path / "p.png").stat().st_size < 150_000


def test_ratios_are_to_fednmap_at_the_same_round():
    runs = {"FedNMap": history(), "Other": history(scale=3.0), "Short": history(rounds=10)}
    made = ratios(runs, "natural_residual_sq")
    assert np.allclose(made["FedNMap"]["ratio"], 1) and np.allclose(made["Other"]["ratio"], 3)
    assert list(made["Short"]["round"]) == list(range(0, 11, 2))


@pytest.mark.parametrize("accuracy", [True, False])
def test_a_comparison_with_fednmap_has_two_more_panels(accuracy, tmp_path):
    runs = {"FedNMap": history(accuracy=accuracy), "ZA1": history(accuracy=accuracy, scale=2.0)}
    plot(runs, tmp_path / "two.png")
    plot({"A": runs["FedNMap"], "B": runs["ZA1"]}, tmp_path / "plain.png")
    wide, narrow = (Image.open(tmp_path / name).width for name in ("two.png", "plain.png"))
    assert wide == 1.5 * narrow


def test_latex_has_the_numbers_of_the_table():
    lines = latex({"A_1": history(), "B": history(accuracy=False)}).splitlines()
    assert lines[2].startswith(r"method & psi & residual$^2$ & zeros & accuracy")
    assert lines[4].startswith(r"A\_1 & 1.0524 $\pm$ 0.0047619") and r"50.0\%" in lines[4]
    assert lines[5].split(" & ")[4] == "--"


def test_a_line_that_is_seen_in_the_legend_alone_has_its_colour(tmp_path):
    from matplotlib.figure import Figure

    figure = Figure(figsize=(7, 5), layout="constrained")
    axis = figure.subplots()
    for name, look in styles(["ZA1", "FedDA", "FedNMap"]).items():
        axis.plot([0, 1], [0, 1], label=name, color=look.colour, lw=1 if name == "ZA1" else 4)
        for alpha in (0.1, 0.2, 0.3):
            if name != "ZA1":
                axis.fill_between([0, 1], [0, 0], [1, 1 + alpha], color=look.colour, alpha=alpha)
    axis.legend()
    save(figure, tmp_path / "out.png")
    colours = {colour for _, colour in Image.open(tmp_path / "out.png").convert("RGB").getcolors()}
    own = ImageColor.getrgb(styles(["ZA1"])["ZA1"].colour)
    assert own in colours and (255, 255, 255) in colours
