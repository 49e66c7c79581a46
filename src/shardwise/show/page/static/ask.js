// Questions: built from the state by the same table the server reads, asked of it, or looked up where the page is only files.
import { unpacked } from "./state.js";

export class Trouble extends Error {
  constructor(errors) {
    super(errors.map((error) => error.message).join("; "));
    this.errors = errors;
  }
}

export function questionOf(table, name, state) {
  const ask = table.asks[name];
  const whole = { ...table.defaults, ...state };
  const first = ask.first.map((word) => (word.startsWith("{") ? String(whole[word.slice(1, -1)] || "") : word));
  const options = {};
  for (const entry of ask.state) {
    const [name, field = name] = entry.split("="); // an option that another field states
    const value = String(whole[field] === undefined || whole[field] === null ? "" : whole[field]);
    if (!value || (value === (table.defaults[field] || "") && !table.always.includes(field))) continue;
    options[name] = table.fields[field] && table.fields[field].kind === "switch" ? true : value;
  }
  const question = { verb: ask.verb, first, options: { ...options, ...ask.with } };
  const files = {};
  if (whole.config && whole.model.endsWith(".json")) files[whole.model] = unpacked(whole.config);
  if (whole["launch-text"] && ask.first.includes("{launch}")) files[whole.launch] = unpacked(whole["launch-text"]);
  if (whole.packed && ask.first.includes("{trace}")) files[whole.trace] = whole.packed;
  if (Object.keys(files).length) question.files = files;
  return question;
}

export function keyOf(question) {
  return JSON.stringify([question.verb, question.first, question.options, question.files || {}]);
}

const kept = new Map();

export async function ask(question, { signal, progress, found: soFar } = {}) {
  const key = keyOf(question);
  if (window.shardwiseAnswers) {
    const found = window.shardwiseAnswers[key];
    if (!found) throw new Trouble([{ field: "", value: "", message: "This page is only files: it shows the cases it was written with. For others run `shardwise serve`." }]);
    if (found.errors) throw new Trouble(found.errors);
    return found;
  }
  if (kept.has(key)) return kept.get(key);
  const answer = progress ? await streamed(question, signal, progress, soFar) : await plain(question, signal);
  if (!["watch", "why"].includes(question.verb)) {
    kept.set(key, answer);
    if (kept.size > 60) kept.delete(kept.keys().next().value);
  }
  return answer;
}

function request(question, signal, accept) {
  return fetch("api/ask", { method: "POST", signal, headers: { "content-type": "application/json", accept }, body: JSON.stringify(question) });
}

async function plain(question, signal) {
  const response = await request(question, signal, "application/json");
  if (!response.ok) throw await troubleOf(response);
  return response.json();
}

async function troubleOf(response) {
  const text = await response.text();
  try {
    return new Trouble(JSON.parse(text).errors);
  } catch (error) {
    return new Trouble([{ field: "", value: "", message: text || `the server said ${response.status}` }]);
  }
}

// Server-sent events over a request that carries a question.
async function streamed(question, signal, progress, soFar) {
  const response = await request(question, signal, "text/event-stream");
  if (!response.ok) throw await troubleOf(response);
  const reader = response.body.pipeThrough(new TextDecoderStream()).getReader();
  let rest = "";
  for (;;) {
    const { value, done } = await reader.read();
    if (done) throw new Trouble([{ field: "", value: "", message: "the server ended before it had answered" }]);
    const events = (rest + value).split("\n\n");
    rest = events.pop();
    for (const event of events) {
      const data = event.split("\n").filter((line) => line.startsWith("data: ")).map((line) => line.slice(6)).join("");
      const name = (event.match(/^event: (\w+)/m) || [])[1];
      if (name === "progress") progress(JSON.parse(data));
      if (name === "found" && soFar) soFar(JSON.parse(data));
      if (name === "answer") return JSON.parse(data);
      if (name === "trouble") throw new Trouble(JSON.parse(data).errors);
    }
  }
}

// Runs the newest of what is asked for: one at a time, those in between are left out, one that takes long is given up.
export function newest(work, patience) {
  let running = null;
  let next = null;
  async function start(argument) {
    running = { control: new AbortController(), since: performance.now() };
    try {
      await work(argument, running.control.signal);
    } finally {
      running = null;
      if (next) {
        const { argument: waiting } = next;
        next = null;
        start(waiting);
      }
    }
  }
  return (argument) => {
    if (!running) {
      start(argument);
      return;
    }
    next = { argument };
    const left = patience - (performance.now() - running.since);
    const mine = running;
    setTimeout(() => {
      if (running === mine && next) mine.control.abort();
    }, Math.max(0, left));
  };
}
