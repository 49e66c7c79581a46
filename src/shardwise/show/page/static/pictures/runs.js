// Runs: averaging now and then, searching, saving, watching, paying.
import { s } from "../dom.js";
import { box, canvas, ease, words } from "./parts.js";

const curve = (points, ink, more) => s("path", { d: points.map(([x, y], place) => `${place ? "L" : "M"}${x.toFixed(1)} ${y.toFixed(1)}`).join(""), fill: "none", stroke: `var(--${ink})`, "stroke-width": 2.2, ...more });

// Local steps, then one mean: workers drift apart and come together.
export function local(t, width, em) {
  const chart = canvas(width, 13 * em);
  const every = 8;
  const steps = Math.floor(t * 1.1 * 40);
  for (let worker = 0; worker < 4; worker += 1) {
    const points = [];
    for (let step = 0; step <= Math.min(40, steps); step += 1) {
      const since = step % every;
      points.push([em + (step / 40) * (width - 2 * em), (10 - 7.4 * (1 - Math.exp(-step / 14))) * em + (worker - 1.5) * since * 0.19 * em]);
    }
    chart.append(curve(points, `series-${[0, 2, 4, 6][worker]}`));
  }
  for (let step = every; step <= 40; step += every) {
    const x = em + (step / 40) * (width - 2 * em);
    chart.append(s("line", { class: "grid", x1: x, x2: x, y1: em, y2: 11 * em }), words(x - 0.4 * em, 12.3 * em, step <= steps ? "mean" : ""));
  }
  return chart;
}

// Only the largest are sent; the others are remembered until they are large.
export function largest(t, width, em) {
  const chart = canvas(width, 13 * em);
  const count = 24;
  const rounds = Math.floor(t * 6);
  const kept = Array(count).fill(0);
  let sent = [];
  for (let round = 0; round <= rounds; round += 1) {
    for (let place = 0; place < count; place += 1) kept[place] += Math.abs(Math.sin((place + 1) * 12.9898 + round * 4.1));
    sent = [...kept.keys()].sort((a, b) => kept[b] - kept[a]).slice(0, 4);
    if (round < rounds) for (const place of sent) kept[place] = 0;
  }
  const unit = (width - 2 * em) / count;
  kept.forEach((size, place) => chart.append(box(em + place * unit, (9.8 - Math.min(size, 3.4) * 2.4) * em, unit - 2, Math.min(size, 3.4) * 2.4 * em, sent.includes(place) ? "series-1" : "series-0", { "fill-opacity": sent.includes(place) ? 1 : 0.4 })));
  chart.append(words(width / 2, 11.4 * em, `step ${rounds + 1}: 4 of ${count} are sent, the others are kept for later`, { class: "strong" }));
  return chart;
}

// Four ways to look for the lowest place.
export function methods(t, width, em) {
  const chart = canvas(width, 14 * em);
  const cost = (x) => 0.5 + 0.28 * Math.sin(x * 9) + 0.16 * Math.cos(x * 23 + 1) + 0.35 * (x - 0.62) ** 2;
  const room = width / 2;
  const names = ["dynamic programming: part by part", "integer programming: bound and cut", "learning: try what paid off", "zeroth order: guess the slope"];
  names.forEach((name, way) => {
    const [x0, y0] = [(way % 2) * room + em, Math.floor(way / 2) * 7 * em];
    const px = (x) => x0 + x * (room - 2 * em);
    const py = (x) => y0 + (5.2 - 4.2 * (1 - cost(x))) * em;
    chart.append(curve([...Array(61)].map((_, place) => [px(place / 60), py(place / 60)]), "line"));
    const seen = Math.floor(t * 26);
    for (let step = 0; step <= seen; step += 1) {
      const x = way === 0 ? step / 26 : way === 1 ? (step % 2 ? 0.5 + 0.5 / (1 + step / 3) : 0.5 - 0.1 / (1 + step)) : way === 2 ? 0.55 + 0.42 * Math.sin(step * 2.4) * Math.exp(-step / 9) : 0.12 + 0.42 * (1 - Math.exp(-step / 6)) + 0.02 * (step % 2);
      chart.append(s("circle", { cx: px(Math.min(1, x)), cy: py(Math.min(1, x)), r: step === seen ? 0.5 * em : 0.22 * em, fill: `var(--series-${[0, 2, 4, 6][way]})` }));
    }
    chart.append(s("text", { x: x0, y: y0 + 6.3 * em, class: "strong" }, name));
  });
  return chart;
}

