// From the beginning: short lessons with a picture that moves, and the problems of the texts as cards, answered live.
import { h } from "../dom.js";
import { digits } from "../format.js";
import { begin, reached } from "../goals.js";
import { moving, PICTURES } from "../pictures.js";

const WORDS = {
  en: { lessons: "Lessons", cards: "Problems", your: "Your answer", check: "Check", ours: "Computed now", text: "The text says", wrong: "which is wrong", rounded: "rounded", hand: "By hand", why: "Why", right: "Right", not: "Not quite", show: "Show the answer", all: "All texts", live: "Live", goals: "goals reached", next: "Next", before: "Previous", open: "Try it", goal: "Goal", reached: "Reached", planner: "To the planner", of: "of" },
  ko: { lessons: "수업", cards: "문제", your: "내 답", check: "확인", ours: "지금 계산한 값", text: "원문의 값", wrong: "원문이 틀렸습니다", rounded: "반올림", hand: "손으로", why: "이유", right: "맞았습니다", not: "조금 다릅니다", show: "답 보기", all: "모든 글", live: "실시간", goals: "개의 목표를 이룸", next: "다음", before: "이전", open: "직접 해 보기", goal: "목표", reached: "이루었습니다", planner: "계획기로", of: "/" },
};

async function lessonsOf() {
  if (window.shardwiseLessons) return window.shardwiseLessons;
  const answer = await fetch("lessons.json");
  if (!answer.ok) throw new Error(`the server said ${answer.status}; load the page again`);
  return answer.json();
}

let stored = null;

export async function drawLearn(state, context) {
  const lang = state.lang === "ko" ? "ko" : "en";
  const words = WORDS[lang];
  stored = stored || lessonsOf().catch((error) => { stored = null; throw error; });
  const [{ lessons }, { cards }] = await Promise.all([stored, context.ask("cards", {}, { quiet: true })]);
  const part = state.part === "cards" ? "cards" : "lessons";
  const tab = (name) => h("button", { type: "button", "aria-pressed": String(part === name), onclick: () => context.change({ part: name, lesson: "", card: "" }) }, `${words[name]} (${name === "cards" ? cards.length : lessons.length})`);
  const language = (code, name) => h("button", { type: "button", lang: code, "aria-pressed": String(lang === code), onclick: () => context.change({ lang: code === "en" ? "" : code }) }, name);
  const bar = h("div", { class: "learn-bar" }, h("div", { class: "buttons" }, tab("lessons"), tab("cards")), h("div", { class: "buttons" }, language("en", "English"), language("ko", "한국어")));
  return [bar, part === "cards" ? problems(cards, state, context, lang, words) : lessonPage(lessons, cards, state, context, lang, words)];
}

function lessonPage(lessons, cards, state, context, lang, words) {
  const place = Math.max(0, lessons.findIndex((lesson) => lesson.name === state.lesson));
  const lesson = lessons[place];
  const done = reached();
  const list = h("ol", { class: "lesson-list" }, lessons.map((each, at) => h("li", null, h("a", { href: context.href("learn", { lesson: each.name, part: "" }), "aria-current": at === place ? "true" : null }, each.title[lang], each.goal && done.includes(each.name) ? h("span", { class: "right", "aria-label": words.reached }, " ✓") : null))));
  const step = (to, word) => (lessons[to] ? h("button", { type: "button", onclick: () => context.change({ lesson: lessons[to].name }) }, word) : h("span"));
  const body = h("article", { class: "card lesson", lang },
    h("header", null, h("h2", null, lesson.title[lang]), h("span", { class: "muted" }, `${place + 1} ${words.of} ${lessons.length}`)),
    PICTURES[lesson.picture] ? moving(PICTURES[lesson.picture], lesson.title[lang], lang) : null,
    lesson.text[lang].trim().split(/\n\s*\n/).map((paragraph) => h("p", null, paragraph.replaceAll("\n", " "))),
    lesson.live ? live(lesson, context, lang, words) : null,
    lesson.goal ? goal(lesson, done, lang, words) : null,
    (lesson.cards || []).map((name) => cards.find((card) => card.name === name)).filter(Boolean).map((card) => problem(card, context, lang, words)),
    h("div", { class: "buttons ends" }, step(place - 1, words.before), lesson.link ? h("a", { class: "download", href: lesson.link }, words.open) : null, step(place + 1, words.next)));
  const goals = lessons.filter((each) => each.goal);
  const progress = h("p", { class: "small muted", "data-goals": goals.length }, `${goals.filter((each) => done.includes(each.name)).length} ${words.of} ${goals.length} ${words.goals}`, h("progress", { max: goals.length, value: goals.filter((each) => done.includes(each.name)).length, "aria-label": words.goals }));
  return h("div", { class: "learn" }, h("nav", { class: "card", "aria-label": words.lessons }, progress, list), body);
}

// What to reach in the planner; it is judged there, at every change.
function goal(lesson, done, lang, words) {
  const won = done.includes(lesson.name);
  return h("div", { class: `banner goal ${won ? "good" : "warn"}`, "data-goal": lesson.name }, h("span", null, h("strong", null, `${words.goal}: `), lesson.goal.text[lang], won ? ` ${words.reached}.` : ""), h("a", { class: "download", href: lesson.goal.link, onclick: () => begin(lesson) }, words.planner));
}

