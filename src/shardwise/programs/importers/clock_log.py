"""Clocks of GPUs over time, as monitors write them: `nvidia-smi --query-gpu=... --format=csv`, `nvidia-smi dmon`,
`dcgmi dmon`, what DCGM's exporter answers, and the system metrics of Weights & Biases.
"""

import csv
import io
import re
from array import array
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from shardwise.measured.diagnose.clocks import ClockLog, GpuClock, clock_of
from shardwise.programs.importers.step_table import number_in, table_rows

MOST_GPUS = 100_000
MOST_SAMPLES = 20_000_000
LOOKED_AT = 2**16
"""characters in which the form shows"""
REASONS = (
    (0x8, "hardware slowdown"), (0x40, "hardware thermal slowdown"), (0x80, "hardware power brake"),
    (0x20, "software thermal slowdown"), (0x4, "power cap"), (0x2, "clocks set by hand"), (0x10, "sync boost"),
)  # fmt: skip
"""bits of the driver's reasons for a lower clock, the gravest first"""
REASON_WORDS = {
    "hw_slowdown": "hardware slowdown", "hw_thermal_slowdown": "hardware thermal slowdown",
    "hw_power_brake_slowdown": "hardware power brake", "sw_thermal_slowdown": "software thermal slowdown",
    "sw_power_cap": "power cap", "applications_clocks_setting": "clocks set by hand", "sync_boost": "sync boost",
}  # fmt: skip
_SMI = re.compile(r"^[^\n]*\bclocks(?:\.current)?\.sm\b[^\n]*$", re.MULTILINE)
_DMON = re.compile(r"^#\s*gpu\b.*\bpclk\b", re.MULTILINE)
_DCGMI = re.compile(r"^#\s*Entity\b.*\bSMCLK\b", re.MULTILINE)
_EXPORTER = re.compile(
    r"^DCGM_FI_DEV_(SM_CLOCK|GPU_UTIL|CLOCK_THROTTLE_REASONS|CLOCKS_EVENT_REASONS)"
    r"\{([^}\n]{0,2000})\}\s+([-+0-9.eE]{1,40})", re.MULTILINE,
)  # fmt: skip
_LABEL = re.compile(r'(\w+)="([^"]{0,200})"')
_WANDB = re.compile(r"(?:system[./])?gpu\.(\d{1,3})\.(smClock|gpu|name)$")


@dataclass
class _Gpu:
    device: str = ""
    mhz: "array[float]" = field(default_factory=lambda: array("d"))
    busy: "array[float]" = field(default_factory=lambda: array("d"))
    why: list[str] = field(default_factory=list)

    def add(self, mhz: float, percent: float | None, why: str = "") -> None:
        if len(self.mhz) < MOST_SAMPLES:
            self.mhz.append(mhz)
            self.busy.append(np.nan if percent is None else percent / 100)
            self.why.append(why)


class _Gpus(dict[str, _Gpu]):
    def of(self, name: str) -> _Gpu:
        if name not in self and len(self) >= MOST_GPUS:
            return _Gpu()
        return self.setdefault(name, _Gpu())


def parse(text: str) -> ClockLog | None:
    """None for a text that tells no clocks."""
    head = text[:LOOKED_AT]
    forms = (
        (_SMI, "nvidia-smi", _of_smi), (_DMON, "nvidia-smi dmon", _of_dmon), (_DCGMI, "dcgmi dmon", _of_dcgmi),
        (re.compile(r"^DCGM_FI_DEV_SM_CLOCK\{", re.MULTILINE), "DCGM's exporter", _of_exporter),
        (re.compile(r"gpu\.\d{1,3}\.smClock"), "Weights & Biases", _of_wandb),
    )  # fmt: skip
    for form, program, read in forms:
        if form.search(head):
            found = _clocks(read(text))
            if found:
                return ClockLog("", program, tuple(found))
    return None


def _clocks(gpus: _Gpus) -> list[GpuClock]:
    found = [clock_of(name, gpu.device, np.array(gpu.mhz) * 1e6, np.array(gpu.busy), gpu.why)
             for name, gpu in gpus.items() if len(gpu.mhz)]  # fmt: skip
    return [clock for clock in found if clock is not None]


