// Small pictures that move: each is drawn for a moment between 0 and 1, played, stopped or pulled by hand.
import { h, rem, s } from "./dom.js";
import { adam, attention, backward, cube, descent, digits, embedding, fits, memory, micro, multiprocessor, neuron, step, switches, traffic, transformer } from "./pictures/beginnings.js";
import { batch, bits, chain, partitions, gpu, hybrid, recompute, sequence } from "./pictures/machines.js";
import { congestion, generations, levels, placement, race, rails, router, torus } from "./pictures/networks.js";
import { box, canvas, ease, words } from "./pictures/parts.js";
import { gpipe, interleaved, pipeline, split, textbook } from "./pictures/schedules.js";
import { interval, largest, local, methods, money, posttrain, watching, trust } from "./pictures/runs.js";
import { inKorean } from "./pictures/korean.js";

const LOOP_MS = 9000;

export function moving(picture, label, lang) {
  const korean = lang === "ko";
  const stage = h("div", { class: "stage" });
  const pull = h("input", { type: "range", min: 0, max: 1000, step: 1, "aria-label": korean ? `${label}: 그림의 순간` : `${label}: moment of the picture` });
  const still = matchMedia("(prefers-reduced-motion: reduce)").matches;
  let moment = still ? 0.6 : 0;
  let playing = !still;
  let before = null;
  const button = h("button", { type: "button", onclick: () => { playing = !playing; say(); if (playing) requestAnimationFrame(tick); } });
  const say = () => { button.textContent = korean ? (playing ? "멈춤" : "재생") : playing ? "Pause" : "Play"; };
  const draw = () => {
    const width = Math.min(stage.clientWidth || 600, 62 * rem());
    const drawn = picture(moment, width, rem());
    drawn.setAttribute("class", "chart");
    drawn.setAttribute("role", "img");
    drawn.setAttribute("aria-label", label);
    if (korean) for (const text of drawn.querySelectorAll("text")) text.textContent = inKorean(text.textContent);
    stage.replaceChildren(drawn);
    within(drawn, width);
    pull.value = Math.round(moment * 1000);
  };
  const tick = (now) => {
    if (!playing) { before = null; return; }
    if (!stage.isConnected && before !== null) return;
    if (before !== null) moment = (moment + (now - before) / LOOP_MS) % 1;
    before = now;
    draw();
    requestAnimationFrame(tick);
  };
  pull.addEventListener("input", () => { playing = false; moment = pull.value / 1000; say(); draw(); });
  say();
  requestAnimationFrame((now) => { draw(); if (playing) tick(now); });
  return h("figure", { class: "moving" }, stage, h("div", { class: "pull" }, button, pull));
}

// Words that would run out of a narrow picture move in, or shrink where they are longer than it.
function within(drawn, width) {
  for (const text of drawn.querySelectorAll("text")) {
    const { x, width: long } = text.getBBox();
    if (long > width) {
      text.style.fontSize = `${(0.97 * parseFloat(getComputedStyle(text).fontSize) * width) / long}px`;
      text.setAttribute("x", width / 2);
      text.setAttribute("text-anchor", "middle");
    } else if (x < 0 || x + long > width) {
      text.setAttribute("x", x < 0 ? 0 : width);
      text.setAttribute("text-anchor", x < 0 ? "start" : "end");
    }
  }
}

// What a parameter holds while it is trained.
function bytes(t, width, em) {
  const parts = [["parameter, bf16", 2, "memory-parameters"], ["gradient, fp32", 4, "memory-gradients"], ["master copy, fp32", 4, "memory-optimizer"], ["first moment, fp32", 4, "series-5"], ["second moment, fp32", 4, "series-7"]];
  const chart = canvas(width, 9 * em);
  const scale = (width - 2 * em) / 18;
  let x = em;
  parts.forEach(([name, size, colour], place) => {
    const grown = ease(t * 6 - place);
    chart.append(box(x, 2 * em, size * scale * grown - 2, 3 * em, colour));
    if (grown > 0.6) chart.append(words(x + (size * scale) / 2, 3.8 * em, `${size}`, { class: "on" }), words(x + (size * scale) / 2, (place % 2 ? 7.4 : 6.2) * em, name));
    x += size * scale * grown;
  });
  chart.append(words(width / 2, 1.3 * em, `${Math.round((x - em) / scale)} bytes for each parameter`, { class: "strong" }));
  return chart;
}

