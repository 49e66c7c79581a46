"""A watched run as metrics for Prometheus: base units, counters end in _total. Needs `prometheus_client`."""

from collections.abc import Callable, Iterable, Mapping
from typing import Any

from shardwise.measured.diagnose.health.status import RunStatus

LOOPBACK = "127.0.0.1"
GAUGES: dict[str, tuple[str, str]] = {
    "shardwise_step_seconds": ("step_s", "Median time of the last steps."),
    "shardwise_predicted_step_seconds": ("predicted_step_s", "Predicted time of a step."),
    "shardwise_predicted_step_low_seconds": ("predicted_low_s", "Low end of the prediction's band."),
    "shardwise_predicted_step_high_seconds": ("predicted_high_s", "High end of the prediction's band."),
    "shardwise_step_spread_ratio": ("spread", "Robust deviation of the last steps over their median."),
    "shardwise_ettr_ratio": ("goodput_share", "Share of the time since the start that useful steps took."),
    "shardwise_exposed_communication_ratio": ("exposed_share", "Share of a step that ranks stand in messages."),
    "shardwise_overlap_ratio": ("overlap_share", "Share of messages' time hidden under computing."),
    "shardwise_all_to_all_seconds": ("all_to_all_s", "Of a step, exchanging tokens between experts."),
    "shardwise_expert_load_ratio": ("expert_load", "Tokens of the fullest expert over an even share."),
    "shardwise_data_wait_ratio": ("data_share", "Share of a step spent waiting for data."),
    "shardwise_checkpoint_stall_ratio": ("save_share", "Share of the time ranks stand still to save."),
    "shardwise_peak_memory_bytes": ("peak_bytes", "The most that a rank has held."),
    "shardwise_predicted_peak_memory_bytes": ("predicted_peak_bytes", "Predicted peak of a rank."),
    "shardwise_silent_seconds": ("silent_s", "Since the last sign of any rank."),
}
PHASES = {"compute": "own_s", "data": "data_s", "communication": "comm_s", "checkpoint": "save_s"}
PHASE, HELD = "shardwise_phase_seconds", "shardwise_memory_bytes"
STEPS, ALARMS, UP = "shardwise_steps_total", "shardwise_alarms_total", "shardwise_alarm"
METRICS = (*GAUGES, PHASE, HELD, STEPS, ALARMS, UP)
"""every name that is exported"""

Current = Callable[[], tuple[RunStatus | None, Mapping[str, int], Iterable[str]]]
"""-> the run as it stands, how often each cause was raised, which are up"""


class RunCollector:
    """Asked by Prometheus' client whenever somebody scrapes."""

    def __init__(self, current: Current) -> None:
        self.current = current

    def collect(self) -> Iterable[Any]:
        from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily

        status, counts, up = self.current()
        if status is None:
            return
        for name, (field, about) in GAUGES.items():
            if (value := getattr(status, field)) is not None:
                yield GaugeMetricFamily(name, about, value=float(value))
        phases = GaugeMetricFamily(PHASE, "Mean of the last steps.", labels=["phase", "rank"])
        held = GaugeMetricFamily(HELD, "Held by a rank now.", labels=["rank"])
        for rank in status.ranks:
            for phase, field in PHASES.items():
                if (value := getattr(rank, field)) is not None:
                    phases.add_metric([phase, str(rank.rank)], value)
            if rank.held_bytes is not None:
                held.add_metric([str(rank.rank)], float(rank.held_bytes))
        yield phases
        yield held
        yield CounterMetricFamily(STEPS.removesuffix("_total"), "Steps made.", value=float(status.steps))
        raised = CounterMetricFamily(ALARMS.removesuffix("_total"), "Alarms raised.", labels=["cause"])
        standing = GaugeMetricFamily(UP, "1 while an alarm stands.", labels=["cause"])
        for code, number in counts.items():
            raised.add_metric([code], float(number))
        for code in up:
            standing.add_metric([code], 1.0)
        yield raised
        yield standing


def serve_metrics(port: int, address: str, current: Current) -> int:
    """Answers on http://address:port/metrics until this process ends; the port, which 0 lets the system choose."""
    try:
        from prometheus_client import CollectorRegistry, start_http_server
    except ImportError:
        raise ValueError(
            "prometheus: prometheus_client is not installed; write pip install 'shardwise[watch]', or leave "
            "--prometheus away"
        ) from None
    registry = CollectorRegistry()
    registry.register(RunCollector(current))
    try:
        server, _ = start_http_server(port, addr=address, registry=registry)
    except (OSError, OverflowError) as error:
        told = getattr(error, "strerror", None) or str(error)
        raise ValueError(f"prometheus: {address}:{port} cannot be listened at ({told}); write another port") from None
    return int(server.server_address[1])
