"""What the page may ask, from the table its forms are made of: fields are options, nothing writes, no path passes."""

import json
import re
import tomllib
from pathlib import Path

import msgspec
import pytest

from _lessons import lessons, mixed_terms, too_early, wrong_goals
from shardwise import catalog
from shardwise.plugins.optimizers import optimizer_names
from shardwise.plugins.pipeline import schedule_names
from shardwise.programs.formats import formats
from shardwise.report.charts.ink import at_night
from shardwise.show.cli import main
from shardwise.show.cli._frame import app
from shardwise.show.cli._verbs import WORDS
from shardwise.show.page.bundle import bundled
from shardwise.show.page.files import LESSONS, lessons_json
from shardwise.show.page.questions import STATIC, Refused, SentForm, allowed, checked, groups, question_of, refusal_of
from shardwise.show.page.theme import theme_css
from shardwise.show.page.views import asked_by, opening_questions, policy_state, state_of, table
from shardwise.spec.job import PRECISIONS
from shardwise.spec.parameters import flag_of, parameters
from shardwise.spec.policy import OFFLOAD, RECOMPUTE

FIELDS = table()["fields"]


def arguments_of(verb):
    commands = [app[verb], *(app[verb][word] for word in WORDS.get(verb, {}))]
    return [each for made in commands if made.default_command for each in made.assemble_argument_collection()]


def options_of(verb):
    return {name.lstrip("-") for argument in arguments_of(verb) for name in argument.names}


@pytest.mark.parametrize("verb", allowed())
def test_every_option_is_one_of_the_verb_and_none_writes(verb):
    collected = {name.lstrip("-"): each for each in arguments_of(verb) for name in each.names}
    negatives = {name.lstrip("-") for each in collected.values() for name in each.negatives}
    assert allowed()[verb] <= set(collected) | negatives
    for name in allowed()[verb] & set(collected):
        told = (collected[name].parameter.help or "").lower()
        assert not told.startswith(("write ", "draw ")), name
        assert collected[name].hint is not Path, name
        assert name not in ("profile", "json", "overwrite"), name
        assert name != "lengths" or verb == "posttrain"  # names and numbers only


def test_every_view_asks_what_may_be_asked():
    for view in table()["views"].values():
        assert set(view["asks"]) <= set(table()["asks"])
        assert set(view["fields"]) <= set(FIELDS)
        assert set(view["more"]) <= set(view["fields"])
    for ask in table()["asks"].values():
        assert {*(entry.partition("=")[0] for entry in ask["state"]), *ask["with"]} <= allowed()[ask["verb"]]


def test_what_may_be_chosen_is_what_there_is():
    assert FIELDS["optimizer"]["choices"] == list(optimizer_names())
    assert set(FIELDS["precision"]["choices"]) <= {"", *PRECISIONS}
    assert set(FIELDS["schedule"]["choices"]) <= {"", *schedule_names()}
    assert FIELDS["recompute"]["choices"] == list(RECOMPUTE)
    assert FIELDS["offload"]["choices"] == list(OFFLOAD)
    assert table()["targets"] == sorted(formats())


def test_fields_of_a_question_take_what_the_table_of_parameters_allows():
    rows = {flag_of(name): row for name, row in parameters().items()}
    shared = [name for name in FIELDS if name in rows]
    assert len(shared) > 20
    for name in shared:
        field, row = FIELDS[name], rows[name]
        values = [value for value in field.get("choices", field.get("values", [])) if value]
        for value in values:
            row.check(name, int(value) if value.isdigit() else value)
        if field["kind"] == "choice" and row.words and not row.open:
            assert values == [word for word in row.words if word], name
    assert set(groups()["@policy"]) >= {"tp", "no-sp", "no-overlap-grad"}


def test_a_state_becomes_a_command_line():
    view, state = state_of("http://127.0.0.1:8470/#/policy?model=llama-3-8b&on=8xh100&zero=3&micro=1&no-sp=1")
    assert view == "policy"
    assert asked_by("estimate", state).command == (
        "shardwise estimate llama-3-8b --on 8xh100 --tp 1 --pp 1 --zero 3 --no-sp"
    )
    assert opening_questions()[0].command == "shardwise plan llama-3-70b --on dgx-h100:1024 --top 24 --why"


@pytest.mark.parametrize("link", ["", "#/nowhere?tp=8", "plans"])
def test_a_link_to_nowhere_is_refused(link):
    with pytest.raises(Refused, match="names no view"):
        state_of(link)