// Forward, backward, exchange, update: and what the network sees of it.
function loop(t, width, em) {
  const parts = [["forward", 0.26, "task-forward"], ["backward", 0.42, "task-backward"], ["gradients", 0.2, "task-reduce"], ["update", 0.12, "task-optimizer"]];
  const chart = canvas(width, 13 * em);
  let x = 0;
  const now = (t * 2) % 1;
  for (const [name, share, colour] of parts) {
    chart.append(box(x * width + 1, 1.4 * em, share * width - 2, 2.4 * em, colour, { "fill-opacity": now >= x && now < x + share ? 1 : 0.4 }), words((x + share / 2) * width, 2.9 * em, name, { class: "strong" }));
    x += share;
  }
  const level = (at) => (at > 0.68 && at < 0.88 ? 1 : at > 0.5 && at <= 0.68 ? 0.25 : 0.02);
  let path = "";
  for (let at = 0; at <= 1.0001; at += 0.004) path += `${path ? "L" : "M"}${at * width} ${11.6 * em - level(at) * 5.6 * em}`;
  chart.append(s("path", { d: path, fill: "none", stroke: "var(--series-0)", "stroke-width": 2 }), words(width * 0.1, 6 * em, "on the network"));
  chart.append(s("line", { x1: now * width, x2: now * width, y1: em, y2: 12 * em, stroke: "var(--alarm)", "stroke-width": 2 }));
  return chart;
}

// Replicas that each see other data and average their gradients.
function replicas(t, width, em) {
  const chart = canvas(width, 13 * em);
  const step = (t * 3) % 3;
  for (let rank = 0; rank < 4; rank += 1) {
    const x = (rank + 0.5) * (width / 4);
    chart.append(box(x - 3 * em, 6.4 * em, 6 * em, 4 * em, "series-0", { "fill-opacity": 0.25 }), words(x, 8.8 * em, `GPU ${rank}: all W`, { class: "strong" }));
    if (step < 1) chart.append(box(x - 1.5 * em, 0.6 * em + ease(step) * 5 * em, 3 * em, 1.4 * em, `series-${rank + 2}`), words(x, 12.3 * em, `data ${rank}`));
    else {
      const mixed = ease(step - 1);
      const to = width / 2 + (x - width / 2) * (step < 2 ? 1 - mixed * 0.75 : 0.25 + 0.75 * ease(step - 2));
      chart.append(s("circle", { cx: to, cy: 4 * em - (step < 2 ? mixed : 1) * 2 * em + (step >= 2 ? ease(step - 2) * 3 * em : 0), r: 0.9 * em, fill: step < 1.9 ? `var(--series-${rank + 2})` : "var(--series-9)" }));
      chart.append(words(x, 12.3 * em, step < 2 ? `gradient ${rank}` : "the mean"));
    }
  }
  return chart;
}

// ZeRO: what of 2 + 4 + 12 bytes each of eight ranks still holds.
function zero(t, width, em) {
  const chart = canvas(width, 15 * em);
  const stages = [["ZeRO 0", 2, 4, 12], ["ZeRO 1", 2, 4, 1.5], ["ZeRO 2", 2, 0.5, 1.5], ["ZeRO 3", 0.25, 0.5, 1.5]];
  const scale = (width - 11 * em) / 18;
  stages.forEach(([name, ...now], place) => {
    const before = place ? stages[place - 1].slice(1) : now;
    const moved = ease(t * 5 - place);
    let x = 5 * em;
    const y = (0.6 + place * 3.5) * em;
    chart.append(words(2.4 * em, y + 1.7 * em, name, { class: "strong" }));
    ["memory-parameters", "memory-gradients", "memory-optimizer"].forEach((colour, kind) => {
      const size = (before[kind] + (now[kind] - before[kind]) * moved) * scale;
      chart.append(box(x, y, size - 1, 2.5 * em, colour));
      x += size;
    });
    const total = before.reduce((sum, each, kind) => sum + each + (now[kind] - each) * moved, 0);
    chart.append(s("text", { x: x + 0.5 * em, y: y + 1.6 * em }, `${total.toFixed(2)} bytes`));
  });
  return chart;
}

