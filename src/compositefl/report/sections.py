"""The parts of a page. Each is a `Section` made of plain values; `page.write` puts them together.

A chart is data for Plotly inside the section's HTML; `page.js` draws it in the reader's colours.
"""

import base64
import html
import io
import json
import math
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple, NotRequired, TypeAlias, TypedDict

import numpy as np

from compositefl.core.types import PlainValues
from compositefl.report.curves import COLUMNS, final
from compositefl.report.style import COLOURS, NEGATIVE, NOT_A_NUMBER, POSITIVE, styles

if TYPE_CHECKING:
    import pandas as pd

PlotlyPart: TypeAlias = dict[str, Any]  # a trace or a layout, with arrays of NumPy

BARS = 30  # most coefficients in a chart
PIXELS = 512  # most rows or columns of the image of a matrix
CELLS = 40  # most clients or features in a chart


class Section(NamedTuple):
    """A heading and HTML below it."""

    heading: str
    body: str


class LabelCounts(TypedDict):
    """How many samples of each label the clients hold."""

    names: list[str]  # of the labels
    counts: list[list[int]]  # by client and label


class FeatureMeans(TypedDict):
    """The clients' means of features, in standard deviations from the mean of all samples."""

    names: list[str]  # of the features
    means: list[list[float]]  # by client and feature
    more: int  # features that are left out


class ClientData(TypedDict):
    """What clients hold, as plain values. Only the first clients have more than a size."""

    sizes: list[int]
    names: list[str]  # of the first clients
    labels: NotRequired[LabelCounts]
    targets: NotRequired[list[list[float]]]  # by client: quantiles 5, 25, 50, 75 and 95 %
    features: NotRequired[FeatureMeans]


def text(words: object) -> str:
    """Words as HTML."""
    return html.escape(str(words))


def chart(figure: Mapping[str, object], kind: str = "figure", label: str = "") -> str:
    """A place for a chart, with its data inside. kind "figure": data and layout of Plotly."""
    content = json.dumps(plain(figure), separators=(",", ":")).replace("<", "\\u003c")
    return (
        f'<div class="chart" data-kind="{kind}" role="img" aria-label="{text(label)}">'
        f'<script type="application/json">{content}</script></div>'
    )


def plain(value: object) -> Any:
    """The value as JSON has it: numbers of six digits, None for what is not finite."""
    if isinstance(value, Mapping):
        return {str(key): plain(item) for key, item in value.items()}
    if isinstance(value, np.ndarray):
        return plain(value.tolist())
    if isinstance(value, (list, tuple)):
        return [plain(item) for item in value]
    if isinstance(value, (float, np.floating)):
        return float(f"{value:.6g}") if math.isfinite(value) else None
    return value.item() if isinstance(value, np.generic) else value


def ending(sentences: Mapping[str, str]) -> Section:
    """How each run ended, in a sentence."""
    items = [(name, sentence) for name, sentence in sentences.items() if sentence]
    if len(items) == 1:
        return Section("How it ended", f"<p class=said>{text(items[0][1])}</p>")
    rows = "".join(f"<dt>{text(name)}</dt><dd>{text(said)}</dd>" for name, said in items)
    return Section("How they ended", f"<dl class=said>{rows}</dl>")


def finals(histories: Mapping[str, "pd.DataFrame"]) -> Section:
    """The table of final values, means over the trials."""
    rows = {label: final(history) for label, history in histories.items() if len(history)}
    columns = [c for c in COLUMNS if any(c.name in row for row in rows.values())]
    looks = styles(histories)
    head = "".join(f"<th>{text(c.heading)}</th>" for c in columns)
    lines = []
    for label, row in rows.items():
        mark = f'<i class=mark style="background:{looks[label].colour}"></i>'
        cells = (c.show(row[c.name]) if c.name in row else "–" for c in columns)
        numbers = "".join(f"<td>{text(cell)}</td>" for cell in cells)
        lines.append(f"<tr><th>{mark}{text(label)}</th>{numbers}</tr>")
    body = f"<table><thead><tr><th></th>{head}</tr></thead><tbody>{''.join(lines)}</tbody></table>"
    return Section("In the end", f'<div class="wide">{body}</div>')


