/* Training and audits: learning curves, fidelity, replay. */

const PALETTE = ["#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#8a8a8a",
  "#6b5bd2", "#a0522d"];
const DASHES = ["", "6 3", "2 2"];
const learnerStyle = (names, name) => {
  const i = names.indexOf(name);
  return { colour: PALETTE[i % PALETTE.length], dash: DASHES[Math.floor(i / 3) % 3] };
};
const title = (name) => (data.training && data.training.titles[name]) || name;
const unique = (values) => [...new Set(values)];
const capital = (words) => words.replace(/^./, (letter) => letter.toUpperCase());
const metricName = (key) => {
  const [phase, quantity] = key.split(":");
  return `${data.training.quantities[quantity]}, ${phase === "iql" ? "IQL" : "simulated days"}`;
};
const AUDITS = { zero: "no holding, by demand level", response: "response to holding policies", hold: "holds" };

figure("ends", [], (box) => {
  const { ends, on_the_way: steps, zero } = data.training;
  const names = unique(ends.map((e) => e.learner)), tall = 34;
  const chart = area(box, tall * names.length, { left: 64, right: 14, top: 24, bottom: 44 });
  const { inner, root } = chart;
  const every = [...ends, ...steps, ...(zero ? [zero] : [])].map((e) => e.generalized_s);
  const low = Math.min(...every), high = Math.max(...every), pad = (high - low || 1) * 0.05;
  const x = scale([low - pad, high + pad], [inner.left, inner.right]);
  xAxis(chart, x, { label: "generalized time, s per passenger (less is better)" });
  if (zero) root.append(svg("line", { class: "limit", x1: x(zero.generalized_s), x2: x(zero.generalized_s),
    y1: inner.top, y2: inner.bottom }));
  names.forEach((name, row) => {
    const y = inner.top + (row + 0.5) * tall;
    root.append(svg("text", { class: "ink", x: inner.left - 10, y: y + 4, "text-anchor": "end",
      "data-tip": title(name) }, name));
    for (const end of [...steps.filter((s) => s.learner === name), ...ends.filter((e) => e.learner === name)]) {
      const words = `${title(name)}, seed ${end.seed}${end.at ? ` after ${number(end.at, 0)} events` : ""}\n` +
        `${number(end.generalized_s)} s per passenger\n${number(100 * end.completion, 2)} % completed, ` +
        `mean hold ${number(end.mean_hold_s)} s`;
      root.append(mark("dot", x(end.generalized_s), end.at ? y + 8 : y, end.at ? 2.5 : 5,
        { class: end.at ? "grey small" : "one", "fill-opacity": 0.6, "data-tip": words }));
    }
  });
  legend(box, [[mark("dot", 13, 7, 5, { class: "one" }), "a training seed at its end"],
    ...(steps.length ? [[mark("dot", 13, 7, 2.5, { class: "grey small" }), "on the way"]] : []),
    ...(zero ? [[svg("line", { class: "limit", x1: 1, x2: 25, y1: 7, y2: 7 }), "no holding"]] : [])]);
  return { rows: [["learner", "seed", "events", "generalized_s", "completion", "mean_hold_s"],
    ...[...ends, ...steps].map((e) => [e.learner, e.seed, e.at, e.generalized_s, e.completion, e.mean_hold_s])] };
});

