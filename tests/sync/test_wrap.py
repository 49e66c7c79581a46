"""`wrap` around ordinary scripts, in a group of one process: what it touches, what it refuses."""

import pytest

torch = pytest.importorskip("torch", reason="torch is not installed: nothing can be run")
import torch.distributed as dist  # noqa: E402
from torch import nn  # noqa: E402

from shardwise.plugins import sync  # noqa: E402


@pytest.fixture(autouse=True, scope="module")
def group():
    dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)
    yield
    dist.destroy_process_group()


def step(model, optimizer):
    optimizer.zero_grad()
    model(torch.ones(2, 4)).square().mean().backward()
    optimizer.step()


def two_models(make):
    torch.manual_seed(0)
    first = make()
    second = make()
    second.load_state_dict(first.state_dict())
    return first, second


@pytest.mark.parametrize("name", ["psgd", "dsgd", "local_sgd", "diloco", "mem_sgd"])
@pytest.mark.parametrize("kind", ["Adam", "RMSprop", "SGD"])
def test_one_worker_trains_as_without(name, kind):
    plain, wrapped = two_models(lambda: nn.Linear(4, 3))
    optimizers = [getattr(torch.optim, kind)(m.parameters(), lr=0.01) for m in (plain, wrapped)]
    settings = {"mem_sgd": {"compressor": sync.strategy("qsgd").examples()[-1].compressor}, "diloco": {"every": 100}}
    sync.wrap(wrapped, optimizers[1], sync.strategy(name, **settings.get(name, {})))
    for _ in range(5):
        step(plain, optimizers[0])
        step(wrapped, optimizers[1])
    for a, b in zip(plain.parameters(), wrapped.parameters(), strict=True):
        torch.testing.assert_close(a, b)


def test_frozen_parameters_stay_and_unused_ones_do_no_harm():
    class Some(nn.Module):
        def __init__(self):
            super().__init__()
            self.used, self.frozen, self.unused = nn.Linear(4, 3), nn.Linear(4, 3), nn.Linear(4, 3)
            self.frozen.requires_grad_(False)

        def forward(self, x):
            return self.used(x) + self.frozen(x)

    model = Some()
    before = model.frozen.weight.clone()
    optimizer = torch.optim.SGD([p for p in model.parameters() if p.requires_grad], lr=0.1)
    synced = sync.wrap(model, optimizer, sync.strategy("mem_sgd"))
    step(model, optimizer)
    assert torch.equal(model.frozen.weight, before)
    assert synced.comm.layout.d == 30


def test_learning_rates_by_group_reach_the_strategy():
    model = nn.Sequential(nn.Linear(4, 3), nn.Linear(3, 2))
    optimizer = torch.optim.SGD(
        [{"params": model[0].parameters(), "lr": 0.1}, {"params": model[1].parameters()}], lr=0.01
    )
    seen = []

    class Spy(type(sync.strategy("psgd"))):
        def on_grad(self, c, state, x, g, lr, t):
            seen.append(lr)
            return super().on_grad(c, state, x, g, lr, t)

    sync.wrap(model, optimizer, Spy())
    step(model, optimizer)
    assert seen[0].shape == (1, 23)
    assert seen[0][0, 0] == pytest.approx(0.1)
    assert seen[0][0, -1] == pytest.approx(0.01)
    for entry in optimizer.param_groups:
        entry["lr"] = 0.5  # a scheduler
    step(model, optimizer)
    assert seen[1] == 0.5


def test_half_precision_parameters_keep_their_type_and_state_is_fp32():
    model = nn.Linear(4, 3).to(torch.bfloat16)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    synced = sync.wrap(model, optimizer, sync.strategy("mem_sgd"))
    optimizer.zero_grad()
    model(torch.ones(2, 4, dtype=torch.bfloat16)).square().mean().backward()
    optimizer.step()
    assert model.weight.dtype == torch.bfloat16
    assert synced.state["error"].dtype == torch.float32


def test_state_goes_on_and_hooks_come_off():
    model = nn.Linear(4, 3)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    synced = sync.wrap(model, optimizer, sync.strategy("diloco", every=3))
    step(model, optimizer)
    saved = synced.state_dict()
    assert saved["step"] == 1
    step(model, optimizer)
    synced.load_state_dict(saved)
    assert synced.steps == 1
    count = len(synced.trace)
    synced.average()
    assert len(synced.trace) == count + 1
    synced.remove()
    step(model, optimizer)
    assert synced.steps == 1


def test_what_cannot_work_is_refused():
    model = nn.Linear(4, 3)
    with pytest.raises(ValueError, match="does not hold every trainable parameter"):
        sync.wrap(model, torch.optim.SGD([model.weight], lr=0.1), sync.strategy("psgd"))
    with pytest.raises(ValueError, match="decentlam assumes x - lr"):
        sync.wrap(model, torch.optim.AdamW(model.parameters()), sync.strategy("decentlam"))
    with pytest.raises(ValueError, match="needs 3 or more, not 1"):
        sync.wrap(model, torch.optim.SGD(model.parameters(), lr=0.1), sync.strategy("krum"))
    with pytest.raises(ValueError, match="does more than average gradients"):
        sync.ddp_hook(sync.strategy("dsgd"))
    with pytest.raises(ValueError, match="hands over shards"):
        sync.fsdp_hook(sync.strategy("power_sgd"), None)


def test_closures_are_refused():
    model = nn.Linear(4, 3)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    sync.wrap(model, optimizer, sync.strategy("psgd"))
    with pytest.raises(ValueError, match="closure"):
        optimizer.step(lambda: 0.0)
    step(model, optimizer)


def test_sharded_parameters_are_refused():
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.fsdp import fully_shard

    model = nn.Linear(4, 4)
    fully_shard(model, mesh=init_device_mesh("cpu", (1,)))
    with pytest.raises(ValueError, match="sharded \\(DTensor\\)"):
        sync.wrap(model, torch.optim.SGD(model.parameters(), lr=0.1), sync.strategy("psgd"))


def test_an_optimizer_that_mixes_workers_is_refused_in_a_stack():
    with pytest.raises(ValueError, match="batched=False"):
        sync.simulate(
            lambda: nn.Linear(2, 2), lambda p: torch.optim.Adafactor(p, lr=0.01), sync.strategy("psgd"), n=2, steps=1,
            batch_fn=lambda *_: (torch.ones(1, 2), torch.ones(1, 2)), loss_fn=nn.functional.mse_loss,
        )  # fmt: skip
