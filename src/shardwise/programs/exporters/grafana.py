"""A dashboard for Grafana over the metrics of `watch --prometheus`, as a file to import."""

import json
from typing import Any

SCHEMA = 39
"""of Grafana 11"""
SOURCE = {"type": "prometheus", "uid": "${source}"}
PANELS: tuple[tuple[str, str, tuple[tuple[str, str], ...]], ...] = (
    ("Step against its prediction", "s", (
        ("shardwise_step_seconds", "measured"), ("shardwise_predicted_step_seconds", "predicted"),
        ("shardwise_predicted_step_low_seconds", "low"), ("shardwise_predicted_step_high_seconds", "high"))),
    ("Goodput and overlap", "percentunit", (
        ("shardwise_ettr_ratio", "goodput"), ("shardwise_overlap_ratio", "overlap"),
        ("shardwise_exposed_communication_ratio", "exposed communication"),
        ("shardwise_data_wait_ratio", "waiting for data"),
        ("shardwise_checkpoint_stall_ratio", "checkpoint stalls"))),
    ("Computing before the others are met, by rank", "s", (
        ('shardwise_phase_seconds{phase="compute"}', "rank {{rank}}"),)),
    ("In messages, by rank", "s", (('shardwise_phase_seconds{phase="communication"}', "rank {{rank}}"),)),
    ("Waiting for data, by rank", "s", (('shardwise_phase_seconds{phase="data"}', "rank {{rank}}"),)),
    ("Memory", "bytes", (
        ("shardwise_memory_bytes", "rank {{rank}}"), ("shardwise_peak_memory_bytes", "peak"),
        ("shardwise_predicted_peak_memory_bytes", "predicted peak"))),
    ("Experts", "short", (
        ("shardwise_expert_load_ratio", "fullest expert over an even share"),
        ("shardwise_all_to_all_seconds", "all-to-all, s"))),
    ("Spread of steps, silence", "short", (
        ("shardwise_step_spread_ratio", "spread"), ("shardwise_silent_seconds", "seconds since a sign"))),
    ("Steps a second", "short", (("rate(shardwise_steps_total[5m])", "steps/s"),)),
    ("Alarms", "short", (("shardwise_alarm", "{{cause}}"), ("increase(shardwise_alarms_total[1h])", "{{cause}}, 1 h"))),
)  # fmt: skip
"""(title, unit, (query, legend)...)"""


def dashboard() -> dict[str, Any]:
    return {
        "title": "shardwise: a training run", "uid": "shardwise-watch", "schemaVersion": SCHEMA, "version": 1,
        "tags": ["shardwise"], "timezone": "utc", "refresh": "10s", "time": {"from": "now-6h", "to": "now"},
        "templating": {"list": [{"name": "source", "type": "datasource", "query": "prometheus", "label": "Source"}]},
        "panels": [_panel(number, *panel) for number, panel in enumerate(PANELS)],
    }  # fmt: skip


def dashboard_bytes() -> bytes:
    return json.dumps(dashboard(), indent=2).encode() + b"\n"


def _panel(number: int, title: str, unit: str, queries: tuple[tuple[str, str], ...]) -> dict[str, Any]:
    return {
        "id": number + 1, "type": "timeseries", "title": title, "datasource": SOURCE,
        "gridPos": {"h": 8, "w": 12, "x": 12 * (number % 2), "y": 8 * (number // 2)},
        "fieldConfig": {"defaults": {"unit": unit, "min": 0}, "overrides": []},
        "options": {"legend": {"displayMode": "list", "placement": "bottom"}, "tooltip": {"mode": "multi"}},
        "targets": [{"refId": chr(65 + place), "expr": query, "legendFormat": legend, "datasource": SOURCE}
                    for place, (query, legend) in enumerate(queries)],
    }  # fmt: skip
