"""Results as tables in Markdown and as a picture."""

import math

from environments import PEERS
from workloads import WORKLOADS

METHODS = {"fedavg": "FedAvg", "scaffold": "SCAFFOLD"}
REFERENCE = "plain PyTorch loop"  # the loss that all are compared with
FULL = 1e-4  # relative difference of the final losses where all samples are used: rounding
DRAWN = 0.02  # with minibatches, which every library draws by itself


def rows(found, workload, method):
    """(library, its result) in the order of `PEERS`."""
    keys = ((name, found.get(f"{workload}/{method}/{name}")) for name in PEERS)
    return [(name, got) for name, got in keys if got is not None]


def tables(found):
    """All tables."""
    parts = []
    for workload, spec in WORKLOADS.items():
        for method, title in METHODS.items():
            here = rows(found, workload, method)
            if here:
                parts.append(f"**{title}, {spec['title']}**\n\n" + _table(here))
    return "\n".join(parts)


def _table(here):
    by_name = dict(here)
    ours = by_name.get("compositefl", {}).get("processor_ms", math.nan)
    wanted = by_name.get(REFERENCE, {})
    lines = [
        "| | ms a round | processor ms a round | times compositefl | first round, s | peak MB |"
        " final loss | on all samples, relative difference |",
        "|---|---|---|---|---|---|---|---|",
    ]
    for name, got in here:
        if "error" in got:
            lines.append(f"| {name} | {got['error']} | | | | | | |")
            continue
        times = _number(got["processor_ms"] / ours) if counts(got, wanted) else "does not count"
        lines.append(
            f"| {name} {got['version']} | {_number(got['ms'])} "
            f"| {_number(got['processor_ms'])} | {times} "
            f"| {_number(got['first_seconds'])} "
            f"| {got['peak_megabytes']:.0f} | {_drawn(got, wanted)} | {_full(got, wanted)} |"
        )
    return "\n".join(lines) + "\n"


def counts(got, wanted):
    """Whether a time may be compared: both final losses are those of the reference."""
    pairs = [
        (got.get(k), wanted.get(k), most) for k, most in (("loss", DRAWN), ("full_loss", FULL))
    ]
    return all(a is not None and b is not None and abs(a / b - 1) <= most for a, b, most in pairs)


def _drawn(got, wanted):
    text = f"{got['loss']:.4f}"
    if "loss" in wanted and not abs(got["loss"] / wanted["loss"] - 1) <= DRAWN:
        text += " (differs)"
    return text


def _full(got, wanted):
    if got.get("full_loss") is None:
        return got.get("full_error", "")
    if wanted.get("full_loss") is None:
        return ""
    off = abs(got["full_loss"] / wanted["full_loss"] - 1)
    return f"{off:.0e}" + (" (**differs**)" if not off <= FULL else "")


def _number(value):
    return f"{value:,.0f}" if value >= 100 else f"{value:.3g}"


def picture(found, path):
    """Processor time of a round of FedAvg, which load disturbs little; a panel a workload."""
    import matplotlib

    matplotlib.use("Agg")
    import matplotlib.pyplot as plt

    panels = [(w, rows(found, w, "fedavg")) for w in WORKLOADS]
    panels = [
        (w, [(n, g) for n, g in here if counts(g, dict(here).get(REFERENCE, {}))])
        for w, here in panels
    ]
    panels = [panel for panel in panels if panel[1]]
    if not panels:
        return
    figure, axes = plt.subplots(1, len(panels), figsize=(4.2 * len(panels), 3.2), squeeze=False)
    for axis, (workload, here) in zip(axes[0], panels, strict=True):
        here = sorted(here, key=lambda item: -item[1]["processor_ms"])
        colours = ["#c44e52" if name == "compositefl" else "#8c96a3" for name, _ in here]
        bars = axis.barh(
            [name for name, _ in here], [got["processor_ms"] for _, got in here], color=colours
        )
        axis.bar_label(
            bars, [_number(got["processor_ms"]) for _, got in here], padding=3, fontsize=8
        )
        axis.set_xscale("log")
        axis.set_title(WORKLOADS[workload]["title"].replace(", ", "\n", 1), fontsize=8)
        axis.tick_params(labelsize=8)
        # From 1 in all panels: a logarithmic axis that begins near its bars makes small gaps large.
        axis.set_xlim(1, 8 * max(got["processor_ms"] for _, got in here))
        axis.spines[["top", "right"]].set_visible(False)
    figure.supxlabel("milliseconds of processor time, a round of FedAvg", fontsize=9)
    figure.tight_layout()
    figure.savefig(path, dpi=150)
