"""`quaere warmup`: teach a small model the dialect of a recipe by episodes that were really played.

quaere warmup drzero --model smollm2-135m --out warm
quaere warmup eve --also drzero --model smollm2-135m --out warm
quaere warmup evalact --also evalrar --also search-r1 --model smollm2-135m --out warm
quaere warmup score --model smollm2-135m --out warm --lessons 5,2,3
quaere warmup drzero --model smollm2-135m --lora-rank 16 --adapter --dtype bfloat16 --out warm
quaere warmup drzero --model smollm2-135m --index docs-index --out warm
quaere warmup eve --model warm --index docs-index --questions checked.jsonl --roles proposer --out warmer
quaere warmup drzero --model smollm2-135m --out warm --teacher openai:qwen3-32b@http://localhost:8001/v1
"""

from __future__ import annotations

import argparse
import asyncio
import json
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from quaere.atomic import scratch_folder
from quaere.cli.bounds import check_positive
from quaere.cli.interrupt import interruptible
from quaere.cli.warmup_check import tell_answered
from quaere.cli.warmup_ratios import add_ratios, read_ratios
from quaere.cli.warmup_view import open_display
from quaere.errors import BadInput
from quaere.warmup.dialects import DIALECTS, ROLES, Dialect, cites, needed_turns, roles_of

if TYPE_CHECKING:
    from quaere.chat.renderer import Renderer
    from quaere.cli.warmup_view import Display
    from quaere.policies.catalogue import ModelPath
    from quaere.records import Episode
    from quaere.rollout.episode import Limits
    from quaere.search.index import Index
    from quaere.warmup.demonstration import Demonstrations
    from quaere.warmup.imitation import Taught
    from quaere.warmup.lessons import LessonSettings
    from quaere.worlds import World

FULL_RATE, LORA_RATE = 1e-4, 3e-4
MAX_TURNS = 5
EVALUATED_MAX_TURNS = 12  # evaluations are turns too: four facts, one search more than that, and their answer
TURN_TOKENS, SEQUENCE_TOKENS = 512, 4096
REPORT_MAX_TURNS, REPORT_TURN_TOKENS, REPORT_SEQUENCE_TOKENS = 8, 1536, 8192  # of score: eight reports and their scores
_ADAPTER = "warmup"


