"""`quaere.warmup`: teach a small model the protocol of a recipe by episodes that were really played.

warmup("drzero", model="smollm2-135m", out="warm", settings={"episodes": 200, "lora_rank": 16})
"""

from __future__ import annotations

import asyncio
import itertools
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol, cast

from msgspec import structs

from quaere.api.background import run_in_thread
from quaere.api.index import Index
from quaere.api.warmup_documents import obtain_questions, play_documents, refuse_others, teach_form
from quaere.api.warmup_settings import WarmupSettings, make_settings
from quaere.chat.renderer import Renderer
from quaere.disk import scratch_folder
from quaere.errors import BadInput, check_model_libraries
from quaere.policies.catalogue import BLANK, ModelPath, resolve_model
from quaere.policies.model_folders import load_tokenizer
from quaere.records import Episode
from quaere.rollout.episode import Limits
from quaere.rollout.policy import ChatPolicy, open_policy
from quaere.search.index import Index as SearchIndex
from quaere.search.index import open_index
from quaere.search.searcher import open_searcher
from quaere.setting_types import refuse_unknown
from quaere.training.settings import AdapterSettings
from quaere.warmup.blank_model import blank_model
from quaere.warmup.dialect_check import Learnt, describe_learnt, open_spoken, play_held_out
from quaere.warmup.dialects import DIALECTS, ROLES, Dialect, Role, cites, roles_of
from quaere.warmup.lessons import LessonSettings, build_world, plan_lessons
from quaere.warmup.oracle import allow_turns, play_oracle, refuse_few_turns
from quaere.warmup.scripted_episodes import Demonstrations
from quaere.warmup.teacher import play_teacher
from quaere.worlds import World

if TYPE_CHECKING:
    from quaere.warmup.imitation import Taught, TeachingStep, WarmupManifest

_ADAPTER = "warmup"


def warmup(
    recipe: Dialect,
    *,
    model: str | Path,
    out: str | Path,
    also: tuple[Dialect, ...] = (),
    index: Index | str | Path | None = None,
    questions: str | Path | None = None,
    force: bool = False,
    settings: Mapping[str, object] | None = None,
    on_step: Callable[[TeachingStep], None] = lambda step: None,
    on_note: Callable[[str], None] = lambda line: None,
) -> Path:
    """Teach a model the protocol of a recipe, write it to the folder `out`, and return that: `Agent(out, index)`.

    It learns from episodes in a fictional world. With `index`, it then learns from checked questions about those
    documents as well: those of the file `questions`, written there first if there is no such file. `also` names further
    recipes to teach. `settings` are the options of `quaere warmup` by name: `{"episodes": 200}`. `on_step` is
    called after every step of teaching.
    """
    refuse_unknown((recipe, *also), DIALECTS, "recipe to warm up for called")
    refuse_unknown(settings or {}, WarmupSettings.__struct_fields__, "setting of a warm-up called")
    given = {"recipe": recipe, "model": str(model), "out": Path(out), "also": also, "force": force}
    if index is not None:
        given["index"] = index.path if isinstance(index, Index) else Path(index)
    if questions is not None:
        given["questions"] = Path(questions)
    made = make_settings({**(settings or {}), **given})

    def work(check: Callable[[], None]) -> None:
        warm_up(made, _Callbacks(on_step, on_note, check))

    run_in_thread(work)
    return made.out


class Display(Protocol):
    """A receiver of a warm-up's progress."""

    def note(self, line: str) -> None:
        """Report a line of text."""

    def progress(self, doing: str, done: int, total: int | None, stands: str = "") -> None:
        """A part of the work is further than before."""

    def step(self, step: TeachingStep) -> None:
        """A step of teaching was taken."""

    def teaching(self) -> AbstractContextManager[None]:
        """Context of the teaching, in which a stop may be requested (`training/progress.py`)."""


class _Callbacks:
    """A display that calls functions, and stops the work when its caller was interrupted."""

    def __init__(
        self, on_step: Callable[[TeachingStep], None], on_note: Callable[[str], None], check: Callable[[], None]
    ) -> None:
        self._on_step, self._on_note, self._check = on_step, on_note, check

    def note(self, line: str) -> None:
        self._check()
        self._on_note(line)

    def progress(self, doing: str, done: int, total: int | None, stands: str = "") -> None:
        self._check()

    def step(self, step: TeachingStep) -> None:
        self._check()
        self._on_step(step)

    def teaching(self) -> AbstractContextManager[None]:
        return nullcontext()


