// What a policy does to the network: load by tier over the step, who sends to whom, the bottleneck, what to ask of a fabric.
import { heat, lines } from "../charts.js";
import { card, fact, h, legend, notes, table, wide } from "../dom.js";
import { digits, percent, seconds, sizeText, timeText } from "../format.js";
import { fabricMap } from "./fabric_map.js";

const MOST_BLOCKS = 64;

function rate(bytes) {
  return `${digits(bytes / 1e9)} GB/s`;
}

export async function drawFabric(state, context) {
  const net = await context.ask("fabric");
  if (!net.legal) return [h("div", { class: "banner bad", id: "verdict" }, `Cannot run (${net.rule}): ${net.why}`), notes(net.notes)];
  const spent = Object.values(net.communication_s).reduce((sum, each) => sum + each, 0);
  const head = card(null, null, h("header", null, h("h2", null, `${net.model} on ${net.cluster}`), h("span", { class: "muted" }, `${net.links_total.toLocaleString("en-US")} links; ${Object.entries(net.switches).map(([name, count]) => `${count} ${name}`).join(", ")}`)),
    h("div", { class: "facts" },
      fact("Step", ...seconds(net.step_s), `closed form ${timeText(net.closed_form_step_s)}`),
      fact("Communication", ...seconds(spent), "all of it, hidden or not"),
      fact("Fullest link", (net.bottleneck.share * 100).toFixed(1), "%", `${net.bottleneck.link} (${net.bottleneck.tier})`),
      net.burst ? fact("Burst", (net.burst.peak_share * 100).toFixed(0), "%", `for ${timeText(net.burst.end_s - net.burst.start_s)}, ${sizeText(net.burst.bytes)}`) : null),
    h("p", { class: "small muted" }, net.bottleneck.why));
  head.classList.add("headline");
  head.dataset.step = net.step_s;
  const queues = packets(net, state, context);
  const changes = h("div");
  context.after = async () => {
    try {
      const more = await context.ask("fabric-what-if", {}, { quiet: true, signal: context.leaving });
      changes.replaceChildren(whatIf(more));
    } catch (error) {
      if (error.name !== "AbortError") changes.replaceChildren(card("What if", null, h("p", { class: "muted small" }, error.message)));
    }
  };
  changes.append(card("What if", "one change at a time", h("p", { class: "muted small" }, "looking at slow links, lost switches, other routings…")));
  const columns = h("div", { class: "columns" }, h("div", null, matrices(net), changes), h("div", null, links(net, context), sheet(net)));
  return [broken(state, context), head, fabricMap(net), wide(load(net), "two-thirds"), wide(burst(net), "third"), queues, columns, tiers(net), calls(net), notes(net.assumptions, "What is assumed"), notes(net.notes)];
}

function tiers(net) {
  const rows = [...net.tiers].reverse().map((tier) => [tier.tier, tier.links.toLocaleString("en-US"), rate(tier.bytes_per_s), percent(tier.busiest.share), percent(tier.mean_share), tier.busiest.name]);
  return card("Tier by tier", "load over the step", table(["tier", "links", "each", "fullest", "on average", "fullest link"], rows, { label: "tiers" }));
}

function load(net) {
  const series = net.tiers.map((tier, place) => ({ name: `${tier.tier}: mean of its links`, colour: `series-${place}`, values: (tier.mean_series || tier.series).map((share, at) => [at * net.bin_s, share * 100]), area: true }));
  return card("Load over a step", "the mean of a tier's links; their fullest at its peak is in the table", lines(series, { label: "Mean load of the links of each tier over the step", x: { label: "s" }, y: { label: "% of a link" }, most: 105 }), legend(net.tiers.map((tier, place) => [tier.tier, `series-${place}`])));
}