def register(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Add `warmup` to the command line."""
    parser = commands.add_parser(
        "warmup",
        help="teach a small model a dialect by demonstration",
        description="Play episodes on a fictional encyclopedia of the warm-up family, teach the model to write like "
        "that, and write it as a Hugging Face folder. What is shown is the dialect; the facts are invented. In eve's "
        "dialect both roles also quote, letter for letter, the sentence they rely on; the solvers of evalact, evalrar "
        "and autorefine say what each search found or missed, in evalact with a score; score has reports, rubrics and "
        "assessments of reports whose flaws are known. A model warmed up like this is "
        "no longer free of demonstrations, and its warmup.json says so.",
    )
    parser.add_argument("recipe", choices=DIALECTS, help="whose dialect to teach")
    parser.add_argument("--model", required=True, help="catalogue name, directory or hub id of the model to teach")
    parser.add_argument("--out", type=Path, required=True, metavar="DIR", help="folder to write the model to")
    parser.add_argument("--force", action="store_true", help="replace a warmed-up model that is there")
    parser.add_argument(
        "--teacher", metavar="openai:MODEL@URL", help="let this model demonstrate (default: an oracle that knows)"
    )
    shown = parser.add_argument_group("what is shown")
    shown.add_argument(
        "--also",
        choices=DIALECTS,
        action="append",
        default=[],
        help="teach this recipe's dialect too, in an equal share of the episodes: one start for several recipes",
    )
    shown.add_argument("--roles", metavar="LIST", help="solver, proposer, evaluator (default: all a recipe has)")
    shown.add_argument("--episodes", type=int, default=400, metavar="N", help="in all roles and recipes (default: 400)")
    add_ratios(shown)
    shown.add_argument("--style", choices=["full", "brief"], default="full", help="of the prompts (default: full)")
    shown.add_argument("--world-seed", type=int, default=1, metavar="N", help="which world (default: 1)")
    shown.add_argument("--articles", type=int, default=500, metavar="N", help="size of the world (default: 500)")
    _add_documents(parser)
    _add_limits(parser)
    _add_teaching(parser)
    parser.add_argument("--json", action="store_true", help="print JSON, one object a line")
    parser.set_defaults(run=run, base_model="")


def _add_documents(parser: argparse.ArgumentParser) -> None:
    own = parser.add_argument_group("lessons out of your own documents")
    own.add_argument(
        "--index",
        type=Path,
        metavar="DIR",
        help="after the form, learn from questions about these documents: a solver from its own right answers, a "
        "proposer from how they are arrived at",
    )
    own.add_argument(
        "--questions",
        type=Path,
        metavar="FILE",
        help="checked questions; written there first if there is no such file (default: OUT-questions.jsonl)",
    )
    own.add_argument("--drafts", type=int, default=6000, metavar="N", help="facts to ask about (default: 6000)")
    own.add_argument("--attempts", type=int, default=4, metavar="N", help="at each question (default: 4)")
    own.add_argument(
        "--most",
        type=int,
        metavar="N",
        help="questions to attempt, as many of several facts as of one as far as there are (default: all)",
    )
    own.add_argument(
        "--practice",
        type=Path,
        metavar="FILE",
        help="write here the questions that not every attempt answered right: what reinforcement can learn from",
    )
    own.add_argument("--max-rows", type=int, default=32, metavar="N", help="episodes at once (default: 32)")


def _add_limits(parser: argparse.ArgumentParser) -> None:
    limits = parser.add_argument_group("limits of an episode")
    turns = f"turns (default: {MAX_TURNS}, in evalact {EVALUATED_MAX_TURNS}, in score {REPORT_MAX_TURNS})"
    per_turn = f"per turn (default: {TURN_TOKENS}, in score {REPORT_TURN_TOKENS})"
    in_all = f"in all (default: {SEQUENCE_TOKENS}, in score {REPORT_SEQUENCE_TOKENS})"
    limits.add_argument("--max-turns", type=int, metavar="N", help=turns)
    limits.add_argument("--topk", type=int, default=3, metavar="N", help="passages per search (default: 3)")
    limits.add_argument("--turn-tokens", type=int, metavar="N", help=per_turn)
    limits.add_argument("--sequence-tokens", type=int, metavar="N", help=in_all)
    limits.add_argument("--tool-response-tokens", type=int, default=512, metavar="N", help="per reply (default: 512)")


def _add_teaching(parser: argparse.ArgumentParser) -> None:
    taught = parser.add_argument_group("teaching")
    taught.add_argument("--epochs", type=int, default=2, metavar="N", help="times over the episodes (default: 2)")
    taught.add_argument("--batch", type=int, default=16, metavar="N", help="episodes a step (default: 16)")
    rates = f"(default: {FULL_RATE:g}, with LoRA {LORA_RATE:g})"
    taught.add_argument("--learning-rate", type=float, metavar="X", help=rates)
    taught.add_argument("--lora-rank", type=int, default=0, metavar="N", help="0 teaches all weights (default)")
    taught.add_argument(
        "--adapter", action="store_true", help="with --lora-rank: write the adapter alone, not a merged model"
    )
    taught.add_argument("--micro-tokens", type=int, default=4096, metavar="N", help="in memory at once (default: 4096)")
    taught.add_argument("--seed", type=int, default=0, help="seed of what is drawn (default: 0)")
    taught.add_argument("--device", choices=["auto", "cpu", "cuda"], default="auto", help="where the model runs")
    taught.add_argument(
        "--dtype",
        choices=["auto", "float32", "bfloat16"],
        default="auto",
        help="of the result (default: the model's; of an adapter's tensors float32)",
    )


def _names(text: str) -> tuple[str, ...]:
    return tuple(name.strip() for name in text.split(",") if name.strip())


def run(args: argparse.Namespace) -> None:
    """Play, teach, save."""
    import msgspec

    from quaere.warmup.lessons import plan_lessons
    from quaere.warmup.model_folder import check_target
    from quaere.warmup.oracle import refuse_few_turns

    args.roles = None if args.roles is None else _names(args.roles)
    notice = read_ratios(args)
    # What cannot be done is said before a model is loaded.
    _check_numbers(args)
    plan = plan_lessons(
        args.roles, args.episodes, args.facts, (args.recipe, *args.also), args.lessons, args.proposer_hops
    )
    refuse_few_turns(plan, _limits(args), _turn_limits(args))
    check_target(args.out, args.force)
    with interruptible(f"no model is written to {args.out}"), open_display(args.json) as display:
        if notice:
            display.note(notice)
        manifest = _warm_up_on_documents(args, display) if args.index else _warm_up(args, display)
    if args.json:
        print(json.dumps({"event": "done", **msgspec.to_builtins(manifest)}), flush=True)
        return
    print(f"{args.out}: loss of held-out episodes {manifest.loss_before:.3f} before, {manifest.loss_after:.3f} after")
    command = "report" if args.recipe == "score" else "ask"
    print(f'quaere {command} "your question" --index INDEX --model {args.out}')


def _check_numbers(args: argparse.Namespace) -> None:
    positive = ("epochs", "batch", "max_turns", "topk", "turn_tokens", "sequence_tokens", "tool_response_tokens")
    check_positive(args, (*positive, "micro_tokens", "drafts", "attempts", "max_rows", "most"))
    for option in ("questions", "most", "practice"):
        if getattr(args, option) is not None and args.index is None:
            raise BadInput(f"--{option} goes with --index: it is about questions on its documents", hint="--index DIR")
    if args.lora_rank < 0:
        raise BadInput(f"--lora-rank must be 0 or more, not {args.lora_rank}")
    if args.adapter and not args.lora_rank:
        raise BadInput("--adapter needs --lora-rank: without it all weights are taught", hint="--lora-rank 16")
    if args.learning_rate is not None and args.learning_rate <= 0:
        raise BadInput(f"--learning-rate must be above 0, not {args.learning_rate:g}")


def _limits(args: argparse.Namespace) -> Limits:
    from quaere.rollout.episode import Limits

    return Limits(
        max_turns=MAX_TURNS if args.max_turns is None else args.max_turns,
        turn_tokens=args.turn_tokens or TURN_TOKENS,
        sequence_tokens=args.sequence_tokens or SEQUENCE_TOKENS,
        tool_response_tokens=args.tool_response_tokens,
        topk=args.topk,
    )


def _report_limits(args: argparse.Namespace) -> Limits:
    """Of score's episodes, which take more room, unless the numbers were given."""
    from msgspec import structs

    return structs.replace(
        _limits(args),
        max_turns=args.max_turns or REPORT_MAX_TURNS,
        turn_tokens=args.turn_tokens or REPORT_TURN_TOKENS,
        sequence_tokens=args.sequence_tokens or REPORT_SEQUENCE_TOKENS,
    )


def _turn_limits(args: argparse.Namespace) -> dict[Dialect, int]:
    """Dialects that need another number of turns than the rest, unless the number was given."""
    if args.max_turns is not None:
        return {}
    evaluated = [name for name in (args.recipe, *args.also) if needed_turns(name, 1) > 2]
    return dict.fromkeys(evaluated, EVALUATED_MAX_TURNS) | {"score": REPORT_MAX_TURNS}


def _warm_up_on_documents(args: argparse.Namespace, display: Display) -> Any:
    """Questions by the model as it is, then the form of an episode where it was not taught, then its own lessons."""
    from quaere.cli.warmup_documents import obtain_questions, play_documents, refuse_others, teach_form
    from quaere.warmup.oracle import allow_turns

    refuse_others(args)
    questions = obtain_questions(args, display.note)
    limits = partial(allow_turns, _limits(args), _turn_limits(args))

    def play(taught: argparse.Namespace, renderer: Renderer) -> Demonstrations:
        return play_documents(taught, questions, renderer, limits=limits, note=display.note)

    with teach_form(args, lambda form: _warm_up(form, display)) as taught:
        return _warm_up(taught, display, partial(play, taught))


def _warm_up(
    args: argparse.Namespace, display: Display, play: Callable[[Renderer], Demonstrations] | None = None
) -> Any:
    from quaere.chat.renderer import Renderer
    from quaere.policies.catalogue import resolve_model
    from quaere.policies.loading import load_tokenizer
    from quaere.warmup.model_folder import save_adapter, save_folder

    found = resolve_model(args.model, report=display.note)
    renderer = Renderer(load_tokenizer(found.tokenizer))
    played = play(renderer) if play else _play(args, renderer, display)
    model, taught = _teach(args, found, played.episodes, display)
    manifest = _describe(args, played, taught)
    if args.adapter:
        dtype = "float32" if args.dtype == "auto" else args.dtype
        save_adapter(model, _ADAPTER, args.out, manifest, dtype=dtype, force=args.force)
    else:
        save_folder(model, renderer.tokenizer, args.out, manifest, force=args.force)
    if args.also and play is None:
        del model  # another copy is loaded to speak with
        tell_answered(args, played.episodes, partial(_dialect_limits, args), display.note)
    return manifest


def _dialect_limits(args: argparse.Namespace, dialect: Dialect) -> Limits:
    from quaere.warmup.oracle import allow_turns

    limits = _report_limits(args) if dialect == "score" else _limits(args)
    return allow_turns(limits, _turn_limits(args), dialect)


def _play(args: argparse.Namespace, renderer: Renderer, display: Display) -> Demonstrations:
    """Play in a world that is made for this and gone afterwards."""
    from quaere.warmup.lessons import LessonSettings, build_world
    from quaere.warmup.oracle import play_oracle

    settings = LessonSettings(
        num_episodes=args.episodes,
        roles=args.roles,
        dialects=(args.recipe, *args.also),
        fact_ratio=args.facts,
        hop_ratio=args.proposer_hops,
        lesson_ratio=args.lessons,
        style=args.style,
        limits=_limits(args),
        turn_limits=_turn_limits(args),
        report_limits=_report_limits(args),
        seed=args.seed,
    )

    def on_episode(episode: Episode) -> None:
        display.played(args.episodes)

    played: Demonstrations
    with scratch_folder(args.out) as folder:
        world, index = build_world(args.world_seed, args.articles, folder)
        if args.teacher:
            played = asyncio.run(_play_teacher(args.teacher, world, index, renderer, settings, on_episode))
        else:
            played = asyncio.run(play_oracle(world, index, renderer, settings, on_episode=on_episode))
    dropped = ", ".join(f"{num} {reason}" for reason, num in played.dropped.most_common())
    display.note(f"{len(played.episodes)} episodes kept" + (f"; dropped: {dropped}" if dropped else ""))
    return played


async def _play_teacher(
    teacher: str,
    world: World,
    index: Index,
    renderer: Renderer,
    settings: LessonSettings,
    on_episode: Callable[[Episode], None],
) -> Demonstrations:
    from quaere.rollout.policy import ChatPolicy, open_policy
    from quaere.warmup.teacher import play_teacher

    if not teacher.startswith("openai:"):
        raise BadInput(f"a teacher is an endpoint, openai:MODEL@URL, not {teacher}")
    policy = open_policy(teacher)
    assert isinstance(policy, ChatPolicy)
    try:
        return await play_teacher(policy, world, index, renderer, settings, on_episode=on_episode)
    finally:
        await policy.stop()


def _teach(args: argparse.Namespace, found: ModelPath, episodes: list[Episode], display: Display) -> tuple[Any, Taught]:
    """The model after learning: with --adapter as it is, else as a plain one in the dtype it is to be saved in."""
    import torch

    from quaere.policies.native.bridge import load_model, stored_dtype
    from quaere.policies.native.device import choose_device, choose_dtype
    from quaere.policies.native.rounding import round_weights
    from quaere.training.adapters import add_adapters
    from quaere.training.learner import Learner
    from quaere.training.settings import AdapterSettings
    from quaere.warmup.imitation import count_steps, imitation, teach

    device = choose_device(args.device, display.note)
    num_tokens = sum(len(segment.token_ids) for episode in episodes for segment in episode.segments)
    num_steps = count_steps(len(episodes), args.epochs, args.batch)
    size = f"{num_steps} steps over {len(episodes)} episodes of {num_tokens / len(episodes):,.0f} tokens on average"
    display.note(f"teaching {args.model} on {device}: {size}")
    # Weights under an adapter do not move, so on a GPU half the bytes will do for them.
    loaded = choose_dtype("auto", device) if args.lora_rank else "float32"
    model = load_model(found, device, loaded, packed=False, as_base=bool(args.lora_rank))
    if args.lora_rank:
        torch.manual_seed(args.seed)  # adapters begin with random numbers
        model = add_adapters(model, (_ADAPTER,), AdapterSettings(rank=args.lora_rank, alpha=2 * args.lora_rank))
    settings = imitation(_learning_rate(args), args.micro_tokens)
    warmup_steps = settings.warmup_steps(num_steps)
    learner = Learner(model, settings, adapter=_ADAPTER if args.lora_rank else "", warmup_steps=warmup_steps)
    taught = teach(learner, episodes, epochs=args.epochs, batch=args.batch, seed=args.seed, report=display.step)
    if args.adapter:
        return model, taught
    if args.lora_rank:
        model = model.float().merge_and_unload()
    kept = stored_dtype(found.path) if args.dtype == "auto" else getattr(torch, args.dtype)
    return round_weights(model, kept), taught


def _learning_rate(args: argparse.Namespace) -> float:
    return float(args.learning_rate or (LORA_RATE if args.lora_rank else FULL_RATE))


def _describe(args: argparse.Namespace, played: Demonstrations, taught: Taught) -> Any:
    from quaere.warmup.model_folder import WarmupManifest

    dialects = (args.recipe, *args.also)
    return WarmupManifest(
        recipe=args.recipe,
        data="documents" if args.index else "teacher" if args.teacher else "oracle",
        teacher=args.teacher or "",
        base_model=args.base_model or args.model,
        roles=args.roles or tuple(role for role in ROLES if any(role in roles_of(name) for name in dialects)),
        style=args.style,
        hop_ratio=args.proposer_hops,
        world_family="warmup",
        world_seed=args.world_seed,
        num_articles=args.articles,
        num_episodes=len(played.episodes),
        num_dropped=dict(played.dropped),
        num_held_out=taught.num_held_out,
        num_steps=taught.num_steps,
        epochs=args.epochs,
        batch=args.batch,
        learning_rate=_learning_rate(args),
        lora_rank=args.lora_rank,
        seed=args.seed,
        loss_before=taught.loss_before,
        loss_after=taught.loss_after,
        also=tuple(args.also),
        evidence=any(cites(dialect) for dialect in dialects),
        fact_ratio=args.facts,
        lesson_ratio=args.lessons if "score" in dialects else (),
    )