def warm_up(settings: WarmupSettings, display: Display) -> WarmupManifest:
    """Play, teach, save: in a world, or out of documents. What cannot be done is refused before a model is loaded."""
    from quaere.warmup.imitation import check_target

    check_lessons(settings)
    check_target(settings.out, settings.force)
    return _warm_up_on_documents(settings, display) if settings.index else _warm_up(settings, display)


def check_lessons(settings: WarmupSettings) -> None:
    """Raise `BadInput` for settings in conflict, and for lessons that the limits of an episode have no room for."""
    settings.check()
    plan = plan_lessons(
        cast("tuple[Role, ...] | None", settings.roles),  # any other is refused here
        settings.num_episodes,
        settings.facts,
        settings.dialects,
        settings.lessons,
        settings.proposer_hops,
        abstention=settings.abstention,
    )
    refuse_few_turns(plan, settings.limits, settings.turn_limits)


def _warm_up_on_documents(settings: WarmupSettings, display: Display) -> WarmupManifest:
    """Let the untrained model write questions, teach the dialect if the model lacks it, then train on the questions."""
    refuse_others(settings)
    assert settings.index is not None
    open_index(settings.index)  # refused before the form is taught, if there is none
    if settings.model != BLANK:
        resolve_model(settings.model, report=display.note)
    questions = obtain_questions(settings, display.note, display.progress)
    limits = partial(allow_turns, settings.limits, settings.turn_limits)

    def play(taught: WarmupSettings, renderer: Renderer) -> Demonstrations:
        return play_documents(taught, questions, renderer, limits=limits, note=display.note, progress=display.progress)

    with teach_form(settings, lambda form: _warm_up(form, display)) as (taught, stopped):
        return stopped or _warm_up(taught, display, partial(play, taught))


def _warm_up(
    settings: WarmupSettings, display: Display, play: Callable[[Renderer], Demonstrations] | None = None
) -> WarmupManifest:
    from quaere.warmup.imitation import save_adapter, save_folder, write_manifest

    with _find_model(settings, display) as found:
        renderer = Renderer(load_tokenizer(found.tokenizer))
        played = play(renderer) if play else _play(settings, renderer, display)
        _refuse_few(settings, played)
        model, taught = _teach(settings, found, played.episodes, display)
    manifest = _describe(settings, played, taught)
    if settings.adapter:
        dtype = "float32" if settings.dtype == "auto" else settings.dtype
        save_adapter(model, _ADAPTER, settings.out, manifest, dtype=dtype, force=settings.force)
    else:
        save_folder(model, renderer.tokenizer, settings.out, manifest, force=settings.force)
    if settings.also and play is None and not taught.stopped:
        del model  # frees its memory: the check below loads the saved model
        learnt = measure_dialects(settings, played.episodes, settings.limits_of, display.note)
        manifest = structs.replace(manifest, learnt=learnt)
        write_manifest(manifest, settings.out)
    return manifest


@contextmanager
def _find_model(settings: WarmupSettings, display: Display) -> Iterator[ModelPath]:
    """The model to teach; for `blank`, one with random weights in a folder that is deleted at the end."""
    if settings.model != BLANK:
        yield resolve_model(settings.model, report=display.note)
        return
    check_model_libraries()
    with blank_model(settings.style, settings.seed, settings.out) as folder:
        yield ModelPath(name=BLANK, path=str(folder))


def _refuse_few(settings: WarmupSettings, played: Demonstrations) -> None:
    """Raise `BadInput`, before the model is loaded, for fewer than two episodes: one of them is held out."""
    if len(played.episodes) >= 2:
        return
    reasons = ", ".join(reason for reason, _ in played.dropped.most_common(1))
    why = f" (most frequent reason: {reasons})" if reasons else ""
    raise BadInput(
        f"only {len(played.episodes)} of {settings.num_episodes} episodes can be learned from, and teaching needs at "
        f"least 2{why}",
        hint="use another --teacher, or more --episodes" if settings.teacher else "--episodes 2 or more",
    )


