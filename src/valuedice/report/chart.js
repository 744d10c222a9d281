"use strict";
// Elements and charts. Texts of the data become text nodes, never markup.

function element(tag, attributes = {}, ...children) {
  const made = document.createElement(tag);
  return filled(made, attributes, children);
}

function drawn(tag, attributes = {}, ...children) {
  return filled(document.createElementNS("http://www.w3.org/2000/svg", tag), attributes, children);
}

function filled(made, attributes, children) {
  for (const [name, value] of Object.entries(attributes)) {
    if (name.startsWith("on")) made.addEventListener(name.slice(2), value);
    else if (value !== null && value !== false) made.setAttribute(name, value === true ? "" : value);
  }
  made.append(...children.filter((child) => child !== null));
  return made;
}

function colour(contestant) {
  return `var(--c${contestant})`;
}

const LEVEL = "6 2.5 1.5 2.5"; // the line of a contestant that takes no steps

function swatch(contestant, level = false) {
  const dashes = level ? LEVEL : DATA.contestants[contestant].dashes.join(" ");
  const line = drawn("line", { x1: 0, x2: 18, y1: 4, y2: 4, "stroke-width": 3, "stroke-dasharray": dashes || null });
  line.style.stroke = colour(contestant);
  return drawn("svg", { class: "swatch", viewBox: "0 0 18 8", "aria-hidden": "true" }, line);
}

// Numbers as people read them: few digits, thousands apart, a real minus.
function shown(value) {
  if (value === null || value === undefined) return "–";
  const size = Math.abs(value);
  let text;
  if (size !== 0 && (size < 0.001 || size >= 1e9)) text = value.toExponential(1);
  else if (size >= 100 || Number.isInteger(value)) text = value.toLocaleString("en", { maximumFractionDigits: 0 });
  else text = value.toFixed(size >= 10 ? 1 : 3);
  return text.replace("-", "−");
}

function spread(mean, std) {
  return std === null || std === undefined ? shown(mean) : `${shown(mean)} ± ${shown(std)}`;
}

function thousands(value) {
  if (Math.abs(value) >= 1e6) return `${+(value / 1e6).toFixed(2)}M`;
  return Math.abs(value) >= 1e3 ? `${+(value / 1e3).toFixed(2)}k` : `${+value.toPrecision(3)}`;
}

// Round steps, about `count` of them.
function ticks(low, high, count) {
  const rough = (high - low) / count;
  const power = 10 ** Math.floor(Math.log10(rough));
  const step = power * ([1, 2, 2.5, 5].find((factor) => factor * power >= rough) || 10);
  const found = [];
  for (let place = Math.ceil(low / step - 1e-9); place * step <= high + step * 1e-9; place++) found.push(place * step);
  return found;
}

// A scale from the values to pixels: logarithmic where positive values span many powers of ten.
function scaled(low, high, from, to, logarithmic, count) {
  const place = logarithmic ? Math.log10 : (value) => value;
  const [a, b] = [place(low), place(high)];
  const scale = (value) => from + ((place(value) - a) / (b - a || 1)) * (to - from);
  scale.ticks = logarithmic
    ? ticks(Math.ceil(a), Math.floor(b), 4).filter(Number.isInteger).map((power) => 10 ** power)
    : ticks(low, high, count);
  return scale;
}

const MARGIN = { left: 50, right: 12, top: 12, bottom: 34 };
const HEIGHT = 232;
const RETURNS = ["return_mean", "normalized_return"];