def coefficients(values: Mapping[str, Mapping[str, float]], what: str = "coefficient") -> Section:
    """Coefficients as bars, the largest first. values: of each model the number of each name.

    Only those that are not zero in some model are drawn, at most 30 of them.
    """
    names = list(dict.fromkeys(name for row in values.values() for name in row))
    size = {name: max(abs(row.get(name, 0.0)) for row in values.values()) for name in names}
    used = sorted((n for n in names if size[n] > 0), key=lambda n: -size[n])
    shown = used[:BARS][::-1]  # Plotly draws from below
    looks = styles(values)
    data = []
    for label, row in values.items():
        numbers = [row.get(name, 0.0) for name in shown]
        colour: str | list[str] = looks[label].colour
        if len(values) == 1:
            colour = [POSITIVE if number > 0 else NEGATIVE for number in numbers]
        data.append(
            {
                "type": "bar",
                "orientation": "h",
                "name": label,
                "x": numbers,
                "y": shown,
                "marker": {"color": colour},
                "hovertemplate": "%{y}: %{x:.5g}<extra></extra>",
            }
        )
    layout = {
        "height": 110 + len(shown) * (16 + 8 * len(values)),
        "showlegend": len(values) > 1,
        "yaxis": {"automargin": True, "type": "category"},
        "xaxis": {"title": {"text": what}, "zeroline": True},
        "barmode": "group",
    }
    some = f", the {len(shown)} largest are shown" if len(shown) < len(used) else ""
    note = f"<p>{len(used)} of {len(names)} are not zero{some}.</p>"
    return Section("Coefficients", note + chart({"data": data, "layout": layout}, label=what))


def path(
    weights: Sequence[float],
    values: Mapping[str, Sequence[float]],
    chosen: float | None = None,
    xlabel: str = "weight of the regulariser",
    unit: str = "coefficients",
) -> Section:
    """The course of each coefficient over the weights; `chosen` is marked. unit: of all of them."""
    moved = [name for name, row in values.items() if np.any(np.asarray(row) != 0)]
    moved = sorted(moved, key=lambda n: -float(np.nanmax(np.abs(values[n]))))
    data = [
        {
            "type": "scatter",
            "mode": "lines",
            "name": name,
            "x": list(weights),
            "y": list(values[name]),
            "line": {"color": COLOURS[number % len(COLOURS)], "width": 1.5},
            "hovertemplate": f"{text(name)}: %{{y:.4g}}<extra></extra>",
            "showlegend": number < 12,
        }
        for number, name in enumerate(moved[:200])
    ]
    layout = {
        "xaxis": {"type": "log", "autorange": "reversed", "title": {"text": xlabel}},
        "yaxis": {"title": {"text": "coefficient"}},
        "shapes": _line_at(chosen),
    }
    what = f"{text(unit[0].upper() + unit[1:])}, of which {len(moved)} of {len(values)}"
    note = f"<p>{what} are not zero somewhere on the path.</p>"
    return Section("Path", note + chart({"data": data, "layout": layout}, label="path"))


def cv_curve(
    weights: Sequence[float],
    mean: Sequence[float],
    error: Sequence[float] | None = None,
    chosen: Mapping[str, float] | None = None,
    ylabel: str = "cross-validated loss",
    xlabel: str = "weight of the regulariser",
) -> Section:
    """Cross-validated loss over the weights with standard errors; chosen: name -> weight."""
    trace: PlotlyPart = {
        "type": "scatter",
        "mode": "lines+markers",
        "x": list(weights),
        "y": list(mean),
        "line": {"color": COLOURS[0]},
        "name": ylabel,
        "hovertemplate": "%{x:.4g}: %{y:.5g}<extra></extra>",
    }
    if error is not None:
        trace["error_y"] = {"type": "data", "array": list(error), "thickness": 1, "width": 3}
    notes = [
        {
            "x": math.log10(weight),
            "y": 1,
            "yref": "paper",
            "text": text(name),
            "showarrow": False,
            "yanchor": "bottom",
            "yshift": 16 * (number % 2),
        }
        for number, (name, weight) in enumerate((chosen or {}).items())
    ]
    layout = {
        "xaxis": {"type": "log", "autorange": "reversed", "title": {"text": xlabel}},
        "yaxis": {"title": {"text": ylabel}},
        "shapes": _line_at(*(chosen or {}).values()),
        "annotations": notes,
        "margin": {"t": 48},
        "showlegend": False,
    }
    return Section("Cross-validation", chart({"data": [trace], "layout": layout}, label=ylabel))


