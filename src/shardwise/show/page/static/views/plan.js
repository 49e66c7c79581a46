// Which policy to take, what it risks, why the others lose, and what to launch.
import { dots } from "../charts.js";
import { budget } from "../budget.js";
import { card, fact, h, legend, notes, table, wide } from "../dom.js";
import { cellText, digits, dollars, gib, partName, partsNamed, percent, policyChips, policyCode, policyState, seconds, signed, timeText } from "../format.js";

const RISKS = [[0.005, "series-2", "less than 0.5%"], [0.1, "series-4", "up to 10%"], [0.3, "series-6", "up to 30%"], [2, "series-8", "more"]];
const FIRST_ROWS = 10;

export async function drawPlan(state, context) {
  const mine = launched(state, context);
  const plan = await context.ask("plan", {}, { found: (best) => searching(best, context) });
  if (!plan.recommended) return [nothing(plan), await mine, notes(plan.notes)];
  return [
    await mine,
    hero(plan, context),
    wide(plot(plan, context), "half"),
    wide(others(plan, context), "half"),
    budget(plan, state),
    ranked(plan, context),
    h("div", { class: "columns" }, h("div", null, waterfall(plan), exports(plan, context)), h("div", null, losers(plan, context))),
    notes(plan.notes),
  ];
}

// While the search goes on: the best that is known, and a way to end it.
function searching({ columns, best }, context) {
  const said = h("span", { class: "muted" }, "still looking; the first may change");
  const stop = h("button", { type: "button", onclick: () => context.stop() }, "Stop");
  const shown = columns.filter((column) => column.unit !== "mark");
  const rows = best.map((each) => cells(shown, each, (policy) => context.go("policy", policyState(policy))));
  const made = card(null, null, h("header", null, h("h2", null, "The best so far"), said), table(heads(shown), rows, { label: "the best so far" }), h("div", { class: "buttons" }, stop));
  made.classList.add("so-far");
  made.dataset.found = best.length;
  context.stopped = () => { said.textContent = "stopped: others were not looked at"; stop.remove(); };
  context.show([made]);
}

function heads(columns) {
  return columns.map(({ label, unit }) => label || (unit === "bytes of all" ? "GiB" : ""));
}

// A policy by its code, which says its words when it is pointed at.
function coded(policy, chosen, kind) {
  return h("button", { type: "button", class: kind || "inline", title: policyChips(policy).join(", "), onclick: chosen }, policyCode(policy));
}

// A row as its columns say; a policy opens its view.
function cells(columns, row, open) {
  return columns.map((column) => (column.unit === "policy" ? coded(row[column.name], () => open(row[column.name])) : cellText(column, row[column.name])));
}

// What a launch file that was dropped here says, whether it runs, and what would be faster.
async function launched(state, context) {
  if (!state.launch || !state["launch-text"]) return null;
  const drop = h("button", { type: "button", onclick: () => context.change({ launch: "", "launch-text": "" }) }, "Leave it out");
  try {
    let found = await context.ask("launch", {}, { quiet: true });
    if (!found.judged) found = await context.ask("launch-of", {}, { quiet: true });
    const to = found.policy ? policyState(found.policy, found.gpus) : {};
    const verdict = !found.judged ? h("div", { class: "banner warn" }, found.notes.at(-1) || "not judged") : h("div", { class: `banner ${found.fits ? "good" : "bad"}` }, found.legal ? found.why : `Cannot run (${found.rule}): ${found.why}`);
    const better = found.improvements.map((each) => [Object.entries(each.changes).map(([name, change]) => `${name} ${change.from} → ${change.to}`).join(", "), timeText(each.step_s), signed(each.step_change)]);
    const made = card(`Your launch file: ${state.launch}`, `read as ${found.target}`,
      found.gpus && onGpus(state.on) && found.gpus !== onGpus(state.on) ? h("div", { class: "banner warn", "data-ranks": found.gpus }, h("span", null, `The file starts ${found.gpus.toLocaleString("en-US")} ranks; the cluster here has ${onGpus(state.on).toLocaleString("en-US")} GPUs.`), h("button", { type: "button", onclick: () => context.change({ on: state.on.replace(/:\d+$/, `:${found.gpus}`) }) }, `Judge it on ${found.gpus}`)) : null,
      h("div", { class: "chips" }, policyChips(found.policy).map((word) => h("span", { class: "chip" }, word))), verdict,
      h("div", { class: "facts" }, found.step_s ? fact("Step", ...seconds(found.step_s)) : null, found.peak_bytes ? fact("Memory", gib(found.peak_bytes), "GiB") : null, found.best && found.best.step_change < 0 ? fact("The policy to take: step", signed(found.best.step_change), "", policyCode(found.best.policy)) : null),
      better.length ? table(["one setting changed", "step", "change"], better, { label: "improvements of the launch file" }) : null,
      found.not_modelled.length ? h("ul", { class: "notes" }, found.not_modelled.map((line) => h("li", null, line))) : null,
      h("div", { class: "buttons" }, found.legal === false ? null : h("button", { type: "button", class: "main", onclick: () => context.go("policy", { ...to, ...(found.seq_tokens ? { seq: found.seq_tokens } : {}), ...(found.global_sequences ? { "global-batch": found.global_sequences } : {}) }) }, "Open its policy"), drop));
    made.classList.add("launch");
    if (found.step_s) made.dataset.launchStep = found.step_s;
    return made;
  } catch (error) {
    return card(`Your launch file: ${state.launch}`, null, h("div", { class: "banner bad" }, error.message), h("div", { class: "buttons" }, drop));
  }
}

