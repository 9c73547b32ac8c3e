/* The network and the simulated days: map, time and space, headways, load, holds, one decision. */

const services = data.city ? data.city.services : [];
const service = () => services.find((one) => one.id === chosen.service);
const block = () => data.days.blocks.find((one) => String(one.number) === chosen.block);
const ROLES = ["candidate", "parent"];
const roleName = (role) => data.trial.claim[role] === role ? role : `${role} (${data.trial.claim[role]})`;
const panel = (role) => html("p", { class: "panel" }, roleName(role).replace(/^./, (c) => c.toUpperCase()),
  html("span", {}, ` service ${chosen.service}, block ${Number(chosen.block) + 1}`));
const day = (role) => block()[role].services[chosen.service];
const where = () => `Service ${chosen.service}, block ${Number(chosen.block) + 1}`;
const zoom = { map: 1, x: 0, y: 0, time: null };

const shared = document.querySelector(".controls[data-shared]");
if (shared && data.days) {
  chosen.service = data.first_service;
  shared.append(
    chooser("service", "Service", services.map((s) => [s.id, `${s.id} (route ${s.route})`])),
    chooser("block", "Block", data.days.blocks.map((b) => [String(b.number),
      `${b.number + 1} (seeds ${b.seeds.join(", ")})`])));
}

// -- the map -------------------------------------------------------------------------------------

function mapFrame(city, box) {
  const xs = city.streets.flatMap((s) => [s[0], s[2]]), ys = city.streets.flatMap((s) => [s[1], s[3]]);
  const wide = Math.max(...xs) - Math.min(...xs), tall = Math.max(...ys) - Math.min(...ys);
  const width = Math.max(300, box.clientWidth || 900), pad = 26;
  const ratio = Math.min((width - 2 * pad) / (wide || 1), Math.max(300, 0.58 * width) / (tall || 1));
  const left = (width - ratio * wide) / 2;
  return { width, height: ratio * tall + 2 * pad + 16, ratio, pad,
    x: (m) => left + (m - Math.min(...xs)) * ratio, y: (m) => pad + (Math.max(...ys) - m) * ratio };
}

function drawMap(city, root, frame) {
  const { x, y } = frame, gap = Math.max(2.6, frame.width / 240);
  if (city.behind.length) {
    root.append(svg("path", { class: "street behind",
      d: city.behind.map((line) => "M" + line.map(([px, py]) => `${x(px).toFixed(1)},${y(py).toFixed(1)}`).join("L")).join("") }));
  }
  for (const [x1, y1, x2, y2, lane] of city.streets) {
    const ends = { x1: x(x1), y1: y(y1), x2: x(x2), y2: y(y2) };
    if (lane) root.prepend(svg("line", { class: "buslane", "stroke-width": 5 * gap, ...ends }));
    root.append(svg("line", { class: "street", ...ends }));
  }
  const picked = service();
  if (picked) {
    root.append(svg("polyline", { class: "chosen", "stroke-width": 5 * gap,
      points: picked.path.map(([px, py]) => `${x(px)},${y(py)}`).join(" ") }));
  }
  for (const [route, x1, y1, x2, y2, slot] of city.lines) {
    let dx = y(y2) - y(y1), dy = x(x1) - x(x2);
    const length = Math.hypot(dx, dy) || 1;
    const way = Math.sign(Math.abs(dy) > Math.abs(dx) ? dy : dx) || 1;
    dx *= way * gap * slot / length; dy *= way * gap * slot / length;
    const line = svg("line", { x1: x(x1) + dx, y1: y(y1) + dy, x2: x(x2) + dx, y2: y(y2) + dy,
      stroke: city.routes[route], "stroke-width": gap * 0.85, "stroke-linecap": "round",
      class: "pick", "data-tip": `Route ${route}: ` +
        services.filter((s) => s.route === route).map((s) => s.id).join(", ") });
    line.addEventListener("click", () =>
      data.days && choose("service", services.find((s) => s.route === route).id));
    root.append(line);
  }
  for (const [sx, sy] of city.signals) {
    root.append(svg("rect", { x: x(sx) - 2, y: y(sy) - 2, width: 4, height: 4, class: "grey" }));
  }
  city.stops.forEach(([id, sx, sy], i) => {
    const here = services.filter((s) => s.stops.includes(i)).map((s) => s.id);
    root.append(mark("dot", x(sx), y(sy), city.stops.length > 120 ? gap * 0.6 : gap, { class: "stop", "data-tip":
      `Stop ${id}\nserved by ${here.join(", ")}` }));
  });
}

