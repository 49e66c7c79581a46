// One step in time: who does what when, what it holds meanwhile, and the same policy under every schedule.
import { card, fact, h, legend, notes, table } from "../dom.js";
import { digits, gib, percent, seconds, timeText } from "../format.js";
import { Gantt } from "../gantt.js";

const MOST = 60000;

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
  return [head, picture(found), schedules(found, context), notes(found.notes)];
}

function picture(found) {
  const { spans } = found;
  const gantt = new Gantt(spans, found.step_s);
  const used = [...new Set(spans.kind)].sort((a, b) => a - b).map((kind) => [spans.kinds[kind], `task-${spans.kinds[kind].replaceAll(" ", "-")}`]);
  const first = Math.min(found.step_s, (found.step_s * 40 * spans.rows.length) / Math.max(spans.rank.length, 1) + found.step_s * 0.02);
  const tools = h("div", { class: "buttons" },
    h("button", { type: "button", onclick: () => gantt.show(0, found.step_s) }, "All"),
    h("button", { type: "button", onclick: () => gantt.show(0, first) }, "Beginning"),
    h("button", { type: "button", onclick: () => gantt.show(found.step_s - first, found.step_s) }, "End"),
    h("button", { type: "button", "aria-label": "Zoom in", onclick: () => gantt.zoom(0.6) }, "+"),
    h("button", { type: "button", "aria-label": "Zoom out", onclick: () => gantt.zoom(1.6) }, "−"));
  const made = card("The step in time", `${spans.rank.length.toLocaleString("en-US")} slices; wheel zooms, dragging moves`, tools, gantt.element, legend(used));
  made.gantt = gantt;
  made.classList.add("timeline");
  if (spans.rank.length > MOST) made.append(h("p", { class: "muted small" }, "So many tasks: zoom in to see them one by one."));
  return made;
}

function schedules(found, context) {
  const can = found.schedules.filter((each) => each.step_s !== null);
  const not = found.schedules.filter((each) => each.step_s === null);
  const rows = can.map((each) => h("tr", { class: each.schedule === found.schedule ? "chosen" : "" },
    h("td", null, h("button", { type: "button", class: "inline", onclick: () => context.change({ schedule: each.schedule, vpp: each.vpp }) }, each.schedule)),
    [each.vpp, timeText(each.step_s), percent(each.bubble_share), percent(each.idle_share), gib(each.peak_bytes), timeText(each.closed_form_s)].map((cell) => h("td", null, cell))));
  return card("The same policy under every schedule", "no stragglers",
    table(["schedule", "chunks", "step", "bubble", "idle", "peak GiB", "closed form"], rows, { label: "schedules" }),
    not.length ? h("details", null, h("summary", null, `${not.length} that cannot run this`), h("ul", { class: "notes" }, not.map((each) => h("li", null, `${each.schedule}: ${each.why_not}`)))) : null);
}