def _line_at(*places: float | None) -> list[PlotlyPart]:
    line = {"color": "#888888", "width": 1, "dash": "dot"}
    ends = {"type": "line", "yref": "paper", "y0": 0, "y1": 1, "line": line}
    return [{**ends, "x0": place, "x1": place} for place in places if place is not None]


def sparsity(arrays: Mapping[str, np.ndarray], note: str = "") -> Section:
    """The pattern of zeros of each array of a model as an image."""
    figures = []
    for name, array in arrays.items():
        matrix = _as_matrix(np.asarray(array))
        zeros = float(np.mean(matrix == 0)) if matrix.size else 0.0
        shape = "×".join(map(str, np.shape(array))) or "1"
        words = f"{name}, {shape}: {zeros:.1%} zeros"
        rows, columns = matrix.shape
        # Small matrices are enlarged, and no image is so flat that one cannot see it.
        width = min(480, max(72, 6 * columns))
        height = min(480, max(14, round(width * rows / columns)))
        figures.append(
            f'<figure><img src="{_image(matrix)}" alt="{text(words)}" '
            f'style="width:{width}px;height:{height}px">'
            f"<figcaption>{text(words)}</figcaption></figure>"
        )
    legend = (
        f'<p><i class=mark style="background:{POSITIVE}"></i>positive '
        f'<i class=mark style="background:{NEGATIVE}"></i>negative '
        f"<i class=mark></i>exactly zero. {text(note)}</p>"
    )
    return Section("Where the zeros are", f"{legend}<div class=images>{''.join(figures)}</div>")


def _as_matrix(array: np.ndarray) -> np.ndarray:
    """Outputs, the last axis, as columns; a vector as one row."""
    return array.reshape(1, -1) if array.ndim < 2 else array.reshape(-1, array.shape[-1])


def _image(matrix: np.ndarray) -> str:
    """A PNG of the signs, transparent at zeros; of a large matrix each pixel is a block."""
    from PIL import Image

    rows, columns = matrix.shape
    red, green, blue, alpha = (np.zeros(matrix.shape, np.uint8) for _ in range(4))
    for chosen, colour in (
        (matrix > 0, POSITIVE),
        (matrix < 0, NEGATIVE),
        (matrix != matrix, NOT_A_NUMBER),
    ):
        for channel, at in ((red, 1), (green, 3), (blue, 5)):
            channel[chosen] = int(colour[at : at + 2], 16)
        alpha[chosen] = 255
    picture = Image.fromarray(np.stack([red, green, blue, alpha], axis=-1))
    if max(rows, columns) > PIXELS:
        small = (min(columns, PIXELS), min(rows, PIXELS))
        picture = picture.resize(small, Image.Resampling.BOX)
    out = io.BytesIO()
    picture.quantize(64).save(out, format="PNG", optimize=True)
    return "data:image/png;base64," + base64.b64encode(out.getvalue()).decode()


def clients(about: ClientData) -> Section:
    """What the clients hold, from `data_of_clients`: label counts, targets or sizes; features."""
    names, more = about["names"], len(about["sizes"]) - len(about["names"])
    sizes = about["sizes"]
    words = f"{len(sizes)} clients of {min(sizes)} to {max(sizes)} samples"
    note = f"<p>{words}{f', the first {len(names)} are shown' if more else ''}.</p>"
    height = 120 + 18 * len(names)
    layout: PlotlyPart = {
        "height": height,
        "yaxis": {"autorange": "reversed", "type": "category", "automargin": True},
        "barmode": "stack",
        "xaxis": {"title": {"text": "samples"}},
    }
    if "labels" in about:
        counts = np.asarray(about["labels"]["counts"])
        classes = about["labels"]["names"]
        data: list[PlotlyPart] = [
            {
                "type": "bar",
                "orientation": "h",
                "name": str(label),
                "x": counts[:, number],
                "y": names,
                "marker": {"color": _shade(number, len(classes))},
                "hovertemplate": f"client %{{y}}, label {text(label)}: %{{x}}<extra></extra>",
            }
            for number, label in enumerate(classes)
        ]
        layout["legend"] = {"title": {"text": "label"}, "traceorder": "normal"}
    elif "targets" in about:
        q = np.asarray(about["targets"])
        data = [
            {
                "type": "box",
                "orientation": "h",
                "y": names,
                "lowerfence": q[:, 0],
                "q1": q[:, 1],
                "median": q[:, 2],
                "q3": q[:, 3],
                "upperfence": q[:, 4],
                "marker": {"color": COLOURS[0]},
                "name": "target",
            }
        ]
        layout |= {"showlegend": False, "xaxis": {"title": {"text": "target: 5, 25, 50, 75, 95 %"}}}
    else:
        data = [{"type": "bar", "orientation": "h", "x": sizes[: len(names)], "y": names}]
    body = note + chart({"data": data, "layout": layout}, label="what the clients hold")
    if "features" in about:
        body += _covariates(names, about["features"])
    return Section("What the clients hold", body)


