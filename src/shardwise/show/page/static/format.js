// Numbers as they are read: three or four digits, with the unit beside them.
export function digits(value, most) {
  if (value === null || value === undefined || !Number.isFinite(value)) return "–";
  if (value === 0) return "0";
  const size = Math.abs(value);
  if (size >= 1000) return Math.round(value).toLocaleString("en-US");
  return String(Number(value.toPrecision(most || 3)));
}

export function gib(bytes) {
  return bytes === null || bytes === undefined ? "–" : (bytes / 2 ** 30).toFixed(bytes < 10 * 2 ** 30 ? 2 : 1);
}

export function sizeText(bytes) {
  for (const [limit, unit] of [[2 ** 40, "TiB"], [2 ** 30, "GiB"], [2 ** 20, "MiB"], [2 ** 10, "KiB"]]) {
    if (Math.abs(bytes) >= limit) return `${digits(bytes / limit)} ${unit}`;
  }
  return `${digits(bytes)} B`;
}

export function seconds(value) {
  if (value === null || value === undefined) return ["–", ""];
  const size = Math.abs(value);
  if (size >= 2 * 86400) return [digits(value / 86400), "days"];
  if (size >= 7200) return [digits(value / 3600), "h"];
  if (size >= 120) return [digits(value / 60), "min"];
  if (size >= 1) return [fixed(value, 4), "s"];
  if (size === 0) return ["0", "s"];
  if (size >= 1e-3) return [digits(value * 1e3), "ms"];
  return [digits(value * 1e6), "µs"];
}

// So many digits, zeros at the end kept, so that a number does not change its width.
export function fixed(value, count) {
  return value.toFixed(Math.max(0, count - 1 - Math.floor(Math.log10(Math.abs(value) || 1))));
}

export function timeText(value) {
  return seconds(value).join(" ").trim();
}

export function percent(share, places) {
  return share === null || share === undefined ? "–" : `${(share * 100).toFixed(places === undefined ? 1 : places)}%`;
}

// A cell of a column that says its unit; the words are those of the terminal.
export function cellText({ name, unit }, value) {
  if (value === null || value === undefined) return "–";
  if (name === "bottleneck") return partName(value);
  const texts = {
    s: () => digits(value, 4), "%": () => percent(value), "per second": () => digits(value), GiB: () => gib(value),
    "bytes of all": () => gib(value), "USD span": () => dollars(value), rent: () => dollars(value.usd), policy: () => policyCode(value),
  };
  return texts[unit] ? texts[unit]() : typeof value === "number" ? digits(value) : String(value);
}

export function signed(share) {
  return `${share >= 0 ? "+" : "−"}${Math.abs(share * 100).toFixed(1)}%`;
}

export function dollars(range) {
  if (!range) return "–";
  const each = [].concat(range).map((value) => shortened(value));
  return each.length > 1 && each[0] !== each[1] ? `${each[0]}–${each[1]}` : each[0];
}

export function shortened(value) {
  for (const [limit, unit] of [[1e12, "T"], [1e9, "G"], [1e6, "M"], [1e5, "k"]]) if (Math.abs(value) >= limit) return `${digits(unit === "k" ? value / 1e3 : value / limit)}${unit}`;
  return digits(value);
}

const PARTS = {
  tp_comm: "tensor parallel", cp_comm: "context parallel", ep_comm: "experts", pp_comm: "between stages", fsdp_comm: "parameters (FSDP)", grad_comm: "gradients",
  param_comm: "parameters",
};

// A part of a step's time in words.
export function partName(name) {
  return PARTS[name] || name.replaceAll("_", " ");
}

// The same for parts that stand in a sentence of the command line.
export function partsNamed(text) {
  return text.replace(/\b[a-z]+_comm\b/g, partName);
}

const OFFLOADED = { optimizer: "off-opt", activations: "off-act", both: "off-all" };
const USUAL_ORDER = "tp-cp-dp-pp";

function usualSchedule(policy) {
  return policy.vpp > 1 ? "interleaved" : "1f1b";
}

// As the command line abbreviates a policy.
export function policyCode(policy) {
  const found = [`dp${policy.dp}`];
  for (const name of ["tp", "pp", "vpp", "cp", "ep", "etp"]) if (policy[name] > 1) found.push(`${name}${policy[name]}`);
  found.push(`z${policy.zero}${policy.shard_group ? `/${policy.shard_group}` : ""}`);
  found.push(`mb${policy.micro_batch}`);
  if (policy.recompute !== "none") found.push(policy.recompute + (policy.recompute_layers >= 0 ? policy.recompute_layers : ""));
  if (policy.offload !== "none") found.push(`${OFFLOADED[policy.offload]}${policy.offload_share < 1 ? `${Math.round(policy.offload_share * 100)}%` : ""}`);
  if (policy.loss) found.push(policy.loss);
  if (policy.matrix_layout) found.push(policy.matrix_layout);
  if (policy.tp > 1 && !policy.sp) found.push("nosp");
  if (policy.pp > 1 && policy.schedule !== usualSchedule(policy)) found.push(policy.schedule);
  if (policy.order !== USUAL_ORDER) found.push(policy.order);
  return found.join(" ");
}

export function policyChips(policy) {
  const names = { dp: "data", tp: "tensor", pp: "pipeline", vpp: "chunks", cp: "context", ep: "expert" };
  const found = Object.entries(names).filter(([name]) => policy[name] > 1 || name === "dp").map(([name, word]) => `${word} ${policy[name]}`);
  found.push(policy.zero ? `ZeRO ${policy.zero}${policy.shard_group ? ` over ${policy.shard_group}` : ""}` : "no ZeRO");
  found.push(`micro-batch ${policy.micro_batch}`);
  if (policy.recompute !== "none") found.push(`recompute ${policy.recompute}${policy.recompute_layers >= 0 ? ` ×${policy.recompute_layers}` : ""}`);
  if (policy.pp > 1) found.push(policy.schedule.replaceAll("_", " "));
  if (policy.offload !== "none") found.push(`offload ${policy.offload}`);
  if (policy.loss) found.push(`${policy.loss} loss`);
  if (policy.matrix_layout) found.push(`matrices ${policy.matrix_layout}`);
  if (policy.order !== USUAL_ORDER) found.push(`ranks ${policy.order}`);
  return found;
}

// Of a form, the fields that state a policy.
export const POLICY_FIELDS = ["tp", "pp", "cp", "ep", "vpp", "etp", "micro", "zero", "shard-group", "recompute", "recompute-layers", "schedule", "offload", "offload-share", "loss", "matrix-layout", "order", "no-sp", "dp"];

export function policyState(policy, gpus) {
  const all = policy.dp * policy.tp * policy.pp * policy.cp;
  return {
    tp: policy.tp, pp: policy.pp, cp: policy.cp, ep: policy.ep, vpp: policy.vpp, etp: policy.etp, micro: policy.micro_batch, zero: policy.zero,
    "shard-group": policy.shard_group, recompute: policy.recompute, "recompute-layers": policy.recompute_layers,
    schedule: policy.schedule === usualSchedule(policy) ? "" : policy.schedule, offload: policy.offload, "offload-share": policy.offload_share, loss: policy.loss, "matrix-layout": policy.matrix_layout, order: policy.order,
    "no-sp": !policy.sp && policy.tp > 1 ? "1" : "", dp: gpus && all !== gpus ? policy.dp : "",
  };
}
