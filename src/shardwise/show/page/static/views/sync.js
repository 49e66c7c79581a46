// Data parallelism that communicates less: what a step costs, who talks to whom, and whether it still learns.
import { lines, responsive, stackedBars, timeTicks } from "../charts.js";
import { card, fact, h, legend, notes, s, table, wide } from "../dom.js";
import { digits, seconds, sizeText, timeText } from "../format.js";

export async function drawSync(state, context) {
  const list = await context.ask("sync-list", {}, { quiet: true });
  context.form.offer("strategies", list.strategies.map((each) => each.name));
  const learning = context.ask("sync-simulate", {}, { quiet: true });
  const cost = await context.ask("sync-cost");
  const known = list.strategies.find((each) => each.name === cost.strategy) || {};
  const saved = cost.psgd_communication_s / cost.communication_s;
  const head = card(null, null, h("header", null, h("h2", null, `${cost.strategy.replaceAll("_", " ")} on ${cost.workers} workers`), h("span", { class: "muted" }, known.summary || "")),
    h("div", { class: "facts" },
      fact("Communication of a step", ...seconds(cost.communication_s), `mean gradient: ${timeText(cost.psgd_communication_s)}`),
      cost.step_s ? fact("Step", ...seconds(cost.step_s), `mean gradient: ${timeText(cost.psgd_step_s)}`) : null,
      fact("Sent by a worker", ...sizeText(cost.sent_bytes).split(" "), `mean gradient: ${sizeText(cost.psgd_sent_bytes)}`),
      fact("Less time on the network", Number.isFinite(saved) ? digits(saved) : "∞", "times")),
    h("p", { class: "small muted" }, known.source || ""));
  head.classList.add("headline");
  head.dataset.communication = cost.communication_s;
  const rows = (own, other) => [{ name: cost.strategy.replaceAll("_", " "), parts: own, after: "" }, { name: "mean gradient", parts: other, after: "" }];
  const steps = cost.step_s ? rows(
    [["compute", cost.compute_s, "series-0", timeText(cost.compute_s)], ["network", Math.max(0, cost.step_s - cost.compute_s), "series-6", timeText(cost.step_s - cost.compute_s)]],
    [["compute", cost.compute_s, "series-0", timeText(cost.compute_s)], ["network", Math.max(0, cost.psgd_step_s - cost.compute_s), "series-6", timeText(cost.psgd_step_s - cost.compute_s)]]) : [];
  return [head,
    wide(card("A step", "blue: compute; orange: network", steps.length ? stackedBars(steps, { label: "Step of the strategy beside the mean gradient", unit: "s", height: 2.4 }) : h("p", { class: "muted" }, "state the compute of a step")), "half"),
    wide(graph(cost), "half"), await converged(learning, cost), all(list, context), notes(cost.notes)];
}

// What it learns and what it sends over the same time: steps of the simulated workers, each as long as the network here makes it.
async function converged(learning, cost) {
  try {
    const found = await learning;
    const ratio = found.error / found.psgd_error;
    const [own, other] = [cost.step_s || cost.communication_s, cost.psgd_step_s || cost.psgd_communication_s];
    const name = found.strategy.replaceAll("_", " ");
    const over = (curve, stepS) => curve.step.map((step, place) => [step * stepS, curve.error[place]]);
    const both = [[name, "series-1", found.curve, own, cost.sent_bytes], ["mean gradient", "series-0", found.psgd_curve, other, cost.psgd_sent_bytes]];
    const errors = lines(both.map(([each, colour, curve, stepS]) => ({ name: each, colour, values: over(curve, stepS) })), { label: "Error over time, beside the mean gradient", x: { label: "time", words: timeText, ticks: timeTicks }, y: { label: "error" }, logY: true, height: 14 });
    const bytes = lines(both.map(([each, colour, curve, stepS, sent]) => ({ name: each, colour, values: [[0, 0], ...curve.step.map((step) => [step * stepS, (step * sent) / 1e9])] })), { label: "Bytes a worker has sent over time, beside the mean gradient", x: { label: "time", words: timeText, ticks: timeTicks }, y: { label: "GB sent by a worker" }, height: 14 });
    const made = card("Does it still learn?", found.diverged ? "it diverged" : `error after ${found.steps} steps: ${digits(ratio)} times that of the mean gradient`,
      h("div", { class: "columns" }, h("div", null, errors), h("div", null, bytes)), legend(both.map(([each, colour]) => [each, colour])), h("ul", { class: "notes" }, found.notes.map((line) => h("li", null, line))));
    made.dataset.error = found.error;
    return made;
  } catch (error) {
    return card("Does it still learn?", null, h("p", { class: "muted" }, error.message));
  }
}

// Workers on a ring; a message of each event goes `stride` places on.
function graph(cost) {
  const count = Math.min(cost.workers, 32);
  const events = cost.events.slice(0, 6);
  const drawn = responsive((width, em) => {
    const size = Math.min(width, 14 * em);
    const [middle, radius] = [size / 2, size / 2 - 1.6 * em];
    const place = (worker) => [width / 2 + radius * Math.sin((worker / count) * 2 * Math.PI), middle - radius * Math.cos((worker / count) * 2 * Math.PI)];
    const chart = s("svg", { viewBox: `0 0 ${width} ${size}`, height: size });
    events.forEach((event, at) => {
      for (let worker = 0; worker < count; worker += 1) {
        const [[x1, y1], [x2, y2]] = [place(worker), place((worker + (event.stride || 1)) % count)];
        chart.append(s("line", { x1, y1, x2, y2, stroke: `var(--series-${at % 8})`, "stroke-opacity": 0.55, "stroke-width": 1.3 }));
      }
    });
    for (let worker = 0; worker < count; worker += 1) {
      const [cx, cy] = place(worker);
      chart.append(s("circle", { cx, cy, r: (count > 16 ? 0.3 : 0.45) * em, fill: "var(--accent)" }));
    }
    return chart;
  }, "Who talks to whom");
  const words = events.map((event) => `${event.op.replaceAll("_", " ")} (${event.algorithm}, ${sizeText(event.bytes)} over ${event.size})`);
  return card("Who talks to whom", count < cost.workers ? `${count} of ${cost.workers} workers drawn` : "", drawn, h("ul", { class: "notes" }, [...new Set(words)].map((line) => h("li", null, line))));
}

function all(list, context) {
  const rows = list.strategies.map((each) => h("tr", null, h("td", null, h("button", { type: "button", class: "inline", onclick: () => context.change({ strategy: each.name }) }, each.name)), h("td", null, each.summary), h("td", null, each.source)));
  return h("details", { class: "card" }, h("summary", null, `All ${list.strategies.length} strategies; a name opens it`), table(["name", "what it does", "source"], rows, { class: "words", label: "strategies" }));
}
