// The form of a view, made from the table of fields: labels, what may be chosen, and what is wrong beside the field.
import { h } from "./dom.js";
import { packed } from "./state.js";

const LARGEST_FILE = 2 ** 20;
const LONGEST_IN_A_LINK = 32000;

function powers(most) {
  const found = [];
  for (let value = 1; value <= most; value *= 2) found.push(String(value));
  return found;
}

export function plainName(name) {
  return name.replace(/[^\w.-]/g, "-").replace(/^[^A-Za-z0-9]+/, "") || "file";
}

// What a dropped file states: a model, where it is JSON with a model's shape, else a launch.
function inLink(text) {
  const found = packed(text);
  if (found.length > LONGEST_IN_A_LINK) throw new Error("it is too long for a link");
  return found;
}

function stated(name, text) {
  if (name.endsWith(".json")) {
    const data = JSON.parse(text);
    if (["model_type", "architectures", "hidden_size", "n_embd", "num_hidden_layers"].some((key) => key in data)) return { model: name, config: inLink(JSON.stringify(data)) };
  }
  const known = /\.(json|ya?ml|toml|sh|slurm|sbatch)$/.test(name);
  return { launch: known ? name : `${name}.sh`, "launch-text": inLink(text) };
}

const JUDGED = [["fits", "fits"], ["full", "too full"], ["cannot", "cannot run"]];

export class Form {
  constructor(element, table, changed) {
    this.element = element;
    this.table = table;
    this.changed = changed;
    this.controls = new Map();
    this.lists = {};
    element.addEventListener("submit", (event) => event.preventDefault());
  }

  build(view) {
    const { fields, more } = this.table.views[view];
    this.controls.clear();
    this.judged = this.table.views[view].asks.includes("estimate"); // only there each place of a slider is looked at
    const shown = fields.filter((name) => !more.includes(name)).map((name) => this.field(name));
    if (this.judged) shown.splice(shown.findLastIndex((field) => field.classList.contains("degree")) + 1, 0, h("div", { class: "dots-legend", "aria-hidden": "true" }, JUDGED.map(([verdict, words]) => h("span", { class: "dots" }, h("i", { class: verdict }), words))));
    const rest = more.length ? h("details", null, h("summary", null, "More of the job"), more.map((name) => this.field(name))) : null;
    this.element.replaceChildren(...shown, ...(rest ? [rest] : []));
  }

  // What lists offer, by where it comes from.
  offer(from, names) {
    this.lists[from] = names;
    for (const list of this.element.querySelectorAll(`datalist[data-from="${from}"]`)) this.fillList(list, names);
  }

  fillList(list, names) {
    list.replaceChildren(...names.map((name) => h("option", { value: name })));
  }

  field(name) {
    const about = { label: name, kind: "text", ...this.table.fields[name] };
    const id = `field-${name}`;
    const wrong = h("div", { class: "wrong", id: `${id}-wrong`, hidden: true });
    const label = h("label", { for: id }, about.label);
    const control = this[about.kind](name, id, about);
    const hint = about.hint ? h("div", { class: "hint", id: `${id}-hint` }, about.hint) : null;
    control.main.setAttribute("aria-describedby", [hint ? `${id}-hint` : "", `${id}-wrong`].join(" ").trim());
    this.controls.set(name, { ...control, wrong });
    const sort = about.kind === "switch" ? " switch" : ["power", "steps"].includes(about.kind) ? " degree" : "";
    const field = h("div", { class: `field${sort}${["model", "on"].includes(name) ? " wide" : ""}` }, label, control.element, hint, wrong);
    if (name === "model") this.accept(field);
    return field;
  }

  text(name, id, about) {
    const input = h("input", { type: "text", id, autocomplete: "off", spellcheck: "false", placeholder: about.placeholder || "" });
    input.addEventListener("change", () => this.changed({ [name]: input.value.trim() }));
    return { element: input, main: input, set: (value) => { input.value = value; } };
  }

  list(name, id, about) {
    const made = this.text(name, id, about);
    const list = h("datalist", { id: `${id}-list`, "data-from": about.from || "" });
    this.fillList(list, about.values || this.lists[about.from] || []);
    made.main.setAttribute("list", list.id);
    return { ...made, element: h("div", null, made.main, list) };
  }

