// The switches of a fabric, its nodes and the links between them, each in the colour of its load.
import { responsive } from "../charts.js";
import { card, h, hovered, s } from "../dom.js";
import { percent } from "../format.js";

const SHADES = 8;

// Absolute: the darkest is a link that is always full, so that two cases can be compared.
function shade(share) {
  return `var(--heat-${Math.min(SHADES, Math.ceil(Math.min(1, share) * SHADES))})`;
}

// As wide as a thread when idle, as a cable when as full as the fullest.
function thickness(share, most) {
  return 0.6 + 2.4 * (share / (most || 1));
}

function names(row) {
  return row.total > row.shown.length ? `${row.shown.length} of ${row.total.toLocaleString("en-US")}` : String(row.total);
}

function draw({ rows, links, most }, width, em) {
  const [left, pitch, tall] = [7.5 * em, 4.6 * em, 1.5 * em];
  const room = (row) => (width - left) / row.shown.length;
  const x = (row, place) => left + (place + 0.5) * room(rows[row]);
  const y = (row) => 0.3 * em + row * pitch;
  const height = y(rows.length - 1) + tall + 0.3 * em;
  const chart = s("svg", { viewBox: `0 0 ${width} ${height}`, height });
  for (const link of [...links].sort((a, b) => a.share - b.share)) {
    chart.append(s("line", { x1: x(link.row, link.upper), y1: y(link.row) + tall, x2: x(link.row + 1, link.lower), y2: y(link.row + 1), stroke: link.share > 0 ? shade(link.share) : "var(--line)", "stroke-width": thickness(link.share, most) }));
  }
  rows.forEach((row, at) => {
    const wide = Math.min(room(row) * 0.82, 4 * em);
    chart.append(s("text", { x: 0, y: y(at) + 0.65 * em, class: "strong" }, row.name), s("text", { x: 0, y: y(at) + 1.6 * em }, names(row)));
    row.shown.forEach((number, place) => {
      const share = row.shares[place];
      const fullest = share === most;
      const box = s("rect", { x: x(at, place) - wide / 2, y: y(at), width: wide, height: tall, rx: 3, fill: share > 0 ? shade(share) : "var(--raised)", stroke: fullest ? "var(--ink)" : "var(--line)", "stroke-width": fullest ? 2 : 1 });
      chart.append(hovered(box, `${row.name} ${number}: its fullest link is busy ${percent(share)} of the step`));
    });
  });
  return chart;
}

export function fabricMap(net) {
  if (!net.map) return null;
  const scale = h("span", { class: "shades", "aria-hidden": "true" }, [...Array(SHADES + 1)].map((_, step) => h("i", { css: { "--colour": `var(--heat-${step})` } })));
  return card("The fabric", net.map.busiest, responsive((width, em) => draw(net.map, width, em), `Map of the fabric, coloured by load; ${net.map.busiest}`),
    h("div", { class: "legend-row" }, h("span", null, "idle"), scale, h("span", null, `always full; the fullest here: ${percent(net.map.most)}`)));
}
