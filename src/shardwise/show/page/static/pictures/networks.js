// What goes over the network: collectives, tiers, and flows that meet.
import { s } from "../dom.js";
import { box, canvas, ease, words } from "./parts.js";

const dot = (cx, cy, r, ink, more) => s("circle", { cx, cy, r, fill: `var(--${ink})`, ...more });
const line = (x1, y1, x2, y2, ink, wide) => s("line", { x1, y1, x2, y2, stroke: `var(--${ink})`, "stroke-width": wide || 1.5 });

// Tokens in a queue before each expert; what is over the capacity is dropped, or waits.
export function router(t, width, em) {
  const chart = canvas(width, 13 * em);
  const choice = [1, 0, 1, 2, 1, 1, 3, 1, 0, 2, 1, 3, 1, 0, 2, 1];
  const capacity = 4;
  const queued = [0, 0, 0, 0];
  const seen = Math.floor(t * 1.15 * choice.length);
  choice.slice(0, seen).forEach((expert) => {
    const place = queued[expert];
    queued[expert] += 1;
    const x = (expert + 0.5) * (width / 4);
    chart.append(box(x - 2.6 * em, (9.4 - place * 1.15) * em, 5.2 * em, 0.95 * em, place < capacity ? "series-0" : "series-1"));
  });
  for (let expert = 0; expert < 4; expert += 1) {
    const x = (expert + 0.5) * (width / 4);
    chart.append(words(x, 11.6 * em, `expert ${expert}`, { class: "strong" }), words(x, 12.8 * em, `${queued[expert]} tokens`));
  }
  const y = (9.4 - (capacity - 1) * 1.15) * em - 2;
  chart.append(s("line", { class: "limit", x1: em, x2: width - em, y1: y, y2: y }), s("text", { x: em, y: y - 4, class: "strong" }, "capacity 1.0: 4 tokens"));
  return chart;
}

// The same sum by ring, tree, and in the switches: rounds counted as they go.
export function race(t, width, em) {
  const chart = canvas(width, 14 * em);
  const count = 8;
  const round = t * 15;
  const room = width / 3;
  const rounds = [14, 6, 2];
  ["ring", "tree", "switches (SHARP)"].forEach((name, way) => {
    const middle = room * (way + 0.5);
    const now = Math.min(round, rounds[way]);
    const over = round >= rounds[way];
    const place = (rank) => (way === 0 ? [middle + 0.33 * room * Math.sin((rank / count) * 2 * Math.PI), (5.6 - 3.6 * Math.cos((rank / count) * 2 * Math.PI)) * em] : [middle + (rank - 3.5) * (room / 9), 9.2 * em]);
    for (let rank = 0; rank < count; rank += 1) {
      const [x, y] = place(rank);
      if (way === 0) {
        const [x2, y2] = place((rank + 1) % count);
        const part = over ? 0 : now % 1;
        chart.append(line(x, y, x2, y2, "line"), dot(x + (x2 - x) * part, y + (y2 - y) * part, 0.35 * em, "series-6"));
      } else {
        // a tree joins pairs, then pairs of pairs; a switch all at once
        const height = way === 1 ? 3 : 1;
        const level = Math.min(height, now < rounds[way] / 2 ? now : rounds[way] - now);
        const joint = (step) => [middle + (Math.floor(rank / 2 ** step) * 2 ** step + (2 ** step - 1) / 2 - 3.5) * (room / 9), 9.2 * em - (step / 3) * 7.2 * em];
        const stop = (step) => (way === 1 ? joint(step) : step ? [middle, 2 * em] : [x, y]);
        for (let step = 0; step < height; step += 1) chart.append(line(...stop(step), ...stop(step + 1), "line"));
        const [from, to] = [stop(Math.floor(level)), stop(Math.min(height, Math.floor(level) + 1))];
        chart.append(dot(from[0] + (to[0] - from[0]) * (level % 1), from[1] + (to[1] - from[1]) * (level % 1), 0.35 * em, "series-6"));
      }
      chart.append(dot(x, y, 0.5 * em, over ? "series-2" : "series-0"));
    }
    if (way === 2) chart.append(box(middle - 1.4 * em, 1.3 * em, 2.8 * em, 1.3 * em, "series-4"));
    chart.append(words(middle, 11.6 * em, name, { class: "strong" }), words(middle, 13 * em, over ? `done in ${rounds[way]}` : `round ${Math.floor(now) + 1} of ${rounds[way]}`));
  });
  return chart;
}

