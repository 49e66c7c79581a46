// A step of reinforcement learning: who rolls out and who trains over time, the answers between them, and other layouts.
import { responsive, stackedBars, timeTicks } from "../charts.js";
import { card, fact, h, hovered, legend, notes, s, table } from "../dom.js";
import { digits, dollars, percent, seconds, sizeText, timeText } from "../format.js";

const COLOURS = { rollout: "series-0", reward: "series-4", "log-probs": "series-2", update: "series-1", "weight sync": "series-6", other: "series-7" };

export async function drawPosttrain(state, context) {
  const found = await context.ask("posttrain");
  const take = found.recommended;
  if (!take) return [card(`${found.algorithm} of ${found.model} on ${found.cluster}`, "no layout fits", h("ul", { class: "notes" }, found.losers.map((line) => h("li", null, line)))), notes(found.notes)];
  const who = take.mode === "colocated" ? `both on all ${take.train_gpus} GPUs in turn` : `${take.rollout_gpus} GPUs roll out, ${take.train_gpus} train${take.mode === "hybrid" ? " and roll out while they would wait" : ""}`;
  const head = card(null, null,
    h("header", null, h("h2", null, `${found.algorithm} of ${found.model} on ${found.cluster}`), h("span", { class: "muted" }, `${who}, ${take.lag ? `answers at most ${take.lag} step${take.lag > 1 ? "s" : ""} old` : "on-policy"}`)),
    h("div", { class: "facts" },
      fact("Step", ...seconds(take.step_s), `80%: ${timeText(take.step_low_s)} to ${timeText(take.step_high_s)}`),
      fact("Answers of a step", digits(found.sequences), "", `${digits(found.mean_answer_tokens)} tokens on average`),
      fact("Samples an hour", digits(take.samples_per_hour)),
      fact("GPU time idle", ...percent(take.idle_share).split(/(?=%)/), "a side waits, or few answers are left"),
      take.usd ? fact("A thousand samples, USD", dollars(take.usd)) : null));
  head.classList.add("headline");
  head.dataset.step = take.step_s;
  return [head, lanes(found), h("div", { class: "columns" }, h("div", null, memory(found)), h("div", null, ages(found))), layouts(found), lose(found), notes(found.notes)];
}

// Two lanes with the answers between them: in flight above, complete and waiting below.
function lanes(found) {
  const { course } = found;
  const chart = responsive((width, em) => drawn(course, width, em), `Rollout and trainer over ${timeText(course.seconds)}, and the answers between them`);
  const phases = [...new Set(course.tasks.map((task) => task.phase))];
  const most = Math.max(0, ...course.flow.map((point) => point.waiting));
  return card("Who does what when", `three steps${course.slots ? `; at most ${digits(course.slots)} answers in flight, ${digits(most)} waiting` : ""}`, chart, legend(phases.map((phase) => [phase, COLOURS[phase]])));
}

function drawn(course, width, em) {
  const [left, right, tall, middle] = [5.5 * em, em, 2.4 * em, 6.5 * em];
  const rolls = course.flow.length > 0;
  const top = { rollout: 0.4 * em, trainer: rolls ? 0.4 * em + tall + middle : 0.4 * em };
  const bottom = top.trainer + tall;
  const x = (at) => left + (at / course.seconds) * (width - left - right);
  const chart = s("svg", { viewBox: `0 0 ${width} ${bottom + 1.8 * em}`, height: bottom + 1.8 * em });
  for (const tick of timeTicks(0, course.seconds, width / em / 9)) chart.append(s("line", { class: "grid", x1: x(tick), x2: x(tick), y1: 0, y2: bottom }), s("text", { x: x(tick), y: bottom + 1.2 * em, "text-anchor": "middle" }, tick ? timeText(tick) : "0"));
  for (const lane of rolls ? ["rollout", "trainer"] : ["trainer"]) chart.append(s("text", { x: left - 0.6 * em, y: top[lane] + tall / 2 + 0.35 * em, "text-anchor": "end" }, lane));
  for (const task of course.tasks) {
    const box = s("rect", { x: x(task.start_s), y: top[task.lane], width: Math.max(1, x(task.end_s) - x(task.start_s) - 1), height: tall, rx: 3, fill: `var(--${COLOURS[task.phase]})` });
    chart.append(hovered(box, `${task.phase}, ${timeText(task.end_s - task.start_s)}, from ${timeText(task.start_s)}`));
  }
  if (rolls) chart.append(...between(course, x, top.rollout + tall, middle, left, em));
  return chart;
}

