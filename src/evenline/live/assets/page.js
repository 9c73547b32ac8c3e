// The dispatcher's page: draws what the server sends, and sends answers back. No library.
"use strict";
const fixed = JSON.parse(document.getElementById("data").textContent);
const paths = new Map(); // trip -> {service, points: [[second, metres], ...]}
let view = null;
let heard = Date.now();

const by = (id) => document.getElementById(id);
function make(name, text, kind) {
  const element = document.createElement(name);
  if (text !== undefined) element.textContent = text;
  if (kind) element.className = kind;
  return element;
}
const colour = (name) => getComputedStyle(document.documentElement).getPropertyValue("--" + name).trim();
const minutes = (s) => Math.floor(s / 60) + ":" + String(Math.round(s) % 60).padStart(2, "0");
function clock(second) {
  const s = Math.round(fixed.midnight + second);
  const part = (n) => String(n).padStart(2, "0");
  return part(Math.floor(s / 3600) % 24) + ":" + part(Math.floor(s / 60) % 60);
}
function spacing(bus) {
  if (bus.headway === null || !bus.target) return "even";
  if (bus.headway < fixed.bunched * bus.target) return "bunched";
  return bus.headway > fixed.gapped * bus.target ? "gapped" : "even";
}

// -- answers --------------------------------------------------------------------------------------

async function send(path, body) {
  try {
    const answer = await fetch(path, {
      method: "POST", headers: { "Content-Type": "application/json" }, body: JSON.stringify(body),
    });
    const said = await answer.json();
    fail(answer.ok ? "" : said.error);
  } catch (error) {
    fail("The server does not answer: " + error.message);
  }
}
function fail(text) {
  by("failure").textContent = text;
  by("failure").hidden = !text;
}
function answer(card, accept) {
  const why = card.querySelector(".why").value;
  send("answer", { number: Number(card.dataset.number), accept, why });
}

// -- parts of the page ----------------------------------------------------------------------------

