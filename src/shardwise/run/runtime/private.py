"""What running, tracing and splitting need of torch beyond its public interface: all of it is here, and tested.

Tried with torch 2.11 and 2.13; names that moved between them are looked up in both places.
"""

import inspect
import sys
import warnings
import weakref
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager
from functools import wraps
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor
from torch._subclasses.fake_tensor import (
    DataDependentOutputException,
    DynamicOutputShapeException,
    FakeTensor,
    FakeTensorMode,
    unset_fake_temporarily,
)
from torch.distributed import device_mesh
from torch.distributed.tensor import DTensor, _redistribute, debug
from torch.distributed.tensor._sharding_prop import ShardingPropagator
from torch.optim import optimizer
from torch.utils import _foreach_utils
from torch.utils._python_dispatch import _disable_current_modes, is_traceable_wrapper_subclass_type
from torch.utils.data import DataLoader
from torch.utils.data.dataloader import _BaseDataLoaderIter

VALUE_ERRORS = (DataDependentOutputException, DynamicOutputShapeException)
PROPAGATES = "_propagate_tensor_meta_non_cached"


def fake_tensors() -> FakeTensorMode:
    """Tensors with shape, dtype and a storage of the right size, but no values."""
    return FakeTensorMode(allow_non_fake_inputs=True)


def is_fake(tensor: Tensor) -> bool:
    return isinstance(tensor, FakeTensor)


def in_backward() -> bool:
    """Autograd's engine is running."""
    return bool(torch._C._current_graph_task_id() != -1)


def wraps_others(types: Any) -> bool:
    """A DTensor or the like is among the arguments: it calls again with the tensors it is made of."""
    return any(is_traceable_wrapper_subclass_type(kind) for kind in types)


def local_of(tensor: Tensor) -> Tensor:
    """This rank's part, without an operator."""
    return tensor._local_tensor if isinstance(tensor, DTensor) else tensor


def process_group(value: Any) -> dist.ProcessGroup:
    """Of a boxed group (c10d operators), a name or a group (functional ones)."""
    if isinstance(value, dist.ProcessGroup):
        return value
    if isinstance(value, str):
        resolve: Callable[[Any], dist.ProcessGroup] = vars(dist.distributed_c10d)["_resolve_process_group"]
        return resolve(value)
    return dist.ProcessGroup.unbox(value)


def forget_meshes() -> None:
    """DTensor remembers the meshes of its operators; those of another process group must not come back."""
    for name in ("_clear_sharding_prop_cache", "_clear_python_sharding_prop_cache"):
        clear = getattr(debug, name, None)
        if clear is not None:
            clear()
            break
    for name, module in list(sys.modules.items()):
        if name.startswith("torch.distributed.tensor"):
            for value in list(vars(module).values()):
                if hasattr(value, "cache_clear") and hasattr(value, "__wrapped__"):
                    value.cache_clear()
    forget_plans = getattr(_redistribute, "clear_redistribute_planner_cache", None)
    if forget_plans is not None:
        forget_plans()


def after_backward(call: Callable[[], None]) -> None:
    """When the backward pass that runs now has ended."""
    torch.autograd.Variable._execution_engine.queue_callback(call)


def forget_forward(module: Any) -> None:
    """Of a module under FSDP2 that ran forward alone: else the next backward gathers ahead in that pass's order."""
    state = module._get_fsdp_state()
    state._comm_ctx.post_forward_order.clear()
    for each in fsdp_groups(state):
        each._post_forward_indices.clear()


def fsdp_groups(state: Any) -> list[Any]:
    """Parameters that FSDP2 gathers together; before torch 2.12 a module has one such group, or none."""
    groups = state._fsdp_param_groups if hasattr(state, "_fsdp_param_groups") else [state._fsdp_param_group]
    return [group for group in groups if group is not None]


def bucket_order(tensors: Sequence[Tensor], limits: list[int]) -> list[list[int]]:
    """How DistributedDataParallel puts tensors into buckets of so many bytes, the last limit for all that follow."""
    assign: Callable[..., Any] = vars(dist)["_compute_bucket_assignment_by_size"]
    found: list[list[int]] = assign(list(tensors), limits)[0]
    return found


