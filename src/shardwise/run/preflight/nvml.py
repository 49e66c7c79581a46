"""Answers in nvidia-smi's form from NVML itself (the package nvidia-ml-py), for images without nvidia-smi."""

from collections.abc import Callable, Sequence
from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from shardwise.run.preflight.node import Printed

QUERY = "--query-gpu="
NOT_KNOWN = "[N/A]"
MIB = 2**20
_Told = Callable[[Any, Any], object]
"""(pynvml, handle) -> value"""
FIELDS: dict[str, _Told] = {
    "index": lambda n, gpu: n.nvmlDeviceGetIndex(gpu),
    "name": lambda n, gpu: n.nvmlDeviceGetName(gpu),
    "uuid": lambda n, gpu: n.nvmlDeviceGetUUID(gpu),
    "pci.bus_id": lambda n, gpu: n.nvmlDeviceGetPciInfo(gpu).busId,
    "driver_version": lambda n, _: n.nvmlSystemGetDriverVersion(),
    "vbios_version": lambda n, gpu: n.nvmlDeviceGetVbiosVersion(gpu),
    "memory.total": lambda n, gpu: n.nvmlDeviceGetMemoryInfo(gpu).total // MIB,
    "memory.used": lambda n, gpu: n.nvmlDeviceGetMemoryInfo(gpu).used // MIB,
    "persistence_mode": lambda n, gpu: _mode(n.nvmlDeviceGetPersistenceMode(gpu)),
    "ecc.mode.current": lambda n, gpu: _mode(n.nvmlDeviceGetEccMode(gpu)[0]),
    "mig.mode.current": lambda n, gpu: _mode(n.nvmlDeviceGetMigMode(gpu)[0]),
    "power.limit": lambda n, gpu: n.nvmlDeviceGetEnforcedPowerLimit(gpu) / 1000,
    "power.default_limit": lambda n, gpu: n.nvmlDeviceGetPowerManagementDefaultLimit(gpu) / 1000,
    "clocks.max.sm": lambda n, gpu: n.nvmlDeviceGetMaxClockInfo(gpu, n.NVML_CLOCK_SM),
    "temperature.gpu": lambda n, gpu: n.nvmlDeviceGetTemperature(gpu, n.NVML_TEMPERATURE_GPU),
    "clocks_event_reasons.active": lambda n, gpu: f"0x{n.nvmlDeviceGetCurrentClocksEventReasons(gpu):016x}",
    "pcie.link.gen.max": lambda n, gpu: n.nvmlDeviceGetMaxPcieLinkGeneration(gpu),
    "pcie.link.width.current": lambda n, gpu: n.nvmlDeviceGetCurrPcieLinkWidth(gpu),
    "pcie.link.width.max": lambda n, gpu: n.nvmlDeviceGetMaxPcieLinkWidth(gpu),
}


def answer(words: Sequence[str]) -> "Printed | None":
    """To `nvidia-smi --query-gpu=...`; None for any other command, and where NVML is not here."""
    from shardwise.run.preflight.node import Printed

    wanted = next((word[len(QUERY) :].split(",") for word in words[1:] if word.startswith(QUERY)), None)
    if not words or words[0] != "nvidia-smi" or wanted is None:
        return None
    try:
        library: Any = import_module("pynvml")
        library.nvmlInit()
    except Exception:
        return None
    try:
        handles = [library.nvmlDeviceGetHandleByIndex(i) for i in range(library.nvmlDeviceGetCount())]
        lines = [", ".join(_cell(library, gpu, name) for name in wanted) for gpu in handles]
    except Exception as problem:
        return Printed(code=1, text=f"NVML: {problem}")
    finally:
        library.nvmlShutdown()
    return Printed(code=0, text="\n".join(lines) + "\n")


def _cell(library: Any, gpu: Any, name: str) -> str:
    try:
        value = FIELDS[name](library, gpu)
    except Exception:
        return NOT_KNOWN
    return value.decode(errors="replace") if isinstance(value, bytes) else str(value)


def _mode(value: int) -> str:
    return "Enabled" if value else "Disabled"
