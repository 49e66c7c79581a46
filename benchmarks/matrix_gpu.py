"""Optimizers of whole matrices on one GPU: kernels by shape, and whole steps of three models.

`python benchmarks/matrix_gpu.py --predict` writes the steps that are expected to
evidence/matrix/h200-steps-predicted.csv and needs no GPU. `--out DIR` measures: newton_schulz.csv (GPU milliseconds of
a captured graph, of eager launches, of equal matrices in one batch, and with products that compute half of a symmetric
result), factors.csv (QR, eigenvectors, products of SOAP) and steps.csv (every step of a run).
`--only PART` takes one of newton_schulz, factors, steps; `--optimizers` and `--models` are those of the steps.
"""

import argparse
import csv
import statistics
import sys
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from time import perf_counter
from typing import Any

from msgspec.structs import replace

ROOT = Path(__file__).resolve().parents[1]
sys.path[:0] = [str(ROOT / "benchmarks")]

from _runtime_gpu_cases import Case, one_gpu  # noqa: E402
from shardwise.cost.calibrate.profile import profile_of  # noqa: E402
from shardwise.cost.gpu import curve_of, memory_seconds  # noqa: E402
from shardwise.plugins.optimizers import update_rule  # noqa: E402
from shardwise.plugins.optimizers.soap import LONGEST  # noqa: E402
from shardwise.spec.arch import model_from_shape  # noqa: E402
from shardwise.spec.job import optimizer_of  # noqa: E402
from shardwise.spec.load import cluster_of, gpu_of  # noqa: E402
from shardwise.spec.software import stack_of  # noqa: E402
from shardwise.step.estimate.once import matrix_seconds  # noqa: E402
from shardwise.step.estimate.own_work import own_work  # noqa: E402
from shardwise.work.case import case_of  # noqa: E402

PREDICTED = ROOT / "evidence" / "matrix" / "h200-steps-predicted.csv"
SHAPES = {
    "llama-3-8b": "4096x4096 1024x4096 14336x4096 4096x14336",
    "llama-3-8b tp 2": "2048x4096 4096x2048 7168x4096 4096x7168",
    "llama-3-8b tp 4": "256x4096 3584x4096 4096x3584",
    "llama-3-8b tp 8": "512x4096 128x4096 1792x4096 4096x1792",
    "llama-3-70b": "8192x8192 1024x8192 28672x8192 8192x28672",
    "llama-2-7b": "11008x4096 4096x11008",
    "llama-2-13b": "5120x5120 13824x5120",
    "llama-3.2-1b": "2048x2048 512x2048 8192x2048",
    "llama-3.2-3b": "3072x3072 1024x3072 8192x3072",
    "qwen3-0.6b": "2048x1024 1024x1024 3072x1024",
    "qwen3-1.7b": "1024x2048 6144x2048 2048x6144",
    "qwen3-4b": "4096x2560 1024x2560 9728x2560 2560x9728",
    "qwen3-8b": "12288x4096 4096x12288",
    "qwen3-14b": "1024x5120 17408x5120 5120x17408",
    "qwen3-32b": "8192x5120 25600x5120 5120x25600",
    "qwen3-30b-a3b": "768x2048 2048x768",
    "qwen3-235b-a22b": "1536x4096 4096x1536 8192x4096 512x4096",
    "deepseek-v3": "2048x7168 7168x2048 1536x7168 24576x1536 32768x512 7168x16384 18432x7168",
    "gpt2": "768x768 3072x768 768x3072",
    "gpt2-xl": "1600x1600 6400x1600",
    "square": "256x256 512x512 1536x1536 6144x6144",
}
BATCHED = ((64, 768, 2048), (32, 1536, 4096), (16, 2048, 7168), (8, 14336, 4096), (128, 512, 512))
"""experts of one layer, their matrices equal"""
SIDES = (256, 512, 768, 1024, 1536, 2048, 3072, 4096, 5120, 8192)
EIGEN = tuple(side for side in SIDES if side <= 4096)
PROJECTED = ((768, 768), (2048, 768), (2048, 2048), (4096, 4096), (14336, 4096), (8192, 2048), (2048, 8192))
MODELS = {
    "llama-160m": ("adamw", "muon", "soap", "adafactor", "adamw-8bit"),
    "qwen3-0.6b-cut": ("adamw", "muon", "soap", "adafactor", "adamw-8bit"),
    "llama-1b": ("adamw", "muon", "soap", "adafactor", "adamw-8bit"),
    "llama-8b-cut": ("adamw", "muon", "soap", "adafactor", "adamw-8bit"),
}
CYCLE = 10
"""steps of SOAP between new bases"""
SECONDS = 130.0
"""after which no further run of the same part begins"""


def shapes() -> list[tuple[int, int]]:
    each = (tuple(map(int, word.split("x"))) for words in SHAPES.values() for word in words.split())
    return list(dict.fromkeys((rows, columns) for rows, columns in each))


