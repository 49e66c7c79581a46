// Drawings in SVG: stacked bars, dots, lines and heat. Colours are the charts' own, by name, so that light and dark change them.
import { h, hovered, rem, s } from "./dom.js";
import { digits } from "./format.js";
import { saveButtons } from "./save.js";

export function responsive(draw, label) {
  const holder = h("div", { class: "plot" });
  let width = 0;
  const again = () => {
    const now = Math.floor(holder.clientWidth);
    if (!now || now === width) return;
    width = now;
    const drawn = draw(width, rem());
    drawn.setAttribute("class", "chart");
    drawn.setAttribute("role", "img");
    drawn.setAttribute("aria-label", label);
    holder.replaceChildren(drawn, buttons);
  };
  const buttons = saveButtons(() => holder.querySelector("svg"), label);
  new ResizeObserver(again).observe(holder);
  return holder;
}

export function ticks(low, high, count) {
  const rough = (high - low) / Math.max(count, 1) || 1;
  const base = 10 ** Math.floor(Math.log10(rough));
  const step = [1, 2, 5, 10].map((factor) => factor * base).find((each) => each >= rough * 0.999);
  const found = [];
  for (let value = Math.ceil(low / step - 1e-9) * step; value <= high + step * 1e-9; value += step) found.push(Number(value.toPrecision(12)));
  return found;
}

const TIME_UNITS = [86400, 3600, 60, 1];

// Round in the unit a time is told in: 10 min rather than 8.33 min.
export function timeTicks(low, high, count) {
  const unit = TIME_UNITS.find((each) => high >= 2.5 * each) || 1;
  return ticks(low / unit, high / unit, count).map((value) => value * unit);
}

const ROUND_TIMES = [[1, "1 s"], [10, "10 s"], [60, "1 min"], [600, "10 min"], [3600, "1 h"], [36000, "10 h"], [86400, "1 day"], [864000, "10 days"]];

// On a logarithmic axis of times: the places that people name.
export const LOG_TIMES = { words: (value) => (ROUND_TIMES.find(([at]) => at === value) || [0, String(value)])[1], ticks: (low, high) => ROUND_TIMES.map(([at]) => at).filter((at) => at >= low && at <= high) };

// Rows of parts: [{name, parts: [[name, value, colour, words, faint]], after}]; `limit`: {value, words}.
export function stackedBars(rows, { label, limit, unit, most, height }) {
  return responsive((width, em) => {
    const names = Math.min(Math.max(...rows.map((row) => row.name.length)) * em * 0.55 + em, width * 0.4);
    const letters = Math.floor((names - em) / (em * 0.55)) + 1;
    const right = Math.max(...rows.map((row) => (row.after || "").length)) * em * 0.46 + em * 0.8;
    const step = (height || 1.7) * em;
    const top = limit ? em * 1.5 : em * 0.2;
    const whole = most || Math.max(limit ? limit.value * 1.03 : 0, ...rows.map((row) => row.parts.reduce((sum, part) => sum + part[1], 0)));
    const scale = (value) => (value / whole) * (width - names - right);
    const bottom = top + rows.length * step;
    const chart = s("svg", { viewBox: `0 0 ${width} ${bottom + em * 1.6}`, height: bottom + em * 1.6 });
    for (const tick of ticks(0, whole, width / em / 9)) {
      chart.append(s("line", { class: "grid", x1: names + scale(tick), x2: names + scale(tick), y1: top, y2: bottom }));
      chart.append(s("text", { x: names + scale(tick), y: bottom + em * 1.1, "text-anchor": "middle" }, `${digits(tick)}${tick && unit === "%" ? "%" : ""}`));
    }
    chart.append(s("text", { x: width, y: bottom + em * 1.1, "text-anchor": "end" }, unit === "%" ? "" : unit || ""));
    rows.forEach((row, place) => {
      const y = top + place * step + step * 0.12;
      let x = names;
      chart.append(s("text", { x: names - em * 0.5, y: y + step * 0.5, "text-anchor": "end", class: "strong" }, row.name.length > letters ? `${row.name.slice(0, letters - 1)}…` : row.name));
      for (const [name, value, colour, words, faint] of row.parts) {
        if (value <= 0) continue;
        const wide = scale(value);
        const bar = s("rect", { x, y, width: Math.max(wide - (wide > 3 ? 1 : 0), 0.5), height: step * 0.76, rx: wide > 6 ? 2 : 0, fill: `var(--${colour})`, "fill-opacity": faint ? 0.35 : 1 });
        chart.append(hovered(bar, `${row.name}: ${name} ${words}`));
        x += wide;
      }
      if (row.after) chart.append(s("text", { x: x + em * 0.5, y: y + step * 0.5, class: "strong" }, row.after));
    });
    if (limit) {
      const x = names + scale(limit.value);
      chart.append(s("line", { class: "limit", x1: x, x2: x, y1: top - em * 0.2, y2: bottom }));
      chart.append(s("text", { x, y: em, "text-anchor": x > width * 0.75 ? "end" : "middle", class: "strong" }, limit.words));
    }
    return chart;
  }, label);
}