@contextmanager
def autocast_kernels(kernels: dict[str, Callable[..., Any]]) -> Iterator[None]:
    """Takes the place of what autocast does to these operators on a CPU."""
    library: Any = torch.library.Library("aten", "IMPL")  # type: ignore[no-untyped-call]
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # some of them have a kernel already
            for name, kernel in kernels.items():
                library.impl(name, kernel, "AutocastCPU")
        yield
    finally:
        library._destroy()


def without_autocast() -> AbstractContextManager[Any]:
    keys = torch._C.DispatchKeySet(torch._C.DispatchKey.AutocastCPU)
    guard: AbstractContextManager[Any] = torch._C._ExcludeDispatchKeyGuard(keys)
    return guard


@contextmanager
def lists_of_tensors() -> Iterator[None]:
    """Optimizers go over lists of tensors on CUDA unless told otherwise, and so they shall here."""
    kinds = (optimizer._foreach_supported_types, _foreach_utils._foreach_supported_types)
    devices = _foreach_utils._get_foreach_kernels_supported_devices
    for known in kinds:
        known.append(FakeTensor)
    try:
        with swapped_everywhere(devices, lambda: ["cpu", *devices()]):
            yield
    finally:
        for known in kinds:
            known.remove(FakeTensor)


@contextmanager
def quiet_addresses() -> Iterator[None]:
    """FSDP1 compares the addresses of storages, of which torch says that ours have none."""
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="Accessing the data pointer of FakeTensor")
        yield


class _Nothing:
    """A class no tensor is of."""


@contextmanager
def taken_for_real() -> Iterator[None]:
    """Libraries that ask whether a tensor has values, to spare themselves a look at them, shall do what they do to real
    ones: transformers then leaves out a mask that is causal."""
    with swapped(torch._subclasses, "FakeTensor", _Nothing):
        yield


@contextmanager
def real_waits(told: Callable[[bool], None]) -> Iterator[None]:
    """gloo finishes some messages with operators of its own while they are waited for."""
    original = dist.Work.wait

    def wait(work: dist.Work, *args: Any, **kwargs: Any) -> Any:
        told(True)
        try:
            return original(work, *args, **kwargs)
        finally:
            told(False)

    with swapped(dist.Work, "wait", wait):
        yield


@contextmanager
def resizes(told: Callable[[torch.UntypedStorage], None]) -> Iterator[None]:
    """FSDP2 frees and allocates by resizing storages, which no operator shows."""
    original = torch.UntypedStorage.resize_

    @wraps(original)
    def resize(storage: torch.UntypedStorage, size: int) -> Any:
        answer = original(storage, size)
        told(storage)
        return answer

    with swapped(torch.UntypedStorage, "resize_", resize):
        yield


@contextmanager
def shape_propagation(told: Callable[[bool], None]) -> Iterator[None]:
    """DTensor finds the shape of a result by running the operator on tensors of the global shape."""
    original = getattr(ShardingPropagator, PROPAGATES)

    @wraps(original)
    def propagate(*args: Any, **kwargs: Any) -> Any:
        told(True)
        try:
            return original(*args, **kwargs)
        finally:
            told(False)

    with swapped(ShardingPropagator, PROPAGATES, propagate):
        yield


@contextmanager
def real_meshes(prepared: Callable[[tuple[Any, ...], dict[str, Any]], tuple[Any, ...]]) -> Iterator[None]:
    """Meshes read their own small tensors of ranks, so their code runs outside the fake mode.

    `prepared` sees the arguments of a new mesh first and may change them.
    """
    kind = device_mesh.DeviceMesh
    before = {name: value for name, value in vars(kind).items() if _code(value) is not None}
    creator = device_mesh.init_device_mesh

    @wraps(creator)
    def create(*args: Any, **kwargs: Any) -> Any:
        args = prepared(args, kwargs)
        with unset_fake_temporarily():
            return creator(*args, **kwargs)

    for name, value in before.items():
        setattr(kind, name, _outside(value))
    try:
        with swapped_everywhere(creator, create):
            yield
    finally:
        for name, value in before.items():
            setattr(kind, name, value)


