"use strict";
/* The kit: drawing without a library, tooltips, choices, downloads, and the page's check of itself.
   Figures register themselves with `figure(id, uses, paint)`; `paint` fills a box and returns the
   rows of its table, which is what the CSV button hands out, and what the picture shows as it is
   chosen, in a sentence for the caption and for those who do not see it. */

const problems = [];
addEventListener("error", (event) => problems.push(String(event.message)));
addEventListener("securitypolicyviolation", (event) => problems.push("blocked " + event.blockedURI));
const complain = console.error;
console.error = (...words) => { problems.push(words.join(" ")); complain(...words); };

const data = JSON.parse(document.getElementById("data").textContent);
const chosen = {};
const figures = {};

// -- elements ------------------------------------------------------------------------------------

function svg(name, attributes = {}, ...inside) {
  const made = document.createElementNS("http://www.w3.org/2000/svg", name);
  for (const [key, value] of Object.entries(attributes)) {
    if (key === "style") made.style.cssText = value;
    else if (value !== undefined && value !== null) made.setAttribute(key, value);
  }
  made.append(...inside);
  return made;
}

function html(name, attributes = {}, ...inside) {
  const made = document.createElement(name);
  for (const [key, value] of Object.entries(attributes)) made.setAttribute(key, value);
  made.append(...inside);
  return made;
}

const number = (value, digits = 1) =>
  value === null || value === undefined || !isFinite(value) ? "-" :
    value.toLocaleString("en-GB", { minimumFractionDigits: digits, maximumFractionDigits: digits })
      .replace("-", "\u2212");
const signed = (value, digits = 1) => (value > 0 ? "+" : "") + number(value, digits);
const clock = (since) => {
  const seconds = since + (data.city ? data.city.start_s : 0);
  return Math.floor(seconds / 3600) + ":" + String(Math.floor((seconds % 3600) / 60)).padStart(2, "0");
};
const mean = (values) => values.reduce((sum, value) => sum + value, 0) / values.length;

// -- scales and axes -----------------------------------------------------------------------------

function scale([from, to], [low, high]) {
  const span = to - from || 1;
  const place = (value) => low + (value - from) / span * (high - low);
  place.back = (pixel) => from + (pixel - low) / (high - low) * span;
  place.domain = [from, to];
  return place;
}

function ticks([from, to], count) {
  const rough = (to - from) / Math.max(1, count);
  const power = 10 ** Math.floor(Math.log10(rough));
  const step = [1, 2, 2.5, 5, 10].map((n) => n * power).find((n) => n >= rough * 0.999);
  const places = [];
  for (let at = Math.ceil(from / step - 1e-9) * step; at <= to + step * 1e-6; at += step) {
    places.push(Math.abs(at) < step * 1e-6 ? 0 : at);
  }
  return places;
}

function timeTicks([from, to], width) {
  const step = [60, 120, 300, 600, 900, 1800, 3600, 7200]
    .find((s) => (to - from) / s <= width / 60) || 14400;
  const places = [];
  for (let at = Math.ceil(from / step) * step; at <= to; at += step) places.push(at);
  return places;
}

const short = (value) => Math.abs(value) >= 1e5 || (value !== 0 && Math.abs(value) < 1e-3)
  ? value.toExponential(0) : String(+value.toPrecision(6)).replace("-", "\u2212");

/* A drawing area with margins; `height` is of the area inside. */
function area(box, height, margin, label) {
  const width = Math.max(300, Math.round(box.clientWidth || 900));
  const inner = { left: margin.left, right: width - margin.right, top: margin.top,
    bottom: margin.top + height, width: width - margin.left - margin.right, height };
  const root = svg("svg", { viewBox: `0 0 ${width} ${margin.top + height + margin.bottom}`,
    role: "img", "data-part": label }, svg("desc"));
  box.append(root);
  return { root, inner, width };
}

