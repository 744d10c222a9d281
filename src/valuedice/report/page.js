// The page: filters, charts, tables. `chart.js` comes before it.

const DATA = JSON.parse(document.getElementById("data").textContent);
const byId = (name) => document.getElementById(name);
const distinct = (values) => [...new Set(values)];
const EPISODES = distinct(DATA.regimes.map((regime) => regime.episodes));
const SUBSAMPLES = distinct(DATA.regimes.map((regime) => regime.subsample));
const chosen = {
  tasks: new Set(DATA.tasks.keys()),
  contestants: new Set(DATA.contestants.keys()),
  episodes: new Set(EPISODES.keys()),
  subsamples: new Set(SUBSAMPLES.keys()),
};
const view = { normalized: DATA.normalized, seeds: false };

// --- filters

function chip(label, checked, change, mark = null) {
  const box = element("input", { type: "checkbox", checked, onchange: (event) => { change(event.target.checked); update(); } });
  return element("label", { class: "chip" }, box, mark, label);
}

function choice(title, key, labels, mark = () => null) {
  if (labels.length < 2) return null;
  const set = chosen[key];
  const chips = labels.map((label, i) => chip(label, true, (on) => (on ? set.add(i) : set.delete(i)), mark(i)));
  const all = (on) => {
    chips.forEach((each, i) => { each.querySelector("input").checked = on; on ? set.add(i) : set.delete(i); });
    update();
  };
  const buttons = labels.length < 4 ? [] : ["all", "none"].map((word) =>
    element("button", { type: "button", class: "plain", "aria-label": `${title}: ${word}`, onclick: () => all(word === "all") }, word));
  return element("fieldset", { "data-filter": key }, element("legend", {}, title), ...chips, ...buttons);
}

function buildFilters() {
  const both = "return_mean" in DATA.metrics && "normalized_return" in DATA.metrics;
  const parts = [
    choice("Tasks", "tasks", DATA.tasks),
    choice("Contestants", "contestants", DATA.contestants.map((c) => c.title), (i) => swatch(i)),
    choice("Episodes", "episodes", EPISODES.map((count) => (count === null ? "none" : `${count}`))),
    choice("Rows", "subsamples", SUBSAMPLES.map((n) => (n === 1 ? "all" : `1 in ${n}`))),
    element("fieldset", { "data-filter": "view" }, element("legend", {}, "Show"),
      both ? chip("normalised", view.normalized, (on) => { view.normalized = on; }) : null,
      chip("single seeds", view.seeds, (on) => { view.seeds = on; })),
  ];
  byId("filters").append(...parts.filter((part) => part !== null));
  byId("filters").addEventListener("submit", (event) => event.preventDefault());
}

const hasRegime = (episodes, subsample) =>
  chosen.episodes.has(EPISODES.indexOf(episodes)) && chosen.subsamples.has(SUBSAMPLES.indexOf(subsample));
const regimeChosen = (place) => hasRegime(DATA.regimes[place].episodes, DATA.regimes[place].subsample);

// --- charts

const charts = [];

function metricsShown() {
  const hidden = view.normalized && "normalized_return" in DATA.metrics ? "return_mean" : "normalized_return";
  const names = Object.keys(DATA.metrics);
  return names.filter((name) => name !== hidden || names.every((other) => other === hidden || !RETURNS.includes(other)));
}

function buildPanels() {
  const widths = new ResizeObserver((entries) => entries.forEach((entry) => entry.target.redraw()));
  for (const panel of DATA.panels) {
    const regime = DATA.regimes[panel.regime];
    const figures = Object.entries(DATA.metrics).map(([metric, title]) => {
      const name = `${DATA.tasks[panel.task]}, ${regime.title}: ${title}`;
      const svg = drawn("svg", { class: "chart", tabindex: 0, role: "img", "aria-label": `${title} over ${panel.axis}, ${name}` });
      const figure = element("figure", { "data-metric": metric }, element("figcaption", {}, title), svg);
      const state = { panel, metric, chart: null };
      const redraw = () => {
        const lines = panel.lines.filter((line) => chosen.contestants.has(line.contestant));
        figure.hidden = !metricsShown().includes(metric) || !panel.lines.some((l) => l.curves[metric] || l.levels[metric]);
        if (!figure.hidden) state.chart = draw(svg, panel, metric, lines, view.seeds);
      };
      svg.redraw = redraw;
      charts.push(redraw);
      follow(svg, byId("tooltip"), title, state);
      widths.observe(svg);
      return figure;
    });
    const heading = [element("h3", {}, DATA.tasks[panel.task])];
    if (regime.episodes !== null) heading.push(element("span", { class: "quiet" }, regime.title));
    if (!panel.finished) heading.push(element("span", { class: "status unfinished" }, "under way"));
    const card = element("article", { class: "card panel" }, element("header", {}, ...heading), element("div", { class: "charts" }, ...figures));
    byId("panels").append(card);
    charts.push(() => {
      card.hidden = !chosen.tasks.has(panel.task) || !regimeChosen(panel.regime);
    });
  }
}