def cases() -> Iterator[tuple[Case, str]]:
    known = {case.name: case for case in one_gpu()}
    qwen = model_from_shape("qwen3-0.6b-cut", 6, 1024, 16, 8, 3072, True, 151_936, tied=False, positions=2048)
    job, policy = known["llama-1b"].job, known["llama-1b"].policy
    known[qwen.name] = Case(qwen.name, replace(qwen, dropout=False), job, policy)
    for name, optimizers in MODELS.items():
        for optimizer in optimizers:
            case = known[name]
            yield Case(name, case.model, replace(case.job, optimizer=optimizer_of(optimizer)), case.policy), optimizer


def newton_schulz_s(rows: int, columns: int) -> float:
    """By the law of all products; the matrix is rounded, its norm taken, and divided by it."""
    curve = curve_of(gpu_of("h200"))
    passes = float(memory_seconds(curve, 12.0 * rows * columns, "optimizer", kernels=4.0))
    return matrix_seconds(update_rule("muon"), rows, columns, curve) + passes


def predictions() -> Iterator[tuple[str, str, float]]:
    """(model, optimizer, milliseconds)"""
    profile = profile_of(ROOT / "profiles" / "h200.toml")
    for case, optimizer in cases():
        own = own_work(case_of(case.model, cluster_of("1xh200"), case.job, stack_of("shardwise"), profile), case.policy)
        yield case.name, optimizer, 1e3 * (own.kernels_s + own.host_s)


def written(path: Path, heads: str, rows: list[tuple[Any, ...]]) -> None:
    with path.open("w", encoding="utf-8", newline="") as file:
        lines = csv.writer(file, lineterminator="\n")
        lines.writerow(heads.split())
        lines.writerows([f"{x:.5g}" if isinstance(x, float) else x for x in row] for row in rows)


def timed_ms(run: Callable[[], Any], *, repeats: int = 5, inner: int = 1) -> float:
    import torch

    found = []
    for _ in range(repeats):
        start, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))  # type: ignore[no-untyped-call]
        start.record()
        for _ in range(inner):
            run()
        end.record()
        torch.cuda.synchronize()
        found.append(start.elapsed_time(end) / inner)
    return float(statistics.median(found))


def captured_ms(run: Callable[[], Any]) -> float:
    """Of a captured graph, so without launches by the host."""
    import torch

    side = torch.cuda.Stream()  # type: ignore[no-untyped-call]
    side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side):
        run()
    torch.cuda.current_stream().wait_stream(side)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        run()
    graph.replay()
    return timed_ms(graph.replay, inner=2)


def measured_newton_schulz() -> list[tuple[Any, ...]]:
    found: list[tuple[Any, ...]] = []
    for batch, rows, columns in [*((1, *shape) for shape in shapes()), *BATCHED]:
        try:
            found.append((batch, rows, columns, *newton_schulz_ms(batch, rows, columns)))
        except Exception as error:
            print(f"{batch} of {rows}x{columns}: {type(error).__name__}: {str(error)[:200]}", flush=True)
    return found


def newton_schulz_ms(batch: int, rows: int, columns: int) -> tuple[float | str, ...]:
    """Captured, eager, by halves and their difference, over as many matrices as fill the cache several times."""
    import torch

    from shardwise.plugins.optimizers._steps import orthogonalized

    if batch > 1:
        x = torch.randn(batch, rows, columns, device="cuda")
        together = partial(orthogonalized_together, x, 5)
        return captured_ms(together) / batch, timed_ms(together) / batch, "", ""
    several = max(min(int(4e8 / (4 * rows * columns)), 16), 2)
    every = [torch.randn(rows, columns, device="cuda") for _ in range(several)]

    def each(run: Callable[..., Any]) -> None:
        for x in every:
            run(x, 5)

    ms = captured_ms(partial(each, orthogonalized)) / several, timed_ms(partial(each, orthogonalized)) / several
    try:
        from _symmetric_products import orthogonalized_by_halves

        whole, half = orthogonalized(every[0], 5).float(), orthogonalized_by_halves(every[0], 5).float()
        error = float((whole - half).norm() / whole.norm())
        return *ms, captured_ms(partial(each, orthogonalized_by_halves)) / several, error
    except Exception as error:
        print(f"halves of {rows}x{columns}: {type(error).__name__}: {str(error)[:200]}", flush=True)
        return *ms, "", ""


def orthogonalized_together(batch: Any, steps: int) -> Any:
    """Equal matrices in one kernel each."""
    import torch

    from shardwise.plugins.optimizers._steps import COEFFICIENTS

    a, b, c = COEFFICIENTS
    x = batch.bfloat16()
    x = x.mT if x.shape[1] > x.shape[2] else x
    x = x / x.norm(dim=(1, 2), keepdim=True)
    for _ in range(steps):
        gram = x @ x.mT
        x = torch.baddbmm(x, torch.baddbmm(gram, gram, gram, beta=b, alpha=c), x, beta=a)
    return x


