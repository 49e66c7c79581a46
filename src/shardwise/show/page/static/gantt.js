// A timeline on a canvas: tens of thousands of slices, zoomed, moved and pointed at without lag.
// Slices lie in columns by row and lane, sorted by time; what is narrower than a pixel is drawn once for that pixel.
import { colour, h, rem, tipAt } from "./dom.js";
import { timeText } from "./format.js";

function tickText(time, span) {
  const [scale, unit] = span >= 1 ? [1, "s"] : span >= 1e-3 ? [1e3, "ms"] : [1e6, "µs"];
  return `${Number((time * scale).toPrecision(5))} ${unit}`;
}

// Black or white, whichever is read better on a colour written #rrggbb.
function readable(ink) {
  const [red, green, blue] = [1, 3, 5].map((at) => parseInt(ink.slice(at, at + 2), 16));
  return 0.299 * red + 0.587 * green + 0.114 * blue > 140 ? "#1a1f25" : "#ffffff";
}

// Kinds of what was measured, in the order of the answer: name, colour, lane.
export const MEASURED = [["measured compute", "series-2", 0], ["measured communication", "series-6", 1], ["measured copies", "series-4", 2]];
const INKS = Object.fromEntries(MEASURED.map(([name, ink]) => [name, ink]));

export class Gantt {
  constructor(spans, stepS) {
    this.spans = spans;
    this.step = stepS;
    this.order = [...spans.rows.keys()];
    this.draws = 0;
    this.whole = stepS;
    this.from = 0;
    this.to = stepS;
    this.lanes = this.lanesUsed();
    this.index = this.sorted();
    this.canvas = h("canvas", { class: "gantt", tabindex: "0", role: "img", "aria-label": "Timeline of one step: arrow keys move, plus and minus zoom, 0 shows all" });
    this.element = h("div", { class: "gantt-holder" }, this.canvas);
    this.listen();
    this.wanted = false;
    new ResizeObserver(() => this.draw()).observe(this.element);
    this.themed = () => (this.canvas.isConnected ? this.draw() : window.removeEventListener("themechange", this.themed));
    window.addEventListener("themechange", this.themed);
  }

  lanesUsed() {
    const used = this.spans.rows.map(() => new Set([0]));
    this.spans.rank.forEach((rank, place) => used[rank].add(this.spans.lane[place]));
    return used.map((lanes) => [...lanes].sort((a, b) => a - b));
  }

  sorted() {
    const found = new Map();
    const { rank, lane, start_s: start } = this.spans;
    for (let place = 0; place < rank.length; place += 1) {
      const key = rank[place] * 16 + lane[place];
      if (!found.has(key)) found.set(key, []);
      found.get(key).push(place);
    }
    for (const places of found.values()) places.sort((a, b) => start[a] - start[b]);
    return found;
  }

  listen() {
    let held = null;
    this.canvas.addEventListener("wheel", (event) => {
      if (!event.ctrlKey && Math.abs(event.deltaX) > Math.abs(event.deltaY)) this.move((event.deltaX / this.width) * (this.to - this.from));
      else this.zoom(Math.exp(event.deltaY * 0.002), this.timeAt(event.offsetX));
      event.preventDefault();
    }, { passive: false });
    this.canvas.addEventListener("pointerdown", (event) => { held = event.clientX; this.canvas.setPointerCapture(event.pointerId); });
    this.canvas.addEventListener("pointerup", () => { held = null; });
    this.canvas.addEventListener("pointerleave", (event) => tipAt(event, ""));
    this.canvas.addEventListener("pointermove", (event) => {
      if (held !== null) {
        this.move(((held - event.clientX) / this.width) * (this.to - this.from));
        held = event.clientX;
      } else tipAt(event, this.wordsAt(event.offsetX, event.offsetY));
    });
    this.canvas.addEventListener("dblclick", () => this.show(0, this.whole));
    this.canvas.addEventListener("keydown", (event) => {
      const span = this.to - this.from;
      const done = { ArrowLeft: () => this.move(-span / 8), ArrowRight: () => this.move(span / 8), "+": () => this.zoom(0.7), "=": () => this.zoom(0.7), "-": () => this.zoom(1.4), 0: () => this.show(0, this.whole) }[event.key];
      if (done) { done(); event.preventDefault(); }
    });
  }

  timeAt(x) {
    return this.from + ((x - this.left) / this.width) * (this.to - this.from);
  }

  show(from, to) {
    const span = Math.min(Math.max(to - from, this.whole * 1e-6), this.whole);
    this.from = Math.min(Math.max(from, 0), this.whole - span);
    this.to = this.from + span;
    this.soon();
  }

  move(by) {
    this.show(this.from + by, this.to + by);
  }

