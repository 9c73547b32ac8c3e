/* The trial's figures: forest of blocks, effects by level and seed. */

const ENDPOINTS = {
  generalized_s: { name: "generalized time", unit: "s per passenger", factor: 1, digits: 1,
    better: -1 },
  completion: { name: "journeys completed", unit: "percentage points", factor: 100, digits: 2,
    better: 1 },
  unfinished: { name: "unfinished journeys", unit: "passengers a day", factor: 1, digits: 1,
    better: -1 },
};
const endpointChooser = () => [chooser("endpoint", "Show",
  Object.entries(ENDPOINTS).map(([key, end]) => [key, end.name]))];

const direction = (end) => end.better < 0 ? "less is better" : "more is better";

function spread(values, around = []) {
  const every = [...values, ...around, 0];
  const low = Math.min(...every), high = Math.max(...every), pad = (high - low || 1) * 0.06;
  return [low - pad, high + pad];
}

function sides(chart, x, end) {
  const { root, inner } = chart;
  root.append(svg("line", { class: "zero", x1: x(0), x2: x(0), y1: inner.top, y2: inner.bottom }));
  const words = end.better < 0 ? ["\u2190 candidate better", "parent better \u2192"]
    : ["\u2190 parent better", "candidate better \u2192"];
  const room = 110; // of the words; a side without room has no marks either
  if (x(0) > room) root.append(svg("text", { x: x(0) - 8, y: inner.top - 8, "text-anchor": "end" }, words[0]));
  if (x(0) < chart.width - room) root.append(svg("text", { x: x(0) + 8, y: inner.top - 8 }, words[1]));
}

function rowMarks(chart, x, y, row, end) {
  const { root, inner } = chart;
  const tone = row.value * end.better > 0 ? "one" : "two";
  root.append(svg("rect", { class: "row" + (row.pick ? " pick" : ""), x: 0, width: chart.width,
    y: y - row.tall / 2, height: row.tall, "data-tip": row.tip }));
  if (row.pick) root.lastChild.addEventListener("click", row.pick);
  root.append(svg("text", { class: row.strong ? "strong" : "ink", x: inner.left - 10, y: y + 4,
    "text-anchor": "end", "pointer-events": "none" }, row.name));
  const still = { "pointer-events": "none" };
  root.append(svg("line", { class: "whisker", x1: x(row.low), x2: x(row.high), y1: y, y2: y, ...still }));
  for (const dot of row.dots || []) {
    root.append(mark("dot", x(dot), y, 3, { class: "grey small", ...still }));
  }
  const shape = row.strong ? "diamond" : tone === "one" ? "dot" : "square";
  root.append(mark(shape, x(row.value), y, row.strong ? 6 : 5, { class: tone, ...still }));
}

function blockRows(key, end) {
  const pairs = data.trial.pairs;
  return data.trial.blocks.map((seeds, block) => {
    const days = pairs.filter((p) => p.block === block).map((p) => p[key] * end.factor);
    const value = mean(days), low = Math.min(...days), high = Math.max(...days);
    const there = data.days && data.days.blocks.some((simulated) => simulated.number === block);
    return { name: `block ${block + 1}`, value, low, high, tall: 27, seeds,
      pick: there ? () => choose("block", String(block)) : null,
      tip: `Block ${block + 1} (seeds ${seeds.join(", ")})\nmean ${signed(value, end.digits)} ` +
        `${end.unit}\nsingle days from ${signed(low, end.digits)} to ${signed(high, end.digits)}` +
        (there ? "\nclick to see its day below" : "") };
  });
}