function card(advice) {
  const item = make("li", undefined, "card");
  item.dataset.number = advice.number;
  item.tabIndex = 0;
  item.append(make("b", `${advice.line}: hold ${advice.vehicle} at ${advice.place} until ${advice.until}`));
  item.append(make("p", advice.reason, "reason"), make("p", "", "state note"));
  const why = make("input", undefined, "why");
  why.placeholder = "Reason (optional)";
  why.setAttribute("aria-label", "Reason of your answer");
  why.maxLength = 200;
  const buttons = make("div", undefined, "buttons");
  for (const [text, accept, kind] of [["Accept", true, "yes"], ["Reject", false, "no"]]) {
    const button = make("button", text, kind);
    button.type = "button";
    button.addEventListener("click", () => answer(item, accept));
    buttons.append(button);
  }
  item.append(why, buttons);
  item.addEventListener("keydown", (event) => {
    if (event.target !== item) return;
    const key = event.key.toLowerCase();
    if (key === "a" || key === "r") answer(item, key === "a");
  });
  return item;
}
function drawAdvice() {
  const live = view.advice.filter((a) => a.state === "open" || a.state === "accepted");
  const list = by("advice");
  const known = new Map([...list.querySelectorAll(".card")].map((c) => [Number(c.dataset.number), c]));
  for (const advice of live) {
    const item = known.get(advice.number) || card(advice); // a card that is typed into stays
    known.delete(advice.number);
    const open = advice.state === "open";
    item.querySelector(".state").textContent = open ? `asked at ${advice.made}` : "accepted";
    item.querySelector(".why").hidden = !open;
    item.querySelector(".buttons").hidden = !open;
    item.querySelectorAll("button").forEach((b) => { b.disabled = !open; b.hidden = !open; });
    if (!item.isConnected) list.append(item);
  }
  for (const gone of known.values()) gone.remove();
  let none = by("none");
  if (!live.length && !none) {
    none = make("li", view.on.length ? "No advice now." : "Advice is off. Switch a line on.", "note");
    none.id = "none";
    list.append(none);
  } else if (none) {
    if (live.length) none.remove();
    else none.textContent = view.on.length ? "No advice now." : "Advice is off. Switch a line on.";
  }
  by("past").replaceChildren(...view.advice.filter((a) => !live.includes(a)).reverse().map((a) => {
    const item = make("li", undefined, "card past");
    item.append(make("p", `${a.made} ${a.line}: ${a.vehicle} at ${a.place} until ${a.until}: ${a.state}` +
      (a.why ? ` (${a.why})` : "")));
    return item;
  }));
}
function drawLines() {
  const box = by("lines");
  if (!box.children.length) {
    for (const service of fixed.services) {
      const label = make("label");
      const input = make("input");
      input.type = "checkbox";
      input.value = service.id;
      input.addEventListener("change", () => send("switch", { service: service.id, on: input.checked }));
      label.append(input, service.name);
      box.append(label);
    }
  }
  for (const input of box.querySelectorAll("input")) input.checked = view.on.includes(input.value);
}
function drawFeed() {
  const feed = view.feed;
  const silent = (Date.now() - heard) / 1000;
  const others = Object.entries(feed.states).filter(([n]) => !["trip", "block", "place", "same", "trip is over"].includes(n));
  const rows = [
    ["Time", view.clock], ["Feed age", feed.age === null ? "no data" : feed.age + " s", feed.age === null || feed.age > 75],
    ["Buses", feed.vehicles], ["Matched", feed.matched === null ? "–" : Math.round(100 * feed.matched) + " %"],
    ["Events", feed.events_per_min + " / min"],
    ["Decision", feed.decision_ms === null ? "–" : feed.decision_ms + " ms"],
  ];
  if (others.length) rows.push(["Not used", others.map(([n, c]) => `${c} ${n}`).join(", ")]);
  if (silent > 60) rows.push(["Server", `silent for ${Math.round(silent)} s`, true]);
  by("feed").replaceChildren(...rows.map(([name, value, old]) => {
    const row = make("div", undefined, old ? "old" : "");
    row.append(make("dt", name), make("dd", String(value)));
    return row;
  }));
  if (feed.failure) fail(feed.failure);
}
function drawBuses() {
  const advised = new Map(view.advice.filter((a) => a.state === "open" || a.state === "accepted")
    .map((a) => [a.trip, a]));
  const order = [...view.vehicles].sort((a, b) => a.service - b.service || b.along - a.along);
  by("buses").replaceChildren(...order.map((bus) => {
    const row = make("tr", undefined, bus.sure < 0.7 ? "unsure" : "");
    const advice = advised.get(bus.trip);
    const head = make("th", bus.vehicle);
    head.scope = "row";
    const kind = spacing(bus);
    const headway = bus.headway === null ? "–" : minutes(bus.headway) + (kind === "even" ? "" : " " + kind);
    row.append(head, make("td", fixed.services[bus.service].name), make("td", bus.next),
      make("td", headway, kind), make("td", bus.target ? minutes(bus.target) : "–"),
      make("td", String(bus.load)), make("td", `${bus.age} s, ${Math.round(100 * bus.sure)} % sure`),
      make("td", advice ? `hold at ${advice.place} until ${advice.until} (${advice.state})` : ""));
    return row;
  }));
}

// -- drawings -------------------------------------------------------------------------------------

