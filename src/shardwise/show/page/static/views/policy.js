// One policy, changed by hand: can it run, what fills the memory, where the time goes, how far to trust it.
import { dots, responsive, stackedBars } from "../charts.js";
import { beside } from "../beside.js";
import { card, fact, h, legend, notes, s, table } from "../dom.js";
import { gpuMap, nodeSize } from "../gpus.js";
import { digits, dollars, gib, partName, percent, policyChips, policyCode, policyState, seconds, sizeText, timeText } from "../format.js";

const PARTS = {
  forward: "task-forward", backward: "task-backward", recompute: "task-recompute", tp_comm: "series-3", cp_comm: "series-7", ep_comm: "series-8",
  pp_comm: "series-0", fsdp_comm: "series-1", host: "series-4", offload: "series-11", bubble: "line", grad_comm: "task-reduce", param_comm: "task-gather",
  optimizer: "task-optimizer", other: "task-other",
};
const HIDDEN = { tp: "series-3", ep: "series-8", cp: "series-7", grad: "task-reduce", param: "task-gather" };
const MANY = 16;

export async function drawPolicy(state, context) {
  const found = await context.ask("estimate");
  const measured = h("div", { class: "plot tall evidence" }, h("p", { class: "muted small" }, "looking at measured runs…"));
  context.after = async () => {
    await marks(state, context);
    if (found.legal && context.still()) await evidence(found, context, measured);
  };
  if (!found.legal) return [cannot(found, context), notes(found.notes)];
  context.form.comes("dp", found.policy.dp);
  const clusters = window.shardwiseAnswers ? [] : (await context.ask("clusters", {}, { quiet: true })).clusters;
  const two = window.shardwiseAnswers ? null : await beside(found, state, context);
  const columns = h("div", { class: "columns" }, h("div", null, memory(found), trust(found, measured)), h("div", null, time(found), traffic(found)));
  return [verdict(found, context), headline(found), columns, gpuMap(found.policy, nodeSize(state.on, clusters)), two, notes(found.assumptions, "What is assumed"), notes(found.notes)];
}

function cannot(found, context) {
  const words = (found.cure || "").split(" ");
  const changes = {};
  for (const [flag, field] of [["--tp", "tp"], ["--pp", "pp"], ["--dp", "dp"], ["--etp", "etp"], ["--cp", "cp"], ["--ep", "ep"], ["--vpp", "vpp"], ["--micro", "micro"], ["--zero", "zero"], ["--recompute", "recompute"], ["--schedule", "schedule"]]) {
    changes[field] = words.includes(flag) ? words[words.indexOf(flag) + 1] : context.table.defaults[field] || "";
  }
  return h("div", { class: "banner bad", role: "status", id: "verdict" }, h("span", null, `Cannot run (${found.rule}): ${found.why}`),
    found.cure ? h("button", { type: "button", onclick: () => context.change(changes) }, "Take the nearest that can") : null);
}

function verdict(found, context) {
  const fits = found.fits && found.host_fits;
  const near = (found.that_fit || []).slice(0, 3).map((each) => h("button", { type: "button", onclick: () => context.change(policyState(each.policy, found.gpus)) }, policyCode(each.policy)));
  return h("div", { class: `banner ${fits ? "good" : "bad"}`, role: "status", id: "verdict" },
    h("span", null, fits ? `Fits: ${gib(found.free_bytes)} GiB free on the fullest GPU, stage ${found.fullest_stage}` : `Does not fit: ${found.verdict}`),
    near.length ? h("span", { class: "buttons" }, h("span", { class: "small" }, "that fit:"), near) : null);
}

function headline(found) {
  const [number, unit] = seconds(found.step_s);
  const cost = found.money.billion_tokens;
  const made = card(null, null,
    h("header", null, h("h2", null, `${found.model} on ${found.cluster}`), h("span", { class: "muted" }, `${found.micro_batches.toLocaleString("en-US")} micro-batches a step, ${found.step_tokens.toLocaleString("en-US")} tokens`)),
    h("div", { class: "chips" }, policyChips(found.policy).map((word) => h("span", { class: "chip" }, word))),
    h("div", { class: "facts" },
      fact("Step", number, unit, `bubble ${percent(found.bubble_share)}`),
      fact("Tokens/s per GPU", digits(found.tokens_per_s_per_gpu)),
      fact("MFU", (found.mfu_causal_half * 100).toFixed(1), "%", `HFU ${percent(found.hfu)}`),
      fact("Peak memory", gib(found.peak_bytes), "GiB", `of ${gib(found.capacity_bytes)}`),
      fact("USD per 1e9 tokens", dollars(cost.usd), "", `rent; electricity ${dollars(cost.electricity_usd)}`)));
  made.dataset.step = found.step_s;
  made.dataset.peak = found.peak_bytes;
  made.classList.add("headline");
  return made;
}