function between(course, x, above, tall, left, em) {
  const half = (tall - 1.2 * em) / 2;
  const most = Math.max(1, ...course.flow.map((point) => point.waiting));
  const area = (key, whole, base, way, colour) => {
    const points = course.flow.map((point) => [x(point.at_s), base + (way * half * point[key]) / whole]);
    const line = points.map(([px, py], place) => (place ? `H${px.toFixed(1)}V${py.toFixed(1)}` : `M${px.toFixed(1)},${base}V${py.toFixed(1)}`)).join("");
    return s("path", { d: `${line}V${base}Z`, fill: `var(--${colour})`, "fill-opacity": 0.45 });
  };
  const name = (y, words) => s("text", { x: left - 0.6 * em, y, "text-anchor": "end" }, words);
  const floor = above + tall - 0.3 * em;
  return [area("in_flight", course.slots, above + 0.3 * em, 1, "series-0"), area("waiting", most, floor, -1, "series-1"), name(above + 0.3 * em + half / 2, "in flight"), name(floor - half / 3, "waiting")];
}

function memory(found) {
  const rows = found.memory.map((role) => ({ name: role.role, parts: [[role.holds, role.used_bytes / 2 ** 30, COLOURS[role.role] || "series-3", `${role.role}: ${sizeText(role.used_bytes)}; ${role.holds}`]], after: "" }));
  const limit = Math.min(...found.memory.map((role) => role.limit_bytes)) / 2 ** 30;
  return card("Memory of one GPU", "while it rolls out, and while it trains", stackedBars(rows, { label: "Memory of one GPU by role", unit: "GiB", limit: { value: limit, words: "memory" }, height: 2.2 }), h("ul", { class: "notes" }, found.memory.map((role) => h("li", null, `${role.role}: ${role.holds}`))));
}

function ages(found) {
  const old = found.staleness;
  if (!old) return card("How old answers are", null, h("p", { class: "muted" }, "On-policy: none is older than the weights it trains."));
  const rows = old.shares.map((share, age) => ({ name: `${age} step${age === 1 ? "" : "s"}`, parts: [[String(age), share * 100, age > found.recommended.lag ? "alarm" : "series-1", percent(share)]], after: percent(share) })).filter((row) => row.parts[0][1] >= 1);
  return card("How old answers are", `${digits(old.mean_age)} steps on average`, stackedBars(rows, { label: "Share of answers by age", unit: "%" }), h("p", { class: "small muted" }, `In ${percent(old.spanning_share)} the weights changed on the way${old.dropped_share ? `; ${percent(old.dropped_share)} are older than the lag, which some programs drop` : ""}.`));
}

function layouts(found) {
  const rows = found.best.map((row) => h("tr", { class: row.taken ? "best" : "" }, h("td", null, `${row.taken ? "> " : ""}${row.layout}`), ...[String(row.lag), String(row.engine_tp), degrees(row.policy), timeText(row.step_s), timeText(row.rollout_s), timeText(row.reward_s + row.log_probs_s + row.update_s), timeText(row.sync_s), percent(row.idle_share), row.usd ? dollars(row.usd) : "–"].map((cell) => h("td", null, cell))));
  return card("Layouts by step time", `${digits(found.layouts)} priced; GPUs that roll out + GPUs that train`, table(["layout", "lag", "engine", "trainer", "step", "rollout", "training", "weight sync", "idle", "USD/1k"], rows, { label: "layouts" }));
}

function degrees(policy) {
  return ["dp", "tp", "pp", "cp", "ep"].filter((axis) => axis === "dp" || policy[axis] > 1).map((axis) => `${axis}${policy[axis]}`).join(" ");
}

function lose(found) {
  return found.losers.length ? card("Why others lose", null, h("ul", { class: "notes" }, found.losers.map((line) => h("li", null, line)))) : null;
}
