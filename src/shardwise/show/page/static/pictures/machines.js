// What a GPU is made of, what it keeps, and ways to cut the work.
import { s } from "../dom.js";
import { box, canvas, ease, words } from "./parts.js";

// Activations: kept on the way there, or computed again on the way back.
export function recompute(t, width, em) {
  const chart = canvas(width, 13 * em);
  const layers = 6;
  const unit = (width - 7 * em) / layers;
  ["keep all", "keep inputs"].forEach((name, row) => {
    const y = (0.8 + row * 6) * em;
    const at = t * 13;
    let held = 0;
    chart.append(words(3 * em, y + 1.6 * em, name, { class: "strong" }));
    for (let layer = 0; layer < layers; layer += 1) {
      const there = at > layer;
      const back = at > 13 - layer - 1;
      const now = Math.floor(at) === 13 - layer - 1;
      const full = there && !back && (row === 0 || now);
      const size = !there || back ? 0 : full ? 3.2 : 0.5;
      held += size;
      chart.append(box(6 * em + layer * unit, y, unit - 4, 3.2 * em, "raised", { stroke: now ? "var(--accent)" : "var(--line)" }));
      chart.append(box(6 * em + layer * unit + 3, y + (3.2 - size) * em, unit - 10, size * em, row && now ? "task-recompute" : "memory-activations"));
    }
    chart.append(s("text", { x: 6 * em, y: y + 4.5 * em }, `held: ${held.toFixed(1)}${row ? "; up to a third more arithmetic" : ""}`));
  });
  return chart;
}

// A number in fewer bits: sign, exponent, digits.
export function bits(t, width, em) {
  const chart = canvas(width, 14.5 * em);
  const kinds = [["fp32", 8, 23], ["bf16", 8, 7], ["fp16", 5, 10], ["fp8", 4, 3]];
  const unit = Math.min((width - 9 * em) / 32, 1.3 * em);
  kinds.forEach(([name, exponent, digits], row) => {
    const y = (0.8 + row * 3.4) * em;
    const shown = ease(t * 5 - row);
    chart.append(words(2.2 * em, y + 1.4 * em, name, { class: "strong" }));
    for (let bit = 0; bit < (1 + exponent + digits) * shown; bit += 1) chart.append(box(5 * em + bit * unit, y, unit - 1, 2 * em, bit === 0 ? "series-9" : bit <= exponent ? "series-6" : "series-0"));
    if (shown > 0.9) chart.append(s("text", { x: 5.5 * em + (1 + exponent + digits) * unit, y: y + 1.4 * em }, `${(1 + exponent + digits) / 8} bytes`));
  });
  chart.append(s("text", { x: 5 * em, y: 14.2 * em }, "sign, exponent (how large), digits (how exact)"));
  return chart;
}

// Noise of a gradient against the size of its batch.
export function batch(t, width, em) {
  const chart = canvas(width, 13 * em);
  const size = 2 ** (t * 8);
  const spread = 5.2 * em / Math.sqrt(size);
  chart.append(s("line", { x1: 3 * em, x2: width * 0.6, y1: 6.5 * em, y2: 6.5 * em, stroke: "var(--series-2)", "stroke-width": 3 }));
  for (let arrow = 0; arrow < 9; arrow += 1) chart.append(s("line", { x1: 3 * em, y1: 6.5 * em, x2: width * 0.58, y2: 6.5 * em + ((arrow - 4) / 4) * spread, stroke: "var(--series-0)", "stroke-opacity": 0.5, "stroke-width": 1.5 }));
  chart.append(words(width * 0.8, 5 * em, `${Math.round(size)} samples`, { class: "strong" }), words(width * 0.8, 6.8 * em, `noise 1/${Math.sqrt(size).toFixed(1)}`), words(width * 0.8, 8.6 * em, size < 64 ? "a larger batch learns more a step" : "hardly better: only dearer"));
  return chart;
}