function memory(found) {
  const shown = found.stages.length <= MANY ? found.stages : found.stages.filter((stage, place) => place < MANY - 4 || place >= found.stages.length - 3 || stage.stage === found.fullest_stage);
  const kinds = Object.keys(found.stages[0].kinds_bytes).filter((kind) => found.stages.some((stage) => stage.kinds_bytes[kind] > 0));
  const rows = shown.map((stage) => ({
    name: found.stages.length > 1 ? `stage ${stage.stage}` : "each GPU",
    parts: kinds.map((kind) => [kind, stage.kinds_bytes[kind] / 2 ** 30, `memory-${kind}`, sizeText(stage.kinds_bytes[kind])]),
    after: gib(stage.total_bytes),
  }));
  const limit = (found.capacity_bytes - found.reserve_bytes) / 2 ** 30;
  const drawn = stackedBars(rows, { label: "Memory of a GPU by kind, for each stage", unit: "GiB", limit: { value: limit, words: `limit ${limit.toFixed(1)} GiB` }, height: rows.length > 1 ? 1.8 : 2.6 });
  return card("Memory of a GPU", found.stages.length > shown.length ? `${shown.length} of ${found.stages.length} stages` : "by kind, stage by stage", drawn, legend(kinds.map((kind) => [kind, `memory-${kind}`])),
    h("p", { class: "small muted" }, `A GPU has ${gib(found.capacity_bytes)} GiB. ${gib(found.reserve_bytes)} GiB of it are kept for buffers and fragments, which leaves the limit here. Plan fills less, so that the risk to run out of memory stays low.`));
}

function time(found) {
  const parts = Object.entries(found.time_s).filter(([, value]) => value > 0);
  const hidden = Object.entries(found.hidden_s || {}).filter(([, value]) => value > 0);
  const rows = [{ name: "exposed", parts: parts.map(([name, value]) => [partName(name), value, PARTS[name], `${timeText(value)}, ${percent(value / found.step_s)}`]), after: timeText(found.step_s) }];
  if (hidden.length) rows.push({ name: "hidden", parts: hidden.map(([name, value]) => [`${name} under compute`, value, HIDDEN[name] || "series-9", timeText(value), true]), after: timeText(hidden.reduce((sum, each) => sum + each[1], 0)) });
  const drawn = stackedBars(rows, { label: "Time of a step by part, and what is hidden under compute", unit: "s", height: 2.6 });
  const list = parts.sort((a, b) => b[1] - a[1]).map(([name, value]) => [h("span", null, h("i", { class: "swatch", css: { "--colour": `var(--${PARTS[name]})` } }), ` ${partName(name)}`), timeText(value), percent(value / found.step_s)]);
  return card("Time of a step", "paler: hidden under compute", drawn, table(["part", "time", "share"], list, { label: "parts of the step" }));
}

function trust(found, measured) {
  const [low, high] = found.error_range || [0, 0];
  const drawn = responsive((width, em) => {
    const [from, to] = [found.step_s * (1 + low * 1.6), found.step_s * (1 + high * 1.4)];
    const x = (value) => em + ((value - from) / (to - from)) * (width - 2 * em);
    const chart = s("svg", { viewBox: `0 0 ${width} ${em * 4}`, height: em * 4 });
    chart.append(s("rect", { class: "track", x: em, y: em * 1.6, width: width - 2 * em, height: em * 0.8, rx: em * 0.4 }));
    chart.append(s("rect", { x: x(found.step_s * (1 + low)), y: em * 1.6, width: x(found.step_s * (1 + high)) - x(found.step_s * (1 + low)), height: em * 0.8, rx: em * 0.4, fill: "var(--series-0)", "fill-opacity": 0.45 }));
    chart.append(s("circle", { cx: x(found.step_s), cy: em * 2, r: em * 0.5, fill: "var(--series-0)", stroke: "var(--surface)", "stroke-width": 2 }));
    for (const [value, anchor] of [[found.step_s * (1 + low), "middle"], [found.step_s * (1 + high), "middle"]]) chart.append(s("text", { x: x(value), y: em * 3.5, "text-anchor": anchor }, timeText(value)));
    chart.append(s("text", { x: x(found.step_s), y: em * 1.1, "text-anchor": "middle", class: "strong" }, timeText(found.step_s)));
    return chart;
  }, "The band in which 80% of measured steps lie");
  return card("How far to trust it", found.error_range ? "80% of measured steps lie in the band" : "", drawn,
    h("p", { class: "small" }, found.error_basis), found.nearest_run ? h("p", { class: "small" }, h("strong", null, "Nearest measured run: "), `${found.nearest_run} (${digits(found.doublings_from_it)} doublings away)`) : null, measured,
    found.deciding_numbers.length ? h("ul", { class: "notes" }, found.deciding_numbers.map((each) => h("li", null, `${each.setting} = ${each.value} decides ${percent(each.share)} of the step: ${each.origin}`))) : null);
}

