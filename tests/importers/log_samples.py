"""A log of every form that is read, written from the times of its steps, so that what must come out is known."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime

TOKENS = 1_048_576
"""of a step, where a form prints a rate"""
GPUS = 8
BATCH = 128
JUNK = [
    "",
    "\x1b[32mWARNING\x1b[0m: something {odd: ",
    "Traceback? no | step",
    "\x00\x01\x02",
    "loss nan 3.2e",
    "100%|",
]
BEGAN = 1_760_000_000


@dataclass(frozen=True)
class Sample:
    title: str
    write: Callable[[int, float, float], list[str]]
    """(number of the step, its seconds, the clock) -> lines"""
    exact: bool
    """seconds without knowing the job"""


def _day(at: float) -> str:
    return f"{datetime.fromtimestamp(at, UTC):%Y-%m-%d %H:%M:%S}"


def _rate(seconds: float) -> float:
    return TOKENS / seconds / GPUS


SAMPLES: dict[str, Sample] = {
    "megatron": Sample("Megatron", lambda n, s, t: [
        f" [{_day(t)}] iteration {n:8}/    1000 | consumed samples: {n * BATCH:12} | elapsed time per iteration (ms): "
        f"{s * 1e3:.1f} | throughput per GPU (TFLOP/s/GPU): 412.3 | learning rate: 3.0E-05 | global batch size: "
        f"{BATCH:5} | lm loss: 1.258695E+01 | loss scale: 1.0 | grad norm: 2.1 |",
        "[Rank 0] (after 2 iterations) memory (MB) | allocated: 100.0 | max allocated: 60000.0 | reserved: 6 | max "
        "reserved: 70000.0",
    ], True),
    "bridge": Sample("Megatron-Bridge", lambda _n, s, _t: [
        f"ain_fp8/0 Step Time : {s:.3f}s GPU utilization: 663.5MODEL_TFLOP/s/GPU"], True),
    "nemo": Sample("NeMo", lambda n, s, _t: [
        f"Training epoch 0, iteration {n - 1}/99 | lr: 6.9e-06 | global_batch_size: {BATCH} | global_step: {n} | "
        f"max_memory_reserved: 75161927680 | max_memory_allocated: 64424509440 | reduced_train_loss: 11.96 | "
        f"train_step_timing in s: {s:.4g} | TFLOPS_per_GPU: 1.249e+03 | consumed_samples: 5888"], True),
    "torchtitan": Sample("torchtitan", lambda n, s, t: [
        f"[rank0]:[titan] {_day(t)} - root - INFO - \x1b[31mstep: {n:2}  \x1b[32mloss:  7.10  grad_norm: 1.5  "
        f"\x1b[33mmemory: 60.00GiB(63.2%)  \x1b[34mtps: {_rate(s):,.0f}  \x1b[36mtflops: 412.30  mfu: N/A\x1b[39m",
        "validate step:  1  loss:  6.0  memory: 90.00GiB(94.7%)  tps: 99,999"], True),
    "iterations": Sample("litgpt or nanoGPT", lambda n, s, _t: [
        f"iter {n}: loss 1.2000, time {1e3 * s:.2f}ms, mfu 30.00%"], True),
    "torchtune": Sample("torchtune", lambda n, s, _t: [
        f"Step {n} | loss:1.2 lr:1e-05 tokens_per_second_per_gpu:{_rate(s):.2f} peak_memory_alloc:60.0 "], False),
    "deepspeed": Sample("DeepSpeed", lambda n, s, t: [
        f"[{_day(t)},714] [INFO] [logging.py:96:log_dist] [Rank 0] step={n}, skipped=4, lr=[5e-05], mom=[(0.9, 0.95)]",
        f"[{_day(t)},714] [INFO] [timer.py:260:stop] epoch=0/micro_step={4 * n}/global_step={n}, "
        f"RunningAvgSamplesPerSec=25.02, CurrSamplesPerSec={BATCH / s:.12f}, MemAllocated=4.3GB, "
        "MaxMemAllocated=60.0GB",
    ], True),
    "deepspeed pipeline": Sample("DeepSpeed", lambda n, s, _t: [
        f"steps: {n} loss: 1.2345 iter time (s): {s:.3f} samples/sec: {BATCH / s:.3f}"], True),
    "nanotron": Sample("nanotron", lambda n, s, t: [
        f"[default0]:{_day(t)} [INFO|DP=0|PP=0|TP=0|nid1]: iteration: {n} / 100 | consumed_tokens: 12.3M | "
        f"time_per_iteration_ms: {s:.3g}K | tokens_per_sec: 51.2K | tokens_per_sec_per_gpu: 6.4K | "
        f"global_batch_size: 1.05M | lm_loss: 7.1 | lr: 0.0003 | model_tflops_per_gpu: 412 | grad_norm: 1.2"], True),
    "maxtext": Sample("MaxText", lambda n, s, _t: [
        f"I0601 22:14:55 metric_logger.py:181] completed step: {n}, seconds: {s:.3f}, TFLOP/s/device: 412.3, "
        f"Tokens/s/device: {_rate(s):.3f}, total_weights: 4194304, loss: 2.136"], True),
    "verl": Sample("verl", lambda n, s, _t: [
        f"(TaskRunner pid=7) step:{n} - actor/lr:1e-06 - timing_s/gen:3.1 - perf/max_memory_reserved_gb:60.0 - "
        f"perf/total_num_tokens:{TOKENS} - perf/time_per_step:{s:.6f} - perf/throughput:{_rate(s):.3f}"], True),
    "nemo_rl": Sample("NeMo-RL", lambda n, s, _t: [
        f"=================== Step {n}/100 ===================", "  • Loss: 1.2345", f"  • Total step time: {s:.6f}s",
        "  • policy_training: 25.05s (37.6%)"], True),
    "huggingface": Sample("Hugging Face Trainer", lambda n, s, _t: [
        f"{{'loss': '1.29', 'grad_norm': '1.01', 'learning_rate': '8e-08', 'epoch': '3.0', 'memory(GiB)': '60.0', "
        f"'global_step/max_steps': '{n}/1000', 'train_speed(iter/s)': {1 / s:.9f}}}"], True),
    "axolotl": Sample("Hugging Face Trainer", lambda _n, s, _t: [
        f"{{'loss': 1.29, 'grad_norm': 1.01, 'learning_rate': 8e-08, 'memory/max_mem_active(gib)': 60.0, "
        f"'tokens_per_second_per_gpu': {_rate(s):.3f}, 'epoch': 0.3}}"], False),
    "progress_bar": Sample("Lightning or another progress bar", lambda n, s, _t: [
        f"\rEpoch 0: {n // 2:3}%|##        | {n}/200 [01:{n % 60:02}<04:30, {1 / s:8.5f}it/s, v_num=0, "
        "train_loss=2.3]"],
        True),
    "composer": Sample("Composer", lambda n, s, _t: [
        f"[batch={n}/4800]:", "\t Train LanguageCrossEntropy: 10.9",
        f"\t Train throughput/device/tokens_per_sec: {_rate(s):.4f}", "\t Train loss/train/total: 10.9",
        "\t Train memory/peak_reserved_mem: 64.4"], False),
    "olmo": Sample("OLMo-core", lambda n, s, t: [
        f"{_day(t)}.123\thost:0\tolmo_core.train:700\tINFO\t[step={n}/1000,epoch=1,eta=3h]",
        "    optim/LR=0.0003", f"    throughput/device/TPS={_rate(s):,.1f}", "    train/CE loss=7.1",
        "    system/GPU reserved memory (GiB)=60.0"], True),
}  # fmt: skip


def log_of(name: str, seconds: Sequence[float], junk: bool = True, pauses: dict[int, float] | None = None,
           said: str = "") -> str:  # fmt: skip
    """`pauses`: step -> seconds that pass before it without being counted; `said`: printed there."""
    at, lines = float(BEGAN), list[str]()
    for number, each in enumerate(seconds, start=1):
        pause = (pauses or {}).get(number, 0.0)
        if pause and said:
            lines.append(said)
        at += each + pause
        lines += SAMPLES[name].write(number, each, at)
        if junk:
            lines.append(JUNK[number % len(JUNK)])
    return "\n".join(lines) + "\n"
