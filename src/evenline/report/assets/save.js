/* A figure as a file: its drawings, legend and words as one SVG that needs no style sheet. */

const LOOK = { "fill": "rgb(0, 0, 0)", "fill-opacity": "1", "stroke": "none", "stroke-width": "1px",
  "stroke-opacity": "1", "stroke-dasharray": "none", "stroke-linecap": "butt", "stroke-linejoin": "miter",
  "opacity": "1", "font-size": "", "font-weight": "400" };

/* A colour as programs that know nothing of newer notations read it. */
const pixel = Object.assign(document.createElement("canvas"), { width: 1, height: 1 })
  .getContext("2d", { willReadFrequently: true });
const plainColours = new Map();
function plainColour(value) {
  if (/^rgb\(|^none$/.test(value)) return value;
  if (!plainColours.has(value)) {
    pixel.clearRect(0, 0, 1, 1);
    pixel.fillStyle = value;
    pixel.fillRect(0, 0, 1, 1);
    const [red, green, blue, alpha] = pixel.getImageData(0, 0, 1, 1).data;
    plainColours.set(value, alpha ? `rgb(${red}, ${green}, ${blue})` : "none");
  }
  return plainColours.get(value);
}

/* A copy of a drawing where its attributes say what the style sheet says here. */
function standalone(drawing) {
  const copy = drawing.cloneNode(true);
  const elements = [...drawing.querySelectorAll("*")], copies = [...copy.querySelectorAll("*")];
  elements.forEach((element, i) => {
    const twin = copies[i];
    if (element.tagName === "desc" || element.matches(".hit, .row")) return void twin.remove();
    const tip = element.getAttribute("data-tip");
    if (tip) twin.append(svg("title", {}, tip));
    for (const name of ["class", "style", "data-tip", "pointer-events"]) twin.removeAttribute(name);
    if (!element.matches("[class], [style], text")) return;
    const style = getComputedStyle(element);
    for (const [name, usual] of Object.entries(LOOK)) {
      const value = style.getPropertyValue(name);
      const look = name === "fill" || name === "stroke" ? plainColour(value) : value;
      if (look !== usual && (name !== "font-size" || element.tagName === "text")) twin.setAttribute(name, look);
      else twin.removeAttribute(name);
    }
  });
  return copy;
}

/* The lines of a text as the browser has broken them. */
function linesOf(text, origin) {
  const range = document.createRange(), lines = new Map();
  for (const word of text.data.matchAll(/\S+\s*/g)) {
    range.setStart(text, word.index);
    range.setEnd(text, word.index + word[0].length);
    const { left, top, bottom } = range.getBoundingClientRect();
    if (!lines.has(top)) lines.set(top, { x: left - origin.left, y: (top + bottom) / 2 - origin.top, words: "" });
    lines.get(top).words += word[0];
  }
  const style = getComputedStyle(text.parentElement);
  return [...lines.values()].map(({ x, y, words }) => svg("text", { x, y, dy: ".35em", fill: plainColour(style.color),
    "font-size": style.fontSize, "font-weight": style.fontWeight }, words.trim()));
}

function asSvg(box) {
  const origin = box.getBoundingClientRect(), page = getComputedStyle(document.body);
  const root = svg("svg", { xmlns: "http://www.w3.org/2000/svg", width: origin.width, height: origin.height,
    viewBox: `0 0 ${origin.width} ${origin.height}`, "font-family": page.fontFamily },
  svg("title", {}, box.getAttribute("aria-label")),
  svg("rect", { width: "100%", height: "100%", fill: plainColour(page.backgroundColor) }));
  const walker = document.createTreeWalker(box, NodeFilter.SHOW_TEXT, (node) =>
    node.parentElement.closest("svg") ? NodeFilter.FILTER_REJECT : NodeFilter.FILTER_ACCEPT);
  while (walker.nextNode()) root.append(...linesOf(walker.currentNode, origin));
  for (const drawing of box.querySelectorAll("svg")) {
    const { left, top, width, height } = drawing.getBoundingClientRect();
    const copy = standalone(drawing);
    for (const name of ["role", "aria-label", "data-part", "style"]) copy.removeAttribute(name);
    const place = { x: left - origin.left, y: top - origin.top, width, height };
    for (const [name, value] of Object.entries(place)) copy.setAttribute(name, value);
    root.append(copy);
  }
  return new XMLSerializer().serializeToString(root);
}

function save(id) {
  const href = URL.createObjectURL(new Blob([asSvg(figures[id].box)], { type: "image/svg+xml" }));
  html("a", { href, download: `${id}.svg` }).click();
  setTimeout(() => URL.revokeObjectURL(href), 60000); // a busy machine begins late to save it
}