// Level by level: inside the node, the leaf, the spine; less is sent the further up.
export function levels(t, width, em) {
  const chart = canvas(width, 13 * em);
  const names = ["spine", "leaf", "node", "GPUs"];
  const at = Math.min(2.999, t * 3.6);
  names.forEach((name, level) => {
    const count = [1, 2, 4, 16][level];
    const y = (1.6 + level * 3.1) * em;
    chart.append(words(2.2 * em, y + 0.4 * em, name, { class: "strong" }));
    for (let each = 0; each < count; each += 1) {
      const x = 5 * em + ((each + 0.5) / count) * (width - 6 * em);
      if (level) {
        const above = [1, 2, 4, 16][level - 1];
        const x2 = 5 * em + ((Math.floor((each * above) / count) + 0.5) / above) * (width - 6 * em);
        const active = Math.floor(at) === 3 - level;
        chart.append(line(x, y, x2, y - 3.1 * em, active ? "series-6" : "line", active ? 2.5 : 1.2));
        if (active) chart.append(dot(x + (x2 - x) * (at % 1), y - 3.1 * em * (at % 1), 0.32 * em, "series-6"));
      }
      chart.append(level === 3 ? dot(x, y, 0.42 * em, "series-0") : box(x - 1.1 * em, y - 0.6 * em, 2.2 * em, 1.2 * em, "series-2"));
    }
  });
  chart.append(words(width / 2, 12.8 * em, ["inside the node: NVLink", "up to the leaf: what the node could not keep to itself", "over the spine: a shard from each node"][Math.floor(at)]));
  return chart;
}

// Cards of equal number in every node hang on one leaf, the rail; leaves meet at the spines.
export function rails(t, width, em) {
  const chart = canvas(width, 17.5 * em);
  const phase = Math.floor(t * 3) % 3;
  const told = ["tensor parallel: NVLink, inside the node", "pipelines and data parallel: along a rail, over one leaf", "from one unit to the next: over a spine"];
  const leaf = (unit, rail) => [((unit * 4 + rail + 0.5) / 8) * width, 7 * em];
  const spine = (each) => [((each + 0.5) / 4) * width, 2.4 * em];
  const gpu = (node, rail) => [((node + (rail + 0.75) / 4.5) / 4) * width, 12.6 * em];
  const moved = ([x1, y1], [x2, y2], share, ink) => dot(x1 + (x2 - x1) * share, y1 + (y2 - y1) * share, 0.35 * em, ink);
  const share = (t * 6) % 1;
  const inks = ["series-0", "series-6", "series-2", "series-3"];
  const [wide, round] = [Math.min(3.2 * em, width / 8 - 3), Math.min(0.6 * em, width / 44)];
  for (let unit = 0; unit < 2; unit += 1) {
    for (let rail = 0; rail < 4; rail += 1) {
      for (let each = 0; each < 4; each += 1) chart.append(line(...leaf(unit, rail), ...spine(each), phase === 2 ? "series-6" : "line", phase === 2 ? 1.6 : 1));
      if (phase === 2) chart.append(moved(leaf(unit, rail), spine(rail), share, inks[rail]));
      for (const node of [unit * 2, unit * 2 + 1]) {
        chart.append(line(...gpu(node, rail), ...leaf(unit, rail), phase === 1 ? inks[rail] : "line", phase === 1 ? 2.4 : 1));
        if (phase === 1) chart.append(moved(gpu(node, rail), leaf(unit, rail), node % 2 ? 1 - share : share, inks[rail]));
      }
      const [x, y] = leaf(unit, rail);
      chart.append(box(x - wide / 2, y - 0.8 * em, wide, 1.6 * em, inks[rail]), words(x, y + 0.35 * em, wide < 3 * em ? `${rail}` : `leaf ${rail}`, { class: "on" }));
    }
  }
  for (let node = 0; node < 4; node += 1) {
    const [first] = gpu(node, 0);
    const [last, y] = gpu(node, 3);
    chart.append(s("rect", { x: first - 1.6 * round, y: y - 1.1 * em, width: last - first + 3.2 * round, height: 2.2 * em, rx: 4, fill: "var(--raised)", stroke: phase === 0 ? "var(--series-1)" : "var(--line)", "stroke-width": phase === 0 ? 2.5 : 1 }));
    for (let rail = 0; rail < 4; rail += 1) chart.append(dot(...gpu(node, rail), round, inks[rail]));
    if (phase === 0) chart.append(moved(gpu(node, 0), gpu(node, 3), share, "series-1"));
    chart.append(words((first + last) / 2, 15 * em, `node ${node}`));
  }
  for (let each = 0; each < 4; each += 1) chart.append(box(spine(each)[0] - 1.9 * em, 1.6 * em, 3.8 * em, 1.6 * em, "series-8"), words(spine(each)[0], 2.75 * em, `spine ${each}`, { class: "on" }));
  chart.append(words(width / 2, 17 * em, told[phase], { class: "strong" }));
  return chart;
}