// A dot's name at that side of it where the fewest other dots lie.
function besideDot(point, all, [x, y], size, em, width) {
  const long = point.name.length * em * 0.52;
  const far = size + em * 0.55;
  const sides = [[x + far, y + em * 0.28, "start", x + far], [x - far, y + em * 0.28, "end", x - far - long], [x, y - far - em * 0.1, "middle", x - long / 2], [x, y + far + em * 0.7, "middle", x - long / 2]];
  const covered = ([, base, , left]) => (left < 3.9 * em || left + long > width || base < 2.4 * em ? 99 : all.filter(([a, b]) => a > left - em * 0.4 && a < left + long + em * 0.4 && b > base - em && b < base + em * 0.5).length);
  const [left, base, anchor] = sides.reduce((best, side) => (covered(side) < covered(best) ? side : best));
  return s("text", { x: left, y: base, "text-anchor": anchor, class: "strong" }, point.name);
}

// Dots: [{x, y, colour, size, ring, words, chosen()}]; axes {label, words(value)}; `limit` on x, `levels` on y.
export function dots(points, { label, x, y, limit, levels, tall, log }) {
  return responsive((width, em) => {
    const height = tall ? Math.min(width, tall * em) : Math.min(Math.max(width * 0.6, 15 * em), 26 * em);
    const [left, right, top, bottom] = [3.9 * em, 1.2 * em, 1.4 * em, 2.9 * em];
    const room = (values, extra) => {
      const [low, high] = [Math.min(...values, ...extra), Math.max(...values, ...extra)];
      const edge = (high - low || Math.abs(high) || 1) * 0.08;
      return [Math.max(0, low - edge), high + edge];
    };
    const at = (value) => (log ? Math.log2(value) : value);
    const [xLow, xHigh] = room(points.map((point) => at(point.x)), limit ? [limit.value] : []);
    const [yLow, yHigh] = room(points.map((point) => point.y), (levels || []).map((level) => level.value));
    const px = (value) => left + ((value - xLow) / (xHigh - xLow)) * (width - left - right);
    const py = (value) => height - bottom - ((value - yLow) / (yHigh - yLow)) * (height - top - bottom);
    const chart = s("svg", { viewBox: `0 0 ${width} ${height}`, height });
    for (const tick of ticks(xLow, xHigh, width / em / 7)) {
      chart.append(s("line", { class: "grid", x1: px(tick), x2: px(tick), y1: top, y2: height - bottom }));
      chart.append(s("text", { x: px(tick), y: height - bottom + em * 1.1, "text-anchor": "middle" }, log ? (2 ** tick).toLocaleString("en-US") : digits(tick)));
    }
    for (const tick of ticks(yLow, yHigh, height / em / 4)) {
      chart.append(s("line", { class: "grid", x1: left, x2: width - right, y1: py(tick), y2: py(tick) }));
      chart.append(s("text", { x: left - em * 0.5, y: py(tick) + em * 0.28, "text-anchor": "end" }, digits(tick)));
    }
    chart.append(s("text", { x: width - right, y: height - em * 0.5, "text-anchor": "end" }, x.label));
    chart.append(s("text", { x: 0, y: em * 0.8 }, y.label));
    if (limit) {
      chart.append(s("line", { class: "limit", x1: px(limit.value), x2: px(limit.value), y1: top, y2: height - bottom }));
      chart.append(s("text", { x: px(limit.value) - em * 0.4, y: top - em * 0.45, "text-anchor": "end", class: "strong" }, limit.words));
    }
    for (const level of levels || []) {
      chart.append(s("line", { class: "limit", x1: left, x2: width - right, y1: py(level.value), y2: py(level.value) }));
    }
    for (const point of points) {
      const size = (point.size || 0.42) * em;
      const group = s("g", { class: point.chosen ? "focus" : "" });
      if (point.ring) group.append(s("circle", { cx: px(at(point.x)), cy: py(point.y), r: size + em * 0.28, fill: "none", stroke: "var(--ink)", "stroke-width": 2 }));
      group.append(s("circle", { cx: px(at(point.x)), cy: py(point.y), r: size, fill: `var(--${point.colour})`, "fill-opacity": 0.9, stroke: "var(--surface)", "stroke-width": 1 }));
      if (point.name) group.append(besideDot(point, points.map((each) => [px(at(each.x)), py(each.y)]), [px(at(point.x)), py(point.y)], size, em, width));
      hovered(group, point.words);
      if (point.chosen) group.addEventListener("click", point.chosen);
      chart.append(group);
    }
    for (const level of levels || []) if (level.words) chart.append(s("text", { x: width - right, y: py(level.value) - em * 0.3, "text-anchor": "end", class: "strong" }, level.words));
    return chart;
  }, label);
}

