// The page: which view the link shows, its form, its answer; and what all views share.
import { ask, newest, questionOf, Trouble } from "./ask.js";
import { byId, h } from "./dom.js";
import { Form } from "./form.js";
import { link, read } from "./state.js";
import { POLICY_FIELDS, policyState } from "./format.js";
import { current, judged, leave } from "./goals.js";
import { drawFabric } from "./views/fabric.js";
import { drawFamous } from "./views/famous.js";
import { drawLearn } from "./views/learn.js";
import { drawOperate } from "./views/operate.js";
import { drawPlan } from "./views/plan.js";
import { drawPolicy } from "./views/policy.js";
import { drawPosttrain } from "./views/posttrain.js";
import { drawRun } from "./views/run.js";
import { drawSync } from "./views/sync.js";
import { drawTimeline } from "./views/timeline.js";

const VIEWS = { plan: drawPlan, policy: drawPolicy, timeline: drawTimeline, fabric: drawFabric, operate: drawOperate, sync: drawSync, posttrain: drawPosttrain, run: drawRun, famous: drawFamous, learn: drawLearn };
const PATIENCE_MS = 1500;
const PAUSE_MS = 700;

class Page {
  constructor(table) {
    this.table = table;
    this.results = byId("results");
    this.form = new Form(byId("form"), table, (changes) => this.change(changes));
    this.now = { view: "", state: {} };
    this.draw = newest((asked, signal) => this.drawn(asked, signal), PATIENCE_MS);
  }

  start() {
    const cases = window.shardwiseCases;
    const places = cases ? [...new Map(cases.map((each) => [each.view, each.link]))] : Object.keys(this.table.views).map((name) => [name, `#/${name}`]);
    byId("views").replaceChildren(...places.map(([name]) => h("a", { href: `#/${name}`, "data-view": name }, this.table.views[name].title)));
    byId("views").addEventListener("click", (event) => this.carry(event, new Map(places), Boolean(cases)));
    window.addEventListener("hashchange", () => this.follow());
    window.addEventListener("popstate", () => this.follow());
    // the place its link names would be another view
    document.querySelector(".skip").addEventListener("click", (event) => { event.preventDefault(); this.results.focus(); });
    byId("to-form").addEventListener("click", () => { byId("form").scrollIntoView(); byId("form").querySelector("input").focus({ preventScroll: true }); });
    this.themes();
    byId("share").addEventListener("click", (event) => this.copy(event.target, location.href, "Share"));
    byId("copy-command").addEventListener("click", (event) => this.copy(event.target, byId("command").textContent, "Copy"));
    if (cases && !location.hash) history.replaceState(null, "", cases[0].link);
    this.follow();
    this.offerLists();
    this.dropped();
  }

  // A file may be dropped anywhere; where a view takes it itself, as a timeline takes a trace, this does not.
  dropped() {
    if (window.shardwiseAnswers) return;
    document.addEventListener("dragover", (event) => { event.preventDefault(); document.body.classList.add("dropping"); });
    document.addEventListener("dragleave", (event) => { if (!event.relatedTarget) document.body.classList.remove("dropping"); });
    document.addEventListener("drop", (event) => {
      document.body.classList.remove("dropping");
      if (event.defaultPrevented) return;
      event.preventDefault();
      this.form.take(event.dataTransfer.files[0]);
    });
  }

  // From one view to another the case goes along.
  carry(event, places, fixed) {
    const place = event.target.closest("a");
    if (!place) return;
    event.preventDefault();
    location.hash = fixed ? places.get(place.dataset.view) : link(place.dataset.view, { ...this.now.state, ...this.carried(place.dataset.view) }, this.table);
  }

  // Of the policy shown, what another view needs: its fields, or for whole runs what is fixed.
  carried(to) {
    const { fields } = this.table.views[this.now.view];
    const taken = this.now.view === "plan" && this.suggested && this.suggested.hash === location.hash;
    if (taken && this.table.views[to].fields.includes("tp")) return this.suggested.to;
    const { state } = this.now;
    const fix = ["tp", "pp", "cp", "ep", "vpp", "micro", "zero", "recompute"].map((name) => `${name}=${state[name]}`).join(",");
    if (to === "operate" && fields.includes("tp")) return { fix };
    return state.fix === fix ? { fix: "" } : {};
  }

  // A view of one policy that is opened without any: the recommended one.
  async recommended(view, state, stated, context) {
    if (window.shardwiseAnswers || !this.table.views[view].fields.includes("tp") || stated.some((name) => POLICY_FIELDS.includes(name))) return null;
    const plan = await context.ask("plan");
    return plan.recommended ? { ...state, ...policyState(plan.recommended.policy, plan.gpus) } : null;
  }

