"""`posttrain`: a step of reinforcement learning - who rolls out, who trains, each phase, memory of each role, cost."""

from collections.abc import Iterator, Sequence
from typing import Annotated

from msgspec import Struct

from shardwise.answers._posttrain_run import PosttrainRun, run_of
from shardwise.answers.answer import SIZES, Answer, Cell, FactList, Notes, Part, shown, table
from shardwise.plan.posttrain import STALE, PosttrainLayout, PosttrainRanking, PosttrainSpace, posttrain_layouts
from shardwise.question.posttrain import PosttrainQuestion
from shardwise.question.studies.money import rent_a_day
from shardwise.report.terminal import dollars_range, policy_code
from shardwise.spec.policy import Policy
from shardwise.step.posttrain.facts import ErrorFacts, facts
from shardwise.step.posttrain.lanes import StepCourse, course_of
from shardwise.step.posttrain.phases import COLOCATED, HYBRID, SPLIT, Sides, beside_update_bytes
from shardwise.step.posttrain.staleness import Ages, ages_of
from shardwise.units import gib, share_text, time_text

LISTED = 5
THOUSAND = 1000
LENT = " and roll out while they would wait"
TAIL = 0.01
"""share of a step below which its tail is not worth a word"""
DAY = 86400.0


class PosttrainRow(Struct, frozen=True, kw_only=True):
    """One layout, priced."""

    taken: Annotated[bool, shown("", "mark")]
    layout: Annotated[str, shown("layout")]
    """GPUs that roll out + GPUs that train, or all in turn"""
    lag: Annotated[int, shown("lag")]
    """steps that answers may be older than the weights"""
    engine_tp: Annotated[int, shown("engine")]
    policy: Annotated[Policy, shown("trainer", "policy")]
    step_s: Annotated[float, shown("step s", "s")]
    step_low_s: float
    step_high_s: float
    tokens_per_s_per_gpu: Annotated[float, shown("tok/s", "per second")]
    samples_per_hour: float
    idle_share: Annotated[float, shown("idle %", "%")]
    usd: Annotated[tuple[float, float] | None, shown("USD/1k", "USD span")]
    """of a thousand samples; None: no published rent"""
    mode: str
    rollout_gpus: int
    train_gpus: int
    rollout_s: float
    reward_s: float
    log_probs_s: float
    update_s: float
    sync_s: float
    other_s: float
    waiting_s: float
    engine_share: float
    sequences_at_once: int
    cache_token_bytes: float
    """of one token, on all GPUs of an engine"""
    sync_bytes: float
    """of weights that all GPUs that roll out receive"""
    risk: float
    """of running out of memory in the update"""


class PhaseRow(Struct, frozen=True, kw_only=True):
    phase: Annotated[str, shown("phase")]
    seconds: Annotated[float, shown("s", "s")]
    share: Annotated[float, shown("%", "%")]
    """of the step; phases of a split layout run side by side"""
    where: Annotated[str, shown("on")]


class RoleMemory(Struct, frozen=True, kw_only=True):
    """Memory of one GPU while a role has it."""

    role: Annotated[str, shown("role")]
    holds: Annotated[str, shown("holds")]
    used_bytes: Annotated[float, shown("", SIZES)]
    limit_bytes: Annotated[float, shown("of", SIZES)]


class PosttrainTerms(Struct, frozen=True, kw_only=True):
    """What a step was asked to do."""

    prompts: int
    group: int
    prompt_tokens: int
    cap: int
    """longest answer"""
    updates: int
    reference: bool
    rollout_precision: str


class Staleness(Struct, frozen=True, kw_only=True):
    """Of answers when they are trained, in steps of the weights since their first token."""

    mean_age: float
    shares: Sequence[float]
    """of answers, by age"""
    dropped_share: float
    """older than the lag: of a program that drops those so many more are rolled out, which the step does not hold"""
    spanning_share: float
    """weights changed while they were rolled out (partial rollouts)"""

    def text(self) -> str:
        ages = ", ".join(f"{age}: {share_text(share)}" for age, share in enumerate(self.shares) if share >= TAIL)
        late = f"; a program that drops older ones drops {share_text(self.dropped_share)}" if self.dropped_share else ""
        return (
            f"{self.mean_age:.1f} steps old on average ({ages}){late}; weights changed on the way in "
            f"{share_text(self.spanning_share)}"
        )