def _covariates(names: Sequence[str], features: FeatureMeans) -> str:
    """A client's mean of each feature, in standard deviations from the mean of all samples."""
    trace = {
        "type": "heatmap",
        "x": features["names"],
        "y": names,
        "z": features["means"],
        "zmid": 0,
        "colorscale": [[0, NEGATIVE], [0.5, "rgba(136,136,136,0.08)"], [1, POSITIVE]],
        "hovertemplate": "client %{y}, %{x}: %{z:.2f} sd<extra></extra>",
        "colorbar": {"title": {"text": "sd"}, "thickness": 12},
    }
    layout = {
        "height": 140 + 18 * len(names),
        "xaxis": {"type": "category", "automargin": True},
        "yaxis": {"autorange": "reversed", "type": "category", "automargin": True},
    }
    words = "Mean of each feature at each client, in standard deviations from the mean of all"
    some = f" (the {len(features['names'])} that differ most)" if features["more"] else ""
    return f"<p>{words}{some}.</p>" + chart({"data": [trace], "layout": layout}, label=words)


def _shade(number: int, count: int) -> str:
    """Colours of ordered labels: the palette where it is enough, else around the circle."""
    if count <= len(COLOURS):
        return COLOURS[number]
    return f"hsl({round(360 * number / count)},55%,{(46, 62)[number % 2]}%)"


def participation(rounds: Mapping[int, Sequence[str]], sites: Sequence[str]) -> Section:
    """Who took part when. rounds: of each round the sites whose uploads counted."""
    present = np.array([[int(site in rounds[t]) for t in rounds] for site in sites])
    trace = {
        "type": "heatmap",
        "x": list(rounds),
        "y": list(sites),
        "z": present,
        "zmin": 0,
        "zmax": 1,
        "showscale": False,
        "colorscale": [[0, "rgba(136,136,136,0.12)"], [1, COLOURS[2]]],
        "hovertemplate": "%{y}, round %{x}: %{z}<extra></extra>",
        "ygap": 2,
    }
    layout = {
        "height": 120 + 24 * len(sites),
        "xaxis": {"title": {"text": "round"}},
        "yaxis": {"type": "category", "automargin": True, "autorange": "reversed"},
    }
    share = present.mean(axis=1) if present.size else np.zeros(len(sites))
    all_ = ", ".join(f"{text(s)} {p:.0%}" for s, p in zip(sites, share, strict=True))
    note = f"<p>Share of {len(rounds)} rounds: {all_}.</p>"
    return Section("Who took part", note + chart({"data": [trace], "layout": layout}))


def configuration(values: PlainValues, command: str = "") -> Section:
    """What was run, as names and values."""
    first = f"<pre>{text(command)}</pre>" if command else ""
    tables = []
    nested = {k: v for k, v in values.items() if isinstance(v, Mapping)}
    for name, table in {"": {k: v for k, v in values.items() if k not in nested}, **nested}.items():
        rows = "".join(
            f"<tr><th>{text(k)}</th><td>{text(v)}</td></tr>"
            for k, v in table.items()
            if v not in (None, "", [], {})
        )
        if rows:
            title = f"<summary>{text(name or 'all settings')}</summary>"
            tables.append(f'<details>{title}<div class="wide"><table class=settings>{rows}</table>')
            tables.append("</div></details>")
    return Section("Configuration", first + "".join(tables))