function zoomMap(factor) {
  zoom.map = Math.min(12, Math.max(1, zoom.map * factor));
  if (zoom.map === 1) zoom.x = zoom.y = 0;
  view();
}

function view() {
  const root = figures.map.box.querySelector("svg"), frame = figures.map.frame;
  const w = frame.width / zoom.map, h = frame.height / zoom.map;
  zoom.x = Math.max(-(frame.width - w) / 2, Math.min((frame.width - w) / 2, zoom.x));
  zoom.y = Math.max(-(frame.height - h) / 2, Math.min((frame.height - h) / 2, zoom.y));
  root.setAttribute("viewBox", `${(frame.width - w) / 2 + zoom.x} ${(frame.height - h) / 2 + zoom.y} ${w} ${h}`);
  root.style.cursor = zoom.map > 1 ? "grab" : "";
  root.style.touchAction = zoom.map > 1 ? "none" : "pan-y";
}

function pan(root) {
  let last = null;
  root.addEventListener("pointerdown", (event) => { last = event; });
  root.addEventListener("pointermove", (event) => {
    if (!last || !event.buttons || zoom.map === 1) return;
    const unit = figures.map.frame.width / zoom.map / root.clientWidth;
    zoom.x -= (event.clientX - last.clientX) * unit;
    zoom.y -= (event.clientY - last.clientY) * unit;
    last = event;
    view();
  });
  root.addEventListener("wheel", (event) => {
    if (!event.ctrlKey) return;
    event.preventDefault();
    zoomMap(event.deltaY < 0 ? 1.25 : 0.8);
  }, { passive: false });
}

figure("map", ["service"], (box) => {
  const city = data.city, frame = mapFrame(city, box);
  const root = svg("svg", { viewBox: `0 0 ${frame.width} ${frame.height}`, role: "img" }, svg("desc"));
  figures.map.frame = frame;
  drawMap(city, root, frame);
  const metres = [200, 500, 1000, 2000, 5000].findLast((m) => m * frame.ratio < frame.width / 4) || 100;
  root.append(svg("line", { class: "zero", x1: 12, x2: 12 + metres * frame.ratio,
    y1: frame.height - 8, y2: frame.height - 8 }),
  svg("text", { x: 12, y: frame.height - 14 }, metres < 1000 ? `${metres} m` : `${metres / 1000} km`));
  box.append(root);
  pan(root);
  view();
  const line = (colour) => svg("line", { x1: 2, x2: 24, y1: 7, y2: 7, stroke: colour, "stroke-width": 4 });
  legend(box, [
    ...Object.entries(city.routes).map(([route, colour]) => [line(colour), `route ${route}`]),
    [mark("dot", 13, 7, 4, { class: "stop" }), "stop"],
    [svg("rect", { x: 11, y: 5, width: 4, height: 4, class: "grey" }), "signal"],
    ...(city.streets.some((s) => s[4]) ? [[svg("line", { class: "buslane", x1: 4, x2: 22, y1: 7, y2: 7,
      "stroke-width": 9 }), "bus lane"]] : []),
    ...(service() ? [[svg("line", { class: "chosen", x1: 4, x2: 22, y1: 7, y2: 7, "stroke-width": 9 }),
      `chosen service ${chosen.service}`]] : []),
  ]);
  const picked = service();
  return {
    finding: picked ? `Service ${picked.id} of route ${picked.route} stands out: ${picked.stops.length} stops, ` +
      `${number(picked.km.at(-1))} km, ${picked.trips.length} trips a day.` : "",
    rows: [["service", "route", "stop_sequence", "stop", "x_m", "y_m", "km"],
      ...services.flatMap((s) => s.stops.map((stop, i) => [s.id, s.route, i, ...city.stops[stop], s.km[i]]))],
  };
}, () => [button("+", "Zoom in", () => zoomMap(1.6)), button("\u2212", "Zoom out", () => zoomMap(1 / 1.6)),
  button("All", "Show the whole map", () => zoomMap(0))]);

