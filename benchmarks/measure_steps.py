"""Measures whole training steps of plain PyTorch decoders on one GPU and writes the table `shardwise validate` reads.

`python benchmarks/measure_steps.py --out steps.csv` appends a row as each configuration is done; run again, it goes on
where it stopped. `--list` prints the configurations without measuring, so that predictions can be written down first;
`--configs FILE` measures those of a table instead, `--only NAME` one. AdamW is fused, gradients are freed after each
step, the loss is fp32 over all logits.
"""

import argparse
import csv
import gc
import statistics
import sys
import time
from collections.abc import Callable
from contextlib import nullcontext
from pathlib import Path

import torch
import torch.nn.functional as F
from torch import Tensor

from _step_configs import COLUMNS, Config, configs, tiny
from _step_models import Decoder, model_flops

WARM_UP = 3
FEWEST, MOST = 5, 20
LONG_ENOUGH_S = 2.5
GIB = 2.0**30


class Clock:
    """Seconds between marks: CUDA events, or the processor's clock."""

    def __init__(self, cuda: bool) -> None:
        self.cuda = cuda
        self.marks: list[torch.cuda.Event | float] = []

    def mark(self) -> None:
        if not self.cuda:
            self.marks.append(time.perf_counter())
            return
        event = torch.cuda.Event(enable_timing=True)
        event.record()
        self.marks.append(event)

    def spans(self) -> list[float]:
        """Seconds from each mark to the next."""
        if self.cuda:
            torch.cuda.synchronize()
        pairs = zip(self.marks, self.marks[1:], strict=False)
        return [a.elapsed_time(b) * 1e-3 if isinstance(a, torch.cuda.Event) else b - a for a, b in pairs]


class Training:
    def __init__(self, config: Config, device: str) -> None:
        torch.manual_seed(0)
        self.config, self.cuda = config, device == "cuda"
        pure = config.precision == "bf16-pure"
        with torch.device(device):
            self.model = Decoder(config).to(torch.bfloat16 if pure else torch.float32)
        if config.compiled:
            for block in self.model.blocks:
                block.compile(dynamic=False)
        self.parameters = sum(p.numel() for p in self.model.parameters())
        self.adam = torch.optim.AdamW(self.model.parameters(), lr=1e-5, fused=True)
        self.cast: Callable[[], torch.autocast | nullcontext[None]] = (
            nullcontext if pure else lambda: torch.autocast(device, dtype=torch.bfloat16)
        )
        shape = (config.micro_batch, config.seq + 1)
        self.batches = [torch.randint(config.vocab, shape, device=device) for _ in range(config.accum)]
        if self.cuda:
            torch.cuda.empty_cache()  # the fp32 weights that bf16 ones were made of are not the step's memory

    def step(self) -> tuple[float, float, float]:
        """(whole step, forward passes, optimizer) in seconds."""
        clock = Clock(self.cuda)
        clock.mark()
        for batch in self.batches:
            loss = self._loss(batch)
            clock.mark()
            (loss / len(self.batches)).backward()
            del loss
            clock.mark()
        self.adam.step()
        self.adam.zero_grad(set_to_none=True)
        clock.mark()
        spans = clock.spans()
        return sum(spans), sum(spans[:-1:2]), spans[-1]

    def _loss(self, batch: Tensor) -> Tensor:
        with self.cast():
            logits = self.model(batch[:, :-1])
        return F.cross_entropy(logits.float().flatten(0, 1), batch[:, 1:].flatten())


def measure(config: Config, device: str) -> dict[str, str]:
    training = Training(config, device)
    first = [training.step()[0] for _ in range(WARM_UP)]
    if training.cuda:
        torch.cuda.reset_peak_memory_stats()
    count = min(MOST, max(FEWEST, int(LONG_ENOUGH_S / first[-1])))
    found = [training.step() for _ in range(count)]
    steps = [step for step, _, _ in found]
    step = statistics.median(steps)
    peaks = (torch.cuda.max_memory_allocated(), torch.cuda.max_memory_reserved()) if training.cuda else (0, 0)
    return config.cells() | {
        "params": str(training.parameters),
        "step_ms": f"{step * 1e3:.3f}",
        "forward_ms": f"{statistics.median(forward for _, forward, _ in found) * 1e3:.3f}",
        "optimizer_ms": f"{statistics.median(optimizer for _, _, optimizer in found) * 1e3:.3f}",
        "spread": f"{(max(steps) - min(steps)) / step:.4f}",
        "peak_alloc_gib": f"{peaks[0] / GIB:.3f}" if peaks[0] else "",
        "peak_reserved_gib": f"{peaks[1] / GIB:.3f}" if peaks[1] else "",
        "tflops_causal": f"{model_flops(config, training.parameters) / step / 1e12:.1f}",
    }


def forget() -> None:
    """The next configuration starts with an empty GPU and an empty compiler."""
    gc.collect()
    torch._dynamo.reset()
    if torch.cuda.is_available():
        torch.cuda.empty_cache()


def measured_already(path: Path) -> set[str]:
    if not path.is_file():
        return set()
    with path.open(encoding="utf-8", newline="") as file:
        return {row["name"] for row in csv.DictReader(file)}


def append(path: Path, row: dict[str, str]) -> None:
    new = not path.is_file() or path.stat().st_size == 0
    with path.open("a", encoding="utf-8", newline="") as file:
        writer = csv.DictWriter(file, COLUMNS, lineterminator="\n")
        if new:
            writer.writeheader()
        writer.writerow(row)


def arguments(words: list[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, default=Path("steps.csv"), help="CSV to append to")
    parser.add_argument("--configs", type=Path, help="CSV of configurations to measure in place of the built-in list")
    parser.add_argument("--only", metavar="NAME", help="measure this configuration alone")
    parser.add_argument("--list", action="store_true", help="print the configurations and stop")
    parser.add_argument("--device", choices=("cuda", "cpu"), default="cuda")
    parser.add_argument("--tiny", action="store_true", help="the same kinds of models, a thousand times smaller")
    found = parser.parse_args(words)
    known = [config.name for config in configs(found.configs)]
    if found.only is not None and found.only not in known:
        parser.error(f"--only: {found.only!r} is unknown; write one of {', '.join(known)}")
    if not found.list and found.device == "cuda" and not torch.cuda.is_available():
        parser.error("--device: torch finds no CUDA device here; write --device cpu --tiny")
    return found


def main(words: list[str]) -> int:
    asked = arguments(words)
    chosen = [config for config in configs(asked.configs) if asked.only in (None, config.name)]
    chosen = [tiny(config) for config in chosen] if asked.tiny else chosen
    if asked.list:
        writer = csv.DictWriter(sys.stdout, COLUMNS, lineterminator="\n")
        writer.writeheader()
        writer.writerows(config.cells() for config in chosen)
        return 0
    torch.set_float32_matmul_precision("high")
    done, failed = measured_already(asked.out), 0
    for number, config in enumerate(chosen, 1):
        if config.name in done:
            continue
        start = time.perf_counter()
        try:
            row = measure(config, asked.device)
        except torch.OutOfMemoryError:
            failed += 1
            print(f"[{number}/{len(chosen)}] {config.name}: out of memory", file=sys.stderr, flush=True)
        else:
            append(asked.out, row)
            print(
                f"[{number}/{len(chosen)}] {config.name}: {row['step_ms']} ms, {row['peak_alloc_gib'] or '-'} GiB, "
                f"took {time.perf_counter() - start:.1f} s",
                file=sys.stderr, flush=True,
            )  # fmt: skip
        forget()
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