def _play(settings: WarmupSettings, renderer: Renderer, display: Display) -> Demonstrations:
    lessons = LessonSettings(
        num_episodes=settings.num_episodes,
        roles=cast("tuple[Role, ...] | None", settings.roles),
        dialects=settings.dialects,
        fact_ratio=settings.facts,
        hop_ratio=settings.proposer_hops,
        lesson_ratio=settings.lessons,
        style=settings.style,
        limits=settings.limits,
        turn_limits=settings.turn_limits,
        report_limits=settings.report_limits,
        seed=settings.seed,
        abstention=settings.abstention,
        ignore_rubrics=settings.ignore_rubrics,
    )

    display.note(f"making lessons: {settings.num_episodes} episodes in a world of {settings.articles} articles")
    counted = itertools.count(1)

    def on_episode(episode: Episode) -> None:
        display.progress("playing", next(counted), settings.num_episodes)

    played: Demonstrations
    with scratch_folder(settings.out) as folder:
        world, index = build_world(settings.world_seed, settings.articles, folder, settings.family)
        if settings.teacher:
            played = asyncio.run(_play_teacher(settings.teacher, world, index, renderer, lessons, on_episode))
        else:
            played = asyncio.run(play_oracle(world, index, renderer, lessons, on_episode=on_episode))
    dropped = ", ".join(f"{num} {reason}" for reason, num in played.dropped.most_common())
    display.note(f"{len(played.episodes)} episodes kept" + (f"; dropped: {dropped}" if dropped else ""))
    return played


async def _play_teacher(
    teacher: str,
    world: World,
    index: SearchIndex,
    renderer: Renderer,
    lessons: LessonSettings,
    on_episode: Callable[[Episode], None],
) -> Demonstrations:
    if not teacher.startswith("openai:"):
        raise BadInput(f"--teacher must be an endpoint, openai:MODEL@URL, not {teacher}")
    policy = open_policy(teacher)
    assert isinstance(policy, ChatPolicy)
    try:
        return await play_teacher(policy, world, index, renderer, lessons, on_episode=on_episode)
    finally:
        await policy.stop()


def _teach(settings: WarmupSettings, found: ModelPath, episodes: list[Episode], display: Display) -> tuple[Any, Taught]:
    """The trained model: with --adapter as it is, else merged and in the precision it is saved in."""
    import torch

    from quaere.policies.native.bridge import load_model, stored_dtype
    from quaere.policies.native.device import choose_device, choose_dtype
    from quaere.policies.native.weights import round_weights
    from quaere.training.adapters import add_adapters
    from quaere.training.learner import Learner
    from quaere.warmup.imitation import count_held_out, count_steps, imitation, teach

    device = choose_device(settings.device, display.note)
    num_tokens = sum(len(segment.token_ids) for episode in episodes for segment in episode.segments)
    num_steps = count_steps(len(episodes), settings.epochs, settings.batch)
    size = f"{num_steps} steps over {len(episodes)} episodes of {num_tokens / len(episodes):,.0f} tokens on average"
    display.note(f"teaching {settings.model} on {device}: {size}")
    # Weights under an adapter are not trained, so on a GPU they can be held in half precision.
    loaded = choose_dtype("auto", device) if settings.lora_rank else "float32"
    model = load_model(found, device, loaded, packed=False, as_base=bool(settings.lora_rank))
    if settings.lora_rank:
        torch.manual_seed(settings.seed)  # adapters begin with random numbers
        model = add_adapters(model, (_ADAPTER,), AdapterSettings(rank=settings.lora_rank, alpha=2 * settings.lora_rank))
    learning = imitation(settings.rate, settings.micro_tokens)
    warmup_steps = learning.warmup_steps(num_steps)
    learner = Learner(model, learning, adapter=_ADAPTER if settings.lora_rank else "", warmup_steps=warmup_steps)
    display.note(
        f"loaded; first the loss of {count_held_out(len(episodes))} held-out episodes, then step 1 of {num_steps}"
    )

    def on_batch(num_done: int, num_all: int, seconds: float) -> None:
        if learner.num_steps == 0:  # later steps are reported themselves
            display.progress("step 1, parts of its batch", num_done, num_all)

    learner.on_batch = on_batch
    how: dict[str, Any] = {"epochs": settings.epochs, "batch": settings.batch, "seed": settings.seed}
    try:
        with display.teaching():
            taught = teach(learner, episodes, report=display.step, **how)
    except KeyboardInterrupt:
        if not learner.num_steps:
            display.note("stopped before step 1: no model is written")
        raise
    if settings.adapter:
        return model, taught
    if settings.lora_rank:
        model = model.float().merge_and_unload()
    kept = stored_dtype(found.path) if settings.dtype == "auto" else getattr(torch, settings.dtype)
    return round_weights(model, kept), taught


