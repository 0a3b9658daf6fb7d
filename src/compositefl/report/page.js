"use strict";
// Draws the charts of the page: data lie in it as JSON, colours come from its style sheet.

const dark = matchMedia("(prefers-color-scheme: dark)");
const printing = matchMedia("print");
const PAPER = 700; // pixels of a chart on paper
const BLACK = "#000000"; // the one colour that a dark page cannot show

const colour = (name) => getComputedStyle(document.documentElement).getPropertyValue(name).trim();
const seen = (c) => (c === BLACK ? colour("--ink") : c);
const faint = (c) => {
  const s = seen(c);
  const n = [1, 3, 5].map((i) => parseInt(s.slice(i, i + 2), 16));
  return `rgba(${n.join(",")},0.16)`;
};

function themed(layout, width) {
  for (const axis of Object.values(layout))  // 10^-4, not 100µ
    if (axis && axis.type === "log") axis.exponentformat = "power";
  const axis = {
    gridcolor: colour("--grid"), linecolor: colour("--quiet"), zerolinecolor: colour("--quiet"),
    zerolinewidth: 1, automargin: true, zeroline: false,
  };
  return {
    height: 420,
    margin: { l: 56, r: 12, t: 28, b: 48 },
    legend: { orientation: "h", x: 0, y: 1.02, yanchor: "bottom" },
    hovermode: "closest",
    ...layout,
    width,
    font: { family: "inherit", size: 13, color: colour("--ink") },
    paper_bgcolor: "rgba(0,0,0,0)",
    plot_bgcolor: "rgba(0,0,0,0)",
    template: { layout: { xaxis: axis, yaxis: axis } },
    modebar: { bgcolor: "rgba(0,0,0,0)", color: colour("--grid"), activecolor: colour("--quiet") },
    hoverlabel: { bgcolor: colour("--soft"), font: { color: colour("--ink") } },
    uirevision: "kept",
  };
}

const config = (width) => ({
  displaylogo: false, responsive: false, modeBarButtonsToRemove: ["select2d", "lasso2d"],
  displayModeBar: width < 560 || printing.matches ? false : "hover",
});

function repaint(data) {
  // Black bars and lines follow the page.
  const change = (value) => (Array.isArray(value) ? value.map(seen) : seen(value));
  return data.map((trace) => {
    const made = { ...trace };
    for (const part of ["marker", "line"])
      if (trace[part] && trace[part].color) made[part] = { ...trace[part], color: change(trace[part].color) };
    return made;
  });
}

function figure(place, content, width) {
  Plotly.react(place.plot, repaint(content.data), themed(content.layout, width), config(width));
}

// ---- curves: a grid of panels that share their legend and their horizontal axis

function controls(place, content) {
  const bar = document.createElement("div");
  bar.className = "controls";
  const choose = (words, options, chosen, change) => {
    const label = document.createElement("label");
    const select = document.createElement("select");
    options.forEach(([value, text]) => select.add(new Option(text, value, false, value === chosen)));
    select.addEventListener("change", () => { change(select.value); draw(place); });
    label.append(words + " ", select);
    bar.append(label);
    return select;
  };
  const state = { x: content.along[0].name, show: "first", ratio: "" };
  choose("against", content.along.map((a) => [a.name, a.heading]), state.x, (v) => { state.x = v; })
    .dataset.choice = "x";
  const measures = content.measures.map((m) => [m.name, m.heading]);
  choose("show", [["first", "overview"], ["all", "everything"], ...measures], "first",
    (v) => { state.show = v; }).dataset.choice = "y";
  if (content.reference)
    choose("as", [["", "values"], ["ratio", `ratio to ${content.reference}`]], "",
      (v) => { state.ratio = v; }).dataset.choice = "ratio";
  place.state = state;
  place.prepend(bar);
}

function at(xs, ys, x) {
  // ys at x, linear between two evaluations; nothing outside.
  if (!(x >= xs[0] && x <= xs[xs.length - 1])) return null;
  let i = 1;
  while (i < xs.length - 1 && xs[i] < x) i++;
  if (xs.length === 1) return ys[0];
  if (ys[i - 1] === null || ys[i] === null) return null;
  const w = xs[i] === xs[i - 1] ? 1 : (x - xs[i - 1]) / (xs[i] - xs[i - 1]);
  return ys[i - 1] + w * (ys[i] - ys[i - 1]);
}

function ticks(values) {
  // Of a logarithmic axis: 1, 2, 5 on a short one, powers of ten on a longer one.
  const good = values.filter((v) => v > 0);
  const decades = Math.log10(Math.max(...good) / Math.min(...good));
  return decades < 2 ? { dtick: "D2" } : decades < 7 ? { dtick: 1 } : {};
}