// What was assumed or asked that costs speed, and a button that mends it: a batch that all GPUs share, a faster network.
function advised(plan, context) {
  return (plan.assumed || []).map((each) => {
    const [, flag, value] = each.flag.match(/^--([a-z-]+) (.+)$/) || [];
    const take = flag in context.table.fields ? h("button", { type: "button", onclick: () => context.change({ [flag]: value }) }, `Take ${value}`) : null;
    const words = `${each.assumed}; ${each.instead} ${signed(each.change)}.`;
    return take ? h("div", { class: "banner warn advice", "data-advice": each.name }, h("span", null, words), take) : h("p", { class: "muted small advice", "data-advice": each.name }, words);
  });
}

// GPUs of a cluster as it is written: dgx-h100:64.
function onGpus(on) {
  const found = String(on || "").match(/:(\d+)$/);
  return found ? Number(found[1]) : 0;
}

function nothing(plan) {
  const small = plan.smallest;
  return card("Nothing fits", null, h("div", { class: "banner bad" }, `No policy of ${plan.model} fits on ${plan.cluster}.`),
    small ? h("p", null, `The smallest, ${policyCode(small.policy)}, needs ${gib(small.peak_bytes)} GiB on a GPU.`) : null);
}

function riskOf(risk) {
  return RISKS.find(([most]) => risk <= most);
}

function band(plan, step) {
  const [low, high] = plan.error_range || [null, null];
  return low === null ? "" : `80% of runs: ${timeText(step * (1 + low))} to ${timeText(step * (1 + high))}`;
}

function hero(plan, context) {
  const best = plan.recommended;
  const [number, unit] = seconds(best.step_s);
  const cost = best.run || best.billion_tokens;
  const to = policyState(best.policy, plan.gpus);
  const found = card(null, null,
    h("header", null, h("h2", null, `Recommended for ${plan.model} on ${plan.cluster}`),
      h("span", { class: "muted" }, `${plan.points.toLocaleString("en-US")} policies looked at`)),
    h("div", { class: "chips" }, policyChips(best.policy).map((word) => h("span", { class: "chip" }, word))),
    h("p", { class: "reason", "data-reason": plan.reason }, `Why: ${plan.reason}.`),
    advised(plan, context),
    h("div", { class: "facts" },
      fact("Step", number, unit, band(plan, best.step_s)),
      fact("Tokens/s per GPU", digits(best.tokens_per_s_per_gpu), "", `MFU ${percent(best.mfu_causal_half)}`),
      fact("Memory", gib(best.peak_bytes), "GiB", `${gib(best.free_bytes)} GiB free`),
      fact("Risk", best.risk < 0.005 ? "<0.5" : (best.risk * 100).toFixed(best.risk < 0.1 ? 1 : 0), "%", "to run out of memory"),
      best.run ? fact("The whole run", ...seconds(best.run.seconds), `${digits(best.run.tokens / 1e12)}T tokens, failures counted`) : null,
      fact(best.run ? "Rent, USD" : "USD per 1e9 tokens", dollars(cost.usd), "", `${best.run ? "" : "rent; "}electricity ${dollars(cost.electricity_usd)}`)),
    h("p", { class: "muted small" }, `Nearest measured run: ${best.nearest_run}.`),
    h("div", { class: "buttons" },
      h("button", { type: "button", class: "main", onclick: () => context.go("policy", to) }, "Change it"),
      h("button", { type: "button", onclick: () => context.go("timeline", to) }, "See the step"),
      h("button", { type: "button", onclick: () => context.go("fabric", to) }, "On the network"),
      h("button", { type: "button", onclick: () => context.go("operate", {}) }, "With failures")));
  context.page.suggested = { hash: location.hash, to };
  found.classList.add("hero");
  found.dataset.step = best.step_s;
  return found;
}