// Lines: [{name, colour, values: [[x, y]], dashed, area}].
export function lines(series, { label, x, y, log, logY, marks, levels, most, low, height: tall }) {
  return responsive((width, em) => {
    const height = (tall || 16) * em;
    const [left, right, top, bottom] = [3.6 * em, 1 * em, 1.5 * em, 2.7 * em];
    const at = (value) => (log ? Math.log10(value) : value);
    const xs = series.flatMap((line) => line.values.map((point) => at(point[0])));
    const up = (value) => (logY ? Math.log10(Math.max(value, 1e-300)) : value);
    const ys = [...series.flatMap((line) => line.values.map((point) => up(point[1]))), ...(levels || []).map((level) => up(level.value))];
    const [xLow, xHigh] = [Math.min(...xs), Math.max(...xs)];
    const [yLow, yHigh] = logY ? [Math.floor(Math.min(...ys)), Math.ceil(Math.max(...ys))] : [low === undefined ? Math.min(0, ...ys) : low, most || Math.max(...ys) * 1.05 || 1];
    const px = (value) => left + ((at(value) - xLow) / (xHigh - xLow || 1)) * (width - left - right);
    const py = (value) => height - bottom - ((value - yLow) / (yHigh - yLow || 1)) * (height - top - bottom);
    const chart = s("svg", { viewBox: `0 0 ${width} ${height}`, height });
    const along = log && x.ticks ? x.ticks(10 ** xLow, 10 ** xHigh) : log ? [...Array(Math.floor(xHigh) - Math.ceil(xLow) + 1)].map((_, place) => 10 ** (Math.ceil(xLow) + place)) : (x.ticks || ticks)(xLow, xHigh, width / em / 7);
    for (const tick of along) {
      chart.append(s("line", { class: "grid", x1: px(tick), x2: px(tick), y1: top, y2: height - bottom }));
      chart.append(s("text", { x: px(tick), y: height - bottom + em * 1.1, "text-anchor": "middle" }, x.words ? x.words(tick) : digits(tick)));
    }
    for (const tick of logY ? ticks(yLow, yHigh, height / em / 3.5).filter(Number.isInteger) : ticks(yLow, yHigh, height / em / 3.5)) {
      const value = logY ? 10 ** tick : tick;
      chart.append(s("line", { class: "grid", x1: left, x2: width - right, y1: py(tick), y2: py(tick) }));
      chart.append(s("text", { x: left - em * 0.5, y: py(tick) + em * 0.28, "text-anchor": "end" }, y.words ? y.words(value) : value && value < 1e-3 ? value.toExponential(0) : digits(value)));
    }
    chart.append(s("text", { x: width - right, y: height - em * 0.4, "text-anchor": "end" }, x.label));
    chart.append(s("text", { x: 0, y: em * 0.8 }, y.label));
    for (const line of series) {
      const path = line.values.map(([a, b], place) => `${place ? "L" : "M"}${px(a).toFixed(1)} ${py(Math.min(up(b), yHigh)).toFixed(1)}`).join("");
      if (line.area) chart.append(s("path", { d: `${path}L${px(line.values.at(-1)[0])} ${py(yLow)}L${px(line.values[0][0])} ${py(yLow)}Z`, fill: `var(--${line.colour})`, "fill-opacity": 0.15 }));
      chart.append(hovered(s("path", { d: path, fill: "none", stroke: `var(--${line.colour})`, "stroke-width": 2.2, "stroke-dasharray": line.dashed ? "6 4" : "", "stroke-linejoin": "round" }), line.name));
    }
    for (const level of levels || []) {
      chart.append(s("line", { class: "limit", x1: left, x2: width - right, y1: py(up(level.value)), y2: py(up(level.value)) }));
      chart.append(s("text", { x: width - right, y: py(up(level.value)) - em * 0.3, "text-anchor": "end", class: "strong" }, level.words));
    }
    for (const mark of marks || []) {
      chart.append(s("line", { class: "limit", x1: px(mark.x), x2: px(mark.x), y1: top, y2: height - bottom }));
      chart.append(s("text", { x: px(mark.x) + (px(mark.x) > width * 0.7 ? -6 : 6), y: height - bottom - em * 0.5, "text-anchor": px(mark.x) > width * 0.7 ? "end" : "start", class: "strong" }, mark.words));
    }
    return chart;
  }, label);
}

