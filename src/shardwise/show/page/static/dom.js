// Elements from names, properties and children. Text stays text: nothing that was answered is ever read as HTML.
const SVG = "http://www.w3.org/2000/svg";

function fill(element, properties, children) {
  for (const [name, value] of Object.entries(properties || {})) {
    if (value === undefined || value === null || value === false) continue;
    if (name.startsWith("on")) element.addEventListener(name.slice(2), value);
    else if (name === "css") for (const [key, each] of Object.entries(value)) element.style.setProperty(key, each);
    else if (name === "value") element.value = value;
    else element.setAttribute(name, value === true ? "" : String(value));
  }
  for (const child of children.flat(9)) {
    if (child === null || child === undefined || child === false || child === "") continue;
    element.append(child instanceof Node ? child : String(child));
  }
  return element;
}

export function h(name, properties, ...children) {
  return fill(document.createElement(name), properties, children);
}

export function s(name, properties, ...children) {
  return fill(document.createElementNS(SVG, name), properties, children);
}

export function byId(id) {
  return document.getElementById(id);
}

export function rem() {
  return parseFloat(getComputedStyle(document.documentElement).fontSize);
}

export function colour(name) {
  return getComputedStyle(document.documentElement).getPropertyValue(`--${name}`).trim();
}

export function card(title, about, ...children) {
  const head = title ? h("header", null, h("h2", null, title), about ? h("span", { class: "muted" }, about) : null) : null;
  return h("article", { class: "card" }, head, ...children);
}

export function wide(element, size) {
  element.classList.add(size);
  return element;
}

export function table(heads, rows, properties) {
  const line = (cells, tag) => cells.map((cell) => (cell instanceof Node && ["TD", "TH"].includes(cell.tagName) ? cell : h(tag, tag === "th" ? { scope: "col" } : null, cell)));
  const body = rows.map((row) => (row instanceof Node ? row : h("tr", null, line(row, "td"))));
  return h("div", { class: "scroll", tabindex: "0", role: "region", "aria-label": (properties && properties.label) || "table" },
    h("table", { class: (properties && properties.class) || "" }, h("thead", null, h("tr", null, line(heads, "th"))), h("tbody", null, body)));
}

export function notes(lines, title) {
  if (!lines || !lines.length) return null;
  return h("details", { class: "card" }, h("summary", null, `${title || "Notes"} (${lines.length})`), h("ul", { class: "notes" }, lines.map((line) => h("li", null, line))));
}

export function fact(name, value, unit, note) {
  return h("div", { class: "fact" }, h("div", { class: "name" }, name), h("div", { class: "value" }, value, unit ? h("span", { class: "unit" }, unit) : null), note ? h("span", { class: "note" }, note) : null);
}

export function legend(entries) {
  return h("div", { class: "legend-row" }, entries.map(([name, variable, open]) => h("span", null, h("i", { class: `swatch${open ? " open" : ""}`, css: { "--colour": `var(--${variable})` } }), name)));
}

export function tipAt(event, text) {
  const tip = byId("tip");
  if (!text) {
    tip.hidden = true;
    return;
  }
  tip.textContent = text;
  tip.hidden = false;
  const box = tip.getBoundingClientRect();
  const x = Math.min(event.clientX + 14, window.innerWidth - box.width - 8);
  const y = event.clientY + 18 + box.height > window.innerHeight ? event.clientY - box.height - 10 : event.clientY + 18;
  tip.style.left = `${Math.max(8, x)}px`;
  tip.style.top = `${Math.max(8, y)}px`;
}

export function hovered(element, text) {
  element.addEventListener("pointermove", (event) => tipAt(event, text));
  element.addEventListener("pointerleave", (event) => tipAt(event, ""));
  element.append(s("title", null, text));
  return element;
}
