// A run beside its prediction, looked at again and again.
import { lines, stackedBars } from "../charts.js";
import { card, fact, h, legend, wide } from "../dom.js";
import { gib, percent, seconds, timeText } from "../format.js";

const EVERY_MS = 2000;
// times as long as a look takes, so that looking stays a small part of the machine's work
const REST = 4;
const PARTS = [["own work", "series-0"], ["communication", "series-6"], ["data", "series-4"], ["saves", "series-3"]];
const OVER = ["finished", "ended"];

export async function drawRun(state, context) {
  const begun = performance.now();
  let found;
  try {
    found = await context.ask("watch");
  } catch (error) {
    if (!error.errors) throw error;
    const [{ message }] = error.errors;
    if (!message.startsWith("no run is watched")) {
      context.after = () => again(context, EVERY_MS);
      return [card("The run is not there yet", null, h("p", null, message), h("p", { class: "muted" }, "It is looked for again every few seconds."))];
    }
    return [card("No run is watched", null, h("p", null, "Start the page with the records or the log of a run, and it is shown here beside its prediction, a few seconds behind:"), h("pre", null, "shardwise serve --watch RUN"),
      h("p", { class: "muted" }, "RUN: a folder that `shardwise run --records` writes, or the log of Megatron, torchtitan or another program."))];
  }
  if (!OVER.includes(found.status.state)) context.after = () => again(context, Math.max(EVERY_MS, REST * (performance.now() - begun)));
  const { status } = found;
  const head = card(null, null, h("header", null, h("h2", null, found.run.split("/").pop()), h("span", { class: "muted" }, `${found.program}: ${status.state}`)),
    h("div", { class: "facts" },
      fact("Step", ...seconds(status.step_s), status.predicted_step_s ? `predicted ${timeText(status.predicted_step_s)}` : "no prediction"),
      fact("Steps", status.last_step.toLocaleString("en-US"), "", `${status.steps} looked at`),
      fact("In the band", status.within_band === null ? "–" : status.within_band ? "yes" : "no", "", status.predicted_low_s ? `${timeText(status.predicted_low_s)} to ${timeText(status.predicted_high_s)}` : ""),
      fact("Slowest rank", status.slowest_rank === null ? "–" : String(status.slowest_rank), "", status.slowest_over_middle ? `${percent(status.slowest_over_middle - 1)} behind the middle` : ""),
      fact("Peak memory", status.peak_bytes ? gib(status.peak_bytes) : "–", status.peak_bytes ? "GiB" : "")));
  head.classList.add("headline");
  const alarms = found.alarms.map((alarm) => h("div", { class: "banner warn" }, h("span", null, `${alarm.what}: ${alarm.evidence}`), h("span", { class: "small" }, alarm.cure)));
  head.dataset.step = status.last_step;
  return [head, ...alarms, ...course(found.course, status), ranks(status), found.remarks.length ? card("Remarks", null, h("ul", { class: "notes" }, found.remarks.map((remark) => h("li", null, `${remark.what}: ${remark.evidence || remark.cure}`)))) : null].filter(Boolean);
}

// Not while nobody sees it, and again as soon as somebody does.
function again(context, wait) {
  setTimeout(() => {
    if (!context.still()) return;
    if (document.hidden) document.addEventListener("visibilitychange", () => again(context, 0), { once: true });
    else context.page.draw({ ...context.page.now, again: true });
  }, wait);
}

// Step by step: how long each took beside its prediction, and what was learned.
function course({ step, step_s: times, loss }, status) {
  if (step.length < 2) return [];
  const levels = [[status.predicted_step_s, "predicted"], [status.predicted_low_s, ""], [status.predicted_high_s, "its band"]].filter(([value]) => value && value < 4 * Math.max(...times)).map(([value, words]) => ({ value: value * 1e3, words }));
  const took = card("Each step", `the last ${step.length}`, lines([{ name: "step", colour: "series-0", values: step.map((each, place) => [each, times[place] * 1e3]) }], { label: "Time of each step", x: { label: "step" }, y: { label: "ms" }, levels, height: 13 }));
  const known = step.map((each, place) => [each, loss[place]]).filter(([, value]) => Number.isFinite(value));
  if (known.length < 2) return [took];
  const [low, high] = [Math.min(...known.map((point) => point[1])), Math.max(...known.map((point) => point[1]))];
  return [wide(took, "half"), wide(card("Loss", timeText(times.reduce((sum, each) => sum + each, 0)), lines([{ name: "loss", colour: "series-1", values: known }], { label: "Loss of each step", x: { label: "step" }, y: { label: "loss" }, low: Math.max(0, low - 0.1 * (high - low)), height: 13 })), "half")];
}

function ranks(status) {
  const shown = (status.ranks || []).filter((rank) => rank.step_s).slice(0, 64);
  if (!shown.length) return null;
  const [scale, unit] = Math.max(...shown.map((rank) => rank.step_s)) < 1 ? [1e3, "ms"] : [1, "s"];
  const rows = shown.map((rank) => {
    const parts = [rank.own_s || rank.step_s, rank.comm_s || 0, rank.data_s || 0, rank.save_s || 0];
    return { name: `rank ${rank.rank}`, parts: PARTS.map(([name, ink], place) => [name, parts[place] * scale, ink, timeText(parts[place])]), after: timeText(rank.step_s) };
  });
  return card("Where each rank's step goes", "means over the last steps", stackedBars(rows, { label: "Parts of each rank's step", unit, height: 1.6 }), legend(PARTS));
}