// --- tables

function named(contestant) {
  return element("span", { class: "named" }, swatch(contestant), DATA.contestants[contestant].title);
}

const two = (value) => (value === null ? "–" : value.toFixed(2).replace("-", "−"));
const estimate = ([value, low, high]) => (low === null ? two(value) : `${two(value)} [${two(low)}, ${two(high)}]`);

function bar([value, low, high], contestant, from, to) {
  const at = (number) => ((number - from) / (to - from)) * 100;
  const svg = drawn("svg", { class: "interval", viewBox: "0 0 100 22", preserveAspectRatio: "none", role: "img", "aria-label": estimate([value, low, high]) });
  for (const mark of [0, 1]) svg.append(drawn("line", { class: "axis", x1: at(mark), x2: at(mark), y1: 0, y2: 22, "vector-effect": "non-scaling-stroke" }));
  const paint = { style: `fill:${colour(contestant)}` };
  if (low !== null) svg.append(drawn("rect", { x: at(low), y: 5, width: Math.max(at(high) - at(low), 0.3), height: 12, opacity: 0.3, ...paint }));
  svg.append(drawn("rect", { x: at(value) - 0.35, y: 3, width: 0.7, height: 16, ...paint }));
  return svg;
}

// A table for each regime: a line for each contestant, a column for each task.
function buildResults() {
  const prefix = metricsShown().includes("normalized_return") ? "normalized_" : "";
  const found = DATA.groups.filter((g) => chosen.tasks.has(g.task) && regimeChosen(g.regime) && chosen.contestants.has(g.contestant));
  const blocks = distinct(found.map((g) => g.regime)).map((regime) => {
    const here = found.filter((g) => g.regime === regime);
    const tasks = distinct(here.map((g) => g.task)).sort((a, b) => a - b);
    const rows = distinct(here.map((g) => g.contestant)).sort((a, b) => a - b).map((contestant) => {
      const cells = tasks.map((task) => {
        const group = here.find((g) => g.task === task && g.contestant === contestant);
        if (!group || group[`${prefix}mean`] === null) return element("td", { class: "number quiet" }, "–");
        const late = `late ${shown(group[`${prefix}late`])}, n=${group.runs}`;
        return element("td", { class: "number" }, spread(group[`${prefix}mean`], group[`${prefix}std`]), element("small", {}, late));
      });
      return element("tr", {}, element("th", { scope: "row" }, named(contestant)), ...cells);
    });
    const head = tasks.map((task) => element("th", { scope: "col", class: "number" }, DATA.tasks[task]));
    return element("div", { class: "card scroll" }, element("h3", {}, DATA.regimes[regime].title),
      element("table", {}, element("thead", {}, element("tr", {}, element("th", { scope: "col" }, prefix ? "normalised return" : "return"), ...head)), element("tbody", {}, ...rows)));
  });
  byId("results").replaceChildren(...blocks);
  byId("result").hidden = !blocks.length;
}

function buildAggregates() {
  const found = DATA.aggregates.filter((a) => regimeChosen(a.regime) && chosen.contestants.has(a.contestant));
  const ends = DATA.aggregates.flatMap((a) => [...a.iqm, ...a.mean]).filter((end) => end !== null);
  const [from, to] = [Math.min(0, ...ends), Math.max(1, ...ends) + 0.02];
  const blocks = distinct(found.map((a) => a.regime)).map((regime) => {
    const rows = found.filter((a) => a.regime === regime).map((a) =>
      element("tr", {}, element("th", { scope: "row" }, named(a.contestant)),
        element("td", { class: "bar" }, bar(a.iqm, a.contestant, from, to)),
        element("td", { class: "number" }, estimate(a.iqm)), element("td", { class: "number wide" }, estimate(a.mean)),
        element("td", { class: "number wide" }, a.tasks === a.of_tasks ? `${a.tasks}` : `${a.tasks} of ${a.of_tasks}`),
        element("td", { class: "number wide" }, `${a.runs}`)));
    const head = ["contestant", "0 to 1", "IQM", "mean", "tasks", "runs"];
    const looks = [null, null, "number", "number wide", "number wide", "number wide"];
    const cells = head.map((text, i) => element("th", { scope: "col", class: looks[i] }, text));
    return element("div", { class: "card scroll" }, element("h3", {}, DATA.regimes[regime].title),
      element("table", {}, element("thead", {}, element("tr", {}, ...cells)), element("tbody", {}, ...rows)));
  });
  byId("aggregates").replaceChildren(...blocks);
  byId("aggregate").hidden = !blocks.length;
}