  zoom(factor, around) {
    const middle = around === undefined ? (this.from + this.to) / 2 : around;
    const span = (this.to - this.from) * factor;
    const share = (middle - this.from) / (this.to - this.from);
    this.show(middle - span * share, middle + span * (1 - share));
  }

  soon() {
    if (this.wanted) return;
    this.wanted = true;
    requestAnimationFrame(() => { this.wanted = false; this.draw(); });
  }

  // Beside the predicted rows, what was measured: a row of each rank under that of its place, as long as its step took.
  overlay(measured) {
    this.predicted = this.predicted || this.spans;
    const base = this.predicted;
    const rows = base.rows.length;
    const own = measured.rows.map((row) => ({ name: row.name, measured: true }));
    const count = measured.rank.length;
    this.spans = {
      ...base, rows: [...base.rows, ...own], kinds: [...base.kinds, ...MEASURED.map(([name]) => name)],
      rank: base.rank.concat(measured.rank.map((rank) => rank + rows)), lane: base.lane.concat(measured.kind.map((kind) => MEASURED[kind][2])),
      kind: base.kind.concat(measured.kind.map((kind) => kind + base.kinds.length)), micro_batch: base.micro_batch.concat(Array(count).fill(-1)),
      start_s: base.start_s.concat(measured.start_s), end_s: base.end_s.concat(measured.end_s),
    };
    this.order = own.length === rows ? base.rows.flatMap((_, place) => [place, rows + place]) : [...this.spans.rows.keys()];
    this.whole = Math.max(this.step, measured.step_s);
    this.lanes = this.lanesUsed();
    this.index = this.sorted();
    this.show(0, this.whole);
  }

  layout() {
    const em = rem();
    const dense = this.spans.rows.length > 16;
    this.tall = dense ? 1.1 * em : 1.75 * em;
    this.thin = dense ? 0.3 * em : 0.42 * em;
    this.left = 5.2 * em;
    this.top = 1.8 * em;
    this.width = Math.max(10, this.element.clientWidth - this.left - 0.4 * em);
    this.places = [];
    let y = this.top;
    this.order.forEach((place) => {
      const lanes = this.lanes[place];
      const row = { y, lanes: new Map() };
      for (const lane of lanes) {
        const height = lane === 0 ? this.tall : this.thin;
        row.lanes.set(lane, [y, height]);
        y += height + 1;
      }
      row.bottom = y;
      y += dense ? 2 : 0.45 * em;
      this.places[place] = row;
    });
    this.rowsEnd = y;
    this.memoryTop = y + 1.8 * em;
    this.memoryHeight = 8.5 * em;
    return this.memoryTop + this.memoryHeight + 0.6 * em;
  }

  draw() {
    if (!this.element.clientWidth) return;
    const begun = performance.now();
    const height = this.layout();
    const ratio = window.devicePixelRatio || 1;
    const [w, t] = [Math.round(this.element.clientWidth * ratio), Math.round(height * ratio)];
    if (this.canvas.width !== w || this.canvas.height !== t) {
      this.canvas.width = w;
      this.canvas.height = t;
      this.canvas.style.width = `${this.element.clientWidth}px`;
      this.canvas.style.height = `${height}px`;
    }
    const pen = this.canvas.getContext("2d");
    pen.setTransform(ratio, 0, 0, ratio, 0, 0);
    pen.clearRect(0, 0, w, t);
    pen.font = `${0.78 * rem()}px ${colour("font") || "sans-serif"}`;
    this.axis(pen);
    this.slices(pen);
    this.memory(pen);
    this.draws += 1;
    this.element.dataset.drawMs = (performance.now() - begun).toFixed(1);
  }

  axis(pen) {
    const em = rem();
    pen.fillStyle = colour("muted");
    pen.strokeStyle = colour("line");
    const span = this.to - this.from;
    const rough = span / Math.max(2, this.width / (7 * em));
    const base = 10 ** Math.floor(Math.log10(rough));
    const step = [1, 2, 5, 10].map((factor) => factor * base).find((each) => each >= rough);
    pen.textAlign = "center";
    for (let time = Math.ceil(this.from / step) * step; time <= this.to; time += step) {
      const x = this.left + ((time - this.from) / span) * this.width;
      pen.beginPath();
      pen.moveTo(x, this.top - 4);
      pen.lineTo(x, this.memoryTop + this.memoryHeight);
      pen.stroke();
      pen.fillText(tickText(time, span), x, em);
    }
    pen.textAlign = "right";
    this.places.forEach((row, place) => {
      if (row.bottom - row.y > 0.75 * em) pen.fillText(this.spans.rows[place].name, this.left - 0.5 * em, row.y + Math.min(this.tall, row.bottom - row.y) * 0.5 + 0.28 * em);
    });
  }