class PosttrainAnswer(Answer, frozen=True, kw_only=True):
    notes_among_parts = True

    model: str
    cluster: str
    gpus: int
    stack: str
    algorithm: str
    job: PosttrainTerms
    sequences: int
    mean_answer_tokens: float
    longest_tokens: int
    recommended: PosttrainRow | None
    best: Sequence[PosttrainRow]
    """by step time"""
    layouts: int
    """priced"""
    phases: Sequence[PhaseRow]
    memory: Sequence[RoleMemory]
    staleness: Staleness | None
    """None: on-policy"""
    course: StepCourse | None
    """of a few steps of the recommended layout: both sides over time"""
    run: PosttrainRun | None
    """of so many steps, where those are stated"""
    losers: Sequence[str]
    error_range: tuple[float, float]
    error_basis: str

    @property
    def exit_code(self) -> int:
        """1: nothing fits."""
        return 0 if self.recommended is not None else 1

    def parts(self) -> Iterator[Part]:
        title = f"{self.algorithm} of {self.model} on {self.cluster}"
        take = self.recommended
        if take is None:
            yield FactList(f"{title}: no layout fits", [])
            yield Notes(self.losers, "why none")
            yield Notes(self.notes, "assumed, and to know")
            return
        yield FactList(title, list(self._facts(take)))
        without = () if take.usd else ("usd",)
        yield table("layouts by step time", self.best, words=5, breaks=4, without=without)
        yield Notes(self.losers, "why others lose")
        yield Notes(self.notes, "assumed, and to know")

    def parts_of_step(self) -> Iterator[Part]:
        """Of one layout, inside another answer."""
        take = self.recommended
        if take is None:
            yield Notes(self.losers, "the whole step does not fit")
        else:
            yield FactList("the whole step", list(self._facts(take)))

    def more(self) -> Iterator[Part]:
        if self.phases:
            yield table("phases of it", self.phases)
            yield table("memory of one GPU", self.memory, words=2, breaks=1)

    def _facts(self, take: PosttrainRow) -> Iterator[tuple[str, Cell]]:
        lag = "on-policy" if take.lag == 0 else f"answers at most {take.lag} step{'s' * (take.lag > 1)} old"
        who = f"both on all {take.train_gpus} GPUs in turn"
        if take.mode != COLOCATED:
            who = f"{take.rollout_gpus} GPUs roll out, {take.train_gpus} train" + LENT * (take.mode == HYBRID)
        engines = (
            f"{who}, {lag}; engines of {take.engine_tp}" if take.rollout_s else f"all {take.train_gpus} GPUs train"
        )
        yield "take", f"{engines}, trainer {policy_code(take.policy)}"
        band = f"80 %: {time_text(take.step_low_s)} to {time_text(take.step_high_s)}"
        yield "step", f"{time_text(take.step_s)} ({band}) of {self.sequences:,} answers"
        cost = "" if take.usd is None else f"; {dollars_range(take.usd)} USD a thousand"
        yield "samples", f"{take.samples_per_hour:,.0f} an hour{cost}"
        memory = {
            role.role: f"; {gib(role.used_bytes)} of {gib(role.limit_bytes)} GiB: {role.holds}" for role in self.memory
        }
        if take.rollout_s:
            once = f"{take.sequences_at_once} answers at once on an engine"
            yield "rollout", f"{time_text(take.rollout_s)}, {once}{memory.get('rollout', '')}"
        scores = f"reward {time_text(take.reward_s)}, " if take.reward_s else ""
        trains = f"{scores}log-probs {time_text(take.log_probs_s)}, update {time_text(take.update_s)}"
        yield "trainer", f"{trains}{memory.get('update', '')}, {share_text(take.risk)} risk of running out"
        yield "answers", self.staleness.text() if self.staleness is not None else None
        sync = f"weight sync {time_text(take.sync_s)}, " if take.sync_s else ""
        yield "run", self.run.text() if self.run is not None else None
        rule = "" if take.reward_s else "rewards by rule "
        yield "between", f"{sync}data, {rule}and the rest {time_text(take.other_s)}"


ANSWERS = (PosttrainAnswer,)


def posttrain_answer(question: PosttrainQuestion, *, model: str = "", on: str = "") -> PosttrainAnswer:
    """`model`, `on`: as a command line names them."""
    space = question.space
    ranked = posttrain_layouts(space)
    take, error = ranked.recommended, _error(question)
    rows = [_row(question, layout, layout is take) for layout in _listed(ranked)]
    at_once = take is not None and take.sides.lag and space.job.rule.rolls_out
    ages = ages_of(space.job, take.rollout, take.phases) if take is not None and at_once else None
    gpus = space.cluster.gpus + (space.rollout_cluster.gpus if space.rollout_cluster else 0)
    return PosttrainAnswer(
        model=model or space.model.name, cluster=_where(space, on or space.cluster.name), gpus=gpus,
        stack=question.stack, algorithm=space.job.algorithm, job=_terms(space), sequences=space.job.sequences,
        mean_answer_tokens=space.job.mean_answer,
        longest_tokens=space.job.longest, recommended=next((row for row in rows if row.taken), None), best=rows,
        layouts=len(ranked.layouts), phases=_phases(space, take) if take else [],
        memory=_memory(question, take) if take else [],
        staleness=_staleness(ages) if ages is not None else None,
        course=course_of(space.job, take.rollout, take.phases, ages) if take is not None else None,
        run=_run(question, take) if take is not None and question.steps else None,
        losers=list(_losers(ranked)), error_range=(error.low, error.high), error_basis=error.source,
        notes=question.notes,
    )  # fmt: skip