// A chart of one metric in one panel; `lines` are those that the filters leave.
function draw(svg, panel, metric, lines, withSeeds) {
  const width = svg.clientWidth || 360;
  svg.replaceChildren();
  const curves = lines.filter((line) => line.curves[metric]);
  const levels = lines.filter((line) => line.levels[metric]);
  const expert = panel.expert === null ? null : { return_mean: panel.expert, normalized_return: 1 }[metric] ?? null;
  const xs = curves.flatMap((line) => line.curves[metric][0]);
  const ys = levels.map((line) => line.levels[metric][0]);
  for (const line of curves) {
    const [, mean, std] = line.curves[metric];
    mean.forEach((value, i) => ys.push(value - (std ? std[i] / 2 : 0), value + (std ? std[i] / 2 : 0)));
    if (withSeeds) {
      for (const seed of line.seeds) {
        xs.push(...seed[metric][0]);
        ys.push(...seed[metric][1]);
      }
    }
  }
  if (!ys.length) return null;
  if (expert !== null) ys.push(expert);
  const means = curves.flatMap((line) => line.curves[metric][1]);
  const logarithmic =
    !RETURNS.includes(metric) && Math.min(...ys) > 0 && Math.max(...means, 0) / Math.min(...means, Infinity) > 1e3;
  let [low, high] = [Math.min(...ys), Math.max(...ys)];
  if (!logarithmic) {
    const room = (high - low || Math.abs(high) || 1) * 0.05;
    [low, high] = [low - room, high + room];
  }
  const x = scaled(0, Math.max(...xs, 1), MARGIN.left, width - MARGIN.right, false, width < 420 ? 4 : 6);
  const y = scaled(low, high, HEIGHT - MARGIN.bottom, MARGIN.top, logarithmic, 5);
  drawAxes(svg, x, y, width, panel.axis, logarithmic);
  if (expert !== null) {
    svg.append(
      drawn("line", { class: "expert", x1: MARGIN.left, x2: width - MARGIN.right, y1: y(expert), y2: y(expert) }),
      drawn("text", { x: MARGIN.left + 4, y: y(expert) - 4 }, "expert"),
    );
  }
  const path = (px, py) => px.map((value, i) => `${i ? "L" : "M"}${x(value).toFixed(1)} ${y(py[i]).toFixed(1)}`).join("");
  for (const line of curves) {
    const [px, mean, std] = line.curves[metric];
    const paint = `color:${colour(line.contestant)}`;
    if (std && !withSeeds) {
      const upper = path(px, mean.map((value, i) => value + std[i] / 2));
      const back = [...px].reverse();
      const lower = path(back, [...mean].reverse().map((value, i) => value - std[std.length - 1 - i] / 2));
      if (!logarithmic) {
        svg.append(drawn("path", { class: "band", d: `${upper}L${lower.slice(1)}Z`, fill: "currentColor", style: paint }));
      }
    }
    for (const seed of withSeeds ? line.seeds : []) {
      svg.append(drawn("path", { class: "seed", d: path(...seed[metric]), stroke: "currentColor", style: paint }));
    }
  }
  for (const line of levels) {
    const at = y(line.levels[metric][0]);
    const ends = { x1: MARGIN.left, x2: width - MARGIN.right, y1: at, y2: at };
    svg.append(
      drawn("line", { class: "mean level", "stroke-dasharray": LEVEL, style: `stroke:${colour(line.contestant)}`, ...ends }),
    );
  }
  for (const line of curves) {
    const dashes = DATA.contestants[line.contestant].dashes.map((length) => length * 1.6).join(" ");
    const [px, mean] = line.curves[metric];
    const looks = { "stroke-dasharray": dashes || null, style: `stroke:${colour(line.contestant)}` };
    svg.append(drawn("path", { class: "mean", d: path(px, mean), ...looks }));
    if (px.length === 1) {
      svg.append(drawn("circle", { cx: x(px[0]), cy: y(mean[0]), r: 3.5, style: `fill:${colour(line.contestant)}` }));
    }
  }
  const hover = drawn("g", { class: "hover" });
  svg.append(hover);
  return { x, y, hover, curves, levels, expert, places: [...new Set(curves.flatMap((line) => line.curves[metric][0]))].sort((a, b) => a - b) };
}

function drawAxes(svg, x, y, width, title, logarithmic) {
  const [left, right, bottom] = [MARGIN.left, width - MARGIN.right, HEIGHT - MARGIN.bottom];
  for (const value of y.ticks) {
    const at = y(value);
    svg.append(drawn("line", { class: "gridline", x1: left, x2: right, y1: at, y2: at }));
    const text = logarithmic ? value.toExponential(0).replace("e-", "e−").replace("e+", "e") : thousands(value).replace("-", "−");
    svg.append(drawn("text", { x: left - 7, y: at + 4, "text-anchor": "end" }, text));
  }
  svg.append(drawn("line", { class: "axis", x1: left, x2: right, y1: bottom, y2: bottom }));
  for (const value of x.ticks) {
    svg.append(drawn("text", { x: x(value), y: bottom + 16, "text-anchor": "middle" }, thousands(value)));
  }
  svg.append(drawn("text", { x: (left + right) / 2, y: bottom + 31, "text-anchor": "middle" }, title));
}