// A matrix of loads; colour by share of the largest.
export function heat(matrix, { label, names, words }) {
  return responsive((width, em) => {
    const count = matrix.length;
    const left = 4.2 * em;
    const size = Math.min((width - left) / count, 2.6 * em);
    const most = Math.max(...matrix.flat(), 1e-300);
    const chart = s("svg", { viewBox: `0 0 ${width} ${size * count + em * 1.6}`, height: size * count + em * 1.6 });
    matrix.forEach((row, y) => {
      if (size > em * 0.8 || y % Math.ceil(em / size) === 0) chart.append(s("text", { x: left - em * 0.4, y: em * 1.3 + (y + 0.5) * size + em * 0.25, "text-anchor": "end" }, names[y]));
      row.forEach((value, x) => {
        const step = value > 0 ? Math.min(8, Math.max(0, Math.round((Math.log10(value / most) + 4) * 2))) : -1;
        const cell = s("rect", { x: left + x * size, y: em * 1.3 + y * size, width: size - 1, height: size - 1, rx: 1.5, fill: step < 0 ? "var(--raised)" : `var(--heat-${step})` });
        chart.append(hovered(cell, `${names[y]} to ${names[x]}: ${words(value)}`));
      });
    });
    chart.append(s("text", { x: left, y: em * 0.8 }, "each row sends to the columns"));
    return chart;
  }, label);
}