// -- time and space ------------------------------------------------------------------------------

function trips(rows) {
  const rowsOf = new Map();
  rows.t.forEach((trip, i) => { if (!rowsOf.has(trip)) rowsOf.set(trip, []); rowsOf.get(trip).push(i); });
  return rowsOf;
}

function drawBuses(chart, rows, x, y, here) {
  const layer = svg("g", { "clip-path": `url(#${chart.clip})` });
  chart.root.append(layer);
  for (const [trip, places] of trips(rows)) {
    const points = places.flatMap((i) => [`${x(rows.a[i])},${y(here.km[rows.q[i]])}`,
      `${x(rows.d[i])},${y(here.km[rows.q[i]])}`]).join(" ");
    const held = places.reduce((sum, i) => sum + rows.h[i], 0);
    layer.append(svg("polyline", { class: "hit", points, "data-tip":
      `Trip ${here.trips[trip]}, due ${clock(here.starts[trip])}\nheld ${number(held, 0)} s in all` }),
    svg("polyline", { class: "bus", points }));
  }
  rows.h.forEach((hold, i) => {
    if (hold <= 0) return;
    const why = data.days.changes[rows.c[i]];
    layer.append(mark("dot", x(rows.d[i]), y(here.km[rows.q[i]]), Math.sqrt(hold) * 0.75, { class: "held",
      "data-tip": `Trip ${here.trips[rows.t[i]]} held ${number(hold, 0)} s\nat stop ` +
        `${data.city.stops[here.stops[rows.q[i]]][0]}, ${clock(rows.d[i])}` +
        (why ? `\nset by the ${why}` : "") }));
  });
  rows.r.forEach((ratio, i) => {
    if (ratio === null || ratio >= data.bunched) return;
    const cx = x(rows.a[i]), cy = y(here.km[rows.q[i]]);
    layer.append(svg("path", { class: "bunch", d: `M${cx - 3},${cy - 3}l6,6m0,-6l-6,6`, "data-tip":
      `Bunched: ${number(100 * ratio, 0)} % of the scheduled headway\nstop ` +
      `${data.city.stops[here.stops[rows.q[i]]][0]}, ${clock(rows.a[i])}` }));
  });
}

/* Dragging along the time axis zooms into that stretch of the day. */
function brush(chart, x) {
  const { root, inner } = chart;
  let from = null, band = null;
  const at = (event) => (event.clientX - root.getBoundingClientRect().left) /
    root.getBoundingClientRect().width * chart.width;
  root.addEventListener("pointerdown", (event) => {
    if (event.pointerType !== "touch") { from = at(event); event.preventDefault(); }
  });
  root.addEventListener("pointermove", (event) => {
    if (from === null || !event.buttons) return;
    const to = at(event);
    if (!band) root.append(band = svg("rect", { class: "brush", y: inner.top, height: inner.height }));
    band.setAttribute("x", Math.min(from, to));
    band.setAttribute("width", Math.abs(to - from));
  });
  root.addEventListener("pointerup", (event) => {
    const ends = [from, at(event)].map((p) => x.back(p)).sort((a, b) => a - b);
    if (from !== null && band && ends[1] - ends[0] > 120) { zoom.time = ends; draw("timespace"); }
    else if (band) band.remove();
    from = band = null;
  });
}

function zoomTime(factor) {
  const whole = wholeDay(), [from, to] = zoom.time || whole;
  const middle = (from + to) / 2, half = (to - from) / 2 * factor;
  zoom.time = [Math.max(whole[0], middle - half), Math.min(whole[1], middle + half)];
  if (zoom.time[1] - zoom.time[0] >= (whole[1] - whole[0]) * 0.99) zoom.time = null;
  draw("timespace");
}

