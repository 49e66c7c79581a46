// Pipelines: micro-batches over stages, step by step, each task where it can begin at the earliest.
import { box, canvas, words } from "./parts.js";

// Tasks of a stage in their order, [kind, number, chunk]; lengths by kind; what each waits for, by name.
function timed(rows, lengths, needs) {
  const done = new Map();
  const at = rows.map(() => [0, 0]);
  for (let changed = true; changed;) {
    changed = false;
    rows.forEach((row, stage) => {
      const next = row[at[stage][0]];
      if (!next) return;
      const from = needs(stage, next);
      const ready = from === null ? 0 : done.get(from);
      if (ready === undefined) return;
      const begun = Math.max(at[stage][1], ready);
      const end = begun + lengths[next[0]];
      done.set(`${next[0]}${stage},${next[1]},${next[2] || 0}`, end);
      next.times = [begun, end];
      at[stage] = [at[stage][0] + 1, end];
      changed = true;
    });
  }
  return Math.max(...at.map((each) => each[1]));
}

const INKS = { f: ["task-forward", "on"], b: ["task-backward", "on-light"], w: ["task-weight-gradient", "on-light"] };

function drawn(t, width, em, rows, whole, name) {
  const chart = canvas(width, (rows.length * 2.4 + 2.6) * em);
  const x = (time) => 5 * em + (time / whole) * (width - 5.5 * em);
  const now = t * 1.1 * whole;
  rows.forEach((row, stage) => {
    const y = (0.6 + stage * 2.4) * em;
    chart.append(words(2.4 * em, y + 1.3 * em, `stage ${stage}`, { class: "strong" }), box(x(0), y, x(whole) - x(0), 2 * em, "raised"));
    for (const task of row) {
      const [begun, end] = task.times;
      if (begun > now) continue;
      const [ink, kind] = INKS[task[0]];
      chart.append(box(x(begun) + 1, y, x(Math.min(end, now)) - x(begun) - 2, 2 * em, ink, { "fill-opacity": task[2] ? 0.72 : 1 }));
      if (now >= end && x(end) - x(begun) > em) chart.append(words((x(begun) + x(end)) / 2, y + 1.35 * em, name(task), { class: kind }));
    }
  });
  for (let time = 0; time + 1 <= whole; time += whole > 24 ? 4 : 2) chart.append(words(x(time + 0.5), (rows.length * 2.4 + 1.6) * em, `t${time + 1}`));
  return chart;
}

const number = (task) => String(task[1] + 1);
const straight = (stages) => (stage, [kind, each]) => {
  if (kind === "f") return stage ? `f${stage - 1},${each},0` : null;
  if (kind === "w") return `b${stage},${each},0`;
  return stage < stages - 1 ? `b${stage + 1},${each},0` : `f${stage},${each},0`;
};

// One forward, one backward.
export function pipeline(t, width, em) {
  const [stages, batches] = [4, 6];
  const rows = [...Array(stages)].map((_, stage) => {
    const found = [];
    let [f, b] = [0, 0];
    while (f < Math.min(stages - stage, batches)) found.push(["f", f++]);
    while (b < batches) { found.push(["b", b++]); if (f < batches) found.push(["f", f++]); }
    return found;
  });
  return drawn(t, width, em, rows, timed(rows, { f: 1, b: 2 }, straight(stages)), number);
}

// Whole time steps, a forward and a backward of a stage in the same one: who works from t1 to t10, and how many.
export function textbook(t, width, em) {
  const [stages, batches] = [4, 4];
  const steps = 2 * (stages - 1) + batches;
  const chart = canvas(width, 16.4 * em);
  const unit = (width - 5.5 * em) / steps;
  const now = t * 1.08 * steps;
  const at = (step) => 5 * em + step * unit;
  for (let step = 0; step < steps; step += 1) {
    let working = 0;
    for (let stage = 0; stage < stages; stage += 1) {
      const y = (0.6 + stage * 2.5) * em;
      const forward = step - stage;
      const back = step - (2 * (stages - 1) - stage);
      const has = [[forward, "task-forward", "on"], [back, "task-backward", "on-light"]].filter(([each]) => each >= 0 && each < batches);
      if (!step) chart.append(words(2.4 * em, y + 1.4 * em, `stage ${stage}`, { class: "strong" }));
      chart.append(box(at(step) + 1, y, unit - 2, 2.1 * em, "raised"));
      if (has.length) working += 1;
      if (step < now) has.forEach(([each, ink, kind], place) => chart.append(box(at(step) + 1 + (place * unit) / has.length, y, unit / has.length - 2, 2.1 * em, ink), words(at(step) + ((place + 0.5) * unit) / has.length, y + 1.4 * em, String(each + 1), { class: kind })));
    }
    if (step < now) chart.append(box(at(step) + 1, (14.6 - (working / stages) * 3) * em, unit - 2, (working / stages) * 3 * em, "series-0", { "fill-opacity": 0.35 }), words(at(step) + unit / 2, 14.4 * em, `${(100 * working) / stages} %`));
    chart.append(words(at(step) + unit / 2, 15.9 * em, `t${step + 1}`, { class: "strong" }));
  }
  return chart;
}

// All forward, then all backward: t1 to t10 on the way there, and back.
export function gpipe(t, width, em) {
  const [stages, batches] = [4, 4];
  const rows = [...Array(stages)].map(() => [...Array(batches).keys()].map((each) => ["f", each]).concat([...Array(batches).keys()].reverse().map((each) => ["b", each])));
  return drawn(t, width, em, rows, timed(rows, { f: 1, b: 2 }, straight(stages)), number);
}

// Two chunks on each stage: the way is walked twice, in steps half as long.
export function interleaved(t, width, em) {
  const [stages, batches] = [4, 4];
  const order = (kind, chunks) => chunks.flatMap((chunk) => [...Array(batches).keys()].map((each) => [kind, each, chunk]));
  const rows = [...Array(stages)].map(() => [...order("f", [0, 1]), ...order("b", [1, 0])]);
  const needs = (stage, [kind, each, chunk]) => {
    if (kind === "f") return stage ? `f${stage - 1},${each},${chunk}` : chunk ? `f${stages - 1},${each},0` : null;
    if (stage < stages - 1) return `b${stage + 1},${each},${chunk}`;
    return chunk ? `f${stage},${each},1` : `b0,${each},1`;
  };
  return drawn(t, width, em, rows, timed(rows, { f: 0.5, b: 1 }, needs), number);
}

// The backward in two halves: what the stage before waits for, and the gradient of the weights, which can wait.
export function split(t, width, em) {
  const [stages, batches] = [4, 6];
  const rows = [...Array(stages)].map((_, stage) => {
    const found = [];
    let [f, b, w] = [0, 0, 0];
    while (f < stages - stage) found.push(["f", f++]);
    while (b < batches) {
      found.push(["b", b++]);
      if (f < batches) found.push(["f", f++]);
      if (b - w > stage && w < b) found.push(["w", w++]);
    }
    while (w < batches) found.push(["w", w++]);
    return found;
  });
  return drawn(t, width, em, rows, timed(rows, { f: 1, b: 1, w: 1 }, straight(stages)), number);
}
