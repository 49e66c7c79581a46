// Days and dollars of a run by sliders: how many GPUs, and what an hour of one costs.
import { card, fact, h } from "./dom.js";
import { digits, seconds, shortened } from "./format.js";

const DAY_S = 86400;
const TOKENS = { K: 1e3, M: 1e6, B: 1e9, T: 1e12 };
const USUAL_TOKENS = 1e12;
const USUAL_RENT = 2.5;
const DOUBLINGS = 3;

function tokensOf(text) {
  const found = String(text || "").match(/^([\d.]+)([KMBT]?)$/i);
  return found ? Number(found[1]) * (TOKENS[found[2].toUpperCase()] || 1) : USUAL_TOKENS;
}

export function budget(plan, state) {
  const [tokens, rate] = [tokensOf(state.tokens), plan.recommended.tokens_per_s_per_gpu];
  const slider = (id, label, least, most, step, value) => {
    const input = h("input", { type: "range", id, min: least, max: most, step, value });
    return { input, element: h("div", { class: "field" }, h("label", { for: id }, label), input) };
  };
  const gpus = slider("budget-gpus", "GPUs", -DOUBLINGS, DOUBLINGS, 0.25, 0);
  const price = slider("budget-rent", "USD for a GPU hour", 0.5, 12, 0.1, USUAL_RENT);
  const facts = h("div", { class: "facts", role: "status" });
  const command = h("code", { class: "muted" });
  const draw = () => {
    const moved = Number(gpus.input.value);
    const many = moved ? Math.max(8, Math.round((plan.gpus * 2 ** moved) / 8) * 8) : plan.gpus;
    const time = tokens / (rate * many);
    const usd = ((time * many) / 3600) * Number(price.input.value);
    facts.replaceChildren(fact("GPUs", digits(many)), fact("Time", ...seconds(time), `${digits(tokens / 1e9)}B tokens`), fact("Rent, USD", shortened(usd), "", `${Number(price.input.value).toFixed(2)} USD for a GPU hour`));
    facts.dataset.usd = usd;
    command.textContent = `shardwise size ${plan.model} --on ${plan.cluster.replace(/:\d+$/, "")} --tokens ${tokens.toExponential()} --within '${Math.max(1, Math.ceil(time / DAY_S))} d' --rent ${price.input.value}`;
  };
  gpus.input.addEventListener("input", draw);
  price.input.addEventListener("input", draw);
  draw();
  return card("How many GPUs, how much?", "pull both", h("div", { class: "columns" }, gpus.element, price.element), facts,
    h("p", { class: "small muted" }, "As if every GPU stayed as fast as in this plan, without failures. The command plans each size and counts failures:"), command);
}