function buildImprovements() {
  const found = DATA.improvements.filter((i) =>
    regimeChosen(i.regime) && chosen.contestants.has(i.contestant) && chosen.contestants.has(i.other));
  const blocks = distinct(found.map((i) => i.regime)).map((regime) => {
    const here = found.filter((i) => i.regime === regime);
    const names = [...DATA.contestants.keys()].filter((name) => here.some((i) => i.contestant === name));
    const rows = names.map((row) => {
      const cells = names.map((column) => {
        const pair = here.find((i) => i.contestant === row && i.other === column);
        if (!pair) return element("td", { class: "quiet" }, row === column ? "·" : "–");
        const [p, low, high] = pair.probability;
        const strength = Math.round(Math.abs(p - 0.5) * 90);
        const basis = `on ${pair.tasks} tasks, ${pair.runs} against ${pair.other_runs} runs`;
        const style = `background:color-mix(in srgb, var(--${p >= 0.5 ? "better" : "worse"}) ${strength}%, transparent)`;
        return element("td", { style, title: basis }, two(p), element("small", {}, low === null ? "" : `${two(low)}–${two(high)}`));
      });
      return element("tr", {}, element("th", { scope: "row" }, named(row)), ...cells);
    });
    const head = names.map((name) => element("th", { scope: "col" }, DATA.contestants[name].title));
    return element("div", { class: "card scroll" }, element("h3", {}, DATA.regimes[regime].title),
      element("table", { class: "matrix" }, element("thead", {}, element("tr", {}, element("td"), ...head)), element("tbody", {}, ...rows)));
  });
  byId("improvements").replaceChildren(...blocks);
  byId("improvement").hidden = !blocks.length;
}

function buildRings() {
  for (const ring of DATA.rings) {
    const pictures = ring.pictures.map((p) => element("figure", {}, element("img", { src: p.data, alt: p.caption }), element("figcaption", {}, p.caption)));
    const [head, ...body] = ring.table;
    const table = !head ? null : element("div", { class: "scroll" }, element("table", {},
      element("caption", { class: "quiet" }, "KL(dπ ‖ dE) that each method ends at"),
      element("thead", {}, element("tr", {}, ...head.map((text) => element("th", { scope: "col" }, text)))),
      element("tbody", {}, ...body.map((line) => element("tr", {}, ...line.map((text, i) => element(i ? "td" : "th", {}, text)))))));
    byId("rings").append(element("div", { class: "card rings" }, element("h3", {}, ring.name), ...pictures, table ?? ""));
  }
  byId("ring").hidden = !DATA.rings.length;
}

// --- runs

const duration = (s) => (s === null ? "–" : s < 90 ? `${Math.round(s)} s` : s < 5400 ? `${Math.round(s / 60)} min` : `${(s / 3600).toFixed(1)} h`);
const last = (name) => (run) => (run.last ? run.last[name] : null);
const COLUMNS = [
  { title: "run", value: (run) => run.name },
  { title: "task", value: (run) => (run.task === null ? "" : DATA.tasks[run.task]), wide: true },
  { title: "contestant", value: (run) => (run.contestant === null ? "" : DATA.contestants[run.contestant].title), wide: true },
  { title: "episodes", value: (run) => run.episodes, number: true, wide: true, when: EPISODES.length > 1 },
  { title: "every nth row", value: (run) => run.subsample, number: true, wide: true, when: SUBSAMPLES.length > 1 },
  { title: "seed", value: (run) => run.seed, number: true, wide: true },
  { title: "status", value: (run) => run.status },
  { title: "steps", value: last("step"), number: true, wide: true },
  { title: "updates", value: last("updates"), number: true, wide: true },
  ...Object.entries(DATA.metrics).map(([name, title]) => ({ title, value: last(name), number: true, wide: name !== "return_mean" })),
  { title: "time", value: (run) => run.seconds, number: true, wide: true, text: duration },
].filter((column) => column.when !== false);
const sorting = { column: null, down: false };
const expanded = new Set();

function settingsOf(run) {
  const pairs = [...Object.entries(run.settings), ...Object.entries(run.versions).map(([name, v]) => [`version of ${name}`, v])];
  const lines = pairs.map(([name, value]) => element("div", {}, element("dt", {}, name),
    element("dd", {}, value)));
  return element("dl", { class: "settings" }, ...lines);
}

