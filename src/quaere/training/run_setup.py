"""Opening what a run of any recipe needs, and estimating its memory."""

from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from contextlib import asynccontextmanager, contextmanager, suppress
from contextvars import ContextVar
from pathlib import Path
from typing import Any, Protocol

import httpx
from msgspec import Struct, structs

from quaere.dialects.notes import Notes, find_notes
from quaere.errors import BadInput, SearchFailed, requirement_hint
from quaere.policies.catalogue import BLANK, needs_guide, resolve_model
from quaere.policies.native.device import choose_device
from quaere.policies.tinker import HOSTED, answers, check_hosted, check_sdk, sdk_version
from quaere.rollout.episode import Limits
from quaere.search.client import SearchPool
from quaere.search.index import Index, open_index
from quaere.search.searcher import LocalSearcher, Searcher, find_opener, is_folder, open_searcher
from quaere.training.actors import RolePlay, open_actors
from quaere.training.estimate import RunEstimate, estimate_run, machine_bytes
from quaere.training.progress import Reporter
from quaere.training.remote_actors import open_remote_actors
from quaere.training.served_actors import check_engine, open_served_actors
from quaere.training.settings import LearnerSettings, RunConfig


class _Learning(Protocol):
    """Settings of a phase in which a role is trained, on at most `num_samples` episodes per update."""

    @property
    def learner(self) -> LearnerSettings: ...
    @property
    def limits(self) -> Limits: ...
    @property
    def num_samples(self) -> int: ...


class Opened(Struct, frozen=True):
    """Index, searcher and roles of an open run.

    Opened(index=Index(...), searcher=LocalSearcher(...), actors=Actors(...))
    """

    index: Index
    searcher: Searcher
    actors: RolePlay

    @property
    def read_document(self) -> Callable[[str], str] | None:
        """Function from a document's id to its text; None if the searcher may hold other documents than the index."""
        is_same = getattr(self.searcher, "fingerprint", "") == self.index.fingerprint
        return self.index.document if is_same else None


_SEARCHER: ContextVar[Searcher | None] = ContextVar("searcher", default=None)


@contextmanager
def searching_with(searcher: Searcher | None) -> Iterator[None]:
    """Context in which a run searches with this searcher instead of its index or server; None changes nothing."""
    token = _SEARCHER.set(searcher)
    try:
        yield
    finally:
        _SEARCHER.reset(token)


@asynccontextmanager
async def open_run(config: RunConfig, roles: Sequence[str], reporter: Reporter) -> AsyncIterator[Opened]:
    """Context that opens, and closes, index, searcher and roles."""
    index = open_documents(config)
    searcher = _SEARCHER.get() or (open_searcher(config.search_url) if config.search_url else LocalSearcher(index))
    try:
        if isinstance(searcher, SearchPool):
            with suppress(SearchFailed):  # a run waits for servers that are down; that they differ is an error at once
                await searcher.check()
        local = open_served_actors if config.engine.url else open_actors
        actors = (local if config.trainer.kind == "local" else open_remote_actors)(config, roles, reporter.note)
        try:
            yield Opened(index, searcher, actors)
        finally:
            await actors.policy.stop()
    finally:
        await searcher.close()


def check_openable(config: RunConfig, recipe: str, dialects: Sequence[str]) -> None:
    """Raise BadInput if model or index cannot be opened, or if the model was warmed up for other dialects."""
    if not config.model:
        raise BadInput("no model is given", hint=f"quaere evolve {recipe} --model MODEL --index DIR")
    open_documents(config, recipe)
    if config.search_url:
        find_opener(config.search_url)
    notes = find_notes(config.model)
    _check_taught(config.model, notes, dialects)
    if notes.style not in (None, config.prompts):
        raise BadInput(
            f"the warm-up of {config.model} used {notes.style} prompts, but the config has prompts={config.prompts}",
            hint=f"--set prompts={notes.style}",
        )
    check_trainer(config)
    check_engine(config)
    resolve_model(config.model)  # find or download the model before a run directory is created


