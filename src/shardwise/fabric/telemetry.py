"""Counters and settings of a network that a given traffic makes worth watching, with the reason."""

from msgspec import Struct

from shardwise.fabric.step import StepLoad


class Watch(Struct, frozen=True, kw_only=True):
    what: str
    where: str
    why: str


def watches_of(ops: set[str], axes: set[str], load: StepLoad) -> tuple[Watch, ...]:
    """Only what this step's traffic can disturb; nothing where it stays inside one node."""
    if not ops:
        return ()
    credits = load.prices.network.cluster.has_credits
    held = (
        Watch(what="ticks with data and no credits", where="port_xmit_wait, against the same counter of other ports",
              why="all ranks wait for the slowest NIC: one port without credits stops every ring it is part of")
        if credits else
        Watch(what="PFC pause frames and pause time, per priority", where="rx/tx_prioN_pause, _pause_duration",
              why="all ranks wait for the slowest NIC: one paused port stops every ring it is part of")
    )  # fmt: skip
    found = [
        held,
        Watch(what="discards and out-of-sequence packets", where="rx_discards_phy, out_of_sequence, packet_seq_err",
              why="a lost packet costs a round trip, a lost acknowledgement a timeout of 67 ms, on all ranks at once"),
        Watch(what="link speed, width and flaps", where="rate, link_downed, symbol_error",
              why="a NIC at a quarter of its speed makes every collective over it four times as long"),
        Watch(what="NIC throughput in bins of 10 ms or less", where="port_xmit_data, port_xmit_wait",
              why="averages over seconds hide bursts at line rate behind a mostly idle link"),
    ]  # fmt: skip
    meets = "all_to_all" in ops
    found += [] if credits else [
        Watch(what="ECN marks and CNPs (DCQCN)", where="np_ecn_marked_roce_packets, np_cnp_sent, rp_cnp_handled",
              why="all-to-all makes many senders meet at one NIC; marks should slow them before PFC does" if meets
              else "at most neighbours of this step meet at a NIC: marks mean colliding hashes or another job")
    ]  # fmt: skip
    if meets:
        found += [
            Watch(what="queue depth at leaf ports to NICs", where="switch buffer high-water marks",
                  why="the incast of experts stands in front of the receiver's port"),
        ]  # fmt: skip
    if ops & {"all_reduce", "reduce_scatter", "all_gather"}:
        found.append(
            Watch(what="bytes of equal uplinks, compared", where="leaf and spine port counters",
                  why="rings are few long flows: a hash that puts two on one uplink halves both (ECMP polarisation)")
        )  # fmt: skip
    rails = sum(each["between rails"] for each in load.crossings.values())
    if rails > 0:
        found.append(Watch(what="bytes between rails", where="leaf uplinks", why="this placement sends across rails, "
                           "which takes a spine hop that rail-aligned traffic does not"))  # fmt: skip
    if "pp" in axes:
        found.append(
            Watch(what="latency of small sends between stages", where="rdma write latency test",
                  why="a stage waits for every activation; while the pipeline fills nothing hides it")
        )  # fmt: skip
    return tuple(found)
