"""Random launches that shardwise's own rules allow, for the tests of the targets."""

from hypothesis import strategies as st

from shardwise import Job, Policy, case_of, cluster_of, model_of, stack_of
from shardwise.plugins.pipeline import schedule_names, usual_schedule
from shardwise.programs.formats import Format, Launch, settled
from shardwise.spec.policy import MODULES, OFFLOAD, ORDERS, ZERO
from shardwise.spec.rules import verdict_of

MODELS = ("llama-3-8b", "mixtral-8x7b")
SIZES = (2, 4, 8)


UNUSUAL: dict[str, tuple] = {
    "ep": (2, 4, 8), "etp": (1, 2), "sp": (False,), "shard_group": (2, 4, 8), "recompute": ("full", "selective"),
    "schedule": schedule_names(), "attention": ("plain",), "overlap_grad": (False,), "overlap_param": (False,),
    "overlap_tp": (True,), "overlap_pp": (False,), "offload": OFFLOAD, "loss": ("plain", "fused", "chunked"),
    "order": ORDERS, "vpp": (2, 4),
}  # fmt: skip


@st.composite
def policies(draw: st.DrawFn) -> Policy:
    """Some degrees and a few unusual settings, so that many are legal and many can be stated."""
    split = draw(st.sets(st.sampled_from(("dp", "tp", "pp", "cp")), max_size=3))
    given = {axis: draw(st.sampled_from(SIZES)) for axis in sorted(split)}
    given["zero"] = draw(st.sampled_from(ZERO))
    given["micro_batch"] = draw(st.sampled_from((1, 2, 4)))
    for field in sorted(draw(st.sets(st.sampled_from(sorted(UNUSUAL)), max_size=3))):
        given[field] = draw(st.sampled_from(UNUSUAL[field]))
    given["vpp"] = given.get("vpp", 1) if given.get("pp", 1) > 1 else 1
    given.setdefault("schedule", usual_schedule(given["vpp"]))
    if given.get("recompute") == "selective":
        given["recompute_modules"] = draw(st.sampled_from(((), *[(name,) for name in MODULES], MODULES[:3:2])))
    elif given.get("recompute") == "full":
        given["recompute_layers"] = draw(st.sampled_from((-1, -1, 0, 1, 2, 5, 6)))
    if given.get("offload") == "optimizer":
        given["offload_share"] = draw(st.sampled_from((1.0, 0.5, 0.125)))
    return Policy(**given)


def launch_of(target: Format, policy: Policy, model: str, version: str = "", steps: int = 8) -> Launch | None:
    """None where shardwise's own rules refuse the policy."""
    cluster = cluster_of(f"dgx-h100:{policy.gpus}" if policy.gpus >= 8 else f"{policy.gpus}xh100")
    job = Job(seq=8192, global_batch=policy.dp * policy.micro_batch * policy.pp * steps)
    case = case_of(model_of(model), cluster, job, stack_of(target.stack))
    if not verdict_of(case.model, cluster, job, policy, cure=False).legal:
        return None
    return Launch(case, settled(policy, case), version=version, called=model)
