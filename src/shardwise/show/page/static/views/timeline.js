// One step in time: who does what when, what it holds meanwhile, and the same policy under every schedule.
import { card, fact, h, legend, notes, table } from "../dom.js";
import { digits, gib, percent, seconds, timeText } from "../format.js";
import { plainName } from "../form.js";
import { Gantt, MEASURED } from "../gantt.js";
import { saveCanvas } from "../save.js";

const MOST = 60000;
const LARGEST_PACKED = 8 * 2 ** 20;
const LARGEST = 200 * 2 ** 20;

export async function drawTimeline(state, context) {
  const found = await context.ask("simulate");
  if (!found.legal) return [h("div", { class: "banner bad", id: "verdict" }, `Cannot run (${found.rule}): ${found.why}`), notes(found.notes)];
  const [number, unit] = seconds(found.step_s);
  const head = card(null, null, h("header", null, h("h2", null, `One step of ${found.model} on ${found.cluster}`), h("span", { class: "muted" }, `${found.tasks.toLocaleString("en-US")} tasks, ${found.rank_classes} classes of GPUs`)),
    h("div", { class: "facts" },
      fact("Step", number, unit, found.step_low_s ? `80%: ${timeText(found.step_low_s)} to ${timeText(found.step_high_s)}` : ""),
      fact("Bubble", (found.bubble_share * 100).toFixed(1), "%", "the busiest GPU waits"),
      fact("Idle", (found.idle_share * 100).toFixed(1), "%", "an average GPU"),
      fact("Closed form", digits(found.closed_form.step_s, 4), "s", `${Math.abs(found.closed_form.gap * 100).toFixed(2)}% apart`),
      fact("Peak", gib(Math.max(...found.peak_bytes)), "GiB", found.fits ? "fits" : "does not fit")));
  head.classList.add("headline");
  head.dataset.step = found.step_s;
  return [head, picture(found, context), schedules(found, context), notes(found.notes)];
}

function picture(found, context) {
  const { spans } = found;
  const gantt = new Gantt(spans, found.step_s);
  const used = [...new Set(spans.kind)].sort((a, b) => a - b).map((kind) => [spans.kinds[kind], `task-${spans.kinds[kind].replaceAll(" ", "-")}`]);
  const first = Math.min(found.step_s, (found.step_s * 40 * spans.rows.length) / Math.max(spans.rank.length, 1) + found.step_s * 0.02);
  const tools = h("div", { class: "buttons" },
    h("button", { type: "button", onclick: () => gantt.show(0, found.step_s) }, "All"),
    h("button", { type: "button", onclick: () => gantt.show(0, first) }, "Beginning"),
    h("button", { type: "button", onclick: () => gantt.show(found.step_s - first, found.step_s) }, "End"),
    h("button", { type: "button", "aria-label": "Zoom in", onclick: () => gantt.zoom(0.6) }, "+"),
    h("button", { type: "button", "aria-label": "Zoom out", onclick: () => gantt.zoom(1.6) }, "−"),
    h("button", { type: "button", onclick: () => saveCanvas(gantt.canvas, `step of ${found.model} on ${found.cluster}`) }, "Save as PNG"));
  const names = h("div", null, legend(used));
  const said = h("div", { class: "measured", role: "status" });
  const made = card("The step in time", `${spans.rank.length.toLocaleString("en-US")} slices; wheel zooms, dragging moves`, tools, gantt.element, names, said);
  measured(made, tools, context, async (answer) => {
    gantt.overlay(answer.spans);
    names.replaceChildren(legend([...used, ...MEASURED.map(([name, ink]) => [name, ink])]));
    said.replaceChildren(...beside(found, answer));
  }, said);
  made.gantt = gantt;
  made.classList.add("timeline");
  if (spans.rank.length > MOST) made.append(h("p", { class: "muted small" }, "So many tasks: zoom in to see them one by one."));
  return made;
}