def _describe(settings: WarmupSettings, played: Demonstrations, taught: Taught) -> WarmupManifest:
    from quaere.warmup.imitation import WarmupManifest

    dialects = settings.dialects
    same = (
        "recipe",
        "style",
        "abstention",
        "ignore_rubrics",
        "scores_only",
        "shuffle_scores",
        "world_seed",
        "epochs",
        "batch",
        "lora_rank",
        "seed",
        "also",
    )
    measured = ("num_held_out", "num_steps", "loss_before", "loss_after", "stopped")
    return WarmupManifest(
        **{name: getattr(settings, name) for name in same},
        **{name: getattr(taught, name) for name in measured},
        data="documents" if settings.index else "teacher" if settings.teacher else "oracle",
        teacher=settings.teacher or "",
        base_model=settings.base_model or settings.model,
        roles=settings.roles or tuple(role for role in ROLES if any(role in roles_of(name) for name in dialects)),
        hop_ratio=settings.proposer_hops,
        world_family=settings.family,
        num_articles=settings.articles,
        num_episodes=len(played.episodes),
        num_dropped=dict(played.dropped),
        learning_rate=settings.rate,
        evidence=any(cites(dialect) for dialect in dialects),
        fact_ratio=settings.facts,
        lesson_ratio=settings.lessons if "score" in dialects else (),
    )


# --------------------------------------------------------------------------------------------- the check after teaching


def measure_dialects(
    settings: WarmupSettings,
    episodes: Sequence[Episode],
    limits: Callable[[Dialect], Limits],
    note: Callable[[str], None],
) -> dict[str, Learnt]:
    """How well the model at `settings.out` follows each dialect on the episodes that `teach` held out."""
    from msgspec import structs

    from quaere.warmup.imitation import split_held_out

    held_out, _ = split_held_out(episodes, settings.seed)
    longest = max(turn.num_tokens for episode in episodes for turn in episode.turns)
    most = max(len(episode.turns) for episode in episodes)

    def bounded(dialect: Dialect) -> Limits:
        # Longer or more turns than were demonstrated were not learnt, and sampling them could take minutes.
        usual = limits(dialect)
        turn_tokens = min(usual.turn_tokens, longest + longest // 4)
        return structs.replace(usual, turn_tokens=turn_tokens, max_turns=min(usual.max_turns, most + 1))

    note(f"playing {len(held_out)} held-out tasks with the model that was taught")
    with tempfile.TemporaryDirectory(prefix=f".{settings.out.name}.world-", dir=settings.out.parent) as folder:
        _, index = build_world(settings.world_seed, settings.articles, Path(folder), settings.family)
        learnt = asyncio.run(_play_tasks(settings, held_out, index.path, bounded))
    for line in describe_learnt(learnt):
        note(line)
    return learnt


async def _play_tasks(
    settings: WarmupSettings, held_out: Sequence[Episode], index: Path, limits: Callable[[Dialect], Limits]
) -> dict[str, Learnt]:
    spoken = open_spoken(settings.dialects, settings.style, abstention=settings.abstention > 0)
    policy = open_policy(str(settings.out), device=settings.device, max_rows=settings.max_rows)
    searcher = open_searcher(str(index))
    try:
        return await play_held_out(policy, held_out, searcher, spoken, limits, concurrency=settings.max_rows)
    finally:
        await searcher.close()
        await policy.stop()