def _of_smi(text: str) -> _Gpus:
    found = _Gpus()
    head = _SMI.search(text)
    try:
        rows = io.StringIO(text[head.start() if head else 0 :], newline=None)
        table = list(csv.DictReader(rows, skipinitialspace=True, restkey="", restval=""))
    except csv.Error:  # a line that no table has
        return found
    for row in table:
        told = {_column(key): value for key, value in row.items() if isinstance(key, str) and isinstance(value, str)}
        mhz = _first(told, "clocks.current.sm", "clocks.sm")
        if mhz is not None:
            name = next((told[key] for key in ("index", "uuid", "pci.bus_id", "gpu_bus_id") if told.get(key)), "0")
            gpu = found.of(f"GPU {name.strip()[:60]}")
            gpu.device = gpu.device or told.get("name", told.get("gpu_name", "")).strip()[:200]
            gpu.add(mhz, _first(told, "utilization.gpu"), _reason(told))
    return found


def _column(name: str) -> str:
    return name.partition("[")[0].strip().lower()


def _first(told: Mapping[str, str], *names: str) -> float | None:
    """'1965 MHz' or '1965'; '[N/A]' is none."""
    for name in names:
        words = told.get(name, "").split()
        value = number_in(words[0]) if words else None
        if value is not None:
            return value
    return None


def _reason(told: Mapping[str, str]) -> str:
    for kind in ("clocks_event_reasons", "clocks_throttle_reasons"):
        bits = told.get(f"{kind}.active", "").strip()
        if re.fullmatch(r"0x[0-9a-fA-F]{1,16}", bits):
            return _reason_of(int(bits, 16))
        for column, words in REASON_WORDS.items():
            if told.get(f"{kind}.{column}", "").strip().lower() == "active":
                return words
    return ""


def _reason_of(bits: int) -> str:
    return next((words for bit, words in REASONS if bits & bit), "")


def _of_dmon(text: str) -> _Gpus:
    """Columns stand in a head that comes again every so many lines; `-o DT` puts date and time before."""
    found, heads = _Gpus(), list[str]()
    for line in text.splitlines():
        words = line.lstrip("# ").split()
        if line.startswith("#"):
            heads = words if "pclk" in words else heads
        elif heads and len(words) == len(heads):
            told = dict(zip(heads, words, strict=True))
            mhz = number_in(told["pclk"])
            if mhz is not None and told.get("gpu", "").isdigit():
                found.of(f"GPU {told['gpu']}").add(mhz, number_in(told.get("sm", "")))
    return found


def _of_dcgmi(text: str) -> _Gpus:
    found, heads = _Gpus(), list[str]()
    for line in text.splitlines():
        words = line.split()
        if line.lstrip().startswith("#"):
            heads = line.lstrip("# ").split()[1:] if "SMCLK" in line else heads
        elif heads and len(words) == len(heads) + 2 and words[0] == "GPU" and words[1].isdigit():
            told = dict(zip(heads, words[2:], strict=True))
            mhz, bits = number_in(told["SMCLK"]), told.get("CLEVT", told.get("DVCCTR", ""))
            why = _reason_of(int(bits, 16)) if re.fullmatch(r"0x[0-9a-fA-F]{1,16}", bits) else ""
            if mhz is not None:
                found.of(f"GPU {words[1]}").add(mhz, number_in(told.get("GPUTL", "")), why)
    return found


def _of_exporter(text: str) -> _Gpus:
    """What it answers once or, one after another, many times: of each scrape first the clocks, then the rest."""
    found = _Gpus()
    for each in _EXPORTER.finditer(text):
        labels, value = dict(_LABEL.findall(each[2])), number_in(each[3])
        host = labels.get("Hostname", "")
        gpu = found.of(f"{host} GPU {labels.get('gpu', '0')}".strip())
        gpu.device = gpu.device or labels.get("modelName", "")
        if value is None:
            continue
        if each[1] == "SM_CLOCK":
            gpu.add(value, None)
        elif gpu.mhz and each[1] == "GPU_UTIL":
            gpu.busy[-1] = value / 100
        elif gpu.mhz and 0 <= value < 2**16:
            gpu.why[-1] = _reason_of(int(value))
    return found


def _of_wandb(text: str) -> _Gpus:
    found = _Gpus()
    for row in table_rows(text):
        told: dict[str, dict[str, Any]] = {}
        for name, value in row.items():
            known = _WANDB.search(str(name).lstrip("_")) if isinstance(name, str) and len(name) < 300 else None
            if known:
                told.setdefault(known[1], {})[known[2]] = value
        for number, values in told.items():
            mhz = number_in(values.get("smClock"))
            if mhz is not None:
                gpu = found.of(f"GPU {number}")
                gpu.device = gpu.device or str(values.get("name", ""))[:200]
                gpu.add(mhz, number_in(values.get("gpu")))
    return found