@pytest.mark.parametrize(
    "word",
    [
        "/etc/passwd",
        "../x.json",
        "~/x",
        "a/../../x",
        "a/b/c",
        "config.json",
        "x.yaml",
        "-x",
        "--json",
        "C:\\x",
        "",
        "a\x00b",
    ],
)
@pytest.mark.parametrize("field", ["model", "on"])
def test_no_word_leads_to_a_file_or_an_option(word, field):
    sent = SentForm(
        verb="plan", first=[word] if field == "model" else ["gpt2"], options={"on": word if field == "on" else "8xh100"}
    )
    with pytest.raises(Refused) as refused:
        checked(sent)
    assert refused.value.field == field


@pytest.mark.parametrize(
    "word", ["llama-3-70b", "Qwen/Qwen2.5-72B", "dgx-h100:1024", "2x8xa100@100Gbps/node", "-1", "tp<=4"]
)
def test_plain_words_pass(word):
    assert word in checked(SentForm(verb="plan", first=["gpt2"], options={"on": "8xh100", "fix": (word,)})).words


def test_only_the_run_of_the_server_is_watched():
    with pytest.raises(Refused, match="where the server starts"):
        checked(SentForm(verb="watch", first=["records"], options={"once": True}))
    assert asked_by("watch", {}).words == ("watch", "@run", "--once")


NO_QUESTIONS = [
    b"", b"[]", b"{}", b'{"verb": 3}', b'{"verb": "run"}', b"\xff", b"[" * 5000,
    b'{"verb": "plan", "options": {"profile": "x"}}', b'{"verb": "plan", "more": 1}',
]  # fmt: skip


@pytest.mark.parametrize("raw", NO_QUESTIONS)
def test_what_is_no_question_is_refused(raw):
    with pytest.raises(Refused) as refused:
        question_of(raw)
    assert set(refused.value.data) == {"field", "value", "message"}


@pytest.mark.parametrize(
    ("options", "first", "field", "value"),
    [
        ({"on": "8xh100", "tp": "0"}, "gpt2", "tp", "0"),
        ({"on": "8xh100", "tp": "x"}, "gpt2", "tp", "x"),
        ({"on": "8xnothing"}, "gpt2", "on", "8xnothing"),
        ({"on": "8xh100"}, "llama-9", "model", "llama-9"),
        ({"on": "8xh100", "seq": "long"}, "gpt2", "seq", "long"),
        ({"on": "8xh100", "global-batch": "-3"}, "gpt2", "global-batch", "-3"),
        ({"on": "8xh100", "recompute": "some"}, "gpt2", "recompute", "some"),
        ({"on": "8xh100", "stack": "mine"}, "gpt2", "stack", "mine"),
    ],
)
def test_what_a_verb_refuses_stands_beside_its_field(options, first, field, value, capsys):
    question = checked(SentForm(verb="estimate", first=[first], options=options))
    assert main([*question.words, "--json"]) == 2
    refused = refusal_of(capsys.readouterr().err, question)
    assert (refused.field, refused.value) == (field, value)
    assert not refused.message.startswith("error")


LESSON_NAMES = sorted(path.stem for path in LESSONS.glob("*.toml"))


@pytest.mark.parametrize("name", LESSON_NAMES)
def test_a_lesson_is_whole(name):
    lesson = tomllib.loads((LESSONS / f"{name}.toml").read_text(encoding="utf-8"))
    pictures = re.search(r"export const PICTURES = \{ (.+) \};", (STATIC / "pictures.js").read_text())[1].split(", ")
    assert lesson["picture"] in pictures
    assert set(lesson["cards"]) <= set(catalog.names("answers"))
    for text in (lesson["title"], lesson["text"]):
        assert re.search("[가-힣]", text["ko"])
        assert not re.search("[가-힣]", text["en"])
    assert len(lesson["text"]["en"].split()) < 140
    if "link" in lesson:
        state_of(lesson["link"])


def test_numbers_of_lessons_are_in_the_answers(capsys):
    for lesson in msgspec.json.decode(lessons_json())["lessons"]:
        if "live" not in lesson or lesson["live"]["ask"]["verb"] in ("plan", "operate"):  # other tests hold those
            continue
        assert main([*checked(msgspec.convert(lesson["live"]["ask"], SentForm)).words, "--json"]) in (0, 1)
        answer = json.loads(capsys.readouterr().out)
        for value in lesson["live"]["values"]:
            found = answer
            for key in value["key"].split("."):
                found = found[int(key)] if isinstance(found, list) else found[key]
            assert float(found) > 0, lesson["name"]