function xAxis({ root, inner }, x, options = {}) {
  const marks = options.ticks || ticks(x.domain, Math.max(3, inner.width / 75));
  for (const at of marks) {
    root.append(svg("line", { class: "grid", x1: x(at), x2: x(at), y1: inner.top, y2: inner.bottom }));
    root.append(svg("text", { x: x(at), y: inner.bottom + 16, "text-anchor": "middle" },
      (options.format || short)(at)));
  }
  if (options.label) root.append(svg("text", { class: "ink", x: (inner.left + inner.right) / 2,
    y: inner.bottom + 35, "text-anchor": "middle" }, options.label));
}

function yAxis({ root, inner }, y, options = {}) {
  for (const at of options.ticks || ticks(y.domain, inner.height / 45)) {
    root.append(svg("line", { class: "grid", x1: inner.left, x2: inner.right, y1: y(at), y2: y(at) }));
    root.append(svg("text", { x: inner.left - 7, y: y(at) + 4, "text-anchor": "end" },
      (options.format || short)(at)));
  }
  if (options.label) root.append(svg("text", { class: "ink", x: inner.left, y: inner.top - 9 },
    options.label));
}

/* Marks that do not lean on colour: a dot for the candidate, a diamond for the parent. */
function mark(kind, x, y, size, attributes) {
  if (kind === "diamond") {
    const s = size * 1.25;
    return svg("path", { d: `M${x - s},${y}L${x},${y - s}L${x + s},${y}L${x},${y + s}Z`, ...attributes });
  }
  if (kind === "square") {
    return svg("rect", { x: x - size, y: y - size, width: 2 * size, height: 2 * size, ...attributes });
  }
  return svg("circle", { cx: x, cy: y, r: size, ...attributes });
}

function legend(box, entries) {
  const holder = html("div", { class: "legend", "aria-hidden": "true" });
  for (const [sign, words] of entries) {
    const icon = svg("svg", { viewBox: "0 0 26 14" });
    icon.append(...[sign].flat());
    holder.append(html("span", {}, icon, words));
  }
  box.append(holder);
}

/* Two colours on either side of the paper: how far from zero, from -1 to 1. */
function diverging(value, low, high) {
  const strength = Math.round(Math.min(1, Math.abs(value)) * 100);
  return `fill: color-mix(in oklab, var(${value < 0 ? low : high}) ${strength}%, var(--card))`;
}

// -- choices -------------------------------------------------------------------------------------

function choose(key, value) {
  chosen[key] = value;
  for (const select of document.querySelectorAll(`select[data-key="${key}"]`)) {
    select.value = value;
    spell(select);
  }
  for (const [id, drawn] of Object.entries(figures)) if (drawn.uses.includes(key)) draw(id);
}

/* Paper has no menu: the words of what is chosen stand beside it, for print alone. */
function spell(select) {
  select.nextSibling.textContent = select.selectedOptions.length ? select.selectedOptions[0].text : "";
}

function chooser(key, label, options) {
  const select = html("select", { "data-key": key });
  for (const [value, words] of options) select.append(html("option", { value }, words));
  if (chosen[key] === undefined && options.length) chosen[key] = String(options[0][0]);
  select.value = chosen[key];
  select.addEventListener("change", () => choose(key, select.value));
  const made = html("label", {}, label, select, html("span", { class: "printed" }));
  spell(select);
  return made;
}

function button(words, name, act) {
  const made = html("button", { type: "button", title: name, "aria-label": name }, words);
  made.addEventListener("click", act);
  return made;
}

// -- figures -------------------------------------------------------------------------------------

function figure(id, uses, paint, controls) {
  const holder = document.querySelector(`figure[data-figure="${id}"]`);
  if (!holder) return;
  figures[id] = { holder, uses, paint, box: holder.querySelector(".plot") };
  if (controls) holder.querySelector(".controls").append(...controls());
  figures[id].box.addEventListener("keydown", walk);
  figures[id].box.addEventListener("blur", leave);
  const link = holder.querySelector("a.csv");
  const fill = () => { link.href = "data:text/csv;charset=utf-8," + encodeURIComponent(csv(id)); };
  for (const event of ["click", "focus", "pointerenter"]) link.addEventListener(event, fill);
  holder.querySelector("button.save").addEventListener("click", () => save(id));
}

