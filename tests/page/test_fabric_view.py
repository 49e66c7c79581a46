"""The view Fabric: queues packet by packet when asked for, and links that are slow or cut by a button."""

import json
import os
import subprocess
import sys

import pytest

from _chromium import missing, opened
from shardwise.show.cli import main
from shardwise.show.page.views import asked_by, state_of

pytestmark = [
    pytest.mark.skipif(bool(missing()), reason=f"no browser: {missing()}"),
    pytest.mark.xdist_group("page"),
]
LINK = "#/fabric?model=gpt2&on=dgx-h100:16"


@pytest.mark.slow
def test_packets_are_followed_when_asked_for(page, address):
    opened(page, address, LINK)
    card = page.locator(".packet-card")
    assert card.locator("svg.chart").count() == 0, "it takes seconds, so nobody gets it unasked"
    card.get_by_role("button", name="as the network is").click()
    page.wait_for_selector(".packet-card[data-deepest]")
    assert "packets=1" in page.url, "the link shows it again"
    assert "shardwise[packets]" in card.inner_text(), "without numba it says so"
    question = asked_by("fabric-packets", state_of(page.url)[1])
    words = [sys.executable, "-m", "shardwise", *question.words, "--json"]
    out = subprocess.run(words, env=os.environ | {"NUMBA_DISABLE_JIT": "1"}, capture_output=True, check=True).stdout
    calls = json.loads(out)["packets"]["calls"]
    assert float(card.get_attribute("data-deepest")) == max(call["hottest"]["deepest_bytes"] for call in calls)
    assert card.locator("svg.chart").count() == len(calls)
    card.get_by_role("button", name="pauses (PFC)").click()
    page.wait_for_selector(".packet-card .banner:has-text('Ethernet')")


@pytest.mark.slow
def test_a_link_is_made_slow_by_a_button(page, address, capsys):
    opened(page, address, LINK)
    before = float(page.locator(".headline").get_attribute("data-step"))
    page.locator("td.switches").first.get_by_role("button", name="slow").click()
    page.wait_for_selector("#broken")
    main([*asked_by("fabric", state_of(page.url)[1]).words, "--json"])
    found = json.loads(capsys.readouterr().out)
    assert float(page.locator(".headline").get_attribute("data-step")) == found["step_s"] > before
    page.get_by_role("button", name="All sound again").click()
    page.wait_for_selector("#broken", state="detached")
    assert float(page.locator(".headline").get_attribute("data-step")) == before