function burst(net) {
  if (!net.burst) return card("The burst", null, h("p", { class: "muted" }, "nothing is sent between nodes"));
  const { series, from_s: from, to_s: to } = net.burst;
  const values = series.map((share, at) => [(from + ((to - from) * at) / (series.length - 1)), share * 100]);
  return card("The burst, close up", "of the tier beyond the node", lines([{ name: "load", colour: "series-1", values, area: true }], { label: "The burst of a step, close up", x: { label: "s" }, y: { label: "% of a link" }, most: 105 }),
    h("p", { class: "small muted" }, `${percent(net.burst.mean_share, 2)} on average over the step, ${percent(net.burst.peak_share, 0)} when it counts`));
}

function matrices(net) {
  const axes = Object.keys(net.matrix_bytes).filter((axis) => net.matrix_bytes[axis].flat().some((size) => size > 0));
  if (!axes.length || net.blocks.length > MOST_BLOCKS) return card("Who sends to whom", null, h("p", { class: "muted" }, axes.length ? `${net.blocks.length} blocks are too many to draw` : "nothing is sent between blocks"));
  const holder = h("div");
  const show = (axis) => {
    holder.replaceChildren(heat(net.matrix_bytes[axis], { label: `bytes of ${axis} between blocks`, names: net.blocks, words: sizeText }));
    for (const button of buttons.children) button.setAttribute("aria-pressed", String(button.textContent === axis));
  };
  const buttons = h("div", { class: "buttons" }, axes.map((axis) => h("button", { type: "button", onclick: () => show(axis) }, axis)));
  show(axes[0]);
  return card("Who sends to whom", "bytes of a step, by kind; log scale, 3x per shade", buttons, holder);
}

// Each link can be switched to a quarter of its speed, or off, to see what the step makes of it.
function links(net, context) {
  const change = (name, words, changes) => h("button", { type: "button", class: "quiet", "aria-label": `${name}: ${words}`, onclick: () => context.change({ slow: "", fail: "", ...changes }) }, words);
  const rows = net.links.slice(0, 8).map((link) => [h("span", { class: "aim" }, `${link.name}${link.count > 1 ? ` (×${link.count})` : ""}`, h("span", { class: "muted small" }, link.tier)),
    h("td", { class: "switches" }, change(link.name, "slow", { slow: `${link.name}=0.25` }), change(link.name, "cut", { fail: link.name })),
    percent(link.share), percent(link.peak_share, 0), sizeText(link.step_bytes)]);
  return card("Fullest links", "what if one is slow, or cut?", table(["link", "what if", "load", "peak", "bytes"], rows, { label: "links" }));
}

function broken(state, context) {
  if (!state.slow && !state.fail) return null;
  const said = [state.slow ? `${state.slow.replace("=", " at ")} of its speed` : "", state.fail ? `${state.fail} is cut` : ""].filter(Boolean).join("; ");
  return h("div", { class: "banner warn", id: "broken" }, h("span", null, `What if: ${said}`), h("button", { type: "button", onclick: () => context.change({ slow: "", fail: "" }) }, "All sound again"));
}

function whatIf(net) {
  return card("What if", "one change at a time", table(["change", "", "step", "more"], net.what_if.map((each) => [each.name, h("td", { class: "muted small left" }, each.what), timeText(each.step_s), h("td", { class: each.growth > 0.05 ? "bad" : "" }, `${each.growth >= 0 ? "+" : "−"}${Math.abs(each.growth * 100).toFixed(1)}%`)]), { label: "what if" }));
}

function sheet(net) {
  const need = net.requirement;
  const tiers = need.tiers.map((tier) => [tier.tier, ...[tier.link_bytes_per_s, tier.mean_bytes_per_s, tier.needed_bytes_per_s].map((bytes) => digits(bytes / 1e9)), digits(tier.oversubscription["5%"])]);
  const budgets = ["1%", "5%", "10%"].map((share) => [`for ${share} of the step`, timeText(need.latency_budget_s[share]), timeText(need.jitter_budget_s[share])]);
  return card("What to ask of a fabric", "for this policy", table(["GB/s", "link", "mean", "needed", "oversub. ≤"], tiers, { label: "needs by tier" }), table(["budget", "latency", "jitter of a collective"], budgets, { label: "budgets" }));
}

