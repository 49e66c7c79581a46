"""The page in real Chromium: every view draws what the command line answers, on every width, and asks nobody else."""

import json
import re
from pathlib import Path

import pytest

from _chromium import axe_script, missing, opened, serious
from shardwise.fields import offered
from shardwise.show.cli import main
from shardwise.show.page.views import asked_by, state_of, table

pytestmark = [
    pytest.mark.skipif(bool(missing()), reason=f"no browser: {missing()}"),
    pytest.mark.xdist_group("page"),  # they share a server and a browser
]
SMALL = "model=llama-3-8b&on=8xh100"
VIEWS = {
    "plan": (f"#/plan?{SMALL}&fix=tp%3D8", "plan", "step", lambda answer: answer["recommended"]["step_s"]),
    "policy": (f"#/policy?{SMALL}&zero=3", "estimate", "step", lambda answer: answer["step_s"]),
    "timeline": (f"#/timeline?{SMALL}&pp=4&global-batch=32", "simulate", "step", lambda answer: answer["step_s"]),
    "fabric": ("#/fabric?model=gpt2&on=8xh100&tp=1", "fabric", "step", lambda answer: answer["step_s"]),
    "operate": (f"#/operate?{SMALL}&tokens=1B", "operate", "goodput", lambda answer: answer["goodput"]),
    "sync": (
        "#/sync?model=gpt2&strategy=dsgd&workers=8&steps=50", "sync-cost", "communication",
        lambda answer: answer["communication_s"],
    ),
    "posttrain": (
        "#/posttrain?model=qwen3-0.6b&on=8xh100&prompts=16&group=8&lag=1", "posttrain", "step",
        lambda answer: answer["recommended"]["step_s"],
    ),
}  # fmt: skip
"""link, what it asks, the attribute that holds its number, where that stands in the answer"""


def answer(capsys, question):
    main([*question.words, "--json"])
    return json.loads(capsys.readouterr().out)


@pytest.mark.parametrize("view", VIEWS)
def test_a_view_shows_what_the_command_line_answers(view, page, address, capsys):
    link, asks, attribute, value = VIEWS[view]
    opened(page, address, link)
    shown = page.locator(f"[data-{attribute}]").first
    question = asked_by(asks, state_of(link)[1])
    assert float(shown.get_attribute(f"data-{attribute}")) == value(answer(capsys, question))
    assert page.inner_text("#command") == question.command
    script = axe_script()
    if script is not None:
        assert serious(page, script) == []
    page.set_viewport_size({"width": 360, "height": 780})
    assert page.evaluate("document.documentElement.scrollWidth") <= 360


def test_lessons_and_problems_are_answered_live(page, address, capsys):
    opened(page, address, "#/learn?lesson=pipeline")
    page.wait_for_selector(".live .value")
    card = page.locator('[data-card="pipeline-bubble"]')
    card.get_by_role("button", name="Show the answer").click()
    card.locator("[data-answer]").wait_for()
    found = answer(capsys, asked_by("card", {"card": "pipeline-bubble"}))["cards"][0]
    assert float(card.locator("[data-answer]").get_attribute("data-answer")) == found["answer"]
    page.get_by_role("button", name="한국어").click()
    page.wait_for_selector('.lesson[lang="ko"]')
    page.get_by_role("button", name="문제").click()
    page.wait_for_selector(".problem-grid")
    assert page.locator(".problem").count() == len(answer(capsys, asked_by("cards", {}))["cards"])


def test_a_slider_changes_the_answer_and_the_link_shows_it_again(page, address, chromium):
    opened(page, address, f"#/policy?{SMALL}&zero=3")
    before = page.locator(".headline").get_attribute("data-step")
    page.locator("#field-tp").focus()
    page.keyboard.press("ArrowRight")
    page.wait_for_selector(f'.headline:not([data-step="{before}"])')
    assert "tp=2" in page.url
    again = chromium.new_page()
    opened(again, page.url, "")
    assert again.locator(".headline").get_attribute("data-step") == page.locator(".headline").get_attribute("data-step")
    again.close()


