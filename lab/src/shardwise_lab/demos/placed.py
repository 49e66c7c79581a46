"""Where ranks stand and what is slow: placement, rails, a slow link, a hot expert, gossip."""

from statistics import median

from shardwise_lab.cases import LabCase
from shardwise_lab.demos._contract import CARD, Demo, Played, Setting, ratio, rows_ratio
from shardwise_lab.emulated import emulated_of
from shardwise_lab.facts import LabComparison
from shardwise_lab.knobs import Knobs
from shardwise_lab.order import LabWorld

ALIGNED = tuple(range(8))
INTERLEAVED = (0, 4, 1, 5, 2, 6, 3, 7)
OVER_RAILS = (0, 4, 5, 1, 2, 6, 7, 3)
"""from node to node on one rail, inside a node to the next rail"""
ACROSS_RAILS = (0, 5, 2, 7, 1, 4, 3, 6)
"""every hop to another node and another rail"""
SLOWED = "node 1 gpu 0 > leaf 0"


def _placement(setting: Setting) -> Played:
    cases = (LabCase(op="all_reduce", bytes=1 << 20), LabCase(op="all_to_all", bytes=1 << 19))
    worlds = [LabWorld(order=ALIGNED, cases=cases), LabWorld(order=INTERLEAVED, cases=cases)]
    found = setting.run(emulated_of("two-leaves", Knobs(card_bytes_per_s=CARD)), worlds)
    return (rows_ratio("ring interleaved over the leaves, against aligned", found, 2, found, 0),
            rows_ratio("all-to-all of the same ranks", found, 3, found, 1))  # fmt: skip


def _rails(setting: Setting) -> Played:
    cases = (LabCase(op="all_reduce", bytes=1 << 20),)
    worlds = [LabWorld(order=OVER_RAILS, cases=cases), LabWorld(order=ACROSS_RAILS, cases=cases)]
    found = setting.run(emulated_of("rails", Knobs(card_bytes_per_s=CARD / 2)), worlds)
    return (rows_ratio("ring whose hops change rails, against one that stays on them", found, 1, found, 0),)


def _slow_link(setting: Setting) -> Played:
    worlds = [LabWorld(order=(0, 1, 2, 3), cases=(LabCase(op="all_reduce", bytes=1 << 20),))]
    well = setting.run(emulated_of("star4", Knobs(card_bytes_per_s=CARD)), worlds)
    slow = setting.run(emulated_of("star4", Knobs(card_bytes_per_s=CARD, slow=((SLOWED, 0.25),))), worlds)
    return (ratio("all-reduce of four with one NIC at a quarter, against none", slow, well),)


def _hot_expert(setting: Setting) -> Played:
    cases = (LabCase(op="all_to_all", bytes=2 << 20), LabCase(op="hot_expert", bytes=2 << 20))
    found = setting.run(emulated_of("star4", Knobs(card_bytes_per_s=CARD)), [LabWorld(order=(0, 1, 2, 3), cases=cases)])
    return (rows_ratio("as many tokens with one expert four times as popular, against even", found, 1, found, 0),)


def _gossip(setting: Setting) -> Played:
    cases = (LabCase(op="all_reduce", bytes=1 << 19), LabCase(op="gossip", bytes=1 << 19))
    slow = Knobs(card_bytes_per_s=CARD, slow=((SLOWED, 0.25),))
    found = setting.run(emulated_of("star8", slow), [LabWorld(order=ALIGNED, cases=cases)])
    reduced, told = found.rows
    return (
        LabComparison(what="the usual rank in an all-reduce with one slow NIC, against gossip with two neighbours",
                   measured=median(reduced.rank_s) / median(told.rank_s),
                   predicted=median(reduced.predicted_rank_s) / median(told.predicted_rank_s), unit="x"),
        rows_ratio("the slowest rank of the same", found, 0, found, 1),
    )  # fmt: skip


PLACEMENT = Demo("placement", (
    "Eight ranks under two leaves; the spine between them has half a NIC's bandwidth each way.",
    "A ring in rack order crosses the spine once each way; one that alternates between racks crosses it at every hop.",
    "So the same all-reduce takes four times as long. An all-to-all does not care: all pairs cross anyway.",
), _placement)  # fmt: skip
RAILS = Demo("rails", (
    "Two nodes of four GPUs; NIC i of each node hangs on leaf i (a rail), and thin spines join the rails.",
    "A ring that stays on its rails and changes GPUs inside the node never meets a spine.",
    "One whose hops change rails on the network sends everything through the spines, and waits for them.",
), _rails)  # fmt: skip
SLOW_LINK = Demo("slow-link", (
    "Four ranks on one switch; one NIC runs at a quarter of its speed, as after a bad cable or a wrong FEC mode.",
    "A ring passes every byte through every NIC, so all four wait for the slow one.",
    "Time of the all-reduce grows by the NIC's own factor; its neighbours' ports show gaps, not errors.",
), _slow_link)  # fmt: skip
HOT_EXPERT = Demo("hot-expert", (
    "Expert parallelism sends tokens to the GPUs of their experts by all-to-all; the totals here are equal.",
    "When one expert is popular, the port in front of its GPU carries several times the bytes of the others.",
    "The exchange ends when that port is done: incast by design, which no extra bandwidth elsewhere helps.",
), _hot_expert)  # fmt: skip
GOSSIP = Demo("gossip", (
    "Eight ranks, one NIC at a quarter. All-reduce: a ring through all; gossip: each averages with two neighbours.",
    "The ring makes every rank wait for the slow NIC. With gossip only its neighbours do.",
    "Compare the usual rank's time: that is what asynchronous or decentralised training gains from a bad link.",
), _gossip)  # fmt: skip
