// Nodes and their GPUs, coloured by what each holds: its slice, stage, replica or experts.
import { responsive } from "./charts.js";
import { card, h, hovered, legend, s } from "./dom.js";

const COLOURS = ["series-0", "series-1", "series-2", "series-3", "series-4", "series-6", "series-7", "series-8"];
const MOST_NODES = 64;
const WORDS = { tp: ["slice", "tensor parallel: slices of every matrix"], pp: ["stage", "pipeline: layers"], cp: ["part", "context parallel: parts of the sequence"], dp: ["replica", "data parallel: samples"], ep: ["experts", "expert parallel: experts"] };

// GPUs of a fast domain as a cluster is written, such as 2x8xh100 or dgx-h100:64.
export function nodeSize(on, clusters) {
  const many = String(on).match(/^(?:\d+x)?(\d+)x[a-z]/);
  if (many) return Number(many[1]);
  const known = clusters.find((each) => each.name.split(":")[0] === String(on).split(":")[0]);
  return known ? known.levels[0].gpus : 8;
}

// Place of every rank along every axis; the axes lie as `order` says, the first one innermost.
export function placesOf(policy) {
  const sizes = { tp: policy.tp, cp: policy.cp, dp: policy.dp, pp: policy.pp };
  const total = Object.values(sizes).reduce((all, each) => all * each, 1);
  return Array.from({ length: total }, (_, rank) => {
    let rest = rank;
    const place = {};
    for (const axis of policy.order.split("-")) {
      if (!(axis in sizes)) continue;
      place[axis] = rest % sizes[axis];
      rest = Math.floor(rest / sizes[axis]);
    }
    place.ep = policy.ep > 1 ? (place.dp * sizes.cp + place.cp) % policy.ep : 0;
    return place;
  });
}

export function gpuMap(policy, each) {
  const places = placesOf(policy);
  const sizes = { tp: policy.tp, pp: policy.pp, cp: policy.cp, dp: policy.dp, ep: policy.ep };
  const axes = Object.keys(sizes).filter((axis) => sizes[axis] > 1);
  if (!axes.length) return null;
  const nodes = Math.ceil(places.length / each);
  const shown = Math.min(nodes, MOST_NODES);
  let axis = axes.includes("pp") ? "pp" : axes[0];
  const holder = h("div", { class: "gpu-map", "data-gpus": places.length });
  const told = h("div");
  let alternate = false;
  // packed: ranks fill a node before the next; dealt: rank by rank to the next node, as on hosts 0a 1a 0b 1b
  const rankAt = (node, gpu) => (alternate ? gpu * nodes + node : node * each + gpu);
  const draw = () => {
    const [word, about] = WORDS[axis];
    holder.replaceChildren(responsive((width, em) => {
      const left = 4.2 * em;
      const columns = Math.max(1, Math.min(Math.ceil(shown / 8), Math.floor((width + em) / (left + each * 0.75 * em))));
      const cell = Math.min(1.4 * em, ((width - (columns - 1) * em) / columns - left) / each);
      const rows = Math.ceil(shown / columns);
      const chart = s("svg", { viewBox: `0 0 ${width} ${rows * (cell + 3) + em}`, height: rows * (cell + 3) + em });
      for (let node = 0; node < shown; node += 1) {
        const [column, row] = [Math.floor(node / rows), node % rows];
        const x = column * (left + each * cell + em);
        const y = row * (cell + 3);
        chart.append(s("text", { x: x + left - em * 0.4, y: y + cell * 0.75, "text-anchor": "end" }, `node ${node}`));
        for (let gpu = 0; gpu < each && rankAt(node, gpu) < places.length; gpu += 1) {
          const rank = rankAt(node, gpu);
          const place = places[rank];
          const words = axes.map((name) => `${WORDS[name][0]} ${place[name]}`).join(", ");
          chart.append(hovered(s("rect", { x: x + left + gpu * cell, y, width: cell - 2, height: cell, rx: 2, fill: `var(--${COLOURS[place[axis] % COLOURS.length]})` }), `rank ${rank}, node ${node}, GPU ${gpu}\n${words}`));
        }
      }
      return chart;
    }, `Nodes and their GPUs, coloured by ${word}`));
    const kinds = Math.min(sizes[axis], COLOURS.length);
    told.replaceChildren(h("p", { class: "small muted" }, `${about}. ${nodes > shown ? `${shown} of ${nodes} nodes are drawn. ` : ""}${sizes[axis] > COLOURS.length ? `Colours repeat after ${COLOURS.length}.` : ""}`),
      legend(Array.from({ length: kinds }, (_, at) => [`${word} ${at}`, COLOURS[at]])));
    for (const button of buttons.children) button.setAttribute("aria-pressed", String(button.textContent === axis));
    deal.setAttribute("aria-pressed", String(alternate));
  };
  const buttons = h("div", { class: "buttons" }, axes.map((name) => h("button", { type: "button", onclick: () => { axis = name; draw(); } }, name)));
  const deal = h("button", { type: "button", id: "deal", onclick: () => { alternate = !alternate; draw(); } }, "Deal ranks node by node");
  const made = card("Who holds what", `${nodes} nodes of ${each} GPUs, coloured by axis`, h("div", { class: "buttons" }, axes.length > 1 ? buttons : null, nodes > 1 ? deal : null), holder, told);
  draw();
  return made;
}