const wholeDay = () => {
  const last = Math.max(...ROLES.flatMap((role) => day(role).d.length ? day(role).d : [0]));
  return [0, Math.max(600, last) * 1.01];
};

// Names of stops at the right, as many as have room; the last one always.
function nameStops({ inner, root }, km, here) {
  const shown = [];
  for (const i of [here.stops.length - 1, ...here.stops.keys()]) {
    const y = km(here.km[i]);
    if (shown.some((other) => Math.abs(other - y) < 13)) continue;
    shown.push(y);
    const name = data.city.stops[here.stops[i]][0];
    root.append(svg("text", { x: inner.right + 6, y: y + 4 },
      name.length > 22 ? `${name.slice(0, 21)}\u2026` : name));
  }
}

figure("timespace", ["service", "block"], (box) => {
  const here = service(), span = zoom.time || wholeDay();
  const table = [["policy", "trip", "stop", "km", "arrival_s", "departure_s", "load", "hold_s",
    "headway_share", "changed_by"]];
  for (const role of ROLES) {
    const rows = day(role), last = role === "parent", sum = rows.h.reduce((a, b) => a + b, 0);
    const y = block()[role];
    box.append(panel(role),
      html("p", { class: "note" }, `${rows.h.filter((h) => h > 0).length} holds on this service, ` +
        `${number(sum / 60, 0)} min in all; the whole network that day: ${number(y.generalized_s, 0)} s per ` +
        `passenger, ${number(100 * y.completion, 1)} % of journeys completed`));
    const chart = area(box, here.stops.length > 30 ? 320 : 240,
      { left: 44, right: data.city.named ? 150 : 10, top: 22, bottom: last ? 42 : 22 },
      `Time-space diagram, ${role}`);
    chart.clip = `clip-${role}`;
    const { inner, root } = chart;
    root.append(svg("clipPath", { id: chart.clip }, svg("rect", { x: inner.left, y: inner.top - 4,
      width: inner.width, height: inner.height + 8 })));
    const x = scale(span, [inner.left, inner.right]);
    const km = scale([0, here.km.at(-1) * 1.03], [inner.bottom, inner.top]);
    xAxis(chart, x, { ticks: timeTicks(span, inner.width), format: clock,
      label: !last ? "" : data.city.start_s ? "time of day, h:mm" : "time since the start of the day, h:mm" });
    yAxis(chart, km, { label: "km along the service" });
    if (data.city.named) nameStops(chart, km, here);
    drawBuses(chart, rows, x, km, here);
    brush(chart, x);
    rows.t.forEach((trip, i) => table.push([data.trial.claim[role], here.trips[trip],
      data.city.stops[here.stops[rows.q[i]]][0], here.km[rows.q[i]], rows.a[i], rows.d[i], rows.l[i],
      rows.h[i], rows.r[i], data.days.changes[rows.c[i]]]));
  }
  legend(box, [
    [svg("line", { class: "bus", x1: 2, x2: 24, y1: 12, y2: 2 }), "a bus trip"],
    [mark("dot", 13, 7, 5, { class: "held" }), "held (area: how long, up to 60 s)"],
    [svg("path", { class: "bunch", d: "M10,4l6,6m0,-6l-6,6" }),
      `bunched: under ${100 * data.bunched} % of the scheduled headway`],
  ]);
  const finding = `${where()}: ` + ROLES.map((role) => {
    const held = day(role).h.filter((h) => h > 0);
    return `the ${roleName(role)} holds buses ${held.length} times, ` +
      `${number(held.reduce((a, b) => a + b, 0) / 60, 0)} min in all`;
  }).join("; ") + ".";
  return { finding, rows: table };
}, () => [button("+", "Zoom in on time", () => zoomTime(0.6)),
  button("\u2212", "Zoom out", () => zoomTime(1 / 0.6)),
  button("Whole day", "Show the whole day", () => { zoom.time = null; draw("timespace"); })]);