  async offerLists() {
    if (window.shardwiseAnswers) return;
    const [models, clusters] = await Promise.all(["models", "clusters"].map((name) => ask(this.question(name, {}))));
    this.form.offer("models", models.answer.models.map((model) => model.name));
    this.form.offer("clusters", clusters.answer.clusters.flatMap((cluster) => [`${cluster.name}:${Math.min(64, cluster.gpus)}`, `${cluster.name}:${Math.min(1024, cluster.gpus)}`]));
    const { answer } = await ask(this.question("programs", {}));
    this.form.offer("programs", answer.programs.flatMap(({ name, releases }) => [name, ...releases.map((each) => `${name}@${each}`)]));
  }

  follow() {
    const { view, state, stated } = read(location.hash, this.table);
    if (view !== this.now.view) {
      this.form.build(view);
      this.results.replaceChildren();
      byId("command").textContent = "";
      byId("shell").classList.toggle("wide", !this.table.views[view].fields.length);
      for (const place of byId("views").children) {
        if (place.dataset.view === view) place.setAttribute("aria-current", "page");
        else place.removeAttribute("aria-current");
      }
      const current = byId("views").querySelector("[aria-current]");
      // by hand: scrollIntoView would also make the next Tab begin there, behind the link to the answer
      if (current) byId("views").scrollLeft = current.offsetLeft - byId("views").offsetLeft - (byId("views").clientWidth - current.offsetWidth) / 2;
      document.title = `${this.table.views[view].title} · shardwise`;
    }
    this.now = { view, state, stated };
    if (this.leaving) this.leaving.abort();
    this.leaving = new AbortController();
    this.form.set(state);
    this.draw(this.now);
  }

  change(changes) {
    const state = { ...this.now.state, ...changes };
    if ("model" in changes && !("config" in changes)) delete state.config;
    const to = link(this.now.view, state, this.table);
    // one entry a pause: a slider that is pulled leaves one, not fifty
    const now = performance.now();
    if (to !== location.hash && now - (this.changed || -Infinity) > PAUSE_MS) history.pushState(null, "", to);
    else history.replaceState(null, "", to);
    this.changed = now;
    this.follow();
  }

  go(view, changes) {
    location.hash = link(view, { ...this.now.state, ...changes }, this.table);
    window.scrollTo({ top: 0 });
  }

  // `again`: the same looked at once more, which nobody asked for: it does not fade meanwhile.
  async drawn({ view, state, stated, again }, signal) {
    const late = again ? 0 : setTimeout(() => this.results.classList.add("busy"), 120);
    const context = this.context(view, state, signal);
    try {
      const best = await this.recommended(view, state, stated, context);
      if (view !== this.now.view) return;
      if (best) {
        history.replaceState(null, "", link(view, best, this.table));
        this.follow();
        return;
      }
      const parts = await VIEWS[view](state, context);
      if (view !== this.now.view) return;
      this.form.wrong([]);
      this.results.replaceChildren(...parts.flat(3).filter(Boolean));
      this.results.dataset.drawn = location.hash;
      if (view === "learn" && byId("goal")) byId("goal").remove();
      this.explain();
      if (context.after) context.after();
    } catch (error) {
      if (error.name === "AbortError" || view !== this.now.view) {
        if (this.stopping && this.stopping.signal.aborted && context.stopped) context.stopped();
        return;
      }
      this.failed(error);
    } finally {
      clearTimeout(late);
      this.progress(null);
      this.results.classList.remove("busy");
    }
  }

  failed(error) {
    const errors = error instanceof Trouble ? error.errors : [{ field: "", value: "", message: String(error.message || error) }];
    if (!(error instanceof Trouble)) console.error(error);
    const left = this.form.wrong(errors);
    const said = left.length ? left : [{ message: `${errors[0].message}` }];
    const banner = h("div", { class: "banner bad", role: "alert" }, said.map((each) => each.message).join("; "));
    const old = this.results.querySelector(":scope > .banner.failed");
    banner.classList.add("failed");
    if (old) old.remove();
    this.results.prepend(banner);
  }