figure("metrics", ["metric"], (box) => {
  const [phase, quantity] = chosen.metric.split(":");
  const series = data.training.metrics.filter((s) => s.phase === phase && s.quantity === quantity);
  const names = unique(data.training.metrics.map((s) => s.learner));
  const points = series.flatMap((s) => s.points.filter((p) => p[1] !== null));
  const chart = area(box, 260, { left: 60, right: 26, top: 24, bottom: 42 });
  const { inner, root } = chart;
  const means = points.map((p) => p[1]).sort((a, b) => a - b);
  const cut = (share) => means[Math.round(share * (means.length - 1))];
  const wide = (cut(0.99) - cut(0.01)) || Math.abs(cut(0.5)) || 1;
  const y = scale([cut(0.01) - 0.1 * wide, cut(0.99) + 0.1 * wide], [inner.bottom, inner.top]);
  const x = scale([0, Math.max(...points.map((p) => p[0]))], [inner.left, inner.right]);
  root.append(svg("clipPath", { id: "clip-metrics" }, svg("rect", { x: inner.left, y: inner.top,
    width: inner.width, height: inner.height })));
  xAxis(chart, x, { format: (v) => number(v, 0), label: "updates" });
  yAxis(chart, y, { label: data.training.quantities[quantity] });
  const layer = svg("g", { "clip-path": "url(#clip-metrics)" });
  root.append(layer);
  for (const curve of series) {
    const { colour, dash } = learnerStyle(names, curve.learner), known = curve.points.filter((p) => p[1] !== null);
    const edge = [...known.map((p) => `${x(p[0])},${y(p[3])}`),
      ...known.map((p) => `${x(p[0])},${y(p[2])}`).reverse()].join(" ");
    layer.append(svg("polygon", { points: edge, fill: colour, class: "band" }));
    const line = known.map((p) => `${x(p[0])},${y(p[1])}`).join(" ");
    layer.append(svg("polyline", { points: line, fill: "none", stroke: colour, "stroke-width": 2,
      "stroke-dasharray": dash }), svg("polyline", { points: line, class: "hit", "data-tip":
      `${curve.learner}: ${title(curve.learner)}\nat the end ${short(known.at(-1)[1])}` }));
  }
  legend(box, series.map((s) => {
    const { colour, dash } = learnerStyle(names, s.learner);
    return [svg("line", { x1: 1, x2: 25, y1: 7, y2: 7, stroke: colour, "stroke-width": 2.5,
      "stroke-dasharray": dash }), s.learner];
  }));
  const last = (s, pick) => s.points.filter((p) => p[1] !== null).at(pick)[1];
  const finding = `${metricName(chosen.metric)}, first and last: ` + series.map((s) =>
    `${s.learner} ${short(last(s, 0))} and ${short(last(s, -1))}`).join("; ") + ".";
  return { finding: capital(finding), rows: [["phase", "learner", "quantity", "update", "mean", "low", "high"],
    ...series.flatMap((s) => s.points.map((p) => [phase, s.learner, quantity, ...p]))] };
}, () => {
  const keys = unique(data.training.metrics.map((s) => `${s.phase}:${s.quantity}`));
  const first = keys.findIndex((key) => key === "online:critic_loss");
  if (first > 0) keys.unshift(...keys.splice(first, 1));
  return [chooser("metric", "Show", keys.map((key) => [key, metricName(key)]))];
});

