// Figures as files: what is drawn on the page, with its colours, as SVG or PNG.
import { colour, h } from "./dom.js";

const KEPT = ["fill", "fill-opacity", "stroke", "stroke-width", "stroke-opacity", "stroke-dasharray", "stroke-linejoin", "paint-order", "font-family", "font-size", "font-weight", "text-anchor"];
// pixels of a PNG for each of the page
const SHARP = 2;

function named(label, ending) {
  return `${label.toLowerCase().replace(/[^a-z0-9]+/g, "-").replace(/^-|-$/g, "").slice(0, 60) || "figure"}.${ending}`;
}

function download(blob, name) {
  const link = h("a", { href: URL.createObjectURL(blob), download: name });
  link.click();
  setTimeout(() => URL.revokeObjectURL(link.href), 10000);
}

// A copy that needs no style sheet: every element has the looks it has here.
function whole(svg) {
  const copy = svg.cloneNode(true);
  const [own, copied] = [svg.querySelectorAll("*"), copy.querySelectorAll("*")];
  own.forEach((element, place) => {
    const looks = getComputedStyle(element);
    for (const name of KEPT) if (looks.getPropertyValue(name)) copied[place].setAttribute(name, looks.getPropertyValue(name));
    copied[place].removeAttribute("class");
  });
  const { width, height } = svg.getBoundingClientRect();
  copy.setAttribute("xmlns", "http://www.w3.org/2000/svg");
  copy.setAttribute("width", width);
  copy.setAttribute("height", height);
  const ground = document.createElementNS("http://www.w3.org/2000/svg", "rect");
  for (const [name, value] of [["width", "100%"], ["height", "100%"], ["fill", colour("surface")]]) ground.setAttribute(name, value);
  copy.prepend(ground);
  return { text: new XMLSerializer().serializeToString(copy), width, height };
}

export function saveSvg(svg, label) {
  download(new Blob([whole(svg).text], { type: "image/svg+xml" }), named(label, "svg"));
}

export async function savePng(svg, label) {
  const { text, width, height } = whole(svg);
  const image = new Image();
  image.src = URL.createObjectURL(new Blob([text], { type: "image/svg+xml" }));
  await image.decode();
  const canvas = h("canvas", { width: Math.ceil(width * SHARP), height: Math.ceil(height * SHARP) });
  canvas.getContext("2d").drawImage(image, 0, 0, canvas.width, canvas.height);
  URL.revokeObjectURL(image.src);
  saveCanvas(canvas, label);
}

export function saveCanvas(canvas, label) {
  canvas.toBlob((blob) => download(blob, named(label, "png")));
}

// Two small buttons in the corner of a figure, seen when it is pointed at or a key comes to them.
export function saveButtons(svg, label) {
  const button = (words, save) => h("button", { type: "button", "aria-label": `Save as ${words}: ${label}`, onclick: () => save(svg(), label) }, words);
  return h("div", { class: "save" }, button("SVG", saveSvg), button("PNG", savePng));
}