function draw(id) {
  const drawn = figures[id];
  drawn.rows = [];
  try {
    drawn.box.replaceChildren();
    const painted = drawn.paint(drawn.box);
    drawn.rows = painted.rows;
    tell(drawn, painted.finding);
  } catch (error) {
    problems.push(`${id}: ${error.stack || error}`);
    drawn.box.replaceChildren(html("p", { class: "missing" }, "This figure could not be drawn."));
  }
}

/* Caption and text alternative say what is drawn now; without a finding they stay as they were. */
function tell({ holder, box }, finding) {
  const spoken = holder.querySelector("[data-finding]");
  if (finding) spoken.textContent = finding;
  const words = [spoken.textContent, holder.querySelector("[data-caption]").textContent].join(" ").trim();
  box.setAttribute("aria-label", `${box.dataset.kind}. ${words}`);
  box.tabIndex = box.querySelector("[data-tip]") ? 0 : -1;
  for (const root of box.querySelectorAll(":scope > svg")) {
    root.setAttribute("aria-label", `${root.dataset.part || box.dataset.kind}. ${spoken.textContent || words}`);
    root.querySelector("desc").textContent = words;
  }
}

function csv(id) {
  const quote = (value) => /[",\n]/.test(value) ? `"${value.replaceAll('"', '""')}"` : value;
  return figures[id].rows.map((row) =>
    row.map((value) => quote(value === null || value === undefined ? "" : String(value))).join(","))
    .join("\n") + "\n";
}

// -- tooltips ------------------------------------------------------------------------------------

const tip = document.getElementById("tip");

function show(over, x, y) {
  tip.hidden = !over;
  if (!over) return;
  tip.textContent = over.getAttribute("data-tip");
  const room = document.documentElement.clientWidth, size = tip.getBoundingClientRect();
  tip.style.left = Math.max(6, Math.min(x + 14, room - size.width - 6)) + "px";
  const below = y + 18;
  tip.style.top = (below + size.height > innerHeight ? y - size.height - 12 : below) + "px";
}

function point(event) {
  show(event.target.closest ? event.target.closest("[data-tip]") : null, event.clientX, event.clientY);
}

/* The same from the keyboard: arrows go from mark to mark of the figure that has the focus. */
function walk(event) {
  if (event.altKey || event.ctrlKey || event.metaKey) return;
  if (event.key === "Escape") leave(event);
  const step = { ArrowRight: 1, ArrowDown: 1, ArrowLeft: -1, ArrowUp: -1 }[event.key];
  const marks = step ? [...event.currentTarget.querySelectorAll("[data-tip]")].filter(inSight) : [];
  if (!marks.length) return;
  event.preventDefault();
  const at = marks.indexOf(event.currentTarget.querySelector(".here"));
  const mark = marks[at < 0 ? (step > 0 ? 0 : marks.length - 1) : (at + step + marks.length) % marks.length];
  leave(event);
  mark.classList.add("here");
  const { left, top, width, height } = mark.getBoundingClientRect();
  show(mark, left + width / 2, top + height / 2);
}

function leave(event) {
  for (const mark of event.currentTarget.querySelectorAll(".here")) mark.classList.remove("here");
  show(null);
}

/* A mark that zooming has moved out of its picture, or scrolling out of the window, is not. */
function inSight(mark) {
  const box = mark.getBoundingClientRect(), whole = mark.ownerSVGElement.getBoundingClientRect();
  return box.right >= Math.max(whole.left, 0) && box.left <= Math.min(whole.right, innerWidth) &&
    box.bottom >= Math.max(whole.top, 0) && box.top <= Math.min(whole.bottom, innerHeight);
}
for (const event of ["pointermove", "pointerdown"]) document.addEventListener(event, point);
document.addEventListener("scroll", () => { tip.hidden = true; }, { passive: true });

// -- the page's check of itself: open it with ?check ---------------------------------------------------

/* Every choice taken, every button pressed, one mark pointed at, two reached by keys. Deaf is a figure that shows
   something else and says the same. */
function exercise() {
  let taken = 0;
  const deaf = [];
  for (const select of document.querySelectorAll("select")) {
    const listeners = Object.entries(figures).filter(([, drawn]) => drawn.uses.includes(select.dataset.key))
      .map(([id, drawn]) => [id, drawn.box, new Set()]);
    for (const option of [...select.options].reverse()) {
      select.value = option.value;
      select.dispatchEvent(new Event("change"));
      taken++;
      for (const [, box, heard] of listeners) heard.add(box.getAttribute("aria-label"));
      if (select.nextSibling.textContent !== option.text) deaf.push(`print ${select.dataset.key}`);
    }
    for (const [id, , heard] of listeners) if (heard.size < select.options.length) deaf.push(id);
  }
  for (const pressed of document.querySelectorAll("button:not(.save)")) pressed.click();
  const target = document.querySelector("[data-tip]");
  target.dispatchEvent(new PointerEvent("pointermove", { bubbles: true, clientX: 9, clientY: 9 }));
  const pointed = !tip.hidden && tip.textContent === target.getAttribute("data-tip");
  const box = target.closest(".plot");
  box.scrollIntoView({ behavior: "instant" });
  const [first, second] = [...box.querySelectorAll("[data-tip]")].filter(inSight);
  const pressed = (key) => {
    box.dispatchEvent(new KeyboardEvent("keydown", { key }));
    return !tip.hidden && tip.textContent;
  };
  const keys = box.tabIndex === 0 && pressed("ArrowRight") === first.getAttribute("data-tip") &&
    pressed("ArrowDown") === second.getAttribute("data-tip") && !pressed("Escape");
  return { choices: taken, deaf, tip: pointed, keys };
}

function check() {
  const marks = (id) => figures[id].box.querySelectorAll("circle,path,rect,line,polyline").length;
  const seen = { figures: {}, csv: {} };
  for (const id of Object.keys(figures)) {
    seen.figures[id] = marks(id);
    seen.csv[id] = csv(id).split("\n").length - 2;
  }
  const select = document.querySelector('select[data-key="service"]');
  if (select && select.options.length > 1) {
    const before = figures.timespace.box.innerHTML;
    select.value = [...select.options].find((option) => option.value !== chosen.service).value;
    select.dispatchEvent(new Event("change"));
    seen.service = chosen.service;
    seen.redrawn = figures.timespace.box.innerHTML !== before && marks("timespace") > 0;
  }
  Object.assign(seen, exercise());
  seen.nameless = [...document.querySelectorAll(".plot > svg")]
    .filter((drawing) => !drawing.getAttribute("aria-label") || !drawing.querySelector("desc").textContent).length;
  seen.overflow = document.documentElement.scrollWidth - document.documentElement.clientWidth;
  seen.requests = performance.getEntriesByType("resource").map((entry) => entry.name);
  seen.problems = problems;
  document.body.append(html("pre", { id: "check", hidden: "" }, JSON.stringify(seen)));
}

function begin() {
  for (const id of Object.keys(figures)) draw(id);
  let width = innerWidth, later = 0;
  addEventListener("resize", () => {
    if (innerWidth === width) return;
    width = innerWidth;
    clearTimeout(later);
    later = setTimeout(() => { for (const id of Object.keys(figures)) draw(id); }, 150);
  });
  if (location.search === "?check") check();
  if (location.search === "?figures") document.body.append(html("pre", { id: "figures", hidden: "" },
    JSON.stringify(Object.fromEntries(Object.entries(figures).map(([id, { box }]) => [id, asSvg(box)])))));
}