// W3 · W2 · W1 · x, cut by data, by layer, or inside each matrix.
export function chain(t, width, em) {
  const chart = canvas(width, 13.5 * em);
  const way = Math.floor(t * 3) % 3;
  const apart = ease((t * 3) % 1) * 0.7 * em;
  const names = ["by data: each GPU all matrices, half of x", "by layer: each GPU one matrix", "inside: columns, then rows, then columns"];
  const size = Math.min(5.4 * em, width / 6);
  const left = width / 2 - 2.3 * size;
  ["W3", "W2", "W1", "x"].forEach((name, place) => {
    const x = left + place * (size + 0.7 * em);
    const w = place === 3 ? size * 0.5 : size;
    for (const half of [0, 1]) {
      const columns = place === 3 ? way === 0 : way === 2 && place !== 1;
      const rows = way === 2 && place === 1;
      const ink = way === 1 ? `series-${[6, 2, 0, 4][place]}` : place === 3 && way !== 0 ? "series-4" : columns || rows || (place === 3) ? (half ? "series-6" : "series-0") : "series-0";
      if (columns) chart.append(box(x + half * (w / 2 + apart / 2), 3 * em, w / 2 - 2, size, ink));
      else if (rows) chart.append(box(x, 3 * em + half * (size / 2 + apart / 2), w, size / 2 - 2, ink));
      else if (!half) chart.append(box(x, 3 * em, w, size, ink, { "fill-opacity": way === 0 ? 0.5 : 1 }));
    }
    chart.append(words(x + w / 2, 2.2 * em, name, { class: "strong" }));
  });
  chart.append(words(width / 2, 3 * em + size + 2.6 * em, names[way], { class: "strong" }));
  return chart;
}

// y = W3·W2·W1·x on two GPUs: which way each matrix is cut decides which collectives follow.
export function partitions(t, width, em) {
  const chart = canvas(width, 14.5 * em);
  const second = t >= 0.5;
  const phase = (t * 2) % 1;
  // of W1, W2, W3: whether the cut is up and down (rows) or left and right (columns)
  const rows = second ? [true, true, false] : [true, false, false];
  const sends = second ? ["all-gather", "", "all-reduce"] : ["", "reduce-scatter", "all-reduce"];
  const size = Math.min(5 * em, width / 7);
  const left = width / 2 - 2.4 * size - em;
  ["W3", "W2", "W1", "x"].forEach((name, place) => {
    const x = left + place * (size + 1.4 * em);
    const wide = place === 3 ? size * 0.4 : size;
    const cut = place === 3 ? null : rows[2 - place];
    const on = place === 3 ? 1 : ease(phase * 5 - (2 - place));
    for (const half of [0, 1]) {
      const ink = half ? "series-6" : "series-0";
      if (cut === null) { if (!half) chart.append(box(x, 3 * em, wide, size, "series-4")); }
      else if (cut) chart.append(box(x, 3 * em + half * (size / 2 + 2), wide, size / 2 - 2, ink, { "fill-opacity": 0.35 + 0.65 * on }));
      else chart.append(box(x + half * (wide / 2 + 2), 3 * em, wide / 2 - 2, size, ink, { "fill-opacity": 0.35 + 0.65 * on }));
    }
    chart.append(words(x + wide / 2, 2.3 * em, name, { class: "strong" }));
    if (place < 3) chart.append(words(x + wide / 2, 3 * em + size + 1.4 * em, cut ? "up and down" : "left and right"), words(x + wide / 2, 3 * em + size + 2.9 * em, on > 0.9 ? sends[2 - place] : ""));
  });
  chart.append(words(width / 2, 13.6 * em, second ? "Partition 2: W1 and W2 up and down, W3 left and right" : "Partition 1: W1 up and down, W2 and W3 left and right", { class: "strong" }));
  return chart;
}

