"""Verbs with second words: an app whose commands are imported only when they run."""

from cyclopts import App, Group, Parameter

from shardwise.show.cli._examples import EXAMPLES, epilogue
from shardwise.show.cli._verbs import VERBS, WORDS, import_path


def app_of(verb: str) -> App:
    made = App(
        name=verb, help=VERBS[verb], help_epilogue=epilogue(EXAMPLES[verb], paged=True),
        default_parameter=Parameter(negative=()), result_action="return_value",
        group_commands=Group("Second words", sort_key=0),
    )  # fmt: skip
    for place, (word, question) in enumerate(WORDS[verb].items()):
        examples = epilogue(EXAMPLES[f"{verb} {word}"], paged=True)
        made.command(import_path(word), name=word, help=question, help_epilogue=examples, sort_key=place)
    return made
