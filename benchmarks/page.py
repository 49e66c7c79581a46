"""The page in a real browser: do its values equal the command line's, and how soon are plots there?

`--json` ends with one line. first_plot_s: from a fresh browser's request until the memory of a policy is drawn;
redraw_ms: from a slider's move until it is redrawn, the median; both of the same form in Streamlit in the same run,
where SHARDWISE_STREAMLIT names a folder of it (`pip install --target FOLDER streamlit`), else null. transferred_bytes:
of the first plot. axe_serious: what axe-core finds that is serious, in all views. cards: problems of `answers`, and
those whose answer is as expected. cards_formula_accepted: those that take every formula printed beside them and refuse
a word. lessons_in_order: no lesson uses a term before the one that explains it. goals, goals_reached: lessons
that end in a goal in the planner, and goals that are missed where they begin and reached where they say.
fabric_change_s: from a slider's move until the network of 1,024 GPUs is redrawn. dead_controls: buttons that change
nothing when they are pressed. reason_shown: the reason of the recommendation stands under it, as the command line says
it.
"""

import argparse
import json
import os
import socket
import statistics
import subprocess
import sys
import time
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from _chromium import ROOT, axe_script, browser, missing, opened, serious, served
from _lessons import lessons, too_early, wrong_goals
from shardwise.show.cli._page_worker import answered
from shardwise.show.page.views import asked_by, state_of
from shardwise.show.page.workers import Asked

CASE = "model=llama-3-70b&on=dgx-h100:64&tp=8&pp=4"
VIEWS = {
    "plan": ("#/plan", "plan", "step", ("recommended", "step_s")),
    "policy": (f"#/policy?{CASE}", "estimate", "step", ("step_s",)),
    "timeline": (f"#/timeline?{CASE}&global-batch=64", "simulate", "step", ("step_s",)),
    "fabric": (f"#/fabric?{CASE}", "fabric", "step", ("step_s",)),
    "operate": ("#/operate?tokens=1T", "operate", "goodput", ("goodput",)),
    "sync": ("#/sync?model=gpt2", "sync-cost", "communication", ("communication_s",)),
    "posttrain": ("#/posttrain?model=qwen3-32b&on=dgx-h100:64", "posttrain", "step", ("recommended", "step_s")),
}
OTHERS = {"learn": "#/learn?lesson=pipeline", "run": "#/run"}
TIMES, MOVES = 3, 10
CHANGED = """(text) => [...document.querySelectorAll("p")].some(
  (line) => line.textContent.startsWith("step ") && line.textContent !== text)"""
MOVED = """([value]) => new Promise((done) => {
  const range = document.querySelector("#field-pp"), head = () => document.querySelector(".headline").dataset.step;
  const before = head(), begun = performance.now();
  const end = () => done(performance.now() - begun);
  const look = () => requestAnimationFrame(head() !== before ? end : look);
  range.value = value;
  range.dispatchEvent(new Event("input", { bubbles: true }));
  look();
})"""


def answer(name: str, link: str) -> Any:
    words = [*asked_by(name, state_of(link)[1]).words, "--json"]
    got = answered(Asked(words, {}))
    if not got.out:
        raise SystemExit(f"{' '.join(words)}: {got.err.strip()}")
    return json.loads(got.out)


def responses(page: Any) -> list[Any]:
    """Filled while the page loads."""
    found: list[Any] = []
    page.on("response", lambda response: found.append(response))
    return found


def first_plots(chromium: Any, address: str) -> tuple[float, int, int]:
    """Seconds, bytes, and requests to other servers."""
    taken, sizes, outside = [], [], 0
    for _ in range(TIMES):
        page = chromium.new_context(viewport={"width": 1280, "height": 860}).new_page()
        seen = responses(page)
        begun = time.perf_counter()
        page.goto(address + VIEWS["policy"][0])
        page.wait_for_selector("svg.chart rect", timeout=60_000)
        taken.append(time.perf_counter() - begun)
        sizes.append(sum(len(response.body()) for response in seen))
        outside += sum(not response.url.startswith(address) for response in seen)
        page.context.close()
    return statistics.median(taken), max(sizes), outside


def redraws(page: Any, address: str) -> float:
    opened(page, address, VIEWS["policy"][0])
    page.wait_for_timeout(4000)  # the marks under the sliders are there
    return statistics.median(page.evaluate(MOVED, [place % 4]) for place in range(3, 3 + MOVES))