figure("fidelity", ["audit"], (box) => {
  const lines = data.fidelity.lines.filter((line) => line.audit === chosen.audit);
  const names = unique(lines.map((line) => line.quantity));
  const most = Math.max(...names.map((n) => lines.filter((l) => l.quantity === n).length));
  const tall = Math.max(22, Math.min(64, most * 5 + 10));
  const chart = area(box, tall * names.length, { left: 128, right: 14, top: 24, bottom: 44 });
  const { inner, root } = chart;
  const reach = Math.max(1.15, ...lines.flatMap((l) => [Math.abs(l.low), Math.abs(l.high)].map((v) => v / l.limit)));
  const x = scale([-reach, reach], [inner.left, inner.right]);
  xAxis(chart, x, { label: "fast world minus SUMO, as a share of the limit" });
  root.append(svg("line", { class: "zero", x1: x(0), x2: x(0), y1: inner.top, y2: inner.bottom }));
  for (const at of [-1, 1]) root.append(svg("line", { class: "limit", x1: x(at), x2: x(at), y1: inner.top,
    y2: inner.bottom }));
  names.forEach((name, row) => {
    const members = lines.filter((line) => line.quantity === name), top = inner.top + row * tall;
    root.append(svg("text", { class: "ink", x: inner.left - 8, y: top + tall / 2 + 4, "text-anchor": "end" }, name));
    members.forEach((line, i) => {
      const y = top + (i + 1) * tall / (members.length + 1), tone = line.passed ? "good" : "poor";
      const show = (value) => signed(100 * value, 2) + " %";
      root.append(svg("line", { class: tone, "stroke-width": 1.8, y1: y, y2: y, x1: x(line.low / line.limit),
        x2: x(line.high / line.limit) }), mark(line.passed ? "dot" : "square", x(line.gap / line.limit), y, 2.6,
        { class: tone }), svg("rect", { class: "row", x: inner.left, width: inner.width,
        y: y - tall / (members.length + 1) / 2, height: tall / (members.length + 1), "data-tip":
        `${line.policy}, demand ${line.level}: ${name}\ngap ${show(line.gap)} (${show(line.low)} to ${show(line.high)})\n` +
        `limit ${number(100 * line.limit, 2)} %: ${line.passed ? "inside" : "OUTSIDE"}` }));
    });
  });
  legend(box, [[mark("dot", 13, 7, 3, { class: "good" }), "inside its limit, with 95 % interval"],
    [mark("square", 13, 7, 3, { class: "poor" }), "outside"],
    [svg("line", { class: "limit", x1: 1, x2: 25, y1: 7, y2: 7 }), "limit"]]);
  const columns = ["audit", "policy", "level", "quantity", "sumo", "fast", "gap", "low", "high", "limit", "passed"];
  const outside = lines.filter((line) => !line.passed), far = (line) => Math.abs(line.gap) / line.limit;
  const widest = lines.reduce((most, line) => far(line) > far(most) ? line : most);
  const finding = capital(`${AUDITS[chosen.audit] || chosen.audit}: ${outside.length} of ${lines.length} intervals ` +
    `outside their limits; the widest gap is ${number(100 * far(widest), 0)} % of its limit ` +
    `(${widest.quantity}, ${widest.policy}, demand ${widest.level}).`);
  return { finding, rows: [columns, ...data.fidelity.lines.map((line) => columns.map((name) => line[name]))] };
}, () => [chooser("audit", "Show", unique(data.fidelity.lines.map((line) => line.audit)).map((a) => [a, AUDITS[a] || a]))]);

figure("replay", ["histogram"], (box) => {
  const holds = chosen.histogram === "hold_histogram", counts = data.replay[chosen.histogram];
  const width = holds ? 2 : 1;
  const chart = area(box, 210, { left: 62, right: 12, top: 24, bottom: 42 });
  const { inner, root } = chart;
  const x = scale([0, counts.length * width], [inner.left, inner.right]);
  const y = scale([0, Math.max(1, ...counts) * 1.05], [inner.bottom, inner.top]);
  xAxis(chart, x, { label: holds ? "positive hold, s" : "headway to the bus ahead, min" });
  yAxis(chart, y, { label: "stop visits", format: (v) => number(v, 0) });
  counts.forEach((count, i) => root.append(svg("rect", { class: "bar", x: x(i * width) + 0.5, y: y(count),
    width: Math.max(1, x(width) - x(0) - 1), height: inner.bottom - y(count),
    "data-tip": `${i * width} to ${(i + 1) * width} ${holds ? "s" : "min"}: ${number(count, 0)} stop visits` })));
  const all = counts.reduce((sum, count) => sum + count, 0), most = counts.indexOf(Math.max(...counts));
  const finding = `${holds ? "Positive holds" : "Headways"} of ${number(all, 0)} stop visits; most often ` +
    `${most * width} to ${(most + 1) * width} ${holds ? "s" : "min"} (${number(100 * counts[most] / (all || 1), 0)} %).`;
  return { finding, rows: [["from", "to", "count"],
    ...counts.map((count, i) => [i * width, (i + 1) * width, count])] };
}, () => [chooser("histogram", "Show", [["hold_histogram", "positive holds"], ["headway_histogram", "headways"]])]);

begin();