// Work, saves and a failure: what is lost grows with the interval, what is spent shrinks.
export function interval(t, width, em) {
  const chart = canvas(width, 13.5 * em);
  const px = (value) => 3 * em + (Math.log2(value) / 6) * (width - 4 * em);
  const py = (value) => 11 * em - Math.min(1, value) * 9 * em;
  const saves = (value) => 1.2 / value;
  const lost = (value) => value / 40;
  const places = [...Array(61)].map((_, place) => 2 ** (place / 10));
  const drawn = (cost, ink) => curve(places.filter((each) => cost(each) <= 1).map((each) => [px(each), py(cost(each))]), ink);
  chart.append(drawn(saves, "series-0"), drawn(lost, "series-6"), drawn((each) => saves(each) + lost(each), "series-1"));
  // as far as the curve is drawn, there and back to its lowest place
  const at = 2 ** (0.4 + 4.9 * ease(t < 0.5 ? t * 2 : 1) - 2.55 * ease(t < 0.6 ? 0 : (t - 0.6) * 3));
  chart.append(s("circle", { cx: px(at), cy: py(saves(at) + lost(at)), r: 0.6 * em, fill: "var(--series-1)" }));
  chart.append(s("text", { x: px(2), y: py(0.76) }, "saves"), s("text", { x: px(40), y: py(0.8) }, "work lost"), words(px(at), 12.6 * em, `save every ${Math.round(at)} min`, { class: "strong" }));
  return chart;
}

// Steps of a run beside the band of its prediction; one rank falls behind.
export function watching(t, width, em) {
  const chart = canvas(width, 12.5 * em);
  chart.append(box(em, 5.6 * em, width - 2 * em, 2.4 * em, "series-2", { "fill-opacity": 0.2 }), s("text", { x: em, y: 5.2 * em }, "the band of the prediction"));
  const count = 60;
  const seen = Math.floor(t * 1.1 * count);
  for (let step = 0; step < Math.min(seen, count); step += 1) {
    const slow = step > 36 && step < 50 ? 1 : 0;
    const y = 6.8 + 0.6 * Math.sin(step * 2.3) - slow * (3 + 0.5 * Math.sin(step));
    chart.append(s("circle", { cx: 1.4 * em + (step / count) * (width - 2.8 * em), cy: y * em, r: 0.28 * em, fill: `var(--${slow ? "series-1" : "series-0"})` }));
  }
  chart.append(words(width / 2, 11 * em, seen > 50 ? "its node was replaced: back in the band" : seen > 38 ? "rank 13 is slow: every rank waits for it" : "as predicted", { class: "strong" }));
  return chart;
}