def test_what_is_wrong_stands_beside_its_field(page, address):
    opened(page, address, f"#/policy?{SMALL}&tp=0")
    assert page.locator("#field-tp").get_attribute("aria-invalid") == "true"
    assert "out of range" in page.inner_text("#field-tp-wrong")
    opened(page, address, f"#/policy?{SMALL}&tp=3&x=1")
    page.wait_for_selector("#verdict.bad")
    page.get_by_role("button", name="Take the nearest that can").click()
    page.wait_for_selector("#verdict.good, .headline")


def test_a_dropped_configuration_travels_in_the_link(page, address):
    opened(page, address, f"#/policy?{SMALL}")
    page.set_input_files(
        "#form input[type=file]", str(Path(__file__).resolve().parents[2] / "docs" / "tiny-llama.json")
    )
    page.wait_for_selector("text=tiny-llama on 8xh100")
    assert "config=" in page.url


FRAMES = """() => new Promise((done) => {
  const { gantt } = document.querySelector(".timeline");
  const before = gantt.draws;
  const times = [];
  let frame = 0;
  const next = () => {
    if (frame >= 12) { done({ draws: gantt.draws - before, frames: frame, times }); return; }
    for (let event = 0; event < 5; event += 1) gantt.move(gantt.whole * 1e-4);
    frame += 1;
    requestAnimationFrame(() => { times.push(Number(gantt.element.dataset.drawMs)); next(); });
  };
  gantt.show(gantt.whole * 0.2, gantt.whole * 0.6);
  requestAnimationFrame(next);
})"""


def test_thirty_thousand_slices_do_not_lag(page, address):
    """Movements between two frames are drawn once; what is narrower than half a pixel is not drawn again and again, so
    that a whole step takes no longer than its pixels, and a part of it less than the whole."""
    opened(page, address, f"#/timeline?{SMALL}&pp=8&global-batch=1024&schedule=zero_bubble_h1")
    count = page.evaluate("document.querySelector('.timeline').gantt.spans.rank.length")
    assert count > 30_000
    found = page.evaluate(FRAMES)
    assert found["draws"] <= found["frames"] + 2, "five movements a frame, one drawing"
    assert all(time > 0 for time in found["times"])
    holder = page.locator(".gantt-holder")
    page.evaluate("document.querySelector('.timeline').gantt.show(0, 1e9)")
    page.wait_for_timeout(100)
    whole = int(holder.get_attribute("data-drawn"))
    lanes = page.evaluate("document.querySelector('.timeline').gantt.index.size")
    assert 1000 < whole <= lanes * 2 * 1280
    page.evaluate("(({ gantt }) => gantt.show(0, gantt.whole / 100))(document.querySelector('.timeline'))")
    page.wait_for_timeout(100)
    assert int(holder.get_attribute("data-drawn")) < whole / 4


def test_a_dropped_trace_lies_over_the_prediction(page, address, tmp_path, capsys):
    trace = tmp_path / "mine.json"
    words = ["simulate", "llama-3-8b", "--on", "8xh100", "--pp", "4", "--global-batch", "32"]
    assert main([*words, "--trace", str(trace)]) == 0
    capsys.readouterr()
    opened(page, address, f"#/timeline?{SMALL}&pp=4&global-batch=32")
    before = page.evaluate("document.querySelector('.timeline').gantt.spans.rank.length")
    page.set_input_files(".timeline input[type=file]", str(trace))
    page.wait_for_selector(".timeline[data-measured]")
    added = int(page.locator(".timeline").get_attribute("data-measured"))
    assert page.evaluate("document.querySelector('.timeline').gantt.spans.rank.length") == before + added
    ratio = page.locator(".measured .fact", has_text="Measured over predicted").locator(".value").inner_text()
    assert float(ratio) == pytest.approx(1, abs=0.01), "the trace is the prediction's own"
    page.set_input_files(
        ".timeline input[type=file]", files=[{"name": "x.json", "mimeType": "text/plain", "buffer": b"[1]"}]
    )
    page.wait_for_selector(".measured .banner.bad")


LAUNCH = b"torchrun --nproc_per_node 8 pretrain_gpt.py --tensor-model-parallel-size 8 --seq-length 4096 --bf16\n"