function plot(plan, context) {
  const seen = new Map();
  const add = (each, name, ring) => {
    const code = policyCode(each.policy);
    if (seen.has(code)) { if (name) { seen.get(code).name = name; seen.get(code).ring = ring; } return; }
    seen.set(code, {
      x: each.peak_bytes / 2 ** 30, y: each.tokens_per_s_per_gpu, colour: riskOf(each.risk)[1], name, ring, size: ring ? 0.5 : 0.4,
      words: `${code}\n${timeText(each.step_s)}, ${gib(each.peak_bytes)} GiB, risk ${percent(each.risk, 1)}`,
      chosen: () => context.go("policy", policyState(each.policy, plan.gpus)),
    });
  };
  for (const each of plan.best) add(each);
  add(plan.fastest, "fastest", false);
  add(plan.safest, "safest", false);
  add(plan.recommended, "take", true);
  const drawn = dots([...seen.values()], {
    label: "Throughput against memory of the policies found; colour is the risk to run out of memory",
    x: { label: "peak memory of a GPU, GiB" }, y: { label: "tokens/s per GPU" },
    limit: { value: plan.limit_bytes / 2 ** 30, words: `memory budget ${gib(plan.limit_bytes)} GiB` }, tall: 21,
  });
  return card("Throughput, memory, risk", "a dot opens its policy", drawn, legend(RISKS.map(([, colour, words]) => [words, colour])));
}

function others(plan, context) {
  const line = (name, each) => [
    h("span", { class: "aim" }, h("strong", null, name), coded(each.policy, () => context.go("policy", policyState(each.policy, plan.gpus)))),
    timeText(each.step_s), gib(each.free_bytes), percent(each.risk, each.risk < 0.1 ? 1 : 0),
  ];
  return card("Alternatives", "what each goal would take",
    table(["goal", "step", "GiB free", "risk"], [line("recommended", plan.recommended), line("fastest", plan.fastest), line("safest", plan.safest)], { label: "choices" }),
    h("p", { class: "small muted" }, plan.error_basis),
    whyNot(plan, context));
}

// A policy of the user's own, and why it loses.
function whyNot(plan, context) {
  const input = h("input", { type: "text", id: "why-not", placeholder: "tp=8,pp=4 or fsdp", autocomplete: "off" });
  const said = h("div", { class: "small", role: "status" });
  const ask = async () => {
    if (!input.value.trim()) return;
    said.textContent = "looking…";
    try {
      const answer = await context.ask("why-not", { "why-not": input.value.trim() }, { quiet: true });
      const found = answer.why_not[0];
      said.replaceChildren(...reasons(found));
    } catch (error) {
      said.textContent = error.message;
    }
  };
  input.addEventListener("keydown", (event) => { if (event.key === "Enter") { event.preventDefault(); ask(); } });
  return h("div", { class: "field" }, h("label", { for: "why-not" }, "Compare your own policy"),
    h("div", { class: "both-line" }, input, h("button", { type: "button", onclick: ask }, "Ask")), said);
}

function reasons(found) {
  const words = [found.why, found.verdict, found.reason].find(Boolean) || "";
  const step = found.step_s ? `${timeText(found.step_s)}${found.slower !== undefined && found.slower !== null ? `, ${signed(found.slower)}` : ""}` : "";
  return [h("strong", null, step ? `${step} ` : ""), h("span", null, words)];
}