// -- headways and load ---------------------------------------------------------------------------

figure("headways", ["service", "block"], (box) => {
  const here = service(), table = [["policy", "trip", "stop", "headway_share"]];
  for (const role of ROLES) {
    const rows = day(role), stops = here.stops.length, count = here.trips.length;
    box.append(panel(role));
    const tall = Math.max(8, Math.min(18, 260 / stops));
    const chart = area(box, tall * stops, { left: 44, right: 10, top: 20,
      bottom: role === "parent" ? 40 : 20 }, `Headways, ${role}`);
    const { inner, root } = chart, wide = inner.width / count;
    rows.t.forEach((trip, i) => {
      const ratio = rows.r[i], stop = data.city.stops[here.stops[rows.q[i]]][0];
      table.push([data.trial.claim[role], here.trips[trip], stop, ratio]);
      if (ratio === null) return;
      root.append(svg("rect", { x: inner.left + trip * wide, y: inner.top + rows.q[i] * tall,
        width: wide * 0.96, height: tall * 0.94, style: diverging(ratio - 1, "--bunched", "--gap"),
        "data-tip": `Trip ${here.trips[trip]} at stop ${stop}\nheadway ${number(100 * ratio, 0)} % of the scheduled` }));
    });
    const every = Math.ceil(count / Math.max(2, inner.width / 60));
    here.starts.forEach((start, trip) => {
      if (trip % every === 0) root.append(svg("text", { x: inner.left + (trip + 0.5) * wide,
        y: inner.bottom + 15, "text-anchor": "middle" }, clock(start)));
    });
    for (const stop of [0, stops - 1]) root.append(svg("text", { x: inner.left - 6,
      y: inner.top + (stop + 0.5) * tall + 4, "text-anchor": "end" }, stop + 1));
    root.append(svg("text", { class: "ink", x: inner.left, y: inner.top - 7 }, "stop"));
    if (role === "parent") root.append(svg("text", { class: "ink", x: (inner.left + inner.right) / 2,
      y: inner.bottom + 33, "text-anchor": "middle" }, "trip, by its scheduled start"));
  }
  const swatch = (value) => svg("rect", { x: 2, y: 1, width: 22, height: 12,
    style: diverging(value, "--bunched", "--gap") });
  legend(box, [[swatch(-1), "0 %: bunched"], [swatch(-0.5), "50 %"], [swatch(0), "100 %: as scheduled"],
    [swatch(0.5), "150 %"], [swatch(1), "200 % or more: a gap"]]);
  const finding = `${where()}: ` + ROLES.map((role) => {
    const known = day(role).r.filter((ratio) => ratio !== null);
    const share = known.filter((ratio) => ratio < data.bunched).length / (known.length || 1);
    return `${number(100 * share, 0)} % of headways are bunched under the ${roleName(role)}`;
  }).join(", ") + ` (under ${100 * data.bunched} % of the scheduled one; fewer is better).`;
  return { finding, rows: table };
});

function loads(rows, stops) {
  return Array.from({ length: stops }, (_, stop) => {
    const here = rows.l.filter((_, i) => rows.q[i] === stop).sort((a, b) => a - b);
    return here.length ? { mean: mean(here), high: here[Math.floor(0.9 * (here.length - 1))] } : null;
  });
}

