// From one neuron to a model that is trained: boxes that light up in turn, curves, and matrices.
import { s } from "../dom.js";
import { box, canvas, ease, words } from "./parts.js";

const line = (x1, y1, x2, y2, ink, wide) => s("line", { x1, y1, x2, y2, stroke: `var(--${ink})`, "stroke-width": wide || 1.5 });

// Boxes in rows, one after the other; the one at work is full, those that are done are half.
function boxes(chart, names, t, { width, em, top, tall, across, inks }) {
  const room = width / across;
  const at = Math.min(names.length - 0.001, t * names.length * 1.02);
  names.forEach((name, place) => {
    const row = Math.floor(place / across);
    const column = row % 2 ? across - 1 - (place % across) : place % across;
    const [x, y] = [column * room + 0.4 * em, (top + row * (tall + 1.2)) * em];
    const now = Math.floor(at) === place;
    chart.append(box(x, y, room - 0.8 * em, tall * em, inks[place % inks.length], { "fill-opacity": now ? 0.95 : place < at ? 0.45 : 0.15 }), words(x + room / 2 - 0.4 * em, y + (tall / 2 + 0.3) * em, name, { class: now ? "strong" : "" }));
  });
  return Math.floor(at);
}

// Inputs times weights, plus a bias, bent by an activation function.
export function neuron(t, width, em) {
  const chart = canvas(width, 14 * em);
  const [x0, x1, x2, x3] = [width * 0.1, width * 0.44, width * 0.66, width * 0.9];
  const values = [0.5, -1, 2];
  const weights = [0.8, 0.3, 0.6];
  values.forEach((value, place) => {
    const y = (2.2 + 3.4 * place) * em;
    const on = ease(t * 6 - place);
    chart.append(line(x0, y, x1, 5.6 * em, "line", 2), s("circle", { cx: x0 + (x1 - x0) * on, cy: y + (5.6 * em - y) * on, r: 0.45 * em, fill: "var(--series-6)" }));
    chart.append(s("circle", { cx: x0, cy: y, r: 1.1 * em, fill: "var(--series-0)" }), words(x0, y + 0.35 * em, String(value), { class: "on" }), words((x0 + x1) / 2, y + (5.6 * em - y) * 0.5 - 0.5 * em, `× ${weights[place]}`));
  });
  const sum = values.reduce((all, value, place) => all + value * weights[place], 0);
  const bias = ease(t * 6 - 3.2);
  chart.append(s("circle", { cx: x1, cy: 5.6 * em, r: 1.8 * em, fill: "var(--series-2)", "fill-opacity": 0.3 + 0.7 * ease(t * 6 - 3) }), words(x1, 5.9 * em, "Σ", { class: "strong" }), words(x1, 8.6 * em, `${sum.toFixed(1)}`));
  chart.append(line(x1, 12 * em, x1, 7.4 * em, "line", 2), s("circle", { cx: x1, cy: 12 * em - 4.6 * em * bias, r: 0.45 * em, fill: "var(--series-4)" }), words(x1 + 4 * em, 12.3 * em, "bias + 0.2"));
  chart.append(line(x1 + 1.8 * em, 5.6 * em, x2 - 2.4 * em, 5.6 * em, "line", 2), box(x2 - 2.4 * em, 3.6 * em, 4.8 * em, 4 * em, "raised", { stroke: "var(--line)" }));
  chart.append(s("path", { d: `M${x2 - 2 * em} ${6.4 * em}L${x2} ${6.4 * em}L${x2 + 2 * em} ${4.2 * em}`, fill: "none", stroke: "var(--series-1)", "stroke-width": 2.5 }), words(x2, 9.2 * em, "activation function"), words(x2, 2.8 * em, "ReLU"));
  const out = ease(t * 6 - 4.6);
  chart.append(line(x2 + 2.4 * em, 5.6 * em, x3 - 1.2 * em, 5.6 * em, "line", 2), s("circle", { cx: x3, cy: 5.6 * em, r: 1.2 * em, fill: "var(--series-0)", "fill-opacity": 0.2 + 0.8 * out }), words(x3, 5.95 * em, out > 0.5 ? Math.max(0, sum + 0.2).toFixed(1) : "", { class: "on" }), words(x3, 8.6 * em, "output"));
  return chart;
}

