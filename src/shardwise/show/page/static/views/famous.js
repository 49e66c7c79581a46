// Published runs: what their reports say beside what is predicted of them; each opens as a policy of the page.
import { dots } from "../charts.js";
import { card, fact, h, legend, notes, table, wide } from "../dom.js";
import { digits, percent, policyChips, policyState, signed, timeText } from "../format.js";

const ERRORS = [[0.1, "series-2", "within 10%"], [0.2, "series-4", "within 20%"], [Infinity, "series-6", "farther off"]];

export async function drawFamous(state, context) {
  const { layouts, notes: lines } = await context.ask("layouts");
  const shown = layouts.filter((each) => each.step_s !== null);
  const errors = shown.map((each) => Math.abs(each.error)).sort((a, b) => a - b);
  const inside = shown.filter((each) => each.inside_error_band).length;
  const head = card(null, null, h("header", null, h("h2", null, "Runs that were published"), h("span", { class: "muted" }, "their layout, run through the same prediction")),
    h("div", { class: "facts" }, fact("Runs", digits(shown.length)), fact("Median error", percent(errors[Math.floor(errors.length / 2)]), "", "of the step time"), fact("Inside their band", `${inside}`, `of ${shown.length}`, "80% are expected")));
  head.classList.add("headline");
  head.dataset.runs = shown.length;
  return [head, wide(plot(shown, context), "full"), list(shown, context), notes(lines)];
}

// A time that is not broken over two lines.
function together(value) {
  return timeText(value).replace(" ", "\u00a0");
}

function opened(each, context) {
  context.go("policy", { ...policyState(each.policy, each.gpus), model: each.model, on: each.cluster, seq: each.seq_tokens, "global-batch": each.global_sequences, stack: each.stack });
}

function plot(shown, context) {
  const colour = (error) => ERRORS.find(([most]) => Math.abs(error) <= most)[1];
  const points = shown.map((each) => ({
    x: each.gpus, y: 1 + each.error, colour: colour(each.error), size: 0.45,
    words: `${each.title}\nsaid ${timeText(each.reported_step_s)}, predicted ${timeText(each.step_s)} (${signed(each.error)})`, chosen: () => opened(each, context),
  }));
  const drawn = dots(points, { label: "Error of the predicted step of published runs, by their number of GPUs", log: true, x: { label: "GPUs" }, y: { label: "predicted step over the reported one" }, levels: [{ value: 1, words: "as reported" }], tall: 18 });
  return card("Predicted beside reported", "a dot opens its policy", drawn, legend(ERRORS.map(([, variable, words]) => [words, variable])));
}

function list(shown, context) {
  const rows = shown.map((each) => h("tr", { "data-layout": each.layout },
    h("td", null, h("button", { type: "button", class: "inline", onclick: () => opened(each, context) }, each.layout), h("div", { class: "small muted" }, `${each.title}; ${each.source}`)),
    h("td", { title: policyChips(each.policy).join(", ") }, each.policy_code), h("td", null, together(each.reported_step_s)), h("td", null, together(each.step_s)),
    h("td", { class: each.inside_error_band ? "" : "erratum" }, signed(each.error)), h("td", null, percent(each.reported_mfu_causal_half)), h("td", null, each.date.replace("-", "\u2011"))));
  return card("All of them", "a name opens its policy; coloured: outside its band", table(["run", "policy", "said", "predicted", "off by", "MFU said", "date"], rows, { class: "words", label: "published runs" }));
}