function at(answer, path) {
  return path.split(".").reduce((value, key) => (value === undefined || value === null ? undefined : value[key]), answer);
}

// Numbers of a lesson, computed when it is read.
function live(lesson, context, lang, words) {
  const holder = h("div", { class: "live", role: "status" }, "…");
  context.raw(lesson.live.ask).then(({ answer, command }) => {
    const values = lesson.live.values.map((value) => h("div", { class: "fact" }, h("div", { class: "name" }, value.name[lang]), h("div", { class: "value" }, digits(at(answer, value.key) * (value.scale || 1)), h("span", { class: "unit" }, unitOf(value, lang)))));
    holder.replaceChildren(h("div", { class: "facts" }, values), h("code", { class: "muted" }, command));
  }).catch((error) => { holder.textContent = error.message; });
  return holder;
}

function problems(cards, state, context, lang, words) {
  const documents = [...new Set(cards.map((card) => card.document))];
  const chosen = documents.includes(state.text) ? state.text : "";
  const filter = h("div", { class: "buttons" }, ["", ...documents].map((name) => h("button", { type: "button", "aria-pressed": String(name === chosen), onclick: () => context.change({ text: name }) }, name || words.all)));
  const shown = cards.filter((card) => !chosen || card.document === chosen).map((card) => problem(card, context, lang, words));
  return h("div", { class: "problems" }, filter, h("div", { class: "problem-grid" }, shown));
}

const UNITS_KO = { times: "배", tokens: "토큰", "M tokens": "백만 토큰", bytes: "바이트", ways: "개", billion: "십억", "% of the step": "스텝의 %", "FLOP/byte": "FLOP/바이트" };

function unitOf(card, lang) {
  return (lang === "ko" && UNITS_KO[card.unit]) || card.unit;
}

function number(value, unit) {
  return `${digits(value, 4)} ${unit || ""}`.trim();
}

// A problem: its case, a field for the reader's own answer in any unit, and why answers by hand differ from the one computed.
function problem(card, context, lang, words) {
  const korean = lang === "ko";
  const input = h("input", { type: "text", id: `answer-${card.name}`, autocomplete: "off", maxlength: 60 });
  const said = h("div", { class: "said", role: "status" });
  let asked = 0;
  const reveal = async (mine) => {
    asked += 1;
    const mark = asked;
    said.textContent = "…";
    try {
      const { cards: [now] } = await context.ask("card", { card: card.name, mine: window.shardwiseAnswers ? "" : mine }, { quiet: true });
      if (mark === asked) said.replaceChildren(...answered(now, mine, korean, words));
    } catch (error) {
      if (mark === asked) said.textContent = error.message;
    }
  };
  const check = () => { if (input.value.trim()) reveal(input.value.trim()); else input.focus(); };
  input.addEventListener("keydown", (event) => { if (event.key === "Enter") check(); });
  const given = korean ? card.case_ko : card.case;
  return h("article", { class: "card problem", "data-card": card.name },
    h("p", { class: "from" }, `${card.document}, ${card.place}`),
    h("h3", { lang }, korean ? card.question_ko : card.question),
    given ? h("p", { class: "case", lang }, given) : null,
    h("div", { class: "both-line" }, h("label", { for: input.id, class: "small muted" }, `${words.your}${card.unit ? `, ${unitOf(card, lang)}` : ""}`), input, h("button", { type: "button", class: "main", onclick: check }, words.check), h("button", { type: "button", onclick: () => reveal("") }, words.show)),
    said);
}

function answered(now, mine, korean, words) {
  const lang = korean ? "ko" : "en";
  const verdict = now.verdict && h("p", { class: "verdict" }, h("strong", { class: now.verdict.right ? "right" : "not", "data-right": String(now.verdict.right) }, now.verdict.right ? words.right : words.not), now.verdict.right ? "" : `: ${korean ? now.verdict.said_ko : now.verdict.said}`);
  const byHand = now.formulas.map((each) => h("div", { class: "by-hand" }, h("dt", null, words.hand), h("dd", { "data-formula": each.value }, `${korean ? each.text_ko : each.text} = ${number(each.value, unitOf(now, lang))}`, each.differs ? h("span", { class: "small muted" }, ` (${korean ? each.differs_ko : each.differs})`) : "")));
  const rounded = now.expected !== null && now.text_says !== now.expected && !now.text_is_wrong;
  const text = now.text_says === null ? "" : `${number(now.text_says, unitOf(now, lang))}${now.text_is_wrong ? `, ${words.wrong}` : rounded ? `, ${words.rounded}` : ""}`;
  return [verdict || "", h("dl", { class: "told" },
    h("div", null, h("dt", null, words.ours), h("dd", { class: "ours", "data-answer": now.answer }, number(now.answer, unitOf(now, lang)))),
    byHand,
    text ? h("div", null, h("dt", null, words.text), h("dd", { class: now.text_is_wrong ? "erratum" : "" }, text)) : "",
    h("div", null, h("dt", null, words.why), h("dd", null, korean ? now.why_ko : now.why))),
  h("code", { class: "muted" }, now.command)];
}