def _where(space: PosttrainSpace, on: str) -> str:
    return on if space.rollout_cluster is None else f"{on} and {space.rollout_cluster.name}"


def _terms(space: PosttrainSpace) -> PosttrainTerms:
    job = space.job
    return PosttrainTerms(
        prompts=job.prompts, group=job.group, prompt_tokens=job.prompt_tokens, cap=job.cap, updates=job.updates,
        reference=job.rule.reference if job.reference is None else job.reference,
        rollout_precision=space.rollout_precision,
    )  # fmt: skip


def _run(question: PosttrainQuestion, take: PosttrainLayout) -> PosttrainRun:
    rent = _dollars(question, take)
    each = question.space.job.sequences / THOUSAND
    return run_of(
        question.space, take, question.steps or 1, question.failures,
        None if rent is None else (rent[0] * each, rent[1] * each),
    )  # fmt: skip


def _staleness(found: Ages) -> Staleness:
    return Staleness(
        mean_age=found.mean, shares=found.shares, dropped_share=found.dropped, spanning_share=found.spanning
    )


def _error(question: PosttrainQuestion) -> ErrorFacts:
    return facts().error if question.space.program.steps else facts().error_elsewhere


def _listed(ranked: PosttrainRanking) -> list[PosttrainLayout]:
    """The recommended one, the fastest of each mode and lag, then other splits."""
    seen: dict[tuple[str, int, int], PosttrainLayout] = {}
    kinds: dict[tuple[str, int], PosttrainLayout] = {}
    for layout in ranked.layouts:
        sides = layout.sides
        seen.setdefault((sides.mode, sides.rollout_gpus, sides.lag), layout)
        kinds.setdefault((sides.mode, sides.lag), layout)
    chosen = [] if ranked.recommended is None else [ranked.recommended]
    wanted = {id(layout): layout for layout in [*chosen, *kinds.values(), *seen.values()]}
    return sorted(list(wanted.values())[:LISTED], key=lambda layout: layout.step_s)


def _row(question: PosttrainQuestion, layout: PosttrainLayout, taken: bool) -> PosttrainRow:
    space, sides, phases = question.space, layout.sides, layout.phases
    error, step = _error(question), layout.step_s
    colocated = sides.mode == COLOCATED
    gpus = sides.train_gpus if colocated else sides.train_gpus + sides.rollout_gpus
    return PosttrainRow(
        taken=taken, layout=_named(sides), lag=sides.lag,
        engine_tp=sides.tp, policy=layout.trainer.policy, step_s=step, step_low_s=step * error.low,
        step_high_s=step * error.high, tokens_per_s_per_gpu=space.job.tokens / step / gpus,
        samples_per_hour=3600 * space.job.sequences / step, idle_share=layout.idle,
        usd=_dollars(question, layout), mode=sides.mode, rollout_gpus=sides.rollout_gpus, train_gpus=sides.train_gpus,
        rollout_s=phases.rollout_s, reward_s=phases.reward_s, log_probs_s=phases.log_probs_s,
        update_s=phases.update_s, sync_s=phases.sync_s,
        other_s=phases.other_s, waiting_s=phases.waiting_s, engine_share=sides.share,
        sequences_at_once=layout.rollout.running, risk=layout.risk,
        cache_token_bytes=layout.rollout.token_bytes,
        sync_bytes=layout.rollout.weights_bytes * sides.rollout_gpus if phases.sync_s else 0.0,
    )  # fmt: skip


def _named(sides: Sides) -> str:
    if sides.mode == COLOCATED:
        return COLOCATED
    return f"{sides.rollout_gpus} {'+' if sides.mode == SPLIT else '+>'} {sides.train_gpus}"


def _dollars(question: PosttrainQuestion, layout: PosttrainLayout) -> tuple[float, float] | None:
    """Of a thousand samples, at the on-demand rent."""
    space, sides = question.space, layout.sides
    trains = rent_a_day(space.cluster.gpu.name, sides.train_gpus)
    other = space.rollout_cluster or space.cluster
    rolls = (0.0, 0.0) if sides.mode == COLOCATED else rent_a_day(other.gpu.name, sides.rollout_gpus)
    if trains is None or rolls is None:
        return None
    days = THOUSAND * layout.step_s / space.job.sequences / DAY
    return days * (trains[0] + rolls[0]), days * (trains[1] + rolls[1])