// Measured runs beside their predictions: most lie in the band; far from all of them nothing is known.
export function trust(t, width, em) {
  const chart = canvas(width, 14 * em);
  const [middle, known] = [6.4 * em, width * 0.7];
  chart.append(box(3 * em, middle - 2.2 * em, known - 3 * em, 3.4 * em, "series-2", { "fill-opacity": 0.2 }), s("line", { class: "limit", x1: 3 * em, x2: width - em, y1: middle, y2: middle }));
  const count = 40;
  const seen = Math.min(count, Math.floor(t * 1.6 * count));
  let inside = 0;
  for (let run = 0; run < seen; run += 1) {
    const off = Math.abs(Math.sin((run + 1) * 12.9898) * 43758.5) % 1;
    const far = run % 5 === 4;
    const y = middle + (far ? (run % 2 ? -3.4 : 2.2) : 1.1 - 3.1 * off) * em;
    inside += far ? 0 : 1;
    chart.append(s("circle", { cx: 3.6 * em + ((run * 17) % count) / count * (known - 4.2 * em), cy: y, r: 0.3 * em, fill: `var(--series-${far ? 1 : 0})` }));
  }
  chart.append(s("text", { x: 3 * em, y: em }, "measured step over predicted"), s("text", { x: width - em, y: middle - 0.4 * em, "text-anchor": "end" }, "as predicted"));
  if (t > 0.7) chart.append(s("circle", { cx: known + (width - known) / 2, cy: middle, r: 0.7 * em, fill: "none", stroke: "var(--series-6)", "stroke-width": 2.5 }), words(known + (width - known) / 2, middle + 2.2 * em, "your run"));
  chart.append(words(width / 2, 11.2 * em, `${inside} of ${seen} runs in the band`, { class: "strong" }), words(width / 2, 13 * em, t > 0.7 ? "far from every measured run: a few steps on the machine decide" : ""));
  return chart;
}

// GPUs times hours: twice as many take half as long, and a little more.
export function money(t, width, em) {
  const chart = canvas(width, 13 * em);
  const sizes = [64, 128, 256, 512, 1024];
  const unit = (width - 15 * em) / 16;
  sizes.forEach((gpus, row) => {
    const y = (0.6 + row * 2.3) * em;
    const hours = 16 / 2 ** row * (1 + 0.09 * row);
    const shown = ease(t * 6 - row);
    chart.append(words(3.2 * em, y + 1.2 * em, `${gpus} GPUs`, { class: "strong" }), box(6.6 * em, y, hours * unit * shown, 1.7 * em, "series-0"));
    if (shown > 0.8) chart.append(s("text", { x: 7 * em + hours * unit, y: y + 1.2 * em }, `${(hours * 10).toFixed(0)} h, cost ${(1 + 0.09 * row).toFixed(2)}`));
  });
  return chart;
}

// Engines answer, the trainer trains; in turn, or at once with older answers in a buffer.
export function posttrain(t, width, em) {
  const chart = canvas(width, 15 * em);
  const [left, wide, tall] = [6.5 * em, width - 7.5 * em, 1.7 * em];
  const bar = (from, until, row, colour, name) => {
    const seen = Math.min(until, t * 1.1);
    if (seen <= from) return;
    chart.append(box(left + from * wide, row, (seen - from) * wide - 2, tall, colour));
    if (name && seen - from > 0.09) chart.append(words(left + ((from + seen) / 2) * wide, row + 1.15 * em, name, { class: "on" }));
  };
  chart.append(words(width / 2, 1.2 * em, "in turn: every answer is fresh, half of the GPUs wait", { class: "strong" }));
  ["rollout", "trainer"].forEach((name, lane) => chart.append(words(3.2 * em, (3 + 2.2 * lane) * em, name), words(3.2 * em, (10 + 2.2 * lane) * em, name)));
  for (let step = 0; step < 3; step += 1) {
    bar(step / 3, (step + 0.58) / 3, 1.9 * em, "series-0", `${step + 1}`);
    bar((step + 0.58) / 3, (step + 1) / 3, 4.1 * em, "series-1", `${step + 1}`);
  }
  chart.append(words(width / 2, 8.2 * em, "at once: answers are a step old", { class: "strong" }));
  for (let step = 0; step < 5; step += 1) {
    bar(step * 0.195, (step + 1) * 0.195, 8.9 * em, "series-0", `${step + 1}`);
    bar((step + 1) * 0.195, (step + 1) * 0.195 + 0.165, 11.1 * em, "series-1", `${step + 1}`);
  }
  const trained = Math.max(0, Math.min(4, Math.floor((t * 1.1 - 0.165) / 0.195)));
  chart.append(words(width / 2, 14.3 * em, `steps trained: ${Math.min(3, Math.floor(t * 1.1 * 3))} in turn, ${trained} at once`));
  return chart;
}