// Tensor parallelism: W1 by columns, W2 by rows, one sum at the end.
function tensor(t, width, em) {
  const chart = canvas(width, 12 * em);
  const phase = t * 4;
  const gap = ease(phase) * 1.6 * em;
  const [a, b] = [width * 0.3, width * 0.62];
  chart.append(box(width * 0.06, 4 * em, 3 * em, 3 * em, "series-4"), words(width * 0.06 + 1.5 * em, 5.8 * em, "x", { class: "strong" }));
  [0, 1].forEach((half) => {
    const colour = half ? "series-6" : "series-0";
    chart.append(box(a - 3 * em + half * (3 * em + gap), 2.5 * em, 3 * em, 6 * em, colour), words(a - 1.5 * em + half * (3 * em + gap), (half ? 10.9 : 9.8) * em, `W1 columns ${half}`));
    chart.append(box(b - 3 * em, 2.5 * em + half * (3 * em + gap), 6 * em, 3 * em, colour), s("text", { x: b + 3.5 * em, y: 4.3 * em + half * (3 * em + gap) }, `W2 rows ${half}`));
    const sent = ease(phase - 1 - half * 0.3);
    if (phase > 1 && phase < 3) chart.append(s("circle", { cx: a + (b - a) * sent, cy: 4 * em + half * 4.6 * em, r: 0.6 * em, fill: `var(--${colour})` }));
  });
  const summed = ease(phase - 2.6);
  chart.append(box(width * 0.86, 4 * em, 3 * em * summed, 3 * em, "series-2"), words(width * 0.86 + 1.5 * em, 8.4 * em, summed > 0.2 ? "sum over GPUs" : ""));
  return chart;
}

// A ring that reduces: each rank sends one chunk to the next and adds what comes.
function ring(t, width, em) {
  const [count, size] = [6, 15 * em];
  const chart = canvas(width, size + 2 * em);
  const steps = 2 * (count - 1);
  const step = Math.min(steps - 0.001, t * 1.06 * steps);
  const part = ease(step % 1);
  const place = (rank) => [width / 2 + 5.8 * em * Math.sin((rank / count) * 2 * Math.PI), size / 2 - 5.8 * em * Math.cos((rank / count) * 2 * Math.PI)];
  for (let rank = 0; rank < count; rank += 1) {
    const [[x, y], [x2, y2]] = [place(rank), place((rank + 1) % count)];
    chart.append(s("line", { x1: x, y1: y, x2, y2, stroke: "var(--line)", "stroke-width": 2 }));
    const chunk = (((rank - Math.floor(step)) % count) + count) % count;
    chart.append(box(x + (x2 - x) * part - 0.55 * em, y + (y2 - y) * part - 0.55 * em, 1.1 * em, 1.1 * em, `series-${chunk}`));
  }
  for (let rank = 0; rank < count; rank += 1) {
    const [x, y] = place(rank);
    chart.append(s("circle", { cx: x, cy: y, r: 1.2 * em, fill: "var(--surface)", stroke: "var(--accent)", "stroke-width": 2 }), words(x, y + 0.3 * em, String(rank), { class: "strong" }));
  }
  const phase = step < count - 1 ? "reduce-scatter: add and pass on" : "all-gather: pass the sums on";
  chart.append(words(width / 2, size / 2 + 0.3 * em, `step ${Math.floor(step) + 1} of ${steps}`, { class: "strong" }), words(width / 2, size + 1.4 * em, phase));
  return chart;
}