// A drawn digit, 784 numbers, 128 neurons, ten probabilities.
export function digits(t, width, em) {
  const chart = canvas(width, 14 * em);
  const size = Math.min(8 * em, width * 0.2);
  const shape = ["..####..", ".#....#.", "......#.", "....##..", "......#.", "......#.", ".#....#.", "..####.."];
  shape.forEach((row, y) => [...row].forEach((dot, x) => chart.append(box(em + (x * size) / 8, 2 * em + (y * size) / 8, size / 8 - 1, size / 8 - 1, dot === "#" ? "series-0" : "raised"))));
  chart.append(words(em + size / 2, 2 * em + size + 1.4 * em, "28 × 28 = 784"));
  const columns = [[0.4, 12, "784"], [0.6, 9, "128"], [0.78, 10, "10"]];
  columns.forEach(([share, count, name], layer) => {
    const x = width * share;
    for (let each = 0; each < count; each += 1) {
      const y = (1.6 + (9.6 * (each + 0.5)) / count) * em;
      const on = ease(t * 5 - layer - each * 0.03);
      if (layer) for (let other = 0; other < columns[layer - 1][1]; other += 3) chart.append(line(width * columns[layer - 1][0], (1.6 + (9.6 * (other + 0.5)) / columns[layer - 1][1]) * em, x, y, "line", 0.4));
      chart.append(s("circle", { cx: x, cy: y, r: 0.32 * em, fill: `var(--series-${[0, 2, 6][layer]})`, "fill-opacity": 0.2 + 0.8 * on }));
      if (layer === 2) { const share3 = each === 3 ? 0.86 : 0.02; chart.append(words(x + 1.1 * em, y + 0.3 * em, String(each)), box(x + 2 * em, y - 0.3 * em, share3 * 6 * em * ease(t * 5 - 3), 0.6 * em, each === 3 ? "series-1" : "series-0")); }
    }
    chart.append(words(x, 12.6 * em, name, { class: "strong" }));
  });
  chart.append(words(width * 0.5, 13.8 * em, "784 × 128 + 128 + 128 × 10 + 10 = 101,770"));
  return chart;
}

// The loop in eight boxes.
export function step(t, width, em) {
  const chart = canvas(width, 12 * em);
  const names = ["load a batch", "forward pass", "prediction", "loss", "backward pass", "gradients", "optimizer", "new weights"];
  boxes(chart, names, t, { width, em, top: 0.6, tall: 3.6, across: 4, inks: ["series-4", "task-forward", "task-forward", "series-1", "task-backward", "task-backward", "task-optimizer", "task-optimizer"] });
  chart.append(words(width / 2, 11 * em, "and again, with the next batch"));
  return chart;
}

// A curve of the loss; steps of three lengths.
export function descent(t, width, em) {
  const chart = canvas(width, 14 * em);
  const room = width / 3;
  [["too small: slow", 0.06], ["right", 0.35], ["too large: it overshoots", 1.06]].forEach(([name, rate], way) => {
    const [left, bowl] = [way * room + em, (x) => (2.2 + 8.4 * (1 - x * x)) * em];
    const px = (x) => left + ((x + 1.05) / 2.1) * (room - 2 * em);
    chart.append(s("path", { d: [...Array(41)].map((_, at) => `${at ? "L" : "M"}${px(-1 + at / 20).toFixed(1)} ${bowl(-1 + at / 20).toFixed(1)}`).join(""), fill: "none", stroke: "var(--line)", "stroke-width": 2 }));
    let x = -0.9;
    const steps = Math.floor(t * 9);
    for (let at = 0; at < steps; at += 1) {
      const next = Math.max(-1.05, Math.min(1.05, x - rate * 2 * x));
      chart.append(line(px(x), bowl(x), px(next), bowl(next), "series-6", 1.4));
      x = next;
    }
    chart.append(s("circle", { cx: px(x), cy: bowl(x), r: 0.5 * em, fill: "var(--series-1)" }), words(left + room / 2 - em, 12.4 * em, name, { class: "strong" }));
  });
  chart.append(words(width / 2, 13.7 * em, "each step goes against the gradient, as long as the learning rate says"));
  return chart;
}