figure("forest", ["endpoint"], (box) => {
  const key = chosen.endpoint, end = ENDPOINTS[key], rows = blockRows(key, end);
  for (const [name, words] of [["bca_mean", "mean"], ["hodges_lehmann", "Hodges\u2013Lehmann"]]) {
    const estimate = data.trial.analysis.beyond_the_claim[key][name];
    if (!estimate) continue; // nothing to estimate: one block, or all alike
    const [value, low, high] = ["estimate", "low", "high"].map((n) => estimate[n] * end.factor);
    rows.push({ name: words, value, low, high, tall: 30, strong: true, seeds: ["", ""],
      tip: `${words} over blocks: ${signed(value, end.digits)} ${end.unit}\n` +
        `${number(100 * estimate.confidence, 0)} % interval ${signed(low, end.digits)} to ` +
        `${signed(high, end.digits)}\ndescriptive, no part of the claim` });
  }
  const margin = key === "completion" ? [-100 * data.trial.margin] : [];
  const tall = rows.reduce((sum, row) => sum + row.tall, 0);
  const chart = area(box, tall, { left: 128, right: 14, top: 28, bottom: 44 });
  const x = scale(spread(rows.flatMap((r) => [r.low, r.high]), margin),
    [chart.inner.left, chart.inner.right]);
  xAxis(chart, x, { label: `candidate minus parent, ${end.unit}` });
  for (const at of margin) {
    chart.root.append(svg("line", { class: "limit", x1: x(at), x2: x(at), y1: chart.inner.top,
      y2: chart.inner.bottom }));
  }
  sides(chart, x, end);
  let y = chart.inner.top;
  for (const row of rows) {
    rowMarks(chart, x, y + row.tall / 2, row, end);
    y += row.tall;
  }
  legend(box, [
    [mark("dot", 13, 7, 5, { class: "one" }), "block, candidate better"],
    [mark("square", 13, 7, 5, { class: "two" }), "block, parent better"],
    [svg("line", { class: "whisker", x1: 1, x2: 25, y1: 7, y2: 7 }), "its single days, lowest to highest"],
    [mark("diamond", 13, 7, 5, { class: "grey" }), "over all blocks, with 95 % interval"],
    ...(margin.length ? [[svg("line", { class: "limit", x1: 1, x2: 25, y1: 7, y2: 7 }),
      "noninferiority margin"]] : []),
  ]);
  const blocks = rows.filter((r) => !r.strong).map((r) => r.value);
  const finding = `Candidate minus parent in ${blocks.length} blocks: ${end.name} changed by ` +
    `${signed(Math.min(...blocks), end.digits)} to ${signed(Math.max(...blocks), end.digits)} ${end.unit} ` +
    `(${direction(end)}), and ${end.better < 0 ? "fell" : "rose"} in ${blocks.filter((v) => v * end.better > 0).length} of them.`;
  return { finding, rows: [["row", "sumo_seed", "demand_seed", `mean_${end.unit}`, "low", "high"],
    ...rows.map((r) => [r.name, ...r.seeds, r.value, r.low, r.high])] };
}, endpointChooser);

figure("effects", ["endpoint"], (box) => {
  const key = chosen.endpoint, end = ENDPOINTS[key], pairs = data.trial.pairs;
  const groups = [
    ...data.trial.levels.map((level) => [`demand \u00d7 ${level.toFixed(2)}`,
      pairs.filter((p) => p.level === level)]),
    ...(data.trial.seeds.length > 1 ? data.trial.seeds : []).map((seed) => [`seed ${seed}`,
      pairs.filter((p) => p.seed === seed)]),
  ];
  const rows = groups.map(([name, members]) => {
    const dots = data.trial.blocks.map((_, block) =>
      mean(members.filter((p) => p.block === block).map((p) => p[key] * end.factor)));
    const value = mean(dots), better = dots.filter((d) => d * end.better > 0).length;
    return { name, value, dots, low: Math.min(...dots), high: Math.max(...dots), tall: 30,
      tip: `${name}: mean ${signed(value, end.digits)} ${end.unit}\n` +
        `candidate better in ${better} of ${dots.length} blocks` };
  });
  const chart = area(box, rows.length * 30 + 12, { left: 128, right: 14, top: 28, bottom: 44 });
  const x = scale(spread(rows.flatMap((r) => r.dots)), [chart.inner.left, chart.inner.right]);
  xAxis(chart, x, { label: `candidate minus parent, ${end.unit}` });
  sides(chart, x, end);
  rows.forEach((row, i) => {
    const y = chart.inner.top + 15 + i * 30 + (i >= data.trial.levels.length ? 12 : 0);
    rowMarks(chart, x, y, row, end);
  });
  legend(box, [
    [mark("dot", 13, 7, 5, { class: "one" }), "mean, candidate better"],
    [mark("square", 13, 7, 5, { class: "two" }), "mean, parent better"],
    [mark("dot", 13, 7, 3, { class: "grey small" }), "a block"],
  ]);
  const levels = rows.slice(0, data.trial.levels.length), seeds = rows.slice(levels.length).map((r) => r.value);
  const [low, high] = [Math.min(...seeds), Math.max(...seeds)].map((v) => signed(v, end.digits));
  const finding = `Mean change of ${end.name}, ${end.unit} (${direction(end)}): ` +
    levels.map((r) => `${signed(r.value, end.digits)} at ${r.name}`).join(", ") +
    (low === high || !seeds.length ? "." : `; by training seed ${low} to ${high}.`);
  return { finding, rows: [["group", "mean", ...data.trial.blocks.map((_, i) => `block_${i + 1}`)],
    ...rows.map((r) => [r.name, r.value, ...r.dots])] };
}, endpointChooser);
