// What pictures are drawn from: a canvas, words, boxes, and a movement that begins and ends gently.
import { s } from "../dom.js";

export const canvas = (width, height) => s("svg", { viewBox: `0 0 ${width} ${height}`, height });
export const words = (x, y, text, more) => s("text", { x, y, "text-anchor": "middle", ...more }, text);
export const box = (x, y, width, height, colour, more) => s("rect", { x, y, width: Math.max(0, width), height: Math.max(0, height), rx: 3, fill: `var(--${colour})`, ...more });
export const ease = (value) => { const t = Math.min(1, Math.max(0, value)); return t * t * (3 - 2 * t); };