def fabric_change(chromium: Any, address: str) -> float:
    """Processes are warm; no answer was asked for before. The median of what each move takes."""
    page = chromium.new_page(viewport={"width": 1280, "height": 860})
    opened(page, address, "#/fabric?model=llama-3-70b&on=dgx-h100:1024&tp=8&pp=4")
    page.wait_for_timeout(6000)
    taken = []
    for place in (1, 3, 4):  # 2, 8 and 16 stages
        taken.append(page.evaluate(MOVED, [place]))
        page.wait_for_timeout(6000)
    page.close()
    return statistics.median(taken) / 1e3


def views(chromium: Any, address: str) -> dict[str, Any]:
    equal, found, script = [], [], axe_script()
    for link, asks, attribute, path in VIEWS.values():
        page = chromium.new_page(viewport={"width": 1280, "height": 860})
        opened(page, address, link)
        shown = float(page.locator(f"[data-{attribute}]").first.get_attribute(f"data-{attribute}"))
        value = answer(asks, link)
        for key in path:
            value = value[key]
        equal.append(shown == value)
        found += serious(page, script) if script else []
        page.close()
    for link in OTHERS.values():
        page = chromium.new_page(viewport={"width": 1280, "height": 860}, color_scheme="dark")
        opened(page, address, link)
        found += serious(page, script) if script else []
        page.close()
    for line in found:
        print(f"axe: {line}")
    return {
        "views": len(VIEWS) + len(OTHERS),
        "values_equal": all(equal),
        "axe_serious": len(found) if script else None,
    }


def formulas_accepted(cards: list[dict[str, Any]]) -> int:
    found = 0
    for card in cards:
        mine = [repr(each["value"]) for each in card["formulas"]] or [repr(card["answer"])]
        right = [_verdict(card["name"], value)["right"] for value in mine]
        found += all(right) and not _verdict(card["name"], "abc")["right"]
    return found


def _verdict(card: str, mine: str) -> Any:
    said = answered(Asked(["answers", card, "--mine", mine, "--json"], {}))
    return json.loads(said.out)["cards"][0]["verdict"] if said.out else {"right": False}


PRESSABLE = """() => [...document.querySelectorAll("#results button, #share, #copy-command")].filter(
  (each) => each.offsetParent && !each.disabled)"""
BUTTONS = f"() => ({PRESSABLE})().map((each) => each.textContent.trim())"
PRESSED = """([text, at]) => new Promise((done) => {
  const all = (PRESSABLE)(), same = (each) => each && each.textContent.trim() === text;
  const button = same(all[at]) ? all[at] : all.find(same);
  if (!button || button.getAttribute("aria-pressed") === "true") return done(true);
  if (!window.files) { // a file that is made is a change, too
    window.files = [0];
    const make = URL.createObjectURL;
    URL.createObjectURL = (blob) => { window.files[0] += 1; return make.call(URL, blob); };
  }
  const typed = () => [...document.querySelectorAll("input")].map((each) => each.value);
  const look = () => document.body.innerHTML + location.href + typed() + window.files[0] + document.activeElement.id;
  const before = look(), begun = performance.now();
  button.click();
  const late = () => performance.now() - begun > 4000;
  const again = () => { if (look() !== before || late()) done(look() !== before); else setTimeout(again, 50); };
  again();
})""".replace("PRESSABLE", PRESSABLE)
MOST_PRESSED = 14


def dead_controls(chromium: Any, address: str) -> list[str]:
    """Buttons of every view that change nothing, each kind of a view pressed once on a page of its own state."""
    found = []
    for link in [*(each[0] for each in VIEWS.values()), OTHERS["learn"]]:
        page = chromium.new_page(viewport={"width": 1280, "height": 860})
        opened(page, address, link)
        names = page.evaluate(BUTTONS)
        places = {name: at for at, name in reversed(list(enumerate(names)))}
        for name, at in list(places.items())[:MOST_PRESSED]:
            if not page.evaluate(PRESSED, [name, at]):
                found.append(f"{link}: {name}")
            if page.evaluate("() => location.hash") != link:
                opened(page, address, link)
        page.close()
    return found