def test_a_dropped_launch_file_is_looked_at_beside_the_plan(page, address, capsys):
    opened(page, address, f"#/plan?{SMALL}&fix=tp%3D8")
    page.set_input_files(
        "#form input[type=file]", files=[{"name": "mine.sh", "mimeType": "text/plain", "buffer": LAUNCH}]
    )
    page.wait_for_selector(".launch[data-launch-step]")
    question = asked_by("launch-of", state_of(page.url)[1])
    with offered({"mine.sh": LAUNCH}):
        found = answer(capsys, question)
    assert float(page.locator(".launch").get_attribute("data-launch-step")) == found["step_s"]
    page.get_by_role("button", name="Open its policy").click()
    page.wait_for_selector(".headline[data-peak]")
    assert "tp=8" in page.url
    assert "seq=4096" in page.url


@pytest.mark.slow
def test_measured_runs_are_points_beside_their_predictions(page, address, capsys):
    link = f"#/policy?{SMALL}&zero=3"
    opened(page, address, link)
    page.wait_for_selector(".evidence[data-runs] circle")
    found = answer(capsys, asked_by("evidence", state_of(link)[1]))["evidence"]
    runs = [run for run in found if run["measured_over_predicted"]]
    assert page.locator(".evidence circle").count() == len(runs) > 5


ENGLISH = re.compile(r"\b(?!gather|reduce|scatter)[a-z]{4,}\b")


@pytest.mark.slow
def test_every_lesson_draws_its_picture(page, address):
    opened(page, address, "#/learn?lang=ko")
    names = page.evaluate(
        "() => fetch('lessons.json').then((got) => got.json()).then((all) => all.lessons.map((each) => each.name))"
    )
    assert len(names) >= 40
    for name in names:
        page.evaluate("(name) => shardwisePage.change({ lesson: name })", name)
        page.wait_for_function("(name) => document.querySelector('#results').dataset.drawn.includes(name)", arg=name)
        for moment in (0, 370, 990):
            page.locator(".pull input").evaluate(
                "(pull, moment) => { pull.value = moment; pull.dispatchEvent(new Event('input')); }", moment
            )
            assert page.locator(".stage svg *").count() > 2, (name, moment)
            assert "NaN" not in page.locator(".stage").inner_html(), (name, moment)
            words = page.locator(".stage svg text").all_text_contents()
            assert [text for text in words if ENGLISH.search(text)] == [], (name, "its picture is in Korean too")


def test_browser_and_server_ask_the_same(page, address):
    """The browser's `questionOf` against `asked_by`, over states of every view."""
    opened(page, address, "#/learn")
    states = [
        {"model": "gpt2", "on": "8xh100", "tp": "2", "micro": "1", "no-sp": "1", "zero": "0"},
        {},
        {"schedule": "gpipe"},
    ]
    for name in table()["asks"]:
        for state in states:
            made = page.evaluate(
                "([name, state]) => shardwisePage.question(name, state)",
                [name, state],
            )
            if "" in made["first"]:
                continue
            question = asked_by(name, state)
            assert (made["verb"], tuple(made["first"])) == (question.verb, question.first)
            assert list(made["options"].items()) == list(question.options)


def test_files_need_no_server(chromium, tmp_path, capsys):
    link = f"#/policy?{SMALL}&zero=3"
    assert (
        main(
            [
                "serve",
                "--export",
                str(tmp_path / "page"),
                "--case",
                link,
                "--case",
                "#/timeline?model=gpt2&on=8xh100&pp=2",
            ]
        )
        == 0
    )
    capsys.readouterr()
    page = chromium.new_page()
    failed = []
    page.on("requestfailed", lambda request: failed.append(request.url))
    page.on("pageerror", lambda error: failed.append(str(error)))
    page.goto((tmp_path / "page" / "index.html").as_uri())
    page.wait_for_selector(".headline")
    shown = float(page.locator(".headline").get_attribute("data-step"))
    assert shown == answer(capsys, asked_by("estimate", state_of(link)[1]))["step_s"]
    page.locator('#views a[data-view="timeline"]').click()
    page.wait_for_selector("canvas.gantt")
    assert failed == []
    page.close()