// Ring, tree, and sums in the switch: steps until all have everything.
function trees(t, width, em) {
  const chart = canvas(width, 13 * em);
  const rows = [["ring", 14, "series-0", "2 (n - 1) steps"], ["tree", 6, "series-2", "2 log n steps"], ["in the switch", 2, "series-6", "up, summed, down"]];
  rows.forEach(([name, steps, colour, about], place) => {
    const y = (1 + place * 4) * em;
    const room = width - 9 * em;
    chart.append(words(3.6 * em, y + 1.4 * em, name, { class: "strong" }), s("text", { x: 7.4 * em, y: y + 3.1 * em }, about));
    for (let step = 0; step < steps; step += 1) {
      const done = ease(t * 16 - step);
      chart.append(box(7.4 * em + (room / 14) * step, y, (room / 14) * done - 3, 2 * em, colour));
    }
  });
  return chart;
}

// A router sends each token to its expert; the fullest expert is waited for.
function experts(t, width, em) {
  const chart = canvas(width, 14 * em);
  const choice = [0, 1, 1, 2, 3, 1, 0, 3, 1, 2, 1, 3];
  const filled = [0, 0, 0, 0];
  choice.forEach((expert, token) => {
    const moved = ease(t * (choice.length + 3) - token * 0.9);
    const from = width * 0.08 + (token / choice.length) * width * 0.84;
    const to = (expert + 0.5) * (width / 4) + (filled[expert] - 1.5) * 1.3 * em;
    filled[expert] += 1;
    chart.append(s("circle", { cx: from + (to - from) * moved, cy: 1.6 * em + moved * 8 * em, r: 0.5 * em, fill: `var(--series-${expert === 1 ? 1 : 0})` }));
  });
  chart.append(box(width * 0.3, 4.6 * em, width * 0.4, 1.8 * em, "raised", { stroke: "var(--line)" }), words(width / 2, 5.8 * em, "router", { class: "strong" }));
  for (let expert = 0; expert < 4; expert += 1) {
    const x = (expert + 0.5) * (width / 4);
    chart.append(box(x - width * 0.11, 8.4 * em, width * 0.22, 2.6 * em, "series-2", { "fill-opacity": 0.15, stroke: "var(--series-2)" }), words(x, 12.4 * em, `expert ${expert}: ${filled[expert]}`, { class: expert === 1 ? "strong" : "" }));
  }
  return chart;
}

// A roofline: more tokens, more arithmetic for every byte, until it is compute-bound.
function roofline(t, width, em) {
  const chart = canvas(width, 14 * em);
  const x = (value) => 4 * em + ((Math.log2(value) - 3) / 9) * (width - 6 * em);
  const y = (value) => 12 * em - Math.min(1, value) * 9.4 * em;
  const ridge = 295;
  let path = "";
  for (let at = 8; at <= 4096; at *= 1.1) path += `${path ? "L" : "M"}${x(at)} ${y(at / ridge)}`;
  chart.append(s("path", { d: path, fill: "none", stroke: "var(--series-0)", "stroke-width": 2.5 }));
  for (const value of [8, 32, 128, 512, 2048]) chart.append(words(x(value), 13.3 * em, String(value)));
  const batch = 2 ** (3 + 9 * (t < 0.9 ? t / 0.9 : 1));
  chart.append(s("circle", { cx: x(batch), cy: y(batch / ridge), r: 0.7 * em, fill: "var(--series-1)" }));
  chart.append(s("line", { class: "grid", x1: x(ridge), x2: x(ridge), y1: 2 * em, y2: 12 * em }), words(x(ridge), 1.4 * em, "989 TFLOP/s : 3.35 TB/s = 295"));
  chart.append(words(width * 0.24, 4 * em, `${Math.round(batch)} tokens`, { class: "strong" }), words(width * 0.24, 5.4 * em, batch < ridge ? "Memory-bound" : "Compute-bound"));
  return chart;
}