def reason_shown(chromium: Any, address: str) -> bool:
    link = "#/plan?model=llama-3.1-405b&on=dgx-h100:16384"
    page = chromium.new_page(viewport={"width": 1280, "height": 860})
    opened(page, address, link)
    shown = page.locator("[data-reason]").first.get_attribute("data-reason")
    page.close()
    return bool(shown) and shown == answer("plan", link)["reason"]


@contextmanager
def streamlit(folder: str) -> Any:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    paths = os.pathsep.join([folder, str(ROOT / "src"), *sys.path])
    words = [
        sys.executable,
        "-m",
        "streamlit",
        "run",
        str(Path(__file__).with_name("_page_streamlit.py")),
        "--server.port",
        str(port),
    ]
    words += ["--server.headless", "true", "--server.address", "127.0.0.1", "--browser.gatherUsageStats", "false"]
    words += ["--global.developmentMode", "false"]  # it takes any place outside site-packages for its own tree
    process = subprocess.Popen(
        words, env=os.environ | {"PYTHONPATH": paths}, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
    )
    try:
        for _ in range(300):
            with socket.socket() as probe:
                if probe.connect_ex(("127.0.0.1", port)) == 0 or process.poll() is not None:
                    break
            time.sleep(0.2)
        yield f"http://127.0.0.1:{port}/", process.poll() is None
    finally:
        process.terminate()
        process.wait(20)


def beside(chromium: Any) -> tuple[float | None, float | None, str]:
    """Streamlit's first plot and redraw, or why there is none."""
    folder = os.environ.get("SHARDWISE_STREAMLIT", "")
    if not (Path(folder) / "streamlit").is_dir():
        return None, None, "SHARDWISE_STREAMLIT names no folder with streamlit in it"
    taken, moves = [], []
    with streamlit(folder) as (address, alive):
        if not alive:
            return None, None, "streamlit did not start"
        for _ in range(TIMES):
            page = chromium.new_context(viewport={"width": 1280, "height": 860}).new_page()
            begun = time.perf_counter()
            page.goto(address)
            page.wait_for_selector(
                "[data-testid=stVegaLiteChart] canvas, [data-testid=stVegaLiteChart] svg", timeout=120_000
            )
            taken.append(time.perf_counter() - begun)
            for key in ("ArrowLeft", "ArrowLeft", "ArrowRight"):
                text = page.locator("text=/^step /").first.inner_text()
                slider = page.get_by_role("slider").nth(1)
                slider.focus()
                begun = time.perf_counter()
                slider.press(key)
                page.wait_for_function(CHANGED, arg=text, timeout=60_000)
                moves.append((time.perf_counter() - begun) * 1e3)
            page.context.close()
    return statistics.median(taken), statistics.median(moves), ""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--json", action="store_true", help="end with one line of JSON")
    parser.parse_args()
    cards = json.loads(answered(Asked(["answers", "all", "--json"], {})).out)["cards"]
    told: dict[str, Any] = {"cards": len(cards), "cards_passed": sum(bool(card["agrees"]) for card in cards)}
    told["cards_formula_accepted"] = formulas_accepted(cards)
    told["lessons_in_order"] = not list(too_early())
    every = lessons()
    goals = [lesson for lesson in every if "goal" in lesson]
    wrong = list(wrong_goals(goals))
    print(*wrong, sep="\n")
    told |= {"lessons": len(every), "goals": len(goals), "goals_reached": len(goals) - len(wrong)}
    why = missing()
    if why:
        print(json.dumps(told | {"views": 0, "why": why}))
        return
    with served() as address, browser() as chromium:
        page = chromium.new_page(viewport={"width": 1280, "height": 860})
        opened(page, address, VIEWS["policy"][0])  # processes are warm, as they are for whoever comes second
        told |= {"redraw_ms": redraws(page, address)}
        page.close()
        told["first_plot_s"], told["transferred_bytes"], told["outside_requests"] = first_plots(chromium, address)
        told["fabric_change_s"] = fabric_change(chromium, address)
        told |= views(chromium, address)
        dead = dead_controls(chromium, address)
        print(*(f"dead: {line}" for line in dead), sep="\n")
        told |= {"dead_controls": len(dead), "reason_shown": reason_shown(chromium, address)}
    print(json.dumps(told), file=sys.stderr)
    with browser() as chromium:
        told["streamlit_first_plot_s"], told["streamlit_redraw_ms"], told["streamlit_why"] = beside(chromium)
    told["load"] = os.getloadavg()[0]
    print(json.dumps(told))


if __name__ == "__main__":
    main()