def _check_taught(model: str, notes: Notes, dialects: Sequence[str]) -> None:
    """Raise BadInput if the model is known not to follow one of `dialects`, as its episodes would earn no reward.

    A model that was taught some dialects must have been taught all of these. One that was taught none is refused only
    if the catalogue calls it too small to follow a prompt.
    """
    lacking = [dialect for dialect in dialects if dialect not in notes.taught]
    if not lacking or not (notes.taught or needs_guide(model)):
        return
    wanted = " --also ".join(dialects)
    if not notes.taught:
        raise BadInput(
            f"{model} is too small to speak the dialect {lacking[0]} without a warm-up",
            hint=f"quaere warmup {wanted} --model {model} --out DIR, then --model DIR",
        )
    also = f" --also {notes.taught[0]}" if notes.taught[0] not in dialects else ""
    hint = f"quaere warmup {wanted}{also} --model {notes.untaught or 'BASE'} --out DIR, then --model DIR"
    if notes.untaught == BLANK:  # can be taught no other
        hint = f"quaere evolve {notes.taught[0]} --model {model} --index DIR, or another --model"
    said = f"the warm-up of {model} taught the dialect {' and '.join(notes.taught)}, not {lacking[0]}"
    raise BadInput(said, hint=hint)


def open_documents(config: RunConfig, recipe: str = "drzero") -> Index:
    """Open the index directory of the config, needed even if searches go to a server; BadInput if none is set."""
    if not config.index:
        raise BadInput("no index is given", hint=f"quaere evolve {recipe} --model M --index DIR")
    if not is_folder(config.index):
        raise BadInput(
            "a run reads its documents from an index directory, not from a server",
            hint="--index DIR --search " + config.index,
        )
    return open_index(Path(config.index))


def plan_memory(
    config: RunConfig, phases: Sequence[_Learning], *, sampled_tokens: int = 0, num_moments: int = 1
) -> list[tuple[str, str]]:
    """Lines of a dry run about parameters and memory of the largest phase; each phase trains its own role.

    `sampled_tokens` is the longest episode that is not trained on; `num_moments` the number of sets of optimizer
    moments.
    """
    if config.trainer.kind == "tinker":
        return plan_trainer(config, len(phases))
    device = choose_device(config.engine.device)
    estimates = [
        estimate_run(
            resolve_model(config.model).path,
            adapter=config.adapter,
            engine=config.engine,
            learner=phase.learner,
            sequence_tokens=phase.limits.sequence_tokens,
            device="cuda" if device == "cuda" else "cpu",
            num_roles=len(phases),
            sampled_tokens=sampled_tokens,
            num_moments=num_moments,
            num_samples=phase.num_samples,
        )
        for phase in phases
    ]
    largest = max(estimates, key=lambda estimate: estimate.memory.total)
    parts = [(name, size) for name, size in structs.asdict(largest.memory).items() if size >= 2**20]
    said = ", ".join(f"{name.replace('_', ' ')} {size / 2**30:.2f}" for name, size in parts)
    sampled = f"on {config.engine.url}; adapters of rank {config.adapter.rank} are loaded there"
    return [
        *([("sampling", sampled)] if config.engine.url else []),
        ("weights", f"{largest.num_parameters:,}, of which {largest.num_trainable:,} are trained in each role"),
        ("memory", f"about {largest.memory.total / 2**30:.1f} GiB on the {device}: {said}"),
        *_plan_lack(largest),
    ]


# By part of the memory: the settings that make it smaller.
_CUTS = {
    "kv_cache": "--set engine.max_rows=N with a lower N",
    "activations": "--set solver.learner.gradient_checkpointing=true (a proposer's too)",
    "logits": "a model with a smaller vocabulary",
}


def _plan_lack(estimate: RunEstimate) -> list[tuple[str, str]]:
    """For a dry run, the line on which settings to change if memory is too small; [] if the run fits."""
    there_is = machine_bytes(estimate.device)
    if estimate.memory.total <= there_is:
        return []
    parts = sorted(structs.asdict(estimate.memory).items(), key=lambda part: -part[1])
    cuts = {_CUTS.get(name, "a smaller --model or adapter.rank"): None for name, size in parts[:2] if size}
    preset = ", or --preset demo, which is for a CPU" if estimate.device == "cpu" else ""
    return [("does not fit", f"there are {there_is / 2**30:.1f} GiB here; take {', and '.join(cuts)}{preset}")]