function calls(net) {
  return card("Collectives of a step", null, table(["axis", "operation", "algorithm", "ranks", "bytes", "times", "each", "bottleneck"], net.calls.map((call) => [call.axis, call.op.replaceAll("_", " "), call.algorithm, call.ranks, sizeText(call.bytes), digits(call.times), timeText(call.seconds), call.bottleneck]), { label: "collectives" }));
}

const LAYERS = [["", "as the network is"], ["pfc", "pauses (PFC)"], ["drop", "full buffers drop"], ["credits", "credits"]];

// The busiest collectives packet by packet. It takes seconds, so it is asked for; the link remembers that it was.
function packets(net, state, context) {
  const holder = h("div", { class: "packets", role: "status" });
  const layers = h("div", { class: "buttons" }, LAYERS.filter(([value]) => !value || !net.credits).map(([value, words]) => h("button", { type: "button", "aria-pressed": String(Boolean(state.packets) && (state["flow-control"] || "") === value), onclick: () => context.change({ packets: "1", "flow-control": value }) }, words)));
  const made = card("Packets", "the queue before the hottest port of the busiest collectives, followed packet by packet", layers, holder);
  made.classList.add("packet-card");
  if (state.packets) follow(made, holder, context);
  else holder.append(h("p", { class: "muted small" }, "Choose what switches do when a buffer fills; it takes a few seconds."));
  return made;
}

async function follow(made, holder, context) {
  holder.replaceChildren(h("p", { class: "muted small" }, "following packets…"));
  try {
    const { packets: found } = await context.ask("fabric-packets", {}, { quiet: true, signal: context.leaving });
    holder.replaceChildren(...queues(found));
    made.dataset.deepest = Math.max(...found.calls.map((call) => call.hottest.deepest_bytes));
  } catch (error) {
    if (error.name !== "AbortError") holder.replaceChildren(h("p", { class: "banner warn" }, error.message));
  }
}

function queues(found) {
  const panels = found.calls.map((call) => {
    const { hottest: hot } = call;
    const values = hot.queue_bytes.flatMap((size, at) => [[at * hot.bin_s * 1e6, size / 1e3], [(at + 1) * hot.bin_s * 1e6, size / 1e3]]);
    const levels = [["marks from here", hot.mark_low_bytes], ["dropped beyond", hot.limit_bytes]].filter(([, size]) => size && size < 3 * hot.deepest_bytes).map(([words, size]) => ({ value: size / 1e3, words }));
    const name = `${call.op.replaceAll("_", " ")} over ${call.ranks} ranks (${call.axis})`;
    return h("div", null, h("h3", null, name), h("p", { class: "small muted" }, hot.link),
      lines([{ name, colour: "series-0", values, area: true }], { label: `Queue before ${hot.link} during ${name}`, x: { label: "µs" }, y: { label: "kB in the queue" }, levels, height: 12 }),
      h("p", { class: "small" }, `${call.slower.toFixed(2)} times as long as at fair rates (worst ${call.slower_worst.toFixed(2)}); ${call.drops} dropped, ${call.marks} marked, ${call.pauses} pauses`));
  });
  const grows = `These collectives add ${timeText(Math.max(found.step_growth_s, 0))} to a step if all of it is waited for; ${timeText(Math.max(found.step_growth_most_s, 0))} if all their bytes go as those followed.`;
  const engine = found.engine === "compiled" ? null : h("p", { class: "banner warn small" }, "numba is not installed where the page runs, so far fewer packets are followed: pip install 'shardwise[packets]'");
  return [engine, h("div", { class: "columns" }, panels), h("p", { class: "small" }, grows), h("ul", { class: "notes" }, found.notes.map((line) => h("li", null, line)))].filter(Boolean);
}