// Multiprocessors around a memory: what fits beside them is fast.
export function gpu(t, width, em) {
  const chart = canvas(width, 13.5 * em);
  const unit = Math.min((width - 4 * em) / 12, 3.2 * em);
  const left = (width - 12 * unit) / 2;
  for (let place = 0; place < 24; place += 1) {
    const busy = (place * 7 + Math.floor(t * 48)) % 24 < 16;
    chart.append(box(left + (place % 12) * unit, (0.6 + Math.floor(place / 12) * 2.4) * em, unit - 3, 2.1 * em, "series-0", { "fill-opacity": busy ? 1 : 0.25 }));
  }
  chart.append(words(width / 2, 6.4 * em, "132 multiprocessors of an H100, a few drawn; 228 KB beside each"));
  chart.append(box(left, 7.2 * em, 12 * unit, 1.6 * em, "series-2"), words(width / 2, 8.35 * em, "L2: 50 MB", { class: "on" }));
  chart.append(box(left, 9.6 * em, 12 * unit, 2.4 * em, "series-6"), words(width / 2, 11.1 * em, "HBM: 80 GB at 3.35 TB/s", { class: "on-light" }));
  for (let lane = 0; lane < 5; lane += 1) chart.append(s("circle", { cx: left + (lane + 0.5) * 2.4 * unit, cy: (10.8 - 8 * ((t * 4 + lane * 0.2) % 1)) * em, r: 0.35 * em, fill: "var(--ink)" }));
  return chart;
}

// Sharded inside a node, copied between nodes.
export function hybrid(t, width, em) {
  const chart = canvas(width, 12 * em);
  const room = width / 2;
  for (let node = 0; node < 2; node += 1) {
    chart.append(box(node * room + em, 1.6 * em, room - 2 * em, 5 * em, "raised", { stroke: "var(--line)" }), words(node * room + room / 2, 1.1 * em, `node ${node}`, { class: "strong" }));
    for (let rank = 0; rank < 4; rank += 1) chart.append(box(node * room + 1.6 * em + (rank * (room - 3.2 * em)) / 4, 2.6 * em, (room - 3.2 * em) / 4 - 4, 3 * em, `series-${[0, 2, 4, 6][rank]}`));
  }
  const inside = (t * 2) % 1 < 0.6;
  for (let rank = 0; rank < 4; rank += 1) {
    const at = (t * 2) % 1;
    if (inside) for (const node of [0, 1]) chart.append(s("circle", { cx: node * room + 1.6 * em + (((rank + at * 2) % 4) * (room - 3.2 * em)) / 4 + em, cy: 7.4 * em, r: 0.4 * em, fill: `var(--series-${[0, 2, 4, 6][rank]})` }));
    else chart.append(s("circle", { cx: 3 * em + (rank * (room - 3.2 * em)) / 4 + ((at - 0.6) / 0.4) * room, cy: 8.4 * em, r: 0.55 * em, fill: `var(--series-${[0, 2, 4, 6][rank]})` }));
  }
  chart.append(words(width / 2, 11 * em, inside ? "often, inside the node: gather the parameters" : "once a step, between nodes: add a shard's gradients", { class: "strong" }));
  return chart;
}

// Between two tensor-parallel blocks each GPU keeps only its part of the sequence.
export function sequence(t, width, em) {
  const chart = canvas(width, 11.5 * em);
  const phase = (t * 4) % 4;
  const names = ["norms: a quarter of the tokens each", "all-gather", "products: all tokens, a quarter of the columns", "reduce-scatter"];
  for (let rank = 0; rank < 4; rank += 1) {
    const y = (0.6 + rank * 2.2) * em;
    chart.append(words(2.6 * em, y + 1.2 * em, `GPU ${rank}`, { class: "strong" }));
    const open = phase < 1 ? 0 : phase < 2 ? ease(phase - 1) : phase < 3 ? 1 : 1 - ease(phase - 3);
    const unit = (width - 6 * em) / 4;
    const from = rank * unit * (1 - open);
    chart.append(box(5.2 * em, y, 4 * unit, 1.7 * em, "raised"), box(5.2 * em + from, y, unit + 3 * unit * open, 1.7 * em, "memory-activations", { "fill-opacity": 1 - 0.5 * open }));
  }
  chart.append(words(width / 2, 10.7 * em, names[Math.floor(phase)], { class: "strong" }));
  return chart;
}