function canvas(id) {
  const element = by(id), ratio = window.devicePixelRatio || 1, box = element.getBoundingClientRect();
  element.width = Math.round(box.width * ratio);
  element.height = Math.round(box.height * ratio);
  const pen = element.getContext("2d");
  pen.setTransform(ratio, 0, 0, ratio, 0, 0);
  pen.font = "12px system-ui, sans-serif";
  return [pen, box.width, box.height];
}
function drawLadder() {
  const [pen, width, height] = canvas("ladder");
  const index = Number(by("service").value) || 0, service = fixed.services[index];
  const past = Number(by("span").value), begin = view.now - past, end = view.now + 300;
  const left = Math.min(150, width * 0.28), top = 10, bottom = height - 24;
  const low = service.stops[0][1], high = service.stops[service.stops.length - 1][1];
  const x = (s) => left + (s - begin) / (end - begin) * (width - left - 8);
  const y = (m) => top + (m - low) / (high - low) * (bottom - top);
  pen.fillStyle = colour("muted");
  pen.strokeStyle = colour("faint");
  pen.lineWidth = 1;
  let lastLabel = -99;
  for (const [name, metres] of service.stops) {
    pen.beginPath(); pen.moveTo(left, y(metres)); pen.lineTo(width - 8, y(metres)); pen.stroke();
    if (y(metres) - lastLabel >= 13) {
      lastLabel = y(metres);
      let text = name;
      while (text.length > 3 && pen.measureText(text).width > left - 12) text = text.slice(0, -2);
      pen.fillText(text === name ? name : text + "…", 6, y(metres) + 4);
    }
  }
  const apart = (end - begin) * 52 / (width - left - 8); // seconds between two labels at least
  const step = [300, 600, 900, 1800, 3600].find((s) => s >= apart) || 7200;
  for (let s = Math.ceil((begin + fixed.midnight) / step) * step - fixed.midnight; s < end; s += step) {
    pen.beginPath(); pen.moveTo(x(s), top); pen.lineTo(x(s), bottom); pen.stroke();
    if (x(s) < width - 24) pen.fillText(clock(s), x(s) - 15, height - 7);
  }
  pen.strokeStyle = colour("ink");
  pen.setLineDash([4, 4]);
  pen.beginPath(); pen.moveTo(x(view.now), top); pen.lineTo(x(view.now), bottom); pen.stroke();
  pen.setLineDash([]);
  pen.save();
  pen.beginPath(); pen.rect(left, 0, width - left, bottom + 6); pen.clip();
  const buses = new Map(view.vehicles.filter((b) => b.service === index).map((b) => [b.trip, b]));
  for (const [trip, path] of paths) {
    if (path.service !== index) continue;
    const bus = buses.get(trip);
    pen.strokeStyle = bus ? colour(spacing(bus)) : colour("muted");
    pen.lineWidth = bus ? 2.2 : 1.1;
    pen.beginPath();
    path.points.forEach(([s, m], i) => (i ? pen.lineTo(x(s), y(m)) : pen.moveTo(x(s), y(m))));
    pen.stroke();
  }
  for (const a of view.advice) {
    if (a.service !== index || a.state === "rejected") continue;
    const at = y(service.stops[a.stop][1]), faded = a.state === "withdrawn";
    pen.globalAlpha = faded ? 0.35 : 1;
    pen.strokeStyle = pen.fillStyle = colour("held");
    pen.lineWidth = a.state === "open" ? 3 : 5;
    pen.beginPath(); pen.moveTo(x(a.until_s - a.hold), at); pen.lineTo(x(a.until_s), at); pen.stroke();
    pen.beginPath(); pen.moveTo(x(a.until_s) - 6, at - 6); pen.lineTo(x(a.until_s) + 4, at);
    pen.lineTo(x(a.until_s) - 6, at + 6); pen.fill();
    pen.globalAlpha = 1;
  }
  let labelled = -1; // names of buses at one place stand below each other
  for (const bus of [...buses.values()].sort((a, b) => a.along - b.along)) {
    const spot = [x(view.now - bus.age), y(bus.along)];
    pen.fillStyle = colour(spacing(bus));
    pen.beginPath(); pen.arc(...spot, 5, 0, 7); pen.fill();
    pen.fillStyle = colour("ink");
    const text = bus.vehicle.slice(-12);
    labelled = Math.max(spot[1] - 6, labelled + 12);
    pen.fillText(text, Math.min(spot[0] + 8, width - 8 - pen.measureText(text).width), labelled);
  }
  pen.restore();
}
function drawMap() {
  const [pen, width, height] = canvas("map");
  const every = (k) => fixed.services.flatMap((s) => s[k]);
  const lowX = Math.min(...every("x")), highX = Math.max(...every("x"));
  const lowY = Math.min(...every("y")), highY = Math.max(...every("y"));
  const scale = Math.min((width - 30) / Math.max(highX - lowX, 1), (height - 30) / Math.max(highY - lowY, 1));
  const offX = (width - scale * (highX - lowX)) / 2, offY = (height - scale * (highY - lowY)) / 2;
  const x = (m) => offX + (m - lowX) * scale, y = (m) => height - offY - (m - lowY) * scale;
  const chosen = Number(by("service").value) || 0;
  fixed.services.forEach((service, i) => {
    pen.strokeStyle = i === chosen ? colour("muted") : colour("faint");
    pen.lineWidth = i === chosen ? 3 : 2;
    pen.beginPath();
    service.x.forEach((px, k) => (k ? pen.lineTo(x(px), y(service.y[k])) : pen.moveTo(x(px), y(service.y[k]))));
    pen.stroke();
  });
  const advised = new Set(view.advice.filter((a) => a.state === "open" || a.state === "accepted").map((a) => a.trip));
  for (const bus of view.vehicles) {
    pen.fillStyle = colour(spacing(bus));
    pen.globalAlpha = bus.sure < 0.7 ? 0.4 : 1;
    pen.beginPath(); pen.arc(x(bus.x), y(bus.y), bus.service === chosen ? 5 : 3.5, 0, 7); pen.fill();
    if (advised.has(bus.trip)) {
      pen.strokeStyle = colour("held");
      pen.lineWidth = 2;
      pen.beginPath(); pen.arc(x(bus.x), y(bus.y), 9, 0, 7); pen.stroke();
    }
    pen.globalAlpha = 1;
  }
}
function draw() {
  if (!view) return;
  drawFeed(); drawAdvice(); drawLines(); drawBuses(); drawLadder(); drawMap();
}