// From the loss back: every layer gives the gradient of its weights and passes the rest on.
export function backward(t, width, em) {
  const chart = canvas(width, 12 * em);
  const names = ["input", "hidden", "output", "loss"];
  const room = width / 4;
  const back = t > 0.45;
  names.forEach((name, place) => {
    const x = (place + 0.5) * room;
    chart.append(box(x - 3 * em, 1.4 * em, 6 * em, 3 * em, place === 3 ? "series-1" : "series-0", { "fill-opacity": 0.3 }), words(x, 3.2 * em, name, { class: "strong" }));
    if (place) {
      const gradient = ease((t - 0.45) * 6 - (3 - place));
      chart.append(box(x - room / 2 - 1.6 * em, 6.4 * em, 3.2 * em * gradient, 2.2 * em, "task-backward"), words(x - room / 2, 9.8 * em, gradient > 0.5 ? `gradient of W${place}` : ""));
    }
  });
  const along = back ? 1 - ease((t - 0.45) / 0.5) : ease(t / 0.45);
  chart.append(s("circle", { cx: room / 2 + along * 3 * room, cy: 5.2 * em, r: 0.5 * em, fill: back ? "var(--task-backward)" : "var(--task-forward)" }), words(width / 2, 11.5 * em, back ? "backward: p - y, and on through each layer" : "forward: prediction and loss", { class: "strong" }));
  return chart;
}

// A noisy gradient, its running mean, its running size, and the step made of both.
export function adam(t, width, em) {
  const chart = canvas(width, 13.5 * em);
  const count = 60;
  const seen = Math.max(2, Math.floor(t * 1.08 * count));
  const rows = [["gradient", "series-0"], ["first moment: its mean", "series-5"], ["second moment: its size", "series-7"], ["step = mean / size", "series-1"]];
  let [mean, size] = [0, 0];
  const points = rows.map(() => []);
  for (let at = 0; at < Math.min(seen, count); at += 1) {
    const gradient = 0.5 + 0.9 * Math.sin(at * 2.7) * Math.cos(at * 1.3);
    mean = 0.9 * mean + 0.1 * gradient;
    size = 0.95 * size + 0.05 * gradient * gradient;
    [gradient, mean, Math.sqrt(size), mean / (Math.sqrt(size) + 0.1)].forEach((value, row) => points[row].push([12.5 * em + (at / count) * (width - 13.5 * em), (2.4 + row * 3.2 - value * 0.9) * em]));
  }
  rows.forEach(([name, ink], row) => chart.append(s("text", { x: 0, y: (2.4 + row * 3.2) * em }, name), s("path", { d: points[row].map(([x, y], at) => `${at ? "L" : "M"}${x.toFixed(1)} ${y.toFixed(1)}`).join(""), fill: "none", stroke: `var(--${ink})`, "stroke-width": 2 })));
  return chart;
}

// Every token asks the tokens before it; what fits well is mixed in.
export function attention(t, width, em) {
  const chart = canvas(width, 13 * em);
  const tokens = ["the", "GPU", "waits", "for", "its"];
  const room = width / tokens.length;
  const at = Math.min(tokens.length - 1, Math.floor(t * 1.05 * tokens.length));
  const fits = [[1], [0.3, 0.7], [0.1, 0.7, 0.2], [0.1, 0.2, 0.6, 0.1], [0.05, 0.7, 0.1, 0.05, 0.1]][at];
  tokens.forEach((token, place) => {
    const x = (place + 0.5) * room;
    chart.append(box(x - 2.2 * em, 9 * em, 4.4 * em, 2 * em, "series-0", { "fill-opacity": place <= at ? 0.5 : 0.12 }), words(x, 10.3 * em, token, { class: "strong", "data-word": "1" }));
    if (place <= at) chart.append(line((at + 0.5) * room, 3.4 * em, x, 9 * em, "series-6", 0.5 + fits[place] * 8), words(x, 8.2 * em, `${Math.round(fits[place] * 100)} %`));
  });
  chart.append(box((at + 0.5) * room - 2.6 * em, 1.2 * em, 5.2 * em, 2.2 * em, "series-1", { "fill-opacity": 0.6 }), words((at + 0.5) * room, 2.6 * em, "query", { class: "strong" }), words(width / 2, 12.5 * em, "keys and values of the tokens before it"));
  return chart;
}

