// A run beside its prediction, looked at again and again.
import { stackedBars } from "../charts.js";
import { card, fact, h, table, wide } from "../dom.js";
import { gib, percent, seconds, timeText } from "../format.js";

const EVERY_MS = 5000;

export async function drawRun(state, context) {
  let found;
  try {
    found = await context.ask("watch");
  } catch (error) {
    if (!error.errors) throw error;
    return [card("No run is watched", null, h("p", null, "Start the page with the records or the log of a run, and it is shown here beside its prediction, a few seconds behind:"), h("pre", null, "shardwise serve --watch RUN"),
      h("p", { class: "muted" }, "RUN: a folder that `shardwise run --records` writes, or the log of Megatron, torchtitan or another program."))];
  }
  context.after = () => setTimeout(() => { if (context.still() && !document.hidden) context.page.draw(context.page.now); }, EVERY_MS);
  const { status } = found;
  const head = card(null, null, h("header", null, h("h2", null, found.run.split("/").pop()), h("span", { class: "muted" }, `${found.program}: ${status.state}`)),
    h("div", { class: "facts" },
      fact("Step", ...seconds(status.step_s), status.predicted_step_s ? `predicted ${timeText(status.predicted_step_s)}` : "no prediction"),
      fact("Steps", status.last_step.toLocaleString("en-US"), "", `${status.steps} looked at`),
      fact("In the band", status.within_band === null ? "–" : status.within_band ? "yes" : "no", "", status.predicted_low_s ? `${timeText(status.predicted_low_s)} to ${timeText(status.predicted_high_s)}` : ""),
      fact("Slowest rank", status.slowest_rank === null ? "–" : String(status.slowest_rank), "", status.slowest_over_middle ? `${percent(status.slowest_over_middle - 1)} behind the middle` : ""),
      fact("Peak memory", gib(status.peak_bytes), "GiB")));
  head.classList.add("headline");
  const alarms = found.alarms.map((alarm) => h("div", { class: "banner warn" }, h("span", null, `${alarm.what}: ${alarm.evidence}`), h("span", { class: "small" }, alarm.cure)));
  return [head, ...alarms, ranks(status), found.remarks.length ? card("Remarks", null, h("ul", { class: "notes" }, found.remarks.map((line) => h("li", null, String(line))))) : null].filter(Boolean);
}

function ranks(status) {
  const shown = (status.ranks || []).filter((rank) => rank.step_s).slice(0, 64);
  if (!shown.length) return null;
  const rows = shown.map((rank) => ({ name: `rank ${rank.rank}`, parts: [["own work", rank.own_s || rank.step_s, "series-0", timeText(rank.own_s || rank.step_s)], ["communication", rank.comm_s || 0, "series-6", timeText(rank.comm_s || 0)], ["data", rank.data_s || 0, "series-4", timeText(rank.data_s || 0)], ["saves", rank.save_s || 0, "series-3", timeText(rank.save_s || 0)]], after: timeText(rank.step_s) }));
  return card("Where each rank's step goes", "means over the last steps", stackedBars(rows, { label: "Parts of each rank's step", unit: "s", height: 1.6 }));
}