figure("load", ["service", "block"], (box) => {
  const here = service(), capacity = here.capacity, stops = here.stops.length;
  const chart = area(box, 230, { left: 44, right: 12, top: 24, bottom: 42 });
  const { inner, root } = chart;
  const x = scale([1, stops], [inner.left + 8, inner.right - 8]);
  const y = scale([0, capacity * 1.08], [inner.bottom, inner.top]);
  const step = Math.ceil(stops / (inner.width / 34));
  xAxis(chart, x, { ticks: Array.from({ length: stops }, (_, i) => i + 1).filter((s) => (s - 1) % step === 0),
    label: "stop along the service" });
  yAxis(chart, y, { label: "passengers on board when the bus leaves" });
  root.append(svg("line", { class: "limit", x1: inner.left, x2: inner.right, y1: y(capacity), y2: y(capacity) }));
  const table = [["policy", "stop", "mean_load", "load_nine_tenths"]];
  ROLES.forEach((role, n) => {
    const tone = n ? "two" : "one", dash = n ? " dashed" : "", byStop = loads(day(role), stops);
    for (const [key, extra] of [["mean", ""], ["high", " thin"]]) {
      root.append(svg("polyline", { class: `${tone} line${dash}${extra}`, style: "fill: none",
        points: byStop.map((f, i) => f ? `${x(i + 1)},${y(f[key])}` : "").join(" ").trim() }));
    }
    byStop.forEach((f, i) => {
      if (!f) return;
      const stop = data.city.stops[here.stops[i]][0];
      table.push([data.trial.claim[role], stop, f.mean, f.high]);
      root.append(mark(n ? "diamond" : "dot", x(i + 1), y(f.mean), 4, { class: tone, "data-tip":
        `${roleName(role)}, stop ${i + 1} (${stop})\nmean ${number(f.mean)}; one trip in ten has more than ${f.high}` }));
    });
  });
  legend(box, [
    [[svg("line", { class: "one line", x1: 1, x2: 25, y1: 7, y2: 7 }), mark("dot", 13, 7, 4, { class: "one" })],
      `mean, ${roleName("candidate")}`],
    [[svg("line", { class: "two line dashed", x1: 1, x2: 25, y1: 7, y2: 7 }),
      mark("diamond", 13, 7, 4, { class: "two" })], `mean, ${roleName("parent")}`],
    [svg("line", { class: "grey line thin", x1: 1, x2: 25, y1: 7, y2: 7 }), "nine trips in ten have at most this"],
    [svg("line", { class: "limit", x1: 1, x2: 25, y1: 7, y2: 7 }), `capacity, ${capacity}`],
  ]);
  const finding = `${where()}: ` + ROLES.map((role) => {
    const means = loads(day(role), stops).map((f) => f ? f.mean : 0), most = Math.max(...means);
    return `under the ${roleName(role)} buses are fullest leaving stop ${means.indexOf(most) + 1}, ` +
      `with ${number(most)} passengers on average`;
  }).join("; ") + `; there is room for ${capacity}.`;
  return { finding, rows: table };
});

// -- where and when buses are held ----------------------------------------------------------------

function holdsFinding(role, element, acted, asked) {
  const total = [...acted.values()].reduce((a, b) => a + b, 0), whole = element === data.days.held;
  if (!total) return whole ? `The ${roleName(role)} held no bus.` : `The ${element} changed no hold.`;
  const by = (id) => [...acted].filter(([key]) => key.startsWith(`${id} `)).reduce((a, [, n]) => a + n, 0);
  const most = services.reduce((best, s) => by(s.id) > by(best.id) ? s : best);
  const all = [...asked.values()].reduce((a, b) => a + b, 0);
  const times = `${number(total / data.days.blocks.length, 0)} holds a day, ` +
    `${number(100 * total / (all || 1))} % of all decisions, most of them on service ${most.id}.`;
  return whole ? `The ${roleName(role)} made ${times}` : `The ${element} of the ${roleName(role)} set ${times}`;
}