// The value of a curve at the moment nearest to `at`, if it has one that near.
function valueAt(curve, at) {
  const [px, mean, std] = curve;
  let best = 0;
  px.forEach((value, i) => { if (Math.abs(value - at) < Math.abs(px[best] - at)) best = i; });
  const gap = px.length > 1 ? (px[px.length - 1] - px[0]) / (px.length - 1) : 0;
  return Math.abs(px[best] - at) <= gap / 2 ? { at: px[best], mean: mean[best], std: std && std[best] } : null;
}

// Crosshair and tooltip, by pointer or arrow keys.
function follow(svg, tooltip, name, state) {
  let place = -1;
  const hide = () => {
    tooltip.hidden = true;
    if (state.chart) state.chart.hover.replaceChildren();
  };
  const show = (next) => {
    const { chart, metric, panel } = state;
    if (!chart || !chart.places.length) return;
    place = Math.max(0, Math.min(chart.places.length - 1, next));
    const at = chart.places[place];
    chart.hover.replaceChildren(
      drawn("line", { class: "crosshair", x1: chart.x(at), x2: chart.x(at), y1: MARGIN.top, y2: HEIGHT - MARGIN.bottom }),
    );
    const rows = [];
    for (const line of chart.curves) {
      const found = valueAt(line.curves[metric], at);
      if (!found) continue;
      rows.push({ line, ...found, level: false });
      const dot = { class: "dot", r: 4, cx: chart.x(found.at), cy: chart.y(found.mean), style: `fill:${colour(line.contestant)}` };
      chart.hover.append(drawn("circle", dot));
    }
    for (const line of chart.levels) rows.push({ line, mean: line.levels[metric][0], std: line.levels[metric][1], level: true });
    rows.sort((a, b) => b.mean - a.mean);
    const lines = rows.map((row) =>
      element("tr", {},
        element("td", {}, swatch(row.line.contestant, row.level)),
        element("td", {}, DATA.contestants[row.line.contestant].title + (row.line.finished ? "" : " (unfinished)")),
        element("td", { class: "value" }, spread(row.mean, row.std)),
        element("td", { class: "quiet" }, `n=${row.line.runs}`)));
    if (chart.expert !== null) {
      lines.push(element("tr", {}, element("td"), element("td", {}, "expert"), element("td", { class: "value" }, shown(chart.expert))));
    }
    const head = `${name}, ${at.toLocaleString("en")} ${panel.axis}`;
    tooltip.replaceChildren(element("b", {}, head), element("table", {}, element("tbody", {}, ...lines)));
    tooltip.hidden = false;
    const box = svg.getBoundingClientRect();
    const [w, h] = [tooltip.offsetWidth, tooltip.offsetHeight];
    const beside = box.left + chart.x(at) + 16;
    const left = beside + w < innerWidth - 8 ? beside : Math.max(8, box.left + chart.x(at) - w - 16);
    tooltip.style.left = `${left}px`;
    tooltip.style.top = `${Math.max(8, Math.min(innerHeight - h - 8, box.top + 8))}px`;
  };
  svg.addEventListener("pointermove", (event) => {
    if (!state.chart) return;
    const at = event.clientX - svg.getBoundingClientRect().left;
    let best = 0;
    state.chart.places.forEach((value, i) => {
      if (Math.abs(state.chart.x(value) - at) < Math.abs(state.chart.x(state.chart.places[best]) - at)) best = i;
    });
    show(best);
  });
  svg.addEventListener("pointerleave", hide);
  svg.addEventListener("blur", hide);
  svg.addEventListener("keydown", (event) => {
    const move = { ArrowLeft: place - 1, ArrowRight: place + 1, Home: 0, End: Infinity }[event.key];
    if (event.key === "Escape") hide();
    if (move === undefined) return;
    event.preventDefault();
    show(move);
  });
}
