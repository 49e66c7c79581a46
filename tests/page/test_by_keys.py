"""The page without a mouse: every control is reached and worked by keys, and files to launch come from every button."""

import json

import pytest

from _chromium import missing, opened
from shardwise.show.cli import main
from shardwise.show.page.views import asked_by, policy_state, state_of, table

pytestmark = [
    pytest.mark.skipif(bool(missing()), reason=f"no browser: {missing()}"),
    pytest.mark.xdist_group("page"),
]
SMALL = "model=llama-3-8b&on=8xh100"
FOCUSED = "document.activeElement.id || document.activeElement.className"


def test_the_first_key_leads_to_the_answer(page, address):
    opened(page, address, f"#/policy?{SMALL}&zero=3")
    before = page.url
    page.keyboard.press("Tab")
    assert page.evaluate(FOCUSED) == "skip"
    page.keyboard.press("Enter")
    assert page.evaluate(FOCUSED) == "results"
    assert page.url == before, "the view stays"


def test_views_and_the_timeline_are_worked_by_keys(page, address):
    opened(page, address, f"#/policy?{SMALL}&pp=4&global-batch=32")
    page.locator('#views a[data-view="timeline"]').focus()
    page.keyboard.press("Enter")
    page.wait_for_selector("canvas.gantt")
    page.locator("canvas.gantt").focus()
    shown = "(() => { const { gantt } = document.querySelector('.timeline'); return [gantt.from, gantt.to]; })()"
    whole = page.evaluate(shown)
    page.keyboard.press("+")
    near = page.evaluate(shown)
    assert near[1] - near[0] < whole[1] - whole[0]
    page.keyboard.press("ArrowRight")
    assert page.evaluate(shown)[0] > near[0]
    page.keyboard.press("0")
    assert page.evaluate(shown) == whole


def test_every_control_of_a_form_has_a_name_and_a_turn(page, address):
    opened(page, address, f"#/policy?{SMALL}")
    page.locator("#form details summary").press("Enter")
    wanted = page.locator("#form input:visible, #form select:visible, #form button:visible").count()
    reached = set()
    page.locator("#form input").first.focus()
    for _ in range(3 * wanted):
        reached.add(page.evaluate("[...document.querySelectorAll('#form *')].indexOf(document.activeElement)"))
        page.keyboard.press("Tab")
    assert len(reached - {-1}) >= wanted


@pytest.mark.slow
def test_what_to_launch_comes_from_every_button(page, address, capsys):
    link = f"#/plan?{SMALL}&fix=tp%3D8"
    opened(page, address, link)
    assert page.locator("#targets button").all_text_contents() == table()["targets"]
    state = state_of(link)[1]
    main([*asked_by("plan", state).words, "--json"])
    plan = json.loads(capsys.readouterr().out)
    chosen = policy_state(plan["recommended"]["policy"], plan["gpus"])
    for target in table()["targets"]:
        page.get_by_role("button", name=target, exact=True).press("Enter")
        page.wait_for_selector(f'#targets button[aria-pressed="true"]:text-is("{target}")')
        page.wait_for_selector(".exported pre, .exported .banner")
        code = main([*asked_by("export", state | chosen | {"to": target}).words, "--json"])
        got = capsys.readouterr()
        if code == 2:
            assert page.inner_text(".exported .banner") in got.err
            continue
        files = json.loads(got.out)["files"]
        assert page.locator(".exported summary").all_text_contents() == list(files)
        assert page.locator(".exported pre").first.text_content() == next(iter(files.values()))