function runRows(run) {
  const place = DATA.runs.indexOf(run);
  const details = element("tr", { id: `run-${place}`, hidden: !expanded.has(place) }, element("td", { colspan: COLUMNS.length }));
  const fill = () => { if (!details.firstChild.firstChild) details.firstChild.append(settingsOf(run)); };
  if (expanded.has(place)) fill();
  const toggle = (event) => {
    const open = details.hidden;
    details.hidden = !open;
    open ? expanded.add(place) : expanded.delete(place);
    fill();
    event.currentTarget.setAttribute("aria-expanded", open);
  };
  const button = element("button", { type: "button", class: "expand", "aria-expanded": `${expanded.has(place)}`, "aria-controls": `run-${place}`, onclick: toggle }, run.name);
  const cells = COLUMNS.map((column, i) => {
    const value = column.value(run);
    const text = column.text ? column.text(value) : column.number ? shown(value) : value;
    const looks = [column.number && "number", column.wide && "wide"].filter(Boolean).join(" ");
    if (i === 0) return element("td", {}, button);
    if (column.title === "status") return element("td", {}, element("span", { class: `status ${value}` }, value));
    if (column.title === "contestant" && value) return element("td", { class: looks }, named(run.contestant));
    return element("td", { class: looks || null }, text);
  });
  return [element("tr", { class: "run" }, ...cells), details];
}

function buildRuns() {
  const visible = DATA.runs.filter((run) =>
    (run.task === null || chosen.tasks.has(run.task)) && (run.contestant === null || chosen.contestants.has(run.contestant)) &&
    (EPISODES.indexOf(run.episodes) < 0 || SUBSAMPLES.indexOf(run.subsample) < 0 || hasRegime(run.episodes, run.subsample)));
  if (sorting.column) {
    const key = sorting.column.value;
    const compare = (a, b) => (typeof a === "number" && typeof b === "number" ? a - b : `${a}`.localeCompare(`${b}`, "en", { numeric: true }));
    visible.sort((a, b) => {
      const [x, y] = [key(a), key(b)];
      if (x === null || y === null) return (x === null) - (y === null); // what is missing stays last
      return compare(x, y) * (sorting.down ? -1 : 1);
    });
  }
  const head = COLUMNS.map((column) => {
    const sort = sorting.column !== column ? "none" : sorting.down ? "descending" : "ascending";
    const click = () => {
      sorting.down = sorting.column === column && !sorting.down;
      sorting.column = column;
      buildRuns();
      byId("runs").querySelectorAll("th button")[COLUMNS.indexOf(column)].focus();
    };
    const looks = [column.number && "number", column.wide && "wide"].filter(Boolean).join(" ");
    return element("th", { scope: "col", class: looks || null, "aria-sort": sort }, element("button", { type: "button", onclick: click }, column.title));
  });
  byId("runs").replaceChildren(element("thead", {}, element("tr", {}, ...head)), element("tbody", {}, ...visible.flatMap(runRows)));
}

function buildProblems() {
  const found = DATA.runs.filter((run) => run.status !== "finished");
  const order = ["failed", "unfinished", "waiting"];
  found.sort((a, b) => order.indexOf(a.status) - order.indexOf(b.status));
  byId("problem-list").append(...found.map((run) =>
    element("li", {}, element("span", { class: `status ${run.status}` }, run.status), element("b", {}, run.name), run.progress ? `: ${run.progress}` : "")));
  byId("problems").hidden = !found.length;
}

function buildHead() {
  const total = DATA.runs.reduce((sum, run) => sum + (run.seconds || 0), 0);
  const finished = DATA.runs.filter((run) => run.status === "finished").length;
  const tiles = [[`${finished} / ${DATA.runs.length}`, "runs finished"], [DATA.tasks.length, "tasks"], [DATA.contestants.length, "contestants"], [duration(total), "of training"]];
  byId("tiles").append(...tiles.map(([value, text]) => element("div", { class: "tile" }, element("b", {}, `${value}`), element("span", {}, text))));
  byId("summary").textContent = [DATA.counts, ...DATA.notes].join(". ") + ".";
  byId("note").textContent = DATA.note;
  byId("command").textContent = DATA.command;
}

function update() {
  byId("panels").style.setProperty("--wide", `${Math.min(metricsShown().length, 3) * 330 + 40}px`);
  charts.forEach((redraw) => redraw());
  byId("nothing").hidden = [...byId("panels").children].some((card) => !card.hidden);
  buildResults();
  buildAggregates();
  buildImprovements();
  buildRuns();
}

buildHead();
buildFilters();
buildPanels();
buildRings();
buildProblems();
update();
