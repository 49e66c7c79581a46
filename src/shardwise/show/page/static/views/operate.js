// A run as it really goes: failures, saves and restarts, what they cost, and improvements.
import { LOG_TIMES, lines, responsive, stackedBars, timeTicks } from "../charts.js";
import { card, fact, h, hovered, legend, notes, s, table } from "../dom.js";
import { digits, dollars, percent, policyChips, seconds, shortened, signed, sizeText, timeText } from "../format.js";

const SHARES = { saves: "series-0", "lost work": "series-1", detect: "series-4", schedule: "series-6", start: "series-7", load: "series-5", planned: "series-3", waiting: "series-8" };

export async function drawOperate(state, context) {
  const run = await context.ask("operate");
  const head = card(null, null,
    h("header", null, h("h2", null, `${run.model} on ${run.cluster}, ${shortened(run.tokens)} tokens`), h("span", { class: "muted" }, `failures as ${run.failure_rates}`)),
    run.policy ? h("div", { class: "chips" }, policyChips(run.policy).map((word) => h("span", { class: "chip" }, word))) : null,
    h("div", { class: "facts" },
      fact("The run takes", ...seconds(run.seconds), `80%: ${timeText(run.seconds_p10)} to ${timeText(run.seconds_p90)}`),
      fact("Step", ...seconds(run.step_s), run.step_range ? `80%: ${signed(run.step_range[0])} to ${signed(run.step_range[1])}` : "as given"),
      fact("Useful", (run.goodput * 100).toFixed(2), "%", `ideal ${timeText(run.ideal_s)}`),
      fact("Stopped", digits(run.failures + run.planned_restarts), "times", `one failure every ${timeText(run.between_failures_s)}`),
      fact("Save every", ...seconds(run.interval_s), `${sizeText(run.checkpoint_bytes)} each, stalls ${timeText(run.save_stall_s)}`),
      fact("Rent, USD", dollars(run.usd), "", `electricity ${dollars(run.electricity_usd)}`)));
  head.classList.add("headline");
  head.dataset.goodput = run.goodput;
  const columns = h("div", { class: "columns" }, h("div", null, lost(run), worth(run)), h("div", null, intervals(run)));
  return [head, timeline(run), columns, ways(run), notes([`failures: ${run.failure_source}`, ...run.notes])];
}

function lost(run) {
  const parts = Object.entries(run.shares).filter(([name, share]) => name !== "work" && share > 0);
  const rows = parts.sort((a, b) => b[1] - a[1]).map(([name, share]) => ({ name, parts: [[name, share * 100, SHARES[name] || "series-9", `${percent(share, 3)}, ${timeText(share * run.seconds)}`]], after: percent(share, 2) }));
  if (!rows.length) return card("Where the time goes", null, h("p", { class: "muted" }, "All of it is work."));
  return card("Where the rest of the time goes", `${percent(1 - run.goodput, 2)} of the run is not work`, stackedBars(rows, { label: "Shares of the run that are not work", unit: "%", height: 1.7 }));
}

function intervals(run) {
  const name = "Goodput against the interval of saves";
  if (!run.interval_curve.length) return card(name, null, h("p", { class: "muted" }, "No interval is chosen here: nothing fails, or memory of other nodes keeps the work."));
  const found = run.interval_curve.map(({ interval_s: interval, goodput }) => [interval, goodput * 100]);
  const [low, high] = [Math.min(...found.map((point) => point[1])), Math.max(...found.map((point) => point[1]))];
  const across = { label: "work between two saves", ...LOG_TIMES };
  const marks = [{ x: run.interval_s, words: `taken: ${timeText(run.interval_s)}` }];
  const goodput = lines([{ name: "goodput", colour: "series-0", values: found, area: true }], {
    label: "Goodput against the interval between saves", x: across, height: 12, y: { label: "useful %", words: (value) => value.toFixed(1) },
    log: true, low: Math.max(0, low - 0.1 * (high - low)), most: Math.min(100, high + 0.1 * (high - low)), marks,
  });
  return card(name, "closed form; what is taken is marked", goodput, rent(run, across), run.usd ? legend([["at the highest rent", "series-6"], ["at the lowest rent", "series-2"]]) : null);
}

// What failures cost at each interval, at the lowest and the highest published rent: the same work takes longer.
function rent(run, across) {
  if (!run.usd) return null;
  const [cheap, dear] = run.usd;
  const own = run.ideal_s / run.seconds;
  const over = (usd) => run.interval_curve.map(({ interval_s: interval, goodput }) => [interval, (usd * own * (1 / goodput - 1)) / 1e3]);
  return lines([{ name: "at the highest rent", colour: "series-6", values: over(dear) }, { name: "at the lowest rent", colour: "series-2", values: over(cheap) }], {
    label: "Rent for what is not work, against the interval between saves", x: across, y: { label: "rent for what is not work, thousand USD" }, log: true, height: 12,
  });
}

// One run of those drawn at random: each failure where it came, as wide as the run stood still (two pixels at least).
function timeline(run) {
  const { seconds: whole, failed_s: failed, back_s: back } = run.sampled_run;
  if (!failed.length) return null;
  const label = `${failed.length} failures of one run drawn at random, over ${timeText(whole)}`;
  const drawn = responsive((width, em) => {
    const [edge, tall] = [em, 2.2 * em];
    const x = (time) => edge + (time / whole) * (width - 2 * edge);
    const chart = s("svg", { viewBox: `0 0 ${width} ${tall + 1.8 * em}`, height: tall + 1.8 * em });
    chart.append(s("rect", { x: edge, y: 0, width: width - 2 * edge, height: tall, rx: 3, fill: "var(--accent-soft)" }));
    failed.forEach((time, place) => {
      const until = back[place];
      chart.append(hovered(s("rect", { x: x(time), y: 0, width: Math.max(2, x(until) - x(time)), height: tall, fill: "var(--alarm)" }), `failure ${place + 1} after ${timeText(time)}, ${timeText(until - time)} until it goes on`));
    });
    for (const tick of timeTicks(0, whole, width / em / 9)) chart.append(s("text", { x: x(tick), y: tall + 1.2 * em, "text-anchor": "middle" }, tick ? timeText(tick) : "0"));
    return chart;
  }, label);
  const cost = run.detect_s + run.schedule_s + run.start_s + run.load_s;
  return card("Failures over the run", `${digits(run.failures)} expected, ${failed.length} in this one, drawn at random`, drawn,
    h("p", { class: "small muted" }, `Each takes ${timeText(cost)} and the work since the last save.`));
}

function ways(run) {
  return card("Other ways to keep it running", null, table(["way", "useful", "needs"], run.ways.map((each) => [each.way, percent(each.goodput, 2), each.needs || "–"]), { class: "words-last", label: "ways" }));
}

function worth(run) {
  return card("Improvements", "time saved over the whole run", table(["change", "saves"], run.worth.map((each) => [each.what, timeText(each.seconds)]), { label: "improvements" }),
    run.slow_node ? h("p", { class: "small muted" }, `With a probability of ${percent(run.slow_node.chance)} a node is ${percent(run.slow_node.factor - 1, 0)} slower: worth replacing if it lasts longer than ${timeText(run.slow_node.replace_after_s)}.`) : null);
}