def test_famous_runs_stand_beside_their_reports_and_open_as_policies(page, address):
    opened(page, address, "#/famous")
    page.wait_for_selector("[data-layout]", timeout=120_000)
    assert page.locator("[data-layout]").count() == int(page.locator("[data-runs]").get_attribute("data-runs")) >= 30
    page.locator('[data-layout="megatron-2021/18.4b"] button').click()
    page.wait_for_selector("#results .headline[data-step]")
    assert (
        state_of(page.evaluate("location.hash"))[1] | {"tp": "8", "model": "megatron-18.4b"}
        == state_of(page.evaluate("location.hash"))[1]
    )


def test_gpus_are_coloured_by_what_they_hold(page, address):
    opened(page, address, "#/policy?model=llama-3-8b&on=dgx-h100:16&tp=4&pp=2")
    squares = page.locator(".gpu-map rect")
    assert squares.count() == 16
    assert "stage 1, replica 0" in squares.nth(8).text_content().replace("slice 0, ", "")
    by_stage = squares.nth(1).get_attribute("fill")
    page.get_by_role("button", name="tp", exact=True).click()
    assert page.locator(".gpu-map rect").nth(1).get_attribute("fill") != by_stage
    assert "rank 1, node 0" in squares.nth(1).text_content()
    page.locator("#deal").click()
    assert "rank 2, node 0" in squares.nth(1).text_content()


def test_a_view_without_a_policy_takes_the_recommended_one(page, address):
    """And hands it on to whole runs, but not back to the plan."""
    opened(page, address, "#/policy?model=gpt2&on=8xh100")
    page.wait_for_selector(".headline")
    assert "tp=" in page.url
    assert page.locator("#verdict.good").count() == 1
    page.click("#views a[data-view=operate]")
    page.wait_for_function("() => document.title.startsWith('Operate')")
    assert "fix=" in page.url
    page.click("#views a[data-view=plan]")
    page.wait_for_function("() => document.title.startsWith('Plan')")
    assert "fix=" not in page.url


def test_a_goal_is_judged_in_the_planner_and_remembered(page, address):
    opened(page, address, "#/learn?lesson=digits")
    page.click(".goal a")
    page.wait_for_selector("#goal[data-good=false]")
    page.click("#goal a:has-text('Show a way')")
    page.wait_for_selector("#goal[data-good=true]")
    page.click("#goal a:has-text('Back to the lesson')")
    page.wait_for_selector("[data-goal=digits].good")


def test_two_plans_stand_side_by_side(page, address):
    opened(page, address, "#/policy?model=llama-3-8b&on=8xh100&zero=3")
    page.locator("#keep").click()
    page.get_by_text("Change anything").wait_for()
    page.evaluate("location.hash = '#/policy?model=llama-3-8b&on=8xh100&tp=8'")
    page.wait_for_selector("[data-beside]")
    assert float(page.locator("[data-beside]").get_attribute("data-beside")) > 1
    assert "kept: dp8 z3 mb1" in page.locator("[data-beside] th").nth(1).text_content()


def test_more_gpus_take_less_time_for_the_same_rent(page, address):
    opened(page, address, "#/plan?model=llama-3-8b&on=8xh100&tokens=1T")
    facts = page.locator("[data-usd]")
    first, before = facts.text_content(), float(facts.get_attribute("data-usd"))
    page.locator("#budget-gpus").fill("1")
    assert facts.text_content() != first
    assert float(facts.get_attribute("data-usd")) == pytest.approx(before)
    page.locator("#budget-rent").fill("5")
    assert float(facts.get_attribute("data-usd")) == pytest.approx(2 * before)


def test_a_phone_shows_the_answer_first(page, address):
    page.set_viewport_size({"width": 390, "height": 800})
    opened(page, address, "#/policy?model=llama-3-8b&on=8xh100&zero=3")
    answer_top, form_top = (page.locator(name).bounding_box()["y"] for name in ("#results", "#form"))
    assert answer_top < form_top
    page.locator("#to-form").click()
    assert page.evaluate("document.activeElement.closest('#form') !== null")