// One layer of a transformer, matrix by matrix, as wide as it is.
export function transformer(t, width, em) {
  const chart = canvas(width, 13.5 * em);
  const parts = [["Wq", 1, "h × h"], ["Wk", 1, "h × h"], ["Wv", 1, "h × h"], ["Wo", 1, "h × h"], ["W1", 4, "h × 4h"], ["W2", 4, "4h × h"]];
  const unit = (width - 8 * em) / 12;
  let x = em;
  parts.forEach(([name, wide, shape], place) => {
    const grown = ease(t * 7 - place);
    chart.append(box(x, 3 * em, wide * unit * grown, 4 * em, place < 4 ? "series-0" : "series-6"), words(x + (wide * unit) / 2, 5.3 * em, grown > 0.6 ? name : "", { class: "on" }), words(x + (wide * unit) / 2, 8.2 * em, grown > 0.6 ? shape : ""));
    x += wide * unit + 0.9 * em;
  });
  chart.append(words(em + 2 * unit + em, 1.8 * em, "attention: 4 h²", { class: "strong" }), words(em + 8 * unit + 5 * em, 1.8 * em, "feed-forward: 8 h²", { class: "strong" }));
  chart.append(words(width / 2, 10.6 * em, "12 h² a layer"), words(width / 2, 12.4 * em, ease(t * 7 - 6) > 0.3 ? "GPT-3: 96 layers × 12 × 12,288² = 174 billion" : "", { class: "strong" }));
  return chart;
}

// A batch too large for one pass goes through in parts; gradients add up before the update.
export function micro(t, width, em) {
  const chart = canvas(width, 11.5 * em);
  const count = 4;
  const at = Math.min(count, t * 1.15 * (count + 1));
  const room = (width - 10 * em) / (count + 1);
  for (let each = 0; each < count; each += 1) {
    const x = em + each * room;
    chart.append(box(x, 2.4 * em, (room - 0.4 * em) / 3, 2.6 * em, "task-forward", { "fill-opacity": at > each ? 1 : 0.15 }), box(x + (room - 0.4 * em) / 3, 2.4 * em, ((room - 0.4 * em) * 2) / 3, 2.6 * em, "task-backward", { "fill-opacity": at > each + 0.4 ? 1 : 0.15 }), words(x + room / 2, 1.6 * em, `micro-batch ${each + 1}`));
  }
  chart.append(box(em + count * room, 2.4 * em, room - 0.4 * em, 2.6 * em, "task-optimizer", { "fill-opacity": at >= count ? 1 : 0.15 }), words(em + (count + 0.5) * room, 1.6 * em, "update"));
  chart.append(box(em, 7 * em, (width - 10 * em) * Math.min(1, at / count) * 0.8, 2 * em, "memory-gradients"), s("text", { x: em, y: 10.6 * em }, `gradients of ${Math.min(count, Math.floor(at))} of ${count} are added up`));
  return chart;
}

// The six parts of a GPU's memory, and whether they fit.
export function memory(t, width, em) {
  const chart = canvas(width, 10.5 * em);
  const parts = [["weights", 16, "memory-parameters"], ["gradients", 32, "memory-gradients"], ["optimizer", 96, "memory-optimizer"], ["activations", 30, "memory-activations"], ["buffers", 8, "memory-buffers"], ["reserve", 6, "series-8"]];
  const scale = (width - 2 * em) / 188;
  let x = em;
  parts.forEach(([name, size, ink], place) => {
    const grown = ease(t * 7.5 - place);
    chart.append(box(x, 2.6 * em, size * scale * grown - 2, 3 * em, ink), words(x + (size * scale) / 2, (place % 2 ? 7.9 : 6.8) * em, grown > 0.6 ? name : ""));
    x += size * scale * grown;
  });
  const limit = em + 80 * scale;
  chart.append(s("line", { class: "limit", x1: limit, x2: limit, y1: 1.6 * em, y2: 6 * em }), words(limit, 1.2 * em, "80 GB", { class: "strong" }), words(width / 2, 9.8 * em, x > limit ? "8 billion parameters: more than one GPU holds" : "it fits", { class: "strong" }));
  return chart;
}

// Does it fit? If not, more GPUs; and with them, messages.
export function fits(t, width, em) {
  const chart = canvas(width, 12 * em);
  boxes(chart, ["model", "count its bytes", "does it fit?", "no: several GPUs", "they exchange", "throughput, latency", "no loss", "the fabric decides"], t, { width, em, top: 0.6, tall: 3.6, across: 4, inks: ["series-0", "series-5", "series-1", "series-2", "series-6", "series-6", "series-6", "series-4"] });
  return chart;
}