  choice(name, id, about) {
    const words = about.names || about.choices.map((value) => (value === "" ? about.empty || "usual" : value.replaceAll("_", " ")));
    const select = h("select", { id }, about.choices.map((value, place) => h("option", { value }, words[place])));
    select.addEventListener("change", () => this.changed({ [name]: select.value }));
    const set = (value) => {
      if (![...select.options].some((option) => option.value === String(value))) select.append(h("option", { value }, value));
      select.value = value;
    };
    return { element: select, main: select, set };
  }

  switch(name, id) {
    const input = h("input", { type: "checkbox", id });
    input.addEventListener("change", () => this.changed({ [name]: input.checked ? "1" : "" }));
    return { element: input, main: input, set: (value) => { input.checked = Boolean(value); } };
  }

  power(name, id, about) {
    return this.degree(name, id, powers(about.most), about);
  }

  steps(name, id, about) {
    return this.degree(name, id, about.values, about);
  }

  // A slider over the usual values, and a field for any other.
  degree(name, id, values, about) {
    const range = h("input", { type: "range", id, min: 0, max: values.length - 1, step: 1 });
    const exact = h("input", { type: "text", inputmode: "numeric", "aria-label": `${about.label}, exactly`, autocomplete: "off" });
    const dots = this.judged ? h("div", { class: "dots", "aria-hidden": "true" }, values.map((value) => h("i", { "data-value": value }))) : null;
    range.addEventListener("input", () => {
      exact.value = values[range.value];
      range.setAttribute("aria-valuetext", exact.value);
      this.changed({ [name]: exact.value });
    });
    exact.addEventListener("change", () => this.changed({ [name]: exact.value.trim() }));
    const slide = (value) => {
      const place = values.findIndex((each) => Number(each) >= Number(value));
      range.value = place < 0 ? values.length - 1 : place;
      range.setAttribute("aria-valuetext", String(value));
    };
    const set = (value) => {
      exact.value = value;
      if (value !== "") slide(value);
    };
    // what it comes to where nothing is stated
    const comes = (value) => {
      exact.placeholder = value;
      if (exact.value === "") slide(value);
    };
    return { element: h("div", { class: "both" }, range, exact, dots), main: range, set, comes, dots, values };
  }

  // A config.json that is dropped on the model's field becomes the model; what a training program is launched with is
  // looked at beside the plan. Both travel in the link.
  accept(field) {
    const open = h("input", { type: "file", accept: ".json,.yaml,.yml,.toml,.sh,.slurm,.sbatch", hidden: true, "aria-label": "A config.json or a launch file of your own" });
    open.addEventListener("change", () => this.take(open.files[0]));
    field.append(open, h("button", { type: "button", class: "quiet", onclick: () => open.click() }, "Open a config.json or launch file"));
  }

  async take(file) {
    if (!file) return;
    try {
      if (!this.controls.has("model")) throw new Error("this view takes no file; open Plan first");
      if (file.size > LARGEST_FILE) throw new Error("it is too long for a configuration");
      this.changed(stated(plainName(file.name), await file.text()));
    } catch (error) {
      this.wrong([{ field: "model", value: file.name, message: `${file.name}: ${error.message}; drop the config.json of a model, or a launch file` }]);
    }
  }

  set(state) {
    for (const [name, control] of this.controls) if (control.main !== document.activeElement || control.main.type === "range") control.set(state[name] === undefined ? "" : state[name]);
  }

  // Errors beside their fields; those of no field here are handed back.
  wrong(errors) {
    for (const control of this.controls.values()) {
      control.wrong.hidden = true;
      control.main.removeAttribute("aria-invalid");
    }
    return errors.filter((error) => {
      const control = this.controls.get(error.field);
      if (!control) return true;
      control.wrong.textContent = error.message;
      control.wrong.hidden = false;
      control.main.setAttribute("aria-invalid", "true");
      const around = control.main.closest("details");
      if (around) around.open = true;
      return false;
    });
  }

  // What a degree comes to that nobody stated.
  comes(name, value) {
    const control = this.controls.get(name);
    if (control && control.comes) control.comes(value);
  }

  // What each place of a slider would give: fits, full or cannot.
  mark(name, value, verdict) {
    const control = this.controls.get(name);
    const dot = control && control.dots && [...control.dots.children].find((each) => each.dataset.value === String(value));
    if (dot) dot.className = verdict;
  }
}
