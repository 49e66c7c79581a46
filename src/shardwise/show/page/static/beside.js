// Two policies side by side: one is kept, the other is the one in view.
import { h, card, table } from "./dom.js";
import { digits, dollars, gib, percent, policyCode, signed, timeText } from "./format.js";

const KEY = "shardwise-kept";

function kept() {
  try {
    return JSON.parse(sessionStorage.getItem(KEY) || "null");
  } catch (error) {
    return null;
  }
}

function keep(value) {
  try {
    if (value) sessionStorage.setItem(KEY, JSON.stringify(value)); else sessionStorage.removeItem(KEY);
  } catch (error) { /* a browser without a store keeps nothing */ }
}

const LINES = [
  ["step", (each) => each.step_s, timeText], ["tokens/s per GPU", (each) => each.tokens_per_s_per_gpu, digits], ["MFU", (each) => each.mfu_causal_half, percent],
  ["peak memory, GiB", (each) => each.peak_bytes, gib], ["free, GiB", (each) => each.free_bytes, gib], ["bubble", (each) => each.bubble_share, percent],
  ["USD per 1e9 tokens", (each) => (each.money.billion_tokens.usd ? each.money.billion_tokens.usd[0] : null), dollars], ["GPUs", (each) => each.gpus, digits],
];

export async function beside(found, state, context) {
  const other = kept();
  const again = () => context.change({});
  const button = h("button", { type: "button", id: "keep", onclick: () => { keep({ state, code: policyCode(found.policy) }); again(); } }, "Keep this one to compare");
  if (!other || JSON.stringify(other.state) === JSON.stringify(state)) return card("Two plans side by side", null, h("p", { class: "small muted" }, other ? `Kept: ${other.code}. Change anything: both then stand here.` : "Keep this policy, change anything, and see both."), h("div", { class: "buttons" }, other ? h("button", { type: "button", onclick: () => { keep(null); again(); } }, "Forget it") : button));
  let before;
  try {
    before = await context.ask("estimate", { ...blank(state), ...other.state }, { quiet: true });
  } catch (error) {
    return card("Two plans side by side", null, h("p", { class: "muted small" }, error.message), h("div", { class: "buttons" }, button));
  }
  const rows = !before.legal ? [] : LINES.map(([name, value, text]) => {
    const [old, now] = [value(before), value(found)];
    return [name, old === null ? "–" : text(old), now === null ? "–" : text(now), old && now !== null ? signed(now / old - 1) : "–"];
  });
  const made = card("Two plans side by side", `${before.model} on ${before.cluster} and ${found.model} on ${found.cluster}`,
    table(["", `kept: ${other.code}`, `now: ${policyCode(found.policy)}`, "change"], rows, { label: "two plans side by side" }),
    h("div", { class: "buttons" }, h("button", { type: "button", onclick: () => context.go("policy", { ...blank(state), ...other.state }) }, "Back to the kept one"), button));
  made.dataset.beside = found.step_s / before.step_s;
  return made;
}

function blank(state) {
  return Object.fromEntries(Object.keys(state).map((name) => [name, ""]));
}