// Requests that come and go, and a job that sends all at once.
export function traffic(t, width, em) {
  const chart = canvas(width, 13 * em);
  const draw = (top, name, level, ink) => {
    chart.append(s("text", { x: 0, y: top * em, class: "strong" }, name));
    const points = [];
    for (let at = 0; at <= 1.0001; at += 0.004) if (at <= t * 1.05) points.push(`${points.length ? "L" : "M"}${(at * width).toFixed(1)} ${((top + 4.6 - level(at) * 4) * em).toFixed(1)}`);
    chart.append(s("path", { d: points.join("") || "M0 0", fill: "none", stroke: `var(--${ink})`, "stroke-width": 2 }));
  };
  draw(1, "data centre: many small flows, any time", (at) => 0.4 + 0.1 * Math.sin(at * 70) + 0.08 * Math.sin(at * 31 + 1), "series-0");
  draw(7.4, "training: all GPUs at once, then silence", (at) => ((at * 5) % 1 > 0.74 ? 0.95 : 0.03), "series-1");
  return chart;
}

// Rows of the embedding on different GPUs: whoever has a token's row hands it out.
export function embedding(t, width, em) {
  const chart = canvas(width, 13 * em);
  const room = width / 4;
  const owner = [2, 0, 3, 1];
  const phase = t * 4.4;
  for (let gpu = 0; gpu < 4; gpu += 1) {
    const x = (gpu + 0.5) * room;
    for (let row = 0; row < 4; row += 1) chart.append(box(x - 2.6 * em, (5.6 + row * 1.1) * em, 5.2 * em, 0.9 * em, `series-${[0, 2, 4, 6][gpu]}`, { "fill-opacity": owner[Math.min(3, Math.floor(phase))] === gpu && row === 1 ? 1 : 0.3 }));
    chart.append(words(x, 11.4 * em, `GPU ${gpu}: a quarter of the words`));
  }
  const token = Math.min(3, Math.floor(phase));
  const from = (owner[token] + 0.5) * room;
  for (let gpu = 0; gpu < 4; gpu += 1) chart.append(s("circle", { cx: from + ((gpu + 0.5) * room - from) * ease((phase % 1) * 1.4), cy: 4 * em, r: 0.4 * em, fill: "var(--series-1)" }));
  chart.append(words(width / 2, 1.6 * em, `token ${token + 1}: its row goes to all`, { class: "strong" }));
  return chart;
}

// Nodes as columns: tensor parallel inside, stages along a rail, replicas across.
export function cube(t, width, em) {
  const chart = canvas(width, 21 * em);
  const phase = Math.floor(t * 3) % 3;
  const names = ["tensor parallel: 4 GPUs of a node, NVLink", "pipeline: GPU i of one node to GPU i of the next, along a rail", "data parallel: the same place of every replica, over the fabric"];
  const inks = ["series-6", "series-2", "series-1"];
  const [side, deepX, deepY] = [1.7 * em, Math.min(6 * em, width * 0.12), -2.6 * em];
  const apart = Math.min(9 * em, (width - deepX - side - 4.4 * em) / 3);
  const left = (width - 3 * apart - deepX - side) / 2;
  // stages go right, replicas back, the GPUs of a node up
  const at = (stage, replica, gpu) => [left + stage * apart + replica * deepX, 16.4 * em - gpu * 2.5 * em + replica * deepY];
  const face = (points, ink, shade) => s("path", { d: `M${points.map((point) => point.join(" ")).join("L")}Z`, fill: `var(--${ink})`, "fill-opacity": shade, stroke: "var(--surface)", "stroke-width": 1 });
  const joined = ([x1, y1], [x2, y2]) => line(x1 + side / 2, y1 - side / 2, x2 + side / 2, y2 - side / 2, inks[phase], 4);
  for (const replica of [1, 0]) {
    for (let stage = 0; stage < 4; stage += 1) {
      const [nodeX, nodeY] = at(stage, replica, 3);
      chart.append(s("rect", { x: nodeX - 0.7 * em, y: nodeY - side - 0.9 * em, width: side + 1.9 * em, height: 7.5 * em + side + 1.5 * em, rx: 4, fill: "var(--raised)", "fill-opacity": 0.85, stroke: "var(--line)" }));
      for (let gpu = 0; gpu < 4; gpu += 1) {
        const [x, y] = at(stage, replica, gpu);
        const [ink, dx, dy] = [`series-${[0, 5, 7, 4][stage]}`, 0.55 * em, -0.4 * em];
        chart.append(face([[x, y], [x + side, y], [x + side, y - side], [x, y - side]], ink, 1), face([[x, y - side], [x + side, y - side], [x + side + dx, y - side + dy], [x + dx, y - side + dy]], ink, 0.6), face([[x + side, y], [x + side, y - side], [x + side + dx, y - side + dy], [x + side + dx, y + dy]], ink, 0.75));
        if (phase === 0 && gpu) chart.append(joined([x, y], at(stage, replica, gpu - 1)));
        if (phase === 1 && stage) chart.append(joined([x, y], at(stage - 1, replica, gpu)));
      }
      if (!replica) chart.append(words(nodeX + side / 2, 18.6 * em, `stage ${stage}`));
    }
    const [x, y] = at(0, replica, 3);
    chart.append(words(x - (replica ? 0 : 1.2 * em), y - side - 1.4 * em, `replica ${replica}`, { "text-anchor": replica ? "start" : "middle" }));
  }
  if (phase === 2) for (let stage = 0; stage < 4; stage += 1) for (let gpu = 0; gpu < 4; gpu += 1) chart.append(joined(at(stage, 0, gpu), at(stage, 1, gpu)));
  chart.append(words(width / 2, 20.4 * em, names[phase], { class: "strong" }));
  return chart;
}