function curves(place, content, width) {
  if (!place.state) controls(place, content);
  const { x, show, ratio } = place.state;
  const measures = content.measures.filter((m, i) =>
    show === "all" || m.name === show || (show === "first" && i < content.shown));
  const columns = width > 640 && measures.length > 1 ? 2 : 1;
  const rows = Math.ceil(measures.length / columns);
  const lines = Math.ceil(content.runs.length / Math.max(1, Math.floor(width / 150)));
  const top = content.runs.length > 1 ? 46 + 22 * lines : 36;
  const height = top + 40 + rows * (measures.length === 1 ? 440 : 300);
  const inside = height - top - 48;
  const gapY = 84 / inside, gapX = 72 / width;
  const layout = {
    height, annotations: [], showlegend: content.runs.length > 1,
    margin: { l: 62, r: 14, t: top, b: 48 },
    legend: { orientation: "h", x: 0, xref: "paper", y: 1, yref: "container", yanchor: "top" },
  };
  const data = [];
  const heading = content.along.find((a) => a.name === x).heading;
  const reference = ratio && content.runs.find((r) => r.label === content.reference);
  measures.forEach((m, i) => {
    const n = i ? i + 1 : "", column = i % columns, row = Math.floor(i / columns);
    const w = (1 - gapX * (columns - 1)) / columns, h = (1 - gapY * (rows - 1)) / rows;
    const left = column * (w + gapX), bottom = 1 - h - row * (h + gapY);
    layout["xaxis" + n] = {
      domain: [left, left + w], anchor: "y" + n, title: { text: heading, standoff: 6, font: { size: 12 } },
      matches: i ? "x" : undefined, uirevision: x, rangemode: "tozero", automargin: false,
    };
    const whole = m.range && !reference;
    layout["yaxis" + n] = {
      domain: [bottom, bottom + h], anchor: "x" + n, type: m.log || reference ? "log" : "linear",
      exponentformat: "power", uirevision: x + ratio, automargin: false,
      ...(whole ? { range: m.range } : {}),
    };
    layout.annotations.push({
      text: `<b>${m.heading}</b>` + (reference ? `, ratio to ${content.reference}` : ""),
      xref: "paper", x: left, xanchor: "left", align: "left",
      yref: "paper", y: bottom + h, yanchor: "bottom", showarrow: false, yshift: 4,
    });
    const all = [];
    content.runs.forEach((run) => {
      const values = run.y[m.name], along = run.x[x];
      if (!values || !along) return;
      const axes = { xaxis: "x" + n, yaxis: "y" + n, legendgroup: run.label, name: run.label };
      let mean = values.mean;
      if (reference) {
        const other = reference.y[m.name];
        mean = mean.map((v, k) => {
          const base = other ? at(reference.x[x], other.mean, along[k]) : null;
          return v === null || !(base > 0) || !(v > 0) ? null : v / base;
        });
      } else if (values.low) {
        // There and back around the band; what is not finite has no place in it.
        const there = along.map((_, k) => k).filter((k) => values.low[k] !== null && values.high[k] !== null);
        const back = [...there].reverse();
        data.push({
          ...axes, x: [...there, ...back].map((k) => along[k]),
          y: [...there.map((k) => values.low[k]), ...back.map((k) => values.high[k])],
          type: "scatter", mode: "lines", fill: "toself", fillcolor: faint(run.colour),
          line: { width: 0 }, hoverinfo: "skip", showlegend: false,
        });
      }
      all.push(...mean, ...(reference || !values.low ? [] : values.low.concat(values.high)));
      data.push({
        ...axes, x: along, y: mean, type: "scatter", mode: along.length > 1 ? "lines" : "markers",
        line: { color: seen(run.colour), dash: run.dash, width: 2.2 }, showlegend: i === 0,
        marker: { color: seen(run.colour), size: 8 },
        hovertemplate: `%{x:.6~g}: %{y:.5~g}<extra>${run.label}</extra>`,
      });
    });
    if (m.log || reference) Object.assign(layout["yaxis" + n], ticks(all));
  });
  Plotly.react(place.plot, data, themed(layout, width), config(width));
}

// ---- all charts

const KINDS = { figure, curves };

function draw(place) {
  if (!place.plot) {
    place.content = JSON.parse(place.querySelector("script").textContent);
    place.plot = document.createElement("div");
    place.append(place.plot);
  }
  const width = printing.matches ? Math.min(PAPER, place.clientWidth || PAPER) : place.clientWidth;
  if (!width) return; // not laid out yet: a resize will follow
  KINDS[place.dataset.kind](place, place.content, width);
}

const drawAll = () => document.querySelectorAll(".chart").forEach(draw);

// ---- a run that goes on: the server has the present state of the page

function take(fresh) {
  document.querySelectorAll("main > section").forEach((old) => {
    const made = fresh.getElementById(old.id);
    if (!made) return;
    const place = old.querySelector('.chart[data-kind="curves"]');
    if (place && place.plot) {
      place.content = JSON.parse(made.querySelector(".chart script").textContent);
      draw(place);
    } else if (old.dataset.source !== made.innerHTML) {
      old.dataset.source = made.innerHTML;
      old.innerHTML = made.innerHTML;
      old.querySelectorAll(".chart").forEach(draw);
    }
  });
  const main = document.querySelector("main");
  fresh.querySelectorAll("main > section").forEach((made) => {
    if (!document.getElementById(made.id)) {
      main.append(made);
      made.querySelectorAll(".chart").forEach(draw);
    }
  });
}

async function follow(address) {
  for (;;) {
    await new Promise((wake) => setTimeout(wake, 1000));
    let answer;
    try {
      answer = await fetch(address, { cache: "no-store" });
    } catch {
      document.body.dataset.live = "ended"; // the run is over and its server gone
      return;
    }
    if (answer.ok) take(new DOMParser().parseFromString(await answer.text(), "text/html"));
  }
}

async function start() {
  const packed = atob(document.getElementById("plotly").textContent);
  const bytes = Uint8Array.from(packed, (letter) => letter.charCodeAt(0));
  const stream = new Blob([bytes]).stream().pipeThrough(new DecompressionStream("gzip"));
  const script = document.createElement("script");
  script.textContent = await new Response(stream).text();
  document.head.append(script);
  drawAll();
  let last = innerWidth;
  addEventListener("resize", () => { if (innerWidth !== last) { last = innerWidth; drawAll(); } });
  dark.addEventListener("change", drawAll);
  printing.addEventListener("change", drawAll);
  document.body.dataset.drawn = "yes";
  if (document.body.dataset.live) follow(document.body.dataset.live);
}

start().catch((problem) => {
  document.querySelectorAll(".chart").forEach((place) => {
    place.append(`This chart needs a browser of 2023 or newer (${problem}).`);
  });
});