// A profiler's trace, dropped on the picture or opened: read by the server, drawn beside the prediction, kept nowhere.
function measured(made, tools, context, draw, said) {
  if (window.shardwiseAnswers) return;
  const open = h("input", { type: "file", accept: ".json,.gz", hidden: true, "aria-label": "A trace of torch.profiler" });
  const take = async (file) => {
    if (!file) return;
    said.replaceChildren(h("p", { class: "muted" }, `reading ${file.name}…`));
    try {
      const trace = await packedTrace(file);
      const answer = await context.ask("trace", trace, { quiet: true });
      if (!answer.spans) throw new Error(`${file.name}: no trace; drop one of torch.profiler or of \`shardwise simulate --trace\``);
      await draw(answer);
      made.dataset.measured = answer.spans.rank.length;
    } catch (error) {
      said.replaceChildren(h("p", { class: "banner bad" }, error.message));
    }
  };
  open.addEventListener("change", () => take(open.files[0]));
  tools.append(open, h("button", { type: "button", onclick: () => open.click() }, "Overlay a trace"));
  made.addEventListener("dragover", (event) => { event.preventDefault(); made.classList.add("drop"); });
  made.addEventListener("dragleave", () => made.classList.remove("drop"));
  made.addEventListener("drop", (event) => { event.preventDefault(); made.classList.remove("drop"); take(event.dataTransfer.files[0]); });
}

async function packedTrace(file) {
  if (file.size > LARGEST) throw new Error(`${file.name}: more than ${LARGEST / 2 ** 20} MiB; profile fewer steps`);
  const name = plainName(file.name);
  const blob = name.endsWith(".gz") ? file : await new Response(file.stream().pipeThrough(new CompressionStream("gzip"))).blob();
  if (blob.size > LARGEST_PACKED) throw new Error(`${file.name}: ${(blob.size / 2 ** 20).toFixed(0)} MiB when packed; at most ${LARGEST_PACKED / 2 ** 20} are read: profile fewer steps`);
  const text = await new Promise((done, failed) => {
    const reader = new FileReader();
    reader.onload = () => done(reader.result.split(",")[1]);
    reader.onerror = () => failed(reader.error);
    reader.readAsDataURL(blob);
  });
  return { trace: name.endsWith(".gz") ? name : `${name}.gz`, packed: text };
}

// Measured beside predicted, in numbers, and what the difference comes from.
function beside(found, answer) {
  const step = answer.trace.step_s || answer.spans.step_s;
  const causes = answer.trace.causes.filter((cause) => cause.lost_s > 0.01 * step).slice(0, 6);
  return [h("div", { class: "facts" }, fact("Measured step", ...seconds(step), `${answer.spans.ranks} ${answer.spans.ranks === 1 ? "rank" : "ranks"}`), fact("Predicted", ...seconds(found.step_s)), fact("Measured over predicted", digits(step / found.step_s), "", answer.trace.within_band === null ? "" : answer.trace.within_band ? "in the band" : "outside the band")),
    causes.length ? table(["measured time goes to", "measured", "predicted", "lost"], causes.map((cause) => [cause.what, timeText(cause.measured_s), cause.predicted_s === null ? "–" : timeText(cause.predicted_s), timeText(cause.lost_s)]), { label: "what the difference comes from" }) : null,
    h("p", { class: "small muted" }, "The trace was read and forgotten: a link shows the prediction alone.")].filter(Boolean);
}

// Its peak, in the colour of what does not fit.
function full(each, found) {
  const fits = each.peak_bytes <= found.spans.limit_bytes;
  return h("td", { class: fits ? "" : "bad", title: fits ? "" : `more than the ${gib(found.spans.limit_bytes)} GiB there are` }, `${gib(each.peak_bytes)}${fits ? "" : ", too much"}`);
}

function schedules(found, context) {
  const can = found.schedules.filter((each) => each.step_s !== null);
  const not = found.schedules.filter((each) => each.step_s === null);
  const rows = can.map((each) => h("tr", { class: each.schedule === found.schedule ? "chosen" : "" },
    h("td", null, h("button", { type: "button", class: "inline", onclick: () => context.change({ schedule: each.schedule, vpp: each.vpp }) }, each.schedule)),
    [each.vpp, timeText(each.step_s), percent(each.bubble_share), percent(each.idle_share), full(each, found), timeText(each.closed_form_s)].map((cell) => (cell instanceof Node ? cell : h("td", null, cell)))));
  return card("The same policy under every schedule", "no stragglers",
    table(["schedule", "chunks", "step", "bubble", "idle", "peak GiB", "closed form"], rows, { label: "schedules" }),
    not.length ? h("details", null, h("summary", null, `${not.length} that cannot run this`), h("ul", { class: "notes" }, not.map((each) => h("li", null, `${each.schedule}: ${each.why_not}`)))) : null);
}