// Eight GPUs and the switches between them, link by link, by generation.
export function switches(t, width, em) {
  const chart = canvas(width, 13.5 * em);
  const kinds = [["A100: 6 switches, 2 links to each", 6, 2], ["H100: 4 switches, 5 + 4 + 4 + 5 links", 4, 4.5], ["B200: 2 switches, 9 links to each", 2, 9], ["NVL72: 18 switches, 1 link to each", 9, 1]];
  const kind = Math.floor(t * 4) % 4;
  const [name, count, links] = kinds[kind];
  for (let gpu = 0; gpu < 8; gpu += 1) {
    const x = (gpu + 0.5) * (width / 8);
    for (let each = 0; each < count; each += 1) chart.append(line(x, 9.4 * em, (each + 0.5) * (width / count), 3.4 * em, "series-6", 0.3 + links * 0.22));
    chart.append(box(x - 1.2 * em, 9 * em, 2.4 * em, 2 * em, "series-0"));
  }
  for (let each = 0; each < count; each += 1) chart.append(box((each + 0.5) * (width / count) - 1.5 * em, 1.8 * em, 3 * em, 1.8 * em, "series-2"));
  chart.append(words(width / 2, 12.8 * em, name, { class: "strong" }));
  return chart;
}

// One multiprocessor: four parts, each with a tensor core, lanes and registers; shared memory below.
export function multiprocessor(t, width, em) {
  const chart = canvas(width, 14 * em);
  const room = width / 4;
  for (let part = 0; part < 4; part += 1) {
    const x = part * room + 0.5 * em;
    const now = Math.floor(t * 12) % 4 === part;
    chart.append(box(x, 0.6 * em, room - em, 9 * em, "raised", { stroke: now ? "var(--accent)" : "var(--line)" }), words(x + room / 2 - 0.5 * em, 1.8 * em, "scheduler: 16 warps"));
    chart.append(box(x + 0.6 * em, 2.4 * em, room - 2.2 * em, 2.6 * em, "series-6", { "fill-opacity": now ? 1 : 0.5 }), words(x + room / 2 - 0.5 * em, 4 * em, "tensor core", { class: "strong" }));
    for (let lane = 0; lane < 16; lane += 1) chart.append(box(x + 0.6 * em + (lane * (room - 2.2 * em)) / 16, 5.4 * em, (room - 2.2 * em) / 16 - 1, 1.4 * em, "series-0", { "fill-opacity": now ? 1 : 0.4 }));
    chart.append(words(x + room / 2 - 0.5 * em, 8.4 * em, "32 lanes, 64 KiB registers"));
  }
  chart.append(box(0.5 * em, 10.4 * em, width - em, 2 * em, "series-2"), words(width / 2, 11.7 * em, "shared memory and L1: 256 KiB", { class: "on" }));
  return chart;
}