// What is sent while something is computed costs nothing, as far as it fits under it.
function overlap(t, width, em) {
  const chart = canvas(width, 10 * em);
  const shift = ease((t - 0.15) * 2);
  const unit = width / 14;
  for (let layer = 0; layer < 4; layer += 1) {
    const apart = layer * 3.2;
    const close = layer * 2;
    const from = apart + (close - apart) * shift;
    chart.append(box(from * unit + 2, em, 2 * unit - 4, 2.4 * em, "task-backward"), words((from + 1) * unit, 2.5 * em, `layer ${4 - layer}`, { class: "on-light" }));
    const send = from + 2;
    chart.append(box(send * unit + 2, 4.4 * em, 1.2 * unit - 4, 1.8 * em, "task-reduce"));
  }
  chart.append(words(width * 0.5, 8.4 * em, shift < 0.5 ? "one after the other" : "gradients travel under the next layer", { class: "strong" }), words(width * 0.9, 8.4 * em, `${(12.8 - 3.6 * shift).toFixed(1)}`));
  return chart;
}

// Gossip: each worker takes the mean with its neighbours; all come together.
function gossip(t, width, em) {
  const count = 10;
  let values = [...Array(count)].map((_, worker) => ((worker * 7) % count) / (count - 1));
  const rounds = t * 12;
  const mix = (each) => each.map((value, worker) => (value + each[(worker + 1) % count] + each[(worker + count - 1) % count]) / 3);
  for (let round = 0; round < Math.floor(rounds); round += 1) values = mix(values);
  const next = mix(values);
  const part = ease(rounds % 1);
  const chart = canvas(width, 13 * em);
  values.forEach((value, worker) => {
    const now = value + (next[worker] - value) * part;
    const x = (worker + 0.5) * (width / count);
    if (worker) chart.append(s("line", { class: "grid", x1: x - width / count, x2: x, y1: 11 * em, y2: 11 * em }));
    chart.append(box(x - 0.9 * em, 10.4 * em - now * 8.6 * em, 1.8 * em, now * 8.6 * em + 2, `series-${worker % 8}`), s("circle", { cx: x, cy: 11 * em, r: 0.45 * em, fill: "var(--accent)" }));
  });
  chart.append(s("line", { class: "limit", x1: 0, x2: width, y1: 10.4 * em - 4.3 * em, y2: 10.4 * em - 4.3 * em }), words(width / 2, 12.7 * em, `round ${Math.floor(rounds)}: apart by ${(Math.max(...values) - Math.min(...values)).toFixed(3)}`, { class: "strong" }));
  return chart;
}

// Compression: the largest are sent, what is left waits for the next step.
function compression(t, width, em) {
  const chart = canvas(width, 13 * em);
  const sizes = [0.9, 0.15, 0.3, 0.75, 0.1, 0.22, 0.6, 0.05, 0.4, 0.18, 0.82, 0.12];
  const phase = t * 3;
  sizes.forEach((size, place) => {
    const sent = size > 0.55;
    const x = (place + 0.5) * (width / sizes.length);
    const gone = sent ? ease(phase - 1) : 0;
    const left = !sent ? ease(phase - 1.6) : 0;
    chart.append(box(x - 0.8 * em, (6 - size * 5 - gone * 5) * em, 1.6 * em, size * 5 * em, sent ? "series-0" : "series-4", { "fill-opacity": 1 - gone }));
    if (left > 0) chart.append(box(x - 0.8 * em, 7.5 * em + (1 - left) * -1.5 * em, 1.6 * em, size * 5 * em * left, "series-4", { "fill-opacity": 0.6 }));
  });
  chart.append(words(width / 2, 12.4 * em, phase < 1 ? "a gradient" : phase < 1.8 ? "4 of 12 numbers are sent" : "the rest is added to the next gradient", { class: "strong" }));
  return chart;
}