// Chips with links to their neighbours alone: rings along one axis, then the other; an all-to-all passes chips between.
export function torus(t, width, em) {
  const chart = canvas(width, 17 * em);
  const phase = Math.floor(t * 3) % 3;
  const told = ["all-gather: rings along every row, both ways", "then along every column", "all-to-all: bytes pass the chips between"];
  const count = 4;
  const share = (t * 9) % 1;
  const pitch = Math.min(3.6 * em, width / 8);
  const [left, top] = [width / 2 - 1.5 * pitch, 2.2 * em];
  const at = (column, row) => [left + column * pitch, top + row * pitch];
  const ink = (along) => (phase === along ? "series-6" : "line");
  for (let each = 0; each < count; each += 1) {
    for (let step = 0; step < count; step += 1) {
      // the last is joined to the first, behind the others
      const [x, y] = at(step, each);
      const [x2, y2] = at(each, step);
      chart.append(line(x, y, x + (step < 3 ? pitch : 0.9 * em), y, ink(0), 1.6), line(x2, y2, x2, y2 + (step < 3 ? pitch : 0.9 * em), ink(1), 1.6));
      if (!step) chart.append(line(x - 0.9 * em, y, x, y, ink(0), 1.6), line(x2, y2 - 0.9 * em, x2, y2, ink(1), 1.6));
      if (phase < 2) {
        for (const way of [1, -1]) {
          const moved = (((step + way * share) % count) + count) % count;
          if (moved <= 3) chart.append(dot(...(phase ? at(each, moved) : at(moved, each)), 0.28 * em, way > 0 ? "series-6" : "series-2"));
        }
      }
    }
  }
  if (phase === 2) {
    for (let row = 0; row < count; row += 1) {
      const [x, y] = at(0, 0);
      const along = Math.min(1, share * 2);
      const down = Math.max(0, share * 2 - 1);
      chart.append(dot(x + along * 2 * pitch, y + down * row * pitch, 0.34 * em, "series-1"));
    }
  }
  for (let chip = 0; chip < count * count; chip += 1) chart.append(dot(...at(chip % count, Math.floor(chip / count)), 0.6 * em, phase === 2 && chip === 0 ? "series-1" : "series-0"));
  chart.append(words(width / 2, 16.4 * em, told[phase], { class: "strong" }));
  return chart;
}