  slices(pen) {
    const { kind, start_s: start, end_s: end, micro_batch: number } = this.spans;
    const inks = this.spans.kinds.map((name) => colour(INKS[name] || `task-${name.replaceAll(" ", "-")}`));
    const scale = this.width / (this.to - this.from);
    let drawn = 0;
    pen.save();
    pen.beginPath();
    pen.rect(this.left, 0, this.width, this.rowsEnd);
    pen.clip();
    for (const [key, places] of this.index) {
      const [y, height] = this.places[key >> 4].lanes.get(key & 15);
      let last = -1;
      let low = 0;
      let high = places.length;
      while (low < high) {
        const middle = (low + high) >> 1;
        if (end[places[middle]] < this.from) low = middle + 1;
        else high = middle;
      }
      let ink = -1;
      for (let at = Math.max(0, low - 2); at < places.length; at += 1) {
        const place = places[at];
        if (start[place] > this.to) break;
        const x = this.left + (start[place] - this.from) * scale;
        const wide = (end[place] - start[place]) * scale;
        if (wide < 0.7 && Math.floor(x * 2) === last) continue;
        last = Math.floor(x * 2);
        if (kind[place] !== ink) { ink = kind[place]; pen.fillStyle = inks[ink]; }
        pen.fillRect(x, y, Math.max(wide - (wide > 4 ? 0.8 : 0), 0.6), height);
        drawn += 1;
        if (wide > 20 && height > 12 && number[place] >= 0) {
          pen.fillStyle = readable(inks[kind[place]]);
          pen.textAlign = "center";
          pen.fillText(String(number[place]), x + wide / 2, y + height / 2 + 4);
          ink = -1;
        }
      }
    }
    pen.restore();
    this.element.dataset.drawn = drawn;
  }

  memory(pen) {
    const em = rem();
    const { memory, limit_bytes: limit } = this.spans;
    const rows = this.spans.rows.filter((row) => !row.measured);
    const most = Math.max(limit, ...rows.map((row) => row.peak_bytes)) * 1.05;
    const y = (bytes) => this.memoryTop + this.memoryHeight * (1 - bytes / most);
    const scale = this.width / (this.to - this.from);
    pen.textAlign = "left";
    pen.fillStyle = colour("muted");
    pen.fillText("live memory of a GPU, GiB", this.left, this.memoryTop - 0.5 * em);
    pen.textAlign = "right";
    for (const share of [0, 0.5, 1]) {
      const bytes = (Math.floor((most / 2 ** 30) * share / 5) * 5) * 2 ** 30;
      pen.fillText(String(bytes / 2 ** 30), this.left - 0.5 * em, y(bytes) + 0.28 * em);
    }
    pen.save();
    pen.beginPath();
    pen.rect(this.left, this.memoryTop - 2, this.width, this.memoryHeight + 4);
    pen.clip();
    memory.forEach((curve, row) => {
      pen.strokeStyle = colour(`ramp-${Math.round((8 * rows[row].stage) / Math.max(1, Math.max(...rows.map((each) => each.stage))))}`);
      pen.lineWidth = 1.4;
      pen.beginPath();
      let level = curve.bytes[0];
      pen.moveTo(this.left, y(level));
      for (let at = 0; at < curve.time_s.length; at += 1) {
        const x = this.left + (curve.time_s[at] - this.from) * scale;
        if (x < this.left - 5 && at + 1 < curve.time_s.length) { level = curve.bytes[at]; pen.moveTo(this.left, y(level)); continue; }
        pen.lineTo(x, y(level));
        level = curve.bytes[at];
        pen.lineTo(x, y(level));
        if (x > this.left + this.width) break;
      }
      pen.lineTo(this.left + this.width, y(level));
      pen.stroke();
    });
    pen.strokeStyle = colour("alarm");
    pen.setLineDash([5, 3]);
    pen.beginPath();
    pen.moveTo(this.left, y(limit));
    pen.lineTo(this.left + this.width, y(limit));
    pen.stroke();
    pen.restore();
    pen.setLineDash([]);
  }

  wordsAt(x, y) {
    const time = this.timeAt(x);
    const row = this.places.findIndex((each) => y >= each.y && y < each.bottom);
    if (row < 0 || x < this.left) return "";
    const { kind, kinds, lanes, start_s: start, end_s: end, micro_batch: number } = this.spans;
    for (const [lane, [top, height]] of this.places[row].lanes) {
      if (y < top - 1 || y > top + height + 1) continue;
      const place = (this.index.get(row * 16 + lane) || []).find((each) => start[each] <= time && end[each] >= time);
      if (place === undefined) return `${this.spans.rows[row].name}, ${lanes[lane]}: waits at ${timeText(time)}`;
      return `${this.spans.rows[row].name}: ${kinds[kind[place]]}${number[place] >= 0 ? ` of micro-batch ${number[place]}` : ""}\n${timeText(end[place] - start[place])}, from ${timeText(start[place])}`;
    }
    return "";
  }
}