def _code(value: object) -> Any:
    if isinstance(value, property):
        return value.fget
    if isinstance(value, staticmethod):
        return value.__func__
    return value if inspect.isfunction(value) else None


def _outside(value: object) -> object:
    function = _code(value)

    @wraps(function)
    def outside(*args: Any, **kwargs: Any) -> Any:
        with unset_fake_temporarily():
            return function(*args, **kwargs)

    if isinstance(value, property):
        return property(outside, value.fset, value.fdel)
    return staticmethod(outside) if isinstance(value, staticmethod) else outside


@contextmanager
def convertible_modules(mode: FakeTensorMode) -> Iterator[None]:
    """`module.to(...)` swaps parameters, which fails as long as somebody remembers them by weak reference: the mode
    does, also those that were made of numbers or copied with their module."""
    original: Callable[[Tensor, Tensor], None] = torch.utils.swap_tensors

    def swap(first: Tensor, second: Tensor) -> None:
        mode.fake_tensor_converter.meta_converter.tensor_memo.clear()
        with swapped(weakref, "getweakrefs", lambda _: []):
            original(first, second)

    with swapped(torch.utils, "swap_tensors", swap):
        yield


@contextmanager
def unheard_and_real() -> Iterator[None]:
    """What runs here works on values, and nothing listens."""
    with unset_fake_temporarily(), _disable_current_modes():
        yield


@contextmanager
def compiling(active: Callable[[], bool]) -> Iterator[None]:
    """Code that asks whether it is being compiled is told so where torch.compile was asked for: libraries then leave
    out what needs values."""

    def is_compiling() -> bool:
        return active()

    with ExitStack() as stack:
        for name in ("is_compiling", "is_dynamo_compiling"):
            stack.enter_context(swapped(torch.compiler, name, is_compiling))
        yield


@contextmanager
def real_loaders() -> Iterator[None]:
    """A data loader draws and reads random numbers: it works on values, and nothing listens."""

    def unheard(function: Callable[..., Any]) -> Callable[..., Any]:
        @wraps(function)
        def called(*args: Any, **kwargs: Any) -> Any:
            with _disable_current_modes():
                return function(*args, **kwargs)

        return called

    iterates, gives = DataLoader.__iter__, _BaseDataLoaderIter.__next__
    with swapped(DataLoader, "__iter__", unheard(iterates)), swapped(_BaseDataLoaderIter, "__next__", unheard(gives)):
        yield


@contextmanager
def static_pipelines() -> Iterator[None]:
    """Pipeline stages of torch ask each other whether shapes are known; here nobody answers, so they must be given."""
    try:
        from torch.distributed.pipelining import schedules
        from torch.distributed.pipelining._utils import InferenceMode
    except ImportError:
        yield  # before 2.13 the stages do not ask
        return

    def known(_: Any, stages: Any, *__: Any, **___: Any) -> None:
        for stage in stages:
            stage._inference_mode = InferenceMode.STATIC

    with swapped(schedules._PipelineSchedule, "_warmup_p2p", known):
        yield


@contextmanager
def swapped(owner: Any, name: str, value: Any) -> Iterator[None]:
    before = inspect.getattr_static(owner, name)
    setattr(owner, name, value)
    try:
        yield
    finally:
        setattr(owner, name, before)


def replace_everywhere(before: Any, after: Any) -> None:
    """For good, in every module that has the object, under whatever name."""
    for module in list(sys.modules.values()):
        for name in [name for name, value in list(getattr(module, "__dict__", {}).items()) if value is before]:
            setattr(module, name, after)


@contextmanager
def swapped_everywhere(before: Any, after: Any) -> Iterator[None]:
    """In every module that has the object under its own name, also those that imported it from another."""
    name = before.__name__
    after.__name__ = name
    places = [module for module in list(sys.modules.values()) if getattr(module, "__dict__", {}).get(name) is before]
    for module in places:
        setattr(module, name, after)
    try:
        yield
    finally:
        for module in list(sys.modules.values()):
            if getattr(module, "__dict__", {}).get(name) is after:
                setattr(module, name, before)
