"use strict";
(() => {
  const data = JSON.parse(document.getElementById("data").textContent);
  const COLOURS = 6;
  const DASHES = ["", "7 4", "2 3", "9 3 2 3", "14 4"];
  const colour = (name) => `var(--s${data.names.indexOf(name) % COLOURS})`;
  const dash = (name) => DASHES[Math.floor(data.names.indexOf(name) / COLOURS) % DASHES.length];

  // ---- Tables: a click sorts, a second click reverses the order. Cells without a value stay last.
  const key = (row, column) => {
    const cell = row.cells[column].dataset.sort;
    if (cell === undefined) return null;
    const number = Number(cell);
    return Number.isNaN(number) ? cell : number;
  };
  const sort = (table, head, column) => {
    const first = column === 0 ? "ascending" : "descending";
    const other = first === "ascending" ? "descending" : "ascending";
    const order = head.getAttribute("aria-sort") === first ? other : first;
    const sign = order === "ascending" ? 1 : -1;
    const rows = [...table.tBodies[0].rows];
    rows.sort((a, b) => {
      const x = key(a, column), y = key(b, column);
      if (x === null || y === null) return (x === null) - (y === null);
      return sign * (x < y ? -1 : x > y ? 1 : 0);
    });
    for (const cell of head.parentElement.cells) cell.setAttribute("aria-sort", "none");
    head.setAttribute("aria-sort", order);
    table.classList.add("sorted");
    table.tBodies[0].append(...rows);
  };
  for (const table of document.querySelectorAll("table")) {
    const heads = [...table.tHead.rows[table.tHead.rows.length - 1].cells];
    heads.forEach((head, column) => head.firstElementChild.addEventListener("click", () => sort(table, head, column)));
  }

  // ---- Filters: panels and columns by benchmark and label count, rows by method.
  const form = document.querySelector(".filters");
  const chosen = (name) => form.querySelector(`[data-filter="${name}"]`)?.value ?? "";
  const filter = () => {
    const dataset = chosen("dataset"), labels = chosen("labels"), words = chosen("method").trim().toLowerCase();
    for (const panel of document.querySelectorAll(".panel[data-datasets]")) {
      const shown = JSON.parse(panel.dataset.datasets);
      panel.hidden = Boolean((dataset && !shown.includes(dataset)) || (labels && panel.dataset.labels !== labels));
    }
    for (const cell of document.querySelectorAll("th[data-dataset], td[data-dataset]")) {
      cell.hidden = Boolean(dataset && cell.dataset.dataset !== dataset);
    }
    for (const row of document.querySelectorAll("tbody tr")) {
      row.hidden = !row.cells[0].textContent.toLowerCase().includes(words);
    }
    for (const section of document.querySelectorAll("section")) {
      const panels = [...section.querySelectorAll(".panel[data-datasets]")];
      section.hidden = panels.length > 0 && panels.every((panel) => panel.hidden);
    }
    drawAll();
  };
  form.addEventListener("input", filter);
  form.addEventListener("submit", (event) => event.preventDefault());

  // ---- Charts
  const SVG = "http://www.w3.org/2000/svg";
  const make = (tag, attributes, parent, text) => {
    const element = document.createElementNS(SVG, tag);
    for (const [name, value] of Object.entries(attributes)) element.setAttribute(name, value);
    if (text !== undefined) element.textContent = text;
    parent?.append(element);
    return element;
  };
  const html = (tag, properties, parent) => {
    const element = Object.assign(document.createElement(tag), properties);
    parent.append(element);
    return element;
  };
  const ticks = (low, high, count) => {
    const raw = (high - low || 1) / count, power = 10 ** Math.floor(Math.log10(raw));
    const step = power * [1, 2, 5, 10].find((factor) => factor * power >= raw);
    const marks = [];
    for (let mark = Math.ceil(low / step) * step; mark <= high + step / 1e6; mark += step) marks.push(+mark.toFixed(6));
    return marks;
  };
  const shown = (metric, mean, std, seeds) => {
    const deviation = std == null ? "" : ` ± ${std.toFixed(metric.decimals)}`;
    return `${mean.toFixed(metric.decimals)}${deviation}${seeds === 5 ? "" : ` (n=${seeds})`}`;
  };
  // Percentages end at round numbers within 0 and 100, other metrics a little beyond their values.
  const range = (metric, values, step) => {
    const low = Math.min(...values), high = Math.max(...values), margin = (high - low || Math.abs(high) || 1) / 20;
    if (!metric.percent) return [low && low - margin, high && high + margin];
    return [Math.max(0, Math.floor(low / step) * step), Math.min(100, Math.ceil(high / step) * step || step)];
  };

  const state = new Map();  // figure -> names that are switched off
  const seriesOf = (figure) => data[figure.dataset.chart].filter(
    (method) => method.dataset === figure.dataset.dataset && String(method.labels) === figure.dataset.labels);
  const frame = (figure, metric, [low, high], height) => {
    const width = Math.max(280, figure.clientWidth);
    const svg = make("svg", { viewBox: `0 0 ${width} ${height}`, height, role: "img", "aria-label": figure.ariaLabel });
    const box = { left: 36, right: width - 8, top: 24, bottom: height - 36 };
    const y = (value) => box.bottom - (value - low) / (high - low || 1) * (box.bottom - box.top);
    for (const mark of ticks(low, high, 5)) {
      make("line", { class: "grid", x1: box.left, x2: box.right, y1: y(mark), y2: y(mark) }, svg);
      make("text", { x: box.left - 6, y: y(mark) + 4, "text-anchor": "end" }, svg, mark);
    }
    make("text", { x: 0, y: 11 }, svg, metric.axis);
    make("line", { class: "axis", x1: box.left, x2: box.right, y1: box.bottom, y2: box.bottom }, svg);
    return { svg, box, y, width };
  };

  const showTip = (figure, x, bottom, title, lines) => {
    const tip = figure.querySelector(".tip") ?? html("div", { className: "tip" }, figure);
    tip.replaceChildren();
    html("b", { textContent: title }, tip);
    for (const [name, text] of lines) {
      const line = html("div", {}, tip);
      html("i", {}, line).style.background = colour(name);
      line.append(`${name} ${text}`);
    }
    tip.hidden = false;
    const room = figure.clientWidth - tip.offsetWidth;
    tip.style.left = `${Math.max(0, Math.min(room, x > figure.clientWidth / 2 ? x - tip.offsetWidth - 12 : x + 12))}px`;
    tip.style.top = `${figure.querySelector("figcaption").offsetHeight + bottom - tip.offsetHeight}px`;
  };
  const hideTip = (figure) => { const tip = figure.querySelector(".tip"); if (tip) tip.hidden = true; };

  const drawCurves = (figure, chosen) => {
    const metric = data.metrics.find(({ name }) => name === document.getElementById("metric").value);
    const series = chosen.filter((method) => method.mean[metric.name]).map((method) => ({
      ...method, mean: method.mean[metric.name], std: method.std[metric.name] }));
    if (!series.length) return document.createTextNode("not measured for these methods");
    const bounds = series.flatMap((method) => method.mean.flatMap((m, k) => [m - (method.std?.[k] ?? 0), m + (method.std?.[k] ?? 0)]));
    const epochs = series.flatMap((method) => method.epochs);
    const first = Math.min(...epochs), end = Math.max(...epochs);
    const { svg, box, y } = frame(figure, metric, range(metric, bounds, 5), 300);
    const x = (epoch) => box.left + 4 + (epoch - first) / (end - first || 1) * (box.right - box.left - 12);
    for (const mark of ticks(first, end, Math.min(8, Math.floor((box.right - box.left) / 50)))) {
      make("text", { x: x(mark), y: box.bottom + 16, "text-anchor": "middle" }, svg, mark);
    }
    make("text", { x: box.right, y: box.bottom + 32, "text-anchor": "end" }, svg, "epoch");
    const path = (points) => points.map(([a, b], k) => `${k ? "L" : "M"}${x(a).toFixed(1)} ${y(b).toFixed(1)}`).join("");
    for (const method of series) {
      if (!method.std) continue;
      const up = method.epochs.map((e, k) => [e, method.mean[k] + method.std[k]]);
      const down = method.epochs.map((e, k) => [e, method.mean[k] - method.std[k]]).reverse();
      make("path", { d: `${path([...up, ...down])}Z`, fill: colour(method.name), opacity: 0.14 }, svg);
    }
    for (const method of series) {
      const points = method.epochs.map((e, k) => [e, method.mean[k]]);
      const style = { fill: "none", stroke: colour(method.name), "stroke-width": 2, "stroke-linejoin": "round" };
      make("path", { d: path(points), ...style, "stroke-dasharray": dash(method.name) }, svg);
      if (points.length === 1) make("circle", { cx: x(points[0][0]), cy: y(points[0][1]), r: 4, fill: colour(method.name) }, svg);
    }
    const cross = make("line", { class: "cross", y1: box.top, y2: box.bottom, visibility: "hidden" }, svg);
    const all = [...new Set(epochs)].sort((a, b) => a - b);
    svg.addEventListener("pointermove", (event) => {
      const place = event.clientX - svg.getBoundingClientRect().left;
      const epoch = all.reduce((near, e) => Math.abs(x(e) - place) < Math.abs(x(near) - place) ? e : near);
      cross.setAttribute("x1", x(epoch)); cross.setAttribute("x2", x(epoch)); cross.setAttribute("visibility", "visible");
      const lines = series.map((method) => [method, method.epochs.indexOf(epoch)]).filter(([, k]) => k >= 0)
        .sort(([a, j], [b, k]) => b.mean[k] - a.mean[j])
        .map(([method, k]) => [method.name, shown(metric, method.mean[k], method.std?.[k], method.seeds)]);
      showTip(figure, x(epoch), box.bottom - 8, `epoch ${epoch}`, lines);
    });
    svg.addEventListener("pointerleave", () => { cross.setAttribute("visibility", "hidden"); hideTip(figure); });
    return svg;
  };

  const drawBars = (figure, series) => {
    const targets = series[0].targets;
    const ends = series.flatMap((method) => method.mean.flatMap((m, k) => m == null ? [] : [m, m + (method.std[k] ?? 0)]));
    const { svg, box, y } = frame(figure, data.metric, range(data.metric, [0, ...ends], 10), 280);
    const span = (box.right - box.left) / targets.length, bar = Math.min(26, span * 0.84 / series.length);
    make("text", { x: box.right, y: box.bottom + 32, "text-anchor": "end" }, svg, "target domain");
    targets.forEach((target, k) => {
      const start = box.left + span * k + (span - bar * series.length) / 2;
      const words = target.split("_"), lines = target.length * 7 > span ? words : [words.join(" ")];
      lines.forEach((line, row) =>
        make("text", { x: box.left + span * (k + 0.5), y: box.bottom + 16 + 13 * row, "text-anchor": "middle" }, svg, line));
      series.forEach((method, j) => {
        if (method.mean[k] == null) return;
        const mean = method.mean[k], std = method.std[k], middle = start + bar * (j + 0.5);
        const look = dash(method.name)
          ? { fill: colour(method.name), "fill-opacity": 0.25, stroke: colour(method.name), "stroke-dasharray": dash(method.name) }
          : { fill: colour(method.name) };
        make("rect", { x: start + bar * j + bar * 0.06, width: bar * 0.88, y: Math.min(y(0), y(mean)), height: Math.abs(y(0) - y(mean)), ...look }, svg);
        if (std != null) make("line", { class: "error", x1: middle, x2: middle, y1: y(mean > 0 ? Math.max(0, mean - std) : mean - std), y2: y(mean + std) }, svg);
      });
      const over = make("rect", { x: box.left + span * k, width: span, y: box.top, height: box.bottom - box.top, fill: "transparent" }, svg);
      over.addEventListener("pointermove", () => {
        const lines = series.filter((method) => method.mean[k] != null).map((method) => [method.name, shown(data.metric, method.mean[k], method.std[k], method.n[k])]);
        showTip(figure, box.left + span * (k + 0.5), box.bottom - 8, target.replaceAll("_", " "), lines);
      });
    });
    svg.addEventListener("pointerleave", () => hideTip(figure));
    return svg;
  };

  const drawLegend = (figure, series) => {
    const legend = html("ul", { className: "legend" }, figure);
    for (const method of series) {
      const button = html("button", { type: "button" }, html("li", {}, legend));
      button.setAttribute("aria-pressed", String(!state.get(figure).has(method.name)));
      const mark = make("svg", { viewBox: "0 0 28 10", "aria-hidden": "true" }, button);
      make("line", { x1: 1, x2: 27, y1: 5, y2: 5, stroke: colour(method.name), "stroke-width": 3, "stroke-dasharray": dash(method.name) }, mark);
      button.append(method.name);
      button.addEventListener("click", () => {
        const off = state.get(figure);
        if (!off.delete(method.name)) off.add(method.name);
        draw(figure);
        [...figure.querySelectorAll(".legend button")].find((again) => again.textContent === method.name)?.focus();
      });
    }
  };

  const draw = (figure) => {
    if (figure.hidden) return;
    const all = seriesOf(figure);
    if (!state.has(figure)) {
      state.set(figure, new Set(all.slice(data.shown).map((method) => method.name)));
    }
    figure.replaceChildren(figure.querySelector("figcaption"));
    if (!all.length) {
      html("p", { className: "caption", textContent: "No evaluations of complete seeds." }, figure);
      return;
    }
    const on = all.filter((method) => !state.get(figure).has(method.name));
    if (on.length) figure.append(figure.dataset.chart === "curves" ? drawCurves(figure, on) : drawBars(figure, on));
    drawLegend(figure, all);
  };
  const figures = [...document.querySelectorAll(".chart")];
  const drawAll = () => figures.forEach(draw);
  document.getElementById("metric")?.addEventListener("change", drawAll);
  let width = window.innerWidth;
  window.addEventListener("resize", () => {
    if (window.innerWidth !== width) { width = window.innerWidth; drawAll(); }
  });
  drawAll();
})();