def test_modules_become_one_script():
    script = bundled(STATIC, "main.js")
    assert not re.search(r"^(import|export)\b", script, re.MULTILINE)
    modules = re.findall(r'^modules\["(.+)"\] =', script, re.MULTILINE)
    assert set(modules) == {str(path.relative_to(STATIC)) for path in STATIC.rglob("*.js")} - {"early.js"}
    for place, path in enumerate(modules):
        for needed in re.findall(r'from "(.+)";', (STATIC / path).read_text()):
            assert any(needed.endswith(Path(done).name) for done in modules[:place]), (path, needed)


def test_modules_that_need_each_other_are_refused(tmp_path):
    for one, other in ("ab", "ba"):
        (tmp_path / f"{one}.js").write_text(f'import {{ {other} }} from "./{other}.js";\nexport const {one} = 1;\n')
    with pytest.raises(ValueError, match="imports itself"):
        bundled(tmp_path, "a.js")


def test_nothing_is_asked_of_other_servers_and_nothing_stands_inline():
    for path in STATIC.rglob("*"):
        if path.suffix in (".js", ".css", ".html"):
            text = path.read_text(encoding="utf-8").replace("http://www.w3.org/2000/svg", "")
            assert "//" not in re.sub(r"^\s*//.*$|(?<=[;{}]) // .*$", "", text, flags=re.MULTILINE), path.name
            assert not re.search(r"innerHTML|insertAdjacentHTML|document\.write|\beval\(|new Function", text), path.name
    index = (STATIC / "index.html").read_text()
    assert not re.search(r"\son\w+=|\sstyle=|<style|<script>", index)


def test_colours_are_lighter_at_night():
    def light(colour):
        return sum(int(colour[place : place + 2], 16) for place in (1, 3, 5))

    for colour in ("#4477aa", "#222222", "#cc79a7"):
        assert light(at_night(colour)) > light(colour)
    assert at_night("#222222") == "#c9ced6"
    named = set(re.findall(r"--([\w-]+):", theme_css()))
    for path in [*STATIC.rglob("*.js"), *STATIC.glob("*.css")]:
        for name in re.findall(r'["`(-]((?:series|task|memory|heat|ramp)-[\w-]+)', path.read_text()):
            assert name in named or name.endswith("-"), (path.name, name)


def test_a_policy_of_a_plan_is_the_same_when_it_is_opened(capsys):
    """With the order of its ranks, its loss and what it offloads: these are no degrees, and were once left behind."""

    def answer(name, state):
        main([*asked_by(name, state).words, "--json"])
        return json.loads(capsys.readouterr().out)

    case = {"model": "llama-3-8b", "on": "dgx-h100:104", "global_batch": "512"}
    plan = answer("plan", case)
    found = {each["policy"]["order"]: each for each in plan["best"]}
    assert len(found) > 1
    for each in found.values():
        assert answer("estimate", case | policy_state(each["policy"], plan["gpus"]))["step_s"] == each["step_s"]


def test_no_lesson_uses_a_term_before_it_is_explained():
    assert list(too_early()) == []


def test_korean_has_one_word_for_a_term():
    assert list(mixed_terms()) == []


def test_every_lesson_ends_in_a_goal():
    """Each goal begins at a link of the view that judges it; every seventh is tried here, all by slow tests."""
    every = lessons()
    for lesson in every:
        goal = lesson["goal"]
        assert {"link", "reach", "ask", "key", "text"} <= set(goal), lesson["name"]
        assert ("most" in goal) != ("least" in goal), lesson["name"]
        assert all(goal["ask"] in table()["views"][state_of(goal[link])[0]]["asks"] for link in ("link", "reach"))
    assert list(wrong_goals(every[::7])) == []


@pytest.mark.slow
def test_every_goal_is_missed_where_it_begins_and_can_be_reached():
    assert list(wrong_goals(lessons())) == []


def test_a_goal_that_is_reached_at_once_is_wrong():
    [lesson] = [each for each in lessons() if each["name"] == "digits"]
    begun = lesson | {"goal": lesson["goal"] | {"link": lesson["goal"]["reach"]}}
    lost = lesson | {"goal": lesson["goal"] | {"reach": lesson["goal"]["link"]}}
    assert [line.split(": ")[1][:9] for line in wrong_goals([begun, lost])] == ["reached w", "not reach"]