// Links inside a node, generation by generation.
export function generations(t, width, em) {
  const chart = canvas(width, 13 * em);
  const kinds = [["A100, NVLink 3", 300, 312], ["H100, NVLink 4", 450, 990], ["B200, NVLink 5", 900, 2250]];
  kinds.forEach(([name, link, flops], row) => {
    const y = (0.9 + row * 4) * em;
    const grown = ease(t * 4 - row);
    const scale = (width - 11 * em) / 2250;
    chart.append(words(4.6 * em, y + 1.4 * em, name, { class: "strong" }));
    chart.append(box(9.6 * em, y, link * scale * grown, 1.3 * em, "series-2"), s("text", { x: 10 * em + link * scale * grown, y: y + em }, `${link} GB/s each way`));
    chart.append(box(9.6 * em, y + 1.5 * em, flops * scale * grown * 0.72, 1.3 * em, "series-0"), s("text", { x: 10 * em + flops * scale * grown * 0.72, y: y + 2.5 * em }, `${flops} TFLOP/s`));
  });
  return chart;
}

// Ranks on GPUs: groups that fill nodes, and groups that straddle them.
export function placement(t, width, em) {
  const chart = canvas(width, 12.5 * em);
  const good = (t * 2) % 1 < 0.5;
  const room = width / 2;
  for (let node = 0; node < 2; node += 1) {
    chart.append(box(node * room + em, 1.8 * em, room - 2 * em, 4.4 * em, "raised", { stroke: "var(--line)" }), words(node * room + room / 2, 1.2 * em, `node ${node}`, { class: "strong" }));
    for (let gpu = 0; gpu < 4; gpu += 1) {
      const group = good ? node : gpu % 2;
      chart.append(box(node * room + 2 * em + (gpu * (room - 4 * em)) / 4, 2.8 * em, (room - 4 * em) / 4 - 4, 2.4 * em, group ? "series-6" : "series-0"));
    }
  }
  const at = (t * 8) % 1;
  if (good) for (const node of [0, 1]) chart.append(dot(node * room + 2 * em + at * (room - 4.5 * em), 7.2 * em, 0.45 * em, node ? "series-6" : "series-0"));
  else for (const group of [0, 1]) chart.append(dot(3 * em + at * room + group * 2 * em, 7.8 * em, 0.45 * em, group ? "series-6" : "series-0"));
  chart.append(words(width / 2, 10 * em, good ? "tensor parallel inside a node: 450 GB/s" : "the same group over two nodes: 50 GB/s", { class: "strong" }), words(width / 2, 11.8 * em, good ? "" : "nine times slower, for the same program"));
  return chart;
}

// Two flows on one link share it; the queue before it grows.
export function congestion(t, width, em) {
  const chart = canvas(width, 13 * em);
  const both = t > 0.35 && t < 0.8;
  const queue = t < 0.35 ? 0 : t < 0.8 ? (t - 0.35) * 13 : Math.max(0, 5.85 - (t - 0.8) * 40);
  chart.append(box(width * 0.42, 3.4 * em, width * 0.16, 5.2 * em, "raised", { stroke: "var(--line)" }), words(width / 2, 2.6 * em, "switch", { class: "strong" }));
  for (let packet = 0; packet < Math.floor(queue); packet += 1) chart.append(box(width * 0.435, (7.6 - packet * 0.8) * em, width * 0.13, 0.65 * em, packet % 2 ? "series-6" : "series-0"));
  [["series-0", 4.2, true], ["series-6", 7.6, both]].forEach(([ink, y, on], flow) => {
    chart.append(line(em, y * em, width * 0.42, y * em, "line", 2));
    if (on) for (let each = 0; each < 4; each += 1) chart.append(box(em + ((t * 6 + each / 4) % 1) * width * 0.36, (y - 0.35) * em, 0.9 * em, 0.7 * em, ink));
    chart.append(s("text", { x: em, y: (y - 0.8) * em }, `flow ${flow + 1}`));
  });
  chart.append(line(width * 0.58, 6 * em, width - em, 6 * em, "line", 2));
  for (let each = 0; each < 4; each += 1) chart.append(box(width * 0.6 + ((t * 6 + each / 4) % 1) * width * 0.34, 5.65 * em, 0.9 * em, 0.7 * em, both && each % 2 ? "series-6" : "series-0"));
  chart.append(words(width / 2, 11.2 * em, both ? "each gets half; what comes meanwhile waits" : queue > 0.5 ? "the queue drains" : "one flow, the whole link", { class: "strong" }));
  return chart;
}