def measured_factors() -> list[tuple[Any, ...]]:
    import torch

    found: list[tuple[Any, ...]] = []

    def add(what: str, rows: int, columns: int, run: Callable[[], Any], repeats: int = 3) -> None:
        try:
            run()
            torch.cuda.synchronize()
            found.append((what, rows, columns, timed_ms(run, repeats=repeats)))
        except Exception as error:
            print(f"{what} {rows}x{columns}: {type(error).__name__}: {str(error)[:200]}", flush=True)

    def factor(side: int, batch: tuple[int, ...] = ()) -> Any:
        x = torch.randn(*batch, side, 2 * side, device="cuda")
        return x @ x.mT / (2 * side)

    begin = perf_counter()
    for side in SIDES:
        add("qr", side, side, partial(torch.linalg.qr, factor(side)))
    for side in EIGEN:
        if perf_counter() - begin < SECONDS / 2:
            add("eigh", side, side, partial(torch.linalg.eigh, factor(side)), 1 if side > 2048 else 3)
    for kind in ("highest", "high"):
        torch.set_float32_matmul_precision(kind)
        for rows, columns in PROJECTED:
            grad = torch.randn(rows, columns, device="cuda")
            for side, left, right in ((rows, grad, grad.T), (columns, grad.T, grad)):
                if side <= LONGEST:
                    basis = torch.randn(side, side, device="cuda")
                    add(f"factor {kind}", side, rows * columns // side, partial(torch.matmul, left, right))
                    add(f"turned {kind}", side, rows * columns // side, partial(torch.matmul, basis.T, left))
    torch.set_float32_matmul_precision("highest")
    return found


def measured_steps(optimizers: list[str], models: list[str], save: Callable[[list[tuple[Any, ...]]], None]) -> None:
    """Each step by itself, with the device idle before and after it."""
    import gc

    import torch

    from shardwise.run.runtime.train.loop import Trainer
    from shardwise.run.runtime.train.optimizer import OptimizerSettings
    from shardwise.run.runtime.train.task import TrainingOrder, TrainingSettings

    found: list[tuple[Any, ...]] = []
    begin = perf_counter()
    for case, optimizer in cases():
        if optimizer not in optimizers or case.name not in models or perf_counter() - begin > SECONDS:
            continue
        settings = TrainingSettings(steps=10**6, device="cuda", rate=1e-5, optimizer=OptimizerSettings(name=optimizer))
        trainer: Trainer | None = None
        try:
            trainer = Trainer(TrainingOrder(task=case.task, settings=settings), torch.device("cuda", 0))
            torch.cuda.reset_peak_memory_stats()
            for step in range(2 * CYCLE if optimizer == "soap" else CYCLE):
                torch.cuda.synchronize()
                start = perf_counter()
                trainer.one_step()
                torch.cuda.synchronize()
                ms = 1e3 * (perf_counter() - start)
                found.append((case.name, optimizer, step + 1, ms, torch.cuda.max_memory_allocated()))
                trainer.engine.world.comm.events.clear()
                trainer.engine.pipeline.done.clear()
            times = [row[3] for row in found if row[:2] == (case.name, optimizer)][-CYCLE + 3 :]
            print(
                f"{case.name} {optimizer}: {statistics.median(times):.2f} ms, the longest {max(times):.2f}", flush=True
            )
        except Exception as error:
            print(f"{case.name} {optimizer}: {type(error).__name__}: {str(error)[:300]}", flush=True)
        del trainer
        gc.collect()
        torch.cuda.empty_cache()
        save(found)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--predict", action="store_true")
    parser.add_argument("--out", type=Path)
    parser.add_argument("--only", default="newton_schulz,factors,steps")
    parser.add_argument("--optimizers", default="adamw,muon,soap,adafactor,adamw-8bit")
    parser.add_argument("--models", default=",".join(MODELS))
    asked = parser.parse_args()
    if asked.predict:
        written(PREDICTED, "model optimizer predicted_ms", list(predictions()))
        return 0
    if asked.out is None:
        parser.error("write --predict, or --out DIR on a machine with a GPU")
    parts = asked.only.split(",")
    tables: dict[str, tuple[str, Callable[[], list[tuple[Any, ...]]]]] = {
        "newton_schulz": ("batch rows columns captured_ms eager_ms halves_ms halves_error", measured_newton_schulz),
        "factors": ("what rows columns ms", measured_factors),
    }
    for part, (heads, measure) in tables.items():
        if part in parts:
            begin = perf_counter()
            written(asked.out / f"{part}.csv", heads, measure())
            print(f"{part}: {perf_counter() - begin:.0f} s", flush=True)
    if "steps" in parts:
        heads = "model optimizer step ms peak_bytes"
        measured_steps(
            asked.optimizers.split(","),
            asked.models.split(","),
            lambda rows: written(asked.out / "steps.csv", heads, rows),
        )
    return 0


if __name__ == "__main__":
    sys.exit(main())
