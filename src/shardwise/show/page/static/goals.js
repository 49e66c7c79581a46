// Goals of lessons: reached in the live planner, and remembered by this browser.
const DONE = "goals";
const NOW = "goal";

function read(store, key, empty) {
  try { return JSON.parse(store.getItem(key)) || empty; } catch (error) { return empty; }
}

function write(store, key, value) {
  try { store.setItem(key, JSON.stringify(value)); } catch (error) { /* it holds until the page is closed */ }
}

export function reached() {
  return read(localStorage, DONE, []);
}

export function begin(lesson) {
  write(sessionStorage, NOW, { ...lesson.goal, lesson: lesson.name });
}

export function current() {
  return read(sessionStorage, NOW, null);
}

export function leave() {
  write(sessionStorage, NOW, null);
}

function at(answer, path) {
  return path.split(".").reduce((value, key) => (value === undefined || value === null ? undefined : value[key]), answer);
}

// Whether an answer reaches the goal: how far it is, and true once it fits and is far enough.
export function judged(goal, answer) {
  const raw = at(answer, goal.key);
  const value = Array.isArray(raw) ? Math.max(...raw) : goal.over ? raw / at(answer, goal.over) : raw;
  const good = Number.isFinite(value) && answer.fits !== false && (goal.most === undefined || value <= goal.most) && (goal.least === undefined || value >= goal.least);
  if (good) write(localStorage, DONE, [...new Set([...reached(), goal.lesson])]);
  return { value, good };
}