def _phases(space: PosttrainSpace, take: PosttrainLayout) -> list[PhaseRow]:
    sides, phases = take.sides, take.phases
    split = sides.mode != COLOCATED
    rolls = f"{sides.rollout_gpus} GPUs" if split else "all GPUs"
    trains = f"{sides.train_gpus} GPUs, meanwhile" if split else "all GPUs"
    rows = [
        ("rollout", phases.rollout_s, f"{rolls}, {take.rollout.running} at once on an engine"),
        ("reward", phases.reward_s, trains),
        ("log-probs", phases.log_probs_s, trains),
        ("update", phases.update_s, trains),
        ("weight sync", phases.sync_s, _ways(space, take)),
        ("other", phases.other_s, "data, rewards by rule, advantages"),
    ]
    return [
        PhaseRow(phase=phase, seconds=seconds, share=seconds / phases.step_s, where=where)
        for phase, seconds, where in rows
        if seconds
    ]


def _ways(space: PosttrainSpace, take: PosttrainLayout) -> str:
    """What weights travel, and over which links."""
    sides, policy, node = take.sides, take.trainer.policy, space.cluster.node_size
    reach = policy.tp * policy.pp * policy.ep if sides.mode == COLOCATED else sides.train_gpus + sides.rollout_gpus
    links = "between nodes" if reach > node or space.rollout_cluster else "inside a node"
    whole = take.rollout.weights_bytes * sides.tp
    return f"{gib(whole)} GiB to each of {sides.replicas} engine{'s' * (sides.replicas > 1)}, {links}"


def _memory(question: PosttrainQuestion, take: PosttrainLayout) -> list[RoleMemory]:
    space, sides, rollout = question.space, take.sides, take.rollout
    capacity = space.cluster.gpu.memory_bytes
    rolls = (space.rollout_cluster or space.cluster).gpu.memory_bytes
    colocated = sides.mode == COLOCATED
    stays = take.trainer.state_bytes if colocated and not space.program.offloads else 0.0
    engine = f"weights {gib(rollout.weights_bytes)}, cache {gib(rollout.cache_bytes)} GiB"
    engine += f", trainer {gib(stays)} GiB" if stays else ""
    asleep = beside_update_bytes(space.job, space.program, sides.mode, sides.share * capacity)
    idle = "sleeping" if space.program.sleeps or sides.mode == HYBRID else "waiting"
    update = f"peak {gib(take.trainer.peak_bytes)}" + (f", {idle} engine {gib(asleep)}" if asleep else "") + " GiB"
    rows = []
    if space.job.rule.rolls_out:
        rows.append(RoleMemory(role="rollout", holds=engine, used_bytes=sides.share * rolls + stays, limit_bytes=rolls))
    rows.append(
        RoleMemory(role="update", holds=update, used_bytes=take.trainer.peak_bytes + asleep, limit_bytes=capacity)
    )
    return rows


def _losers(ranked: PosttrainRanking) -> Iterator[str]:
    take = ranked.recommended
    if take is not None:
        yield from _other_mode(ranked, take)
        for lag in sorted({each.sides.lag for each in ranked.layouts} - {0, take.sides.lag}):
            other = ranked.best(take.sides.mode, lag)
            if other is not None and take.sides.mode != COLOCATED:
                change = f"{other.step_s / take.step_s - 1:+.1%}"
                why = f"; each step of lag must save {STALE:.0%}" if lag > take.sides.lag else ""
                yield f"lag {lag}: {time_text(other.step_s)} ({change}){why}"
    yield from ranked.why_none


def _other_mode(ranked: PosttrainRanking, take: PosttrainLayout) -> Iterator[str]:
    colocated, split = ranked.best(COLOCATED), ranked.best(SPLIT)
    if take.sides.mode != COLOCATED and colocated is not None:
        phases = colocated.phases
        tail = f", {share_text(colocated.idle)} of the time with few answers left" if colocated.idle > TAIL else ""
        yield (
            f"colocated: {time_text(colocated.step_s)}; rollout {time_text(phases.rollout_s)} and trainer "
            f"{time_text(phases.trainer_s)} follow each other{tail}"
        )
    elif split is not None and take.sides.mode == COLOCATED:
        sides = split.sides
        yield (
            f"split, {sides.rollout_gpus} + {sides.train_gpus}, lag {sides.lag}: {time_text(split.step_s)}; one side "
            f"waits {time_text(split.phases.waiting_s)} for the other"
        )