// -- news -----------------------------------------------------------------------------------------

function take(news) {
  view = news;
  heard = Date.now();
  for (const [trip, path] of Object.entries(news.paths)) {
    const own = paths.get(trip) || { service: path.service, points: [] };
    const last = own.points.length ? own.points[own.points.length - 1][0] : -Infinity;
    own.points.push(...path.points.filter((p) => p[0] > last));
    own.points = own.points.filter((p) => p[0] > news.now - fixed.kept_s);
    paths.set(trip, own);
  }
  for (const [trip, path] of paths) if (!path.points.length) paths.delete(trip);
  draw();
}
function listen() {
  const source = new EventSource("news?since=" + (view ? view.now - 120 : -1e9));
  source.onmessage = (event) => { fail(""); take(JSON.parse(event.data)); };
  source.addEventListener("end", () => { source.close(); fail("The shadow has ended."); });
  source.onerror = () => { fail("The server does not answer."); source.close(); setTimeout(listen, 3000); };
}

by("policy").textContent = fixed.policy;
fixed.services.forEach((service, i) => {
  const option = make("option", service.name);
  option.value = i;
  by("service").append(option);
});
by("legend").append(
  make("span", "● even headway", "even"), make("span", `● bunched: under ${100 * fixed.bunched} % of the target`, "bunched"),
  make("span", `● gapped: over ${100 * fixed.gapped} %`, "gapped"), make("span", "▶ hold until", "held"));
by("notes").textContent = fixed.notes.join(" ");
for (const id of ["service", "span"]) by(id).addEventListener("change", draw);
addEventListener("resize", draw);
matchMedia("(prefers-color-scheme: dark)").addEventListener("change", draw);
setInterval(() => view && drawFeed(), 5000);
take(fixed.view);
listen();