  context(view, state, signal) {
    return {
      state, table: this.table, page: this, signal,
      go: (name, changes) => this.go(name, changes),
      change: (changes) => this.change(changes),
      href: (name, changes) => link(name, { ...state, ...changes }, this.table),
      form: this.form,
      still: () => view === this.now.view && JSON.stringify(state) === JSON.stringify(this.now.state),
      stop: () => { if (this.stopping) this.stopping.abort(); },
      show: (parts) => { if (view === this.now.view) this.results.replaceChildren(...parts); },
      // ends when the state is another: for what is asked after the view is drawn
      leaving: this.leaving.signal,
      ask: async (name, changes, { quiet, found: soFar, signal: until } = {}) => {
        const question = this.question(name, { ...state, ...changes });
        const progress = !quiet && ["plan", "fabric", "operate", "simulate"].includes(question.verb) ? (told) => this.progress(told) : undefined;
        const found = await ask(question, { signal: quiet ? until : this.stoppable(signal), progress, found: soFar });
        if (!quiet) this.command(found.command);
        if (!quiet || name === "sync-simulate") this.goal(view, name, found.answer);
        return found.answer;
      },
      raw: (question) => ask(question),
    };
  }

  // The goal of a lesson, where one is pursued: how far it is, and the way back.
  goal(view, name, answer) {
    const old = byId("goal");
    const pursued = current();
    if (!pursued || !this.table.views[view].asks.includes(pursued.ask)) { if (old) old.remove(); return; }
    if (pursued.ask !== name) return;
    const { good } = judged(pursued, answer);
    const lang = this.now.state.lang === "ko" ? "ko" : "en";
    const end = () => { leave(); byId("goal").remove(); };
    const bar = h("div", { id: "goal", class: `banner goal ${good ? "good" : "warn"}`, role: "status", "data-good": String(good) }, h("span", null, `${good ? "✓ " : ""}${pursued.text[lang]}`),
      h("a", { class: "download", href: `#/learn?lesson=${pursued.lesson}`, onclick: end }, "Back to the lesson"), good ? null : h("a", { class: "download quiet", href: pursued.reach }, "Show a way"), h("button", { type: "button", class: "quiet", onclick: end }, "Give up"));
    if (old) old.replaceWith(bar); else this.results.before(bar);
  }

  // A word of the glossary shows its meaning.
  async explain() {
    if (window.shardwiseAnswers && !window.shardwiseTerms) return;
    this.terms = this.terms || (window.shardwiseTerms ? Promise.resolve(window.shardwiseTerms) : fetch("terms.json").then((got) => got.json()).catch(() => ({})));
    const terms = await this.terms;
    for (const place of this.results.querySelectorAll("th, .fact .name, .legend-row > span")) {
      const meaning = terms[place.textContent.trim().toLowerCase()];
      if (meaning && !place.title) { place.title = meaning; place.classList.add("term"); }
    }
    for (const label of this.form.element.querySelectorAll("label")) {
      const meaning = terms[label.textContent.trim().toLowerCase()] || terms[(label.htmlFor || "").replace("field-", "")];
      if (meaning && !label.title) label.title = meaning;
    }
  }

  // Given up by a newer question, or by whoever does not want to wait.
  stoppable(signal) {
    this.stopping = new AbortController();
    return AbortSignal.any([signal, this.stopping.signal]);
  }

  question(name, state) {
    return questionOf(this.table, name, state);
  }

  command(text) {
    byId("command").textContent = text;
    byId("copy-command").hidden = false;
  }

  progress(told) {
    let bar = document.querySelector(".bar-of-progress");
    if (!told) {
      if (bar) bar.remove();
      return;
    }
    if (!bar) {
      bar = h("div", { class: "bar-of-progress", role: "progressbar", "aria-label": "progress" }, h("i"));
      document.body.append(bar);
    }
    bar.firstChild.style.transform = `scaleX(${told.of ? told.done / told.of : 0.5})`;
  }

  themes() {
    const button = byId("theme");
    const dark = () => (document.documentElement.dataset.theme || (matchMedia("(prefers-color-scheme: dark)").matches ? "dark" : "light")) === "dark";
    const say = () => { button.textContent = dark() ? "Light" : "Dark"; button.setAttribute("aria-label", dark() ? "Light colours" : "Dark colours"); };
    button.addEventListener("click", () => {
      document.documentElement.dataset.theme = dark() ? "light" : "dark";
      try { localStorage.setItem("theme", document.documentElement.dataset.theme); } catch (error) { /* it holds until the page is closed */ }
      say();
      window.dispatchEvent(new Event("themechange"));
    });
    matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => { say(); window.dispatchEvent(new Event("themechange")); });
    say();
  }

  async copy(button, text, name) {
    try {
      await navigator.clipboard.writeText(text);
      button.textContent = "Copied";
    } catch (error) {
      button.textContent = "Not allowed";
    }
    setTimeout(() => { button.textContent = name; }, 1500);
  }
}

window.shardwisePage = new Page(window.shardwiseTable);
window.shardwisePage.start();