// Search: most policies are shown by a bound to be slower, without looking at them.
function search(t, width, em) {
  const chart = canvas(width, 13 * em);
  const [columns, rows] = [24, 8];
  let looked = 0;
  for (let place = 0; place < columns * rows; place += 1) {
    const [column, row] = [Math.floor(place / rows), place % rows];
    const cost = Math.abs(column - 9) / 24 + Math.abs(row - 3) / 8;
    const seen = place < t * 1.08 * columns * rows;
    const bounded = cost > 0.34;
    if (seen && !bounded) looked += 1;
    const colour = !seen ? "raised" : column === 9 && row === 3 ? "series-2" : bounded ? "line" : "series-0";
    chart.append(box(em + column * ((width - 2 * em) / columns), em + row * 1.25 * em, (width - 2 * em) / columns - 3, em, colour, { stroke: "var(--line)" }));
  }
  chart.append(words(width / 2, 12.4 * em, `${looked} estimated, the rest shown to be slower or too large`, { class: "strong" }));
  return chart;
}

// A run with failures: work since the last save is lost.
function failures(t, width, em) {
  const chart = canvas(width, 9 * em);
  const events = [["work", 3], ["save", 0.3], ["work", 3], ["save", 0.3], ["work", 1.8], ["lost", 0], ["down", 1.2], ["work", 3], ["save", 0.3], ["work", 1.6]];
  const whole = events.reduce((sum, each) => sum + each[1], 0);
  const unit = (width - 2 * em) / whole;
  const now = t * 1.05 * whole;
  let at = 0;
  events.forEach(([kind, length], place) => {
    const lost = kind === "work" && events[place + 1] && events[place + 1][0] === "lost";
    const colour = kind === "save" ? "series-4" : kind === "down" ? "series-1" : lost && now > at + length ? "series-6" : "series-2";
    const shown = Math.min(Math.max(now - at, 0), length);
    chart.append(box(em + at * unit, 2 * em, shown * unit - 1, 3 * em, colour));
    if (lost && now > at + length) chart.append(words(em + (at + length / 2) * unit, 6.6 * em, "lost"));
    if (kind === "down" && now > at) chart.append(words(em + (at + length / 2) * unit, 1.4 * em, "notice, restart, load"));
    at += length;
  });
  chart.append(words(width / 2, 8.2 * em, "green: work; yellow: saves", { class: "strong" }));
  return chart;
}

// Context parallelism: parts of a sequence travel round, every query meets every key once.
function context(t, width, em) {
  const chart = canvas(width, 12 * em);
  const count = 4;
  const step = Math.min(count - 0.001, t * 1.05 * count);
  for (let rank = 0; rank < count; rank += 1) {
    const x = (rank + 0.5) * (width / count);
    chart.append(box(x - 3 * em, 1.4 * em, 6 * em, 2.2 * em, `series-${rank}`), words(x, 2.8 * em, `queries ${rank}`, { class: "on" }));
    const now = x + ease(step % 1) * (width / count);
    const key = (((rank - Math.floor(step)) % count) + count) % count;
    const shown = now > width - 2 * em ? now - width : now;
    chart.append(box(shown - 2.6 * em, 5.4 * em, 5.2 * em, 2 * em, `series-${key}`, { "fill-opacity": 0.65 }), words(shown, 6.7 * em, `keys ${key}`));
    for (let met = 0; met <= Math.floor(step); met += 1) chart.append(box(x - 3 * em + ((((rank - met) % count) + count) % count) * 1.5 * em, 9 * em, 1.3 * em, 1.3 * em, `series-${(((rank - met) % count) + count) % count}`));
  }
  return chart;
}

export const PICTURES = { neuron, adam, attention, backward, cube, descent, digits, embedding, fits, memory, micro, multiprocessor, step, switches, textbook, traffic, transformer, partitions, bytes, loop, replicas, zero, tensor, pipeline, ring, trees, experts, roofline, overlap, gossip, compression, search, failures, context, gpipe, interleaved, split, recompute, bits, batch, chain, gpu, hybrid, sequence, router, race, levels, generations, placement, congestion, local, largest, methods, interval, watching, posttrain, money, rails, torus, trust };