# --------------------------------------------------------------------------------------- what a Tinker server cannot do


ALPHA = 32  # of the servers' adapters; the interface has no field for it


def check_trainer(config: RunConfig) -> None:
    """Raise BadInput if the config asks for what the trainer cannot do, or if its server does not answer."""
    trainer = config.trainer
    if trainer.kind == "local":
        if trainer.url:
            raise BadInput("--trainer-url is the URL of a Tinker server", hint="add --trainer tinker")
        return
    check_sdk()
    if not config.adapter.rank:
        raise BadInput(
            "a Tinker server trains adapters, and adapter.rank is 0: all weights", hint="--set adapter.rank=16"
        )
    if config.adapter.alpha != ALPHA:
        raise BadInput(
            f"adapters of a Tinker server have alpha {ALPHA}, and adapter.alpha is {config.adapter.alpha}",
            hint=f"--set adapter.alpha={ALPHA}",
        )
    if config.engine.mode == "deterministic":
        raise BadInput("a trainer's samples do not repeat bit for bit", hint="--set engine.mode=fast")
    if config.traced_episodes:
        raise BadInput("a Tinker server gives no entropy of tokens to store", hint="--set traced_episodes=0")
    if trainer.url:
        if not trainer.url.startswith(("http://", "https://")):
            raise BadInput(f"--trainer-url must begin with http:// or https://, not {trainer.url}")
        if not answers(trainer.url):
            raise BadInput(
                f"no trainer answers at {trainer.url}",
                hint=f"quaere trainer start skyrl --model {config.model}, then --trainer-url with the URL it prints",
            )
        described = _describe(trainer.url)
        _check_version(trainer.url, described)
        _check_clipping(config, described)
    else:
        check_hosted()


def plan_trainer(config: RunConfig, num_roles: int) -> list[tuple[str, str]]:
    """Lines of a dry run about the Tinker server, on which weights and memory are."""
    where = config.trainer.url or HOSTED
    return [("trainer", f"{where}: {num_roles} adapters of rank {config.adapter.rank}; weights and memory are there")]


def _check_version(url: str, described: dict[str, Any]) -> None:
    """Raise BadInput if the installed SDK requires sample ids, which this server's answers lack (SkyRL 0.4)."""
    answer = described.get("FutureResponse")
    installed = sdk_version()
    if answer and "sample_sequence_ids" not in answer and installed > (0, 25):
        raise BadInput(
            f"the trainer at {url} speaks the interface of tinker 0.25, and {installed[0]}.{installed[1]} is installed",
            hint=requirement_hint("tinker>=0.25,<0.26"),
        )


def _check_clipping(config: RunConfig, described: dict[str, Any]) -> None:
    """Raise BadInput if gradients are to be clipped and the server has no field for it: it would not clip them."""
    clipping = [name for name, learner in find_learners(config) if learner.max_grad_norm]
    adam = described.get("AdamParams")
    if clipping and adam and "grad_clip_norm" not in adam:
        raise BadInput(
            f"the trainer at {config.trainer.url} does not clip gradients, and {clipping[0]}.max_grad_norm is set",
            hint=" ".join(f"--set {name}.max_grad_norm=0" for name in clipping),
        )


def find_learners(config: Struct, prefix: str = "") -> Iterator[tuple[str, LearnerSettings]]:
    """All learners' settings in a config, with their names.

    [name for name, _ in find_learners(DrZeroConfig())] == ["proposer.learner", "solver.learner"]
    """
    for field in structs.fields(config):
        value = getattr(config, field.name)
        if isinstance(value, LearnerSettings):
            yield f"{prefix}{field.name}", value
        elif isinstance(value, Struct):
            yield from find_learners(value, f"{prefix}{field.name}.")


def _describe(url: str) -> dict[str, Any]:
    """Fields of each record type of the server, from its `/openapi.json`; {} if that cannot be read."""
    try:
        described: Any = httpx.get(f"{url.rstrip('/')}/openapi.json", timeout=10.0).json()
        return {name: one.get("properties", {}) for name, one in described["components"]["schemas"].items()}
    except (httpx.HTTPError, ValueError, KeyError, TypeError, AttributeError):
        return {}