// Measured runs as points: how far from this policy, and how far from their own predictions. Asked when all else is drawn.
async function evidence(found, context, holder) {
  let runs;
  try {
    runs = (await context.ask("evidence", {}, { quiet: true })).evidence.filter((run) => run.measured_over_predicted);
  } catch (error) {
    holder.replaceChildren(h("p", { class: "muted small" }, error.message));
    return;
  }
  if (!context.still()) return;
  holder.dataset.runs = runs.length;
  if (!runs.length) {
    holder.replaceChildren(h("p", { class: "muted small" }, "no measured run is like it"));
    return;
  }
  const [low, high] = found.error_range || [null, null];
  const inside = (ratio) => low === null || (ratio >= 1 + low && ratio <= 1 + high);
  const points = runs.map((run) => ({
    x: run.doublings, y: run.measured_over_predicted, colour: inside(run.measured_over_predicted) ? "series-2" : "series-6", size: 0.45,
    words: `${run.model} on ${run.gpus.toLocaleString("en-US")} ${run.gpu} (${run.source})\nmeasured ${digits(run.measured_tokens_per_s_per_gpu)} tokens/s per GPU, predicted ${digits(run.predicted_tokens_per_s_per_gpu)}\n${run.unlike.length ? `here ${run.unlike.join(", ")}` : "as here"}`,
  }));
  const levels = [{ value: 1, words: "as predicted" }, ...(low === null ? [] : [{ value: 1 + low }, { value: 1 + high, words: "the band" }])];
  holder.replaceChildren(h("p", { class: "small" }, h("strong", null, `${runs.length} measured runs most like it`), ", each beside its own prediction"),
    dots(points, { label: `${runs.length} measured runs: doublings away from this policy, and measured step over predicted step`, x: { label: "doublings away from this policy" }, y: { label: "measured step over predicted" }, levels }));
}

function traffic(found) {
  const axes = Object.entries(found.traffic_bytes).filter(([, levels]) => Object.values(levels).some((size) => size > 0));
  const levels = [...new Set(axes.flatMap(([, each]) => Object.keys(each)))];
  if (!axes.length) return card("Traffic of a GPU in a step", null, h("p", { class: "muted" }, "nothing is sent"));
  return card("Traffic of a GPU in a step", "by axis and network level", table(["axis", ...levels], axes.map(([axis, each]) => [axis, ...levels.map((level) => (each[level] ? sizeText(each[level]) : "–"))]), { label: "traffic" }));
}

// Under each slider: what its other places would give, asked in one go when the answer is there.
async function marks(state, context) {
  if (window.shardwiseAnswers) return;
  const wanted = [];
  for (const name of ["tp", "pp", "dp", "cp", "ep", "etp", "vpp", "micro"]) {
    const control = context.form.controls.get(name);
    if (control && control.dots) for (const value of control.values) wanted.push([name, value]);
  }
  const base = { tp: 1, pp: 1, cp: 1, ep: 1, etp: 0, vpp: 1, micro: 1, zero: 1, recompute: "none" };
  const policy = Object.fromEntries(Object.keys(base).map((name) => [name, state[name] || base[name]]));
  const text = (changes) => Object.entries({ ...policy, ...changes, ...Object.fromEntries(["dp", "schedule", "offload", "order", "loss"].filter((name) => state[name] && !(name in changes)).map((name) => [name, state[name]])) }).map(([name, value]) => `${name}=${value}`).join(",");
  const question = { verb: "compare", first: [state.model], options: { on: state.on, policy: wanted.map(([name, value]) => text({ [name]: value })) } };
  for (const name of ["seq", "global-batch", "optimizer", "stack"]) if (state[name] && state[name] !== context.table.defaults[name]) question.options[name] = state[name];
  if (state.precision) question.options.precision = [state.precision];
  await new Promise((done) => setTimeout(done, 350));
  if (!context.still()) return;
  try {
    const { answer } = await context.raw(question);
    if (!context.still()) return;
    answer.cases.forEach((each, place) => context.form.mark(wanted[place][0], wanted[place][1], each.fits ? "fits" : each.legal ? "full" : "cannot"));
  } catch (error) {
    for (const [name, value] of wanted) context.form.mark(name, value, "");
  }
}