function ranked(plan, context) {
  // of a run, its own dollars; of none, those of 1e9 tokens
  const columns = plan.columns.filter(({ name, unit }) => unit !== "mark" && name !== (plan.tokens ? "billion_tokens" : "usd"));
  const open = (policy) => context.go("policy", policyState(policy, plan.gpus));
  const rows = plan.best.map((each) => h("tr", { class: each.taken ? "chosen" : "" }, cells(columns, each, open).map((cell) => h("td", null, cell))));
  const shown = table(heads(columns), rows.slice(0, FIRST_ROWS), { label: "policies by step time" });
  const more = h("button", { type: "button", onclick: () => { shown.querySelector("tbody").append(...rows.slice(FIRST_ROWS)); more.remove(); } }, `Show all ${rows.length}`);
  return card("Ranked by step time", `the first ${plan.best.length}`, shown, rows.length > FIRST_ROWS ? h("div", null, more) : null);
}

function waterfall(plan) {
  const parts = (plan.waterfall || []).filter((part) => Math.abs(part.seconds) > 1e-4 * plan.best[0].step_s);
  if (!parts.length) return null;
  const most = Math.max(...parts.map((part) => Math.abs(part.seconds)));
  const rows = parts.map((part) => h("li", { class: "fall" },
    h("span", null, partName(part.part)),
    h("i", { class: part.seconds > 0 ? "more" : "less", css: { "--share": Math.abs(part.seconds) / most } }),
    h("span", { class: "number" }, `${part.seconds > 0 ? "+" : "−"}${timeText(Math.abs(part.seconds))}`)));
  return card("Why the first wins", "what the second needs more or less of", h("ul", { class: "plain falls" }, rows), h("p", { class: "small muted" }, partsNamed(plan.best[0].why)));
}

function losers(plan, context) {
  const rows = plan.losers.map((each) => h("li", { class: "loser" }, h("strong", null, each.kind), h("span", null, each.why),
    each.policy ? coded(each.policy, () => context.go("policy", policyState(each.policy, plan.gpus)), "quiet") : null));
  return card("Why others lose", "the best of their kind", h("ul", { class: "plain losers" }, rows));
}

function exports(plan, context) {
  const shown = h("div", { class: "exported" });
  const show = async (target, button) => {
    for (const other of button.parentElement.children) other.setAttribute("aria-pressed", String(other === button));
    shown.replaceChildren(h("p", { class: "muted" }, "writing…"));
    try {
      const answer = await context.ask("export", { ...policyState(plan.recommended.policy, plan.gpus), to: target }, { quiet: true });
      shown.replaceChildren(...files(answer));
    } catch (error) {
      shown.replaceChildren(h("p", { class: "banner warn" }, error.message));
    }
  };
  const made = card("Launch it", "the files for each program",
    h("div", { class: "buttons", id: "targets" }, context.table.targets.map((target) => h("button", { type: "button", "aria-pressed": "false", onclick: (event) => show(target, event.currentTarget) }, target))), shown);
  // programs that cannot run this policy say so before they are chosen
  const judge = async () => {
    for (const button of made.querySelectorAll("#targets button")) {
      if (!context.still()) return;
      try {
        await context.ask("export", { ...policyState(plan.recommended.policy, plan.gpus), to: button.textContent }, { quiet: true, signal: context.leaving });
      } catch (error) {
        if (error.name === "AbortError") return;
        button.classList.add("cannot");
        button.title = error.message;
      }
    }
    made.dataset.judged = "1";
  };
  if (!window.shardwiseAnswers) setTimeout(judge, 400);
  return made;
}

function files(answer) {
  const without = (answer.without || []).map((lack) => h("li", null, `${lack.field}: ${lack.why} (step ${signed(lack.step_change)})`));
  const each = Object.entries(answer.files).map(([name, text]) => h("details", { open: name === Object.keys(answer.files)[0] },
    h("summary", null, name),
    h("div", { class: "buttons" },
      h("button", { type: "button", onclick: (event) => copied(event.currentTarget, text) }, "Copy"),
      h("a", { class: "download", download: name, href: URL.createObjectURL(new Blob([text], { type: "text/plain" })) }, "Download")),
    h("pre", { tabindex: "0" }, text)));
  return [without.length ? h("ul", { class: "notes" }, without) : null, ...each].filter(Boolean);
}

async function copied(button, text) {
  try {
    await navigator.clipboard.writeText(text);
    button.textContent = "Copied";
  } catch (error) {
    button.textContent = "Not allowed";
  }
}