figure("holds", ["element"], (box) => {
  const [role, element] = chosen.element.split(":"), days = data.days.blocks.length;
  const hours = Math.ceil(data.city.horizon_s / 3600);
  const asked = new Map(data.days.decisions.map(([s, h, n]) => [`${s} ${h}`, n]));
  const acted = new Map(data.days.activations[role].filter((row) => row[0] === element)
    .map(([, s, h, n]) => [`${s} ${h}`, n]));
  const tall = services.length > 8 ? 24 : 34;
  const chart = area(box, tall * services.length, { left: 60, right: 10, top: 24, bottom: 40 });
  const { inner, root } = chart, wide = inner.width / hours;
  const most = Math.max(1e-9, ...[...acted].map(([key, n]) => n / (asked.get(key) || 1)));
  const table = [["policy", "element", "service", "hour_from", "times_a_day", "share_of_decisions"]];
  services.forEach((s, i) => {
    root.append(svg("text", { class: "ink", x: inner.left - 8, y: inner.top + (i + 0.5) * tall + 4,
      "text-anchor": "end" }, s.id));
    for (let hour = 0; hour < hours; hour++) {
      const key = `${s.id} ${hour}`, count = (acted.get(key) || 0) / days;
      const share = (acted.get(key) || 0) / (asked.get(key) || 1), strong = share / most;
      table.push([data.trial.claim[role], element, s.id, clock(3600 * hour), count, share]);
      root.append(svg("rect", { x: inner.left + hour * wide, y: inner.top + i * tall, width: wide - 2,
        height: tall - 2, rx: 3, style: `fill: color-mix(in oklab, var(--held) ${Math.round(85 * strong)}%, var(--card))`,
        "data-tip": `Service ${s.id}, from ${clock(3600 * hour)} to ${clock(3600 * hour + 3600)}\n${element}: ${number(count)} times a day,\n` +
          `${number(100 * share)} % of ${number((asked.get(key) || 0) / days, 0)} decisions` }));
      if (wide > 34) root.append(svg("text", { class: "ink", x: inner.left + (hour + 0.5) * wide - 1,
        y: inner.top + (i + 0.5) * tall + 3, "text-anchor": "middle", "pointer-events": "none" },
      share ? `${number(100 * share, 0)} %` : "0"));
    }
  });
  for (let hour = 0; hour < hours; hour++) root.append(svg("text", { x: inner.left + (hour + 0.5) * wide,
    y: inner.bottom + 15, "text-anchor": "middle" }, clock(3600 * hour)));
  root.append(svg("text", { class: "ink", x: (inner.left + inner.right) / 2, y: inner.bottom + 33,
    "text-anchor": "middle" }, "hour that begins at"),
  svg("text", { class: "ink", x: 0, y: inner.top - 9 }, "service; share of its decisions in that hour"));
  return { finding: holdsFinding(role, element, acted, asked), rows: table };
}, () => {
  const options = [];
  for (const role of ROLES) {
    for (const name of [data.days.held, ...data.days.changes.slice(1)].reverse()) {
      if (data.days.activations[role].some((row) => row[0] === name)) {
        options.push([`${role}:${name}`, `${name}, ${roleName(role)}`]);
      }
    }
  }
  return [chooser("element", "Show", options.length ? options : [[`candidate:${data.days.held}`,
    data.days.held]])];
});

// -- one decision of the look-ahead ---------------------------------------------------------------

figure("decision", [], (box) => {
  const decision = data.days.decision;
  const chart = area(box, 240, { left: 64, right: 14, top: 24, bottom: 42 });
  const { inner, root } = chart, costs = decision.costs;
  const x = scale([0, Math.max(...decision.holds_s)], [inner.left + 8, inner.right - 8]);
  const y = scale(spread(costs), [inner.bottom, inner.top]);
  xAxis(chart, x, { label: "hold that is tried, s" });
  yAxis(chart, y, { label: "change of passengers' time, s (less is better)" });
  root.append(svg("line", { class: "zero", x1: inner.left, x2: inner.right, y1: y(0), y2: y(0) }));
  root.append(svg("polyline", { class: "one line", style: "fill: none",
    points: decision.holds_s.map((hold, i) => `${x(hold)},${y(costs[i])}`).join(" ") }));
  decision.holds_s.forEach((hold, i) => {
    const best = hold === decision.chosen_s;
    root.append(mark(best ? "diamond" : "dot", x(hold), y(costs[i]), best ? 7 : 4, {
      class: best ? "two" : "one", "data-tip": `Held ${number(hold, 0)} s${best ? ", the best" : ""}\n` +
        `${signed(costs[i], 0)} s for all passengers together` }));
  });
  const rows = [["hold_s", "change_of_passenger_time_s"], ...decision.holds_s.map((hold, i) => [hold, costs[i]])];
  return { finding: "", rows };
});
