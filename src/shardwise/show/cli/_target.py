"""What the user points at: a GPU or a cluster, by name, count or file."""

from shardwise import catalog
from shardwise.registry import closest
from shardwise.spec.cluster import Cluster
from shardwise.spec.gpu import Gpu
from shardwise.spec.load import cluster_of, gpu_of

DTYPES = ("tf32", "fp16", "bf16", "fp8", "fp4")
LONE_GPU_DOMAIN = 8


def target_of(text: str) -> Cluster:
    """A cluster as named; a GPU alone stands for one box of eight of them."""
    gpu = _gpu_or_none(text)
    return cluster_of(text if gpu is None else f"{LONE_GPU_DOMAIN}x{gpu.name}")


def gpu_from(text: str) -> Gpu:
    """The GPU named, or the one a cluster is made of."""
    gpu = _gpu_or_none(text)
    return cluster_of(text).gpu if gpu is None else gpu


def known_dtype(text: str) -> str:
    if text not in DTYPES:
        raise ValueError(f"dtype: {text!r} is unknown; {closest(text, list(DTYPES))}")
    return text


def missing_dtype(gpu: Gpu, dtype: str) -> list[str]:
    """A note when the chip lacks the dtype and a wider one was counted."""
    if dtype in gpu.peak_flops:
        return []
    return [f"a {gpu.name} has no {dtype} rate: counted at {gpu.peak(dtype) / 1e12:,.4g} TFLOP/s of a wider dtype"]


def _gpu_or_none(text: str) -> Gpu | None:
    try:
        return gpu_of(text)
    except ValueError:
        _say_both_when_neither(text)
        return None


def _say_both_when_neither(text: str) -> None:
    """A plain word that names nothing: look for the nearest among GPUs and clusters together."""
    word = text.strip().lower()
    if not word.replace("-", "").isalnum() or word.split("x")[0].isdigit():
        return
    known = [*catalog.names("gpus"), *catalog.names("fabrics")]
    try:
        catalog.resolve("fabrics", word)
    except ValueError:
        raise ValueError(f"{text!r} is neither a GPU nor a cluster; {closest(word, known)}") from None
