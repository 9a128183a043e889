"""`quaere eval`: scores a model, or a role of a training run, on a set of questions.

quaere eval --model smollm2-135m --questions world/eval.jsonl --index world-index --out base.json
quaere eval --run drzero-20250301-101500 --questions world/eval.jsonl --index world-index --compare base.json
quaere eval --compare base.items.jsonl.gz evolved.items.jsonl.gz
quaere eval --model smollm2-135m --closed-book --questions world/eval.jsonl
quaere eval --model smollm2-135m --questions world/eval.jsonl --index world-index --evidence --judge string
"""

from __future__ import annotations

import argparse
import asyncio
import time
from collections.abc import Callable
from contextlib import AsyncExitStack
from functools import partial
from typing import TYPE_CHECKING, Any, Literal

from quaere.api.counts import counting
from quaere.cli.ask_options import add_plain, add_questions, choose_plain
from quaere.cli.bounds import check_positive, checkpoint
from quaere.cli.eval_options import LIMITS, add_engine, add_evidence, add_limits, add_output
from quaere.cli.index_option import add_index
from quaere.cli.interrupt import interruptible
from quaere.cli.terminal import say_line
from quaere.dialects.registry import SOLVER_DIALECTS
from quaere.errors import BadInput, SamplingFailed

if TYPE_CHECKING:
    from rich.console import Console

    from quaere.chat.protocol import Protocol
    from quaere.dialects.notes import Notes, RoleWeights
    from quaere.evaluation.judges.judge import Judge
    from quaere.evaluation.qa.differences import ArmDifference
    from quaere.evaluation.qa.scores import AnsweringScore, Judging, QuestionScore, Scored
    from quaere.records import Episode, Question, Turn
    from quaere.rollout.episode import Limits
    from quaere.rollout.policy import Policy
    from quaere.runs import Run
    from quaere.search.searcher import Searcher

_MAX_JUDGE_ITEMS = 400


def register(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Add `eval` to the command line."""
    parser = commands.add_parser("eval", help="score a model on a set of questions")
    what = parser.add_argument_group("model to evaluate")
    what.add_argument("--model", help="catalogue name, directory, hub id, or openai:MODEL@BASE_URL")
    add_plain(what)
    what.add_argument("--run", dest="run_name", metavar="RUN", help="a training run's name or directory")
    what.add_argument(
        "--role", choices=["solver", "proposer", "actor"], default="", help="role of the run (default: solver)"
    )
    what.add_argument(
        "--checkpoint",
        type=checkpoint,
        metavar="N|best|last",
        help="step of the run (default: the best by validation if there was one, else the last)",
    )
    add_questions(parser, "JSONL file of questions")
    parser.add_argument("--limit", type=int, metavar="N", help="only the first N questions of the file (default: all)")
    only = "only questions that combine N facts (default: all; --hops is the earlier name)"
    parser.add_argument("--facts", "--hops", dest="facts", type=int, nargs="+", default=[], metavar="N", help=only)
    add_index(parser)
    parser.add_argument(
        "--closed-book", action="store_true", help="one turn without search: measures what the model knows"
    )
    parser.add_argument(
        "--style", choices=["full", "brief"], help="style of the prompts (default: as the model was trained, else full)"
    )
    parser.add_argument(
        "--solver-dialect",
        choices=SOLVER_DIALECTS,
        help="prompts and protocol of the model (default: as it was trained, else tool-call)",
    )
    parser.add_argument(
        "--guided",
        action=argparse.BooleanOptionalAction,
        help="search with the question itself first, and write the start of the answer, for models too small to follow "
        "the dialect (default: only for models of the catalogue that need it)",
    )
    add_evidence(parser)
    add_limits(parser)
    add_engine(parser)
    add_output(parser)
    parser.set_defaults(run=run)


def run(args: argparse.Namespace) -> None:
    """Check all input first, then load the model, answer, score and print."""
    from quaere.evaluation.qa.evidence_scores import keep_whole_gold
    from quaere.evaluation.qa.scores import read_scored, refuse_unanswerable
    from quaere.rollout.question_files import read_questions

    others = [read_scored(path) for path in args.compare]
    if args.seeds and (args.model or args.run_name or len(others) < 2):
        raise BadInput("--seeds compares files, without a model", hint="quaere eval --compare FILE ... --seeds paired")
    if len(others) > 1 and args.model is args.run_name is args.questions is None:
        _show(args, others[-1], others[:-1])
        return
    _check(args)
    questions = read_questions(args.questions, args.limit, args.facts)
    refuse_unanswerable(questions)
    questions = keep_whole_gold(questions, args.gold_sets)
    weights = _find_weights(args)
    searcher = _open_searcher(args)
    with interruptible("episodes that are finished are stored, and `--resume RUN` goes on after them"):
        asyncio.run(_evaluate(args, weights, questions, searcher, others))


def _check(args: argparse.Namespace) -> None:
    if (args.model is None) == (args.run_name is None):
        raise BadInput("give either --model or --run", hint="quaere eval --model NAME ...")
    choose_plain(args)
    if args.questions is None:
        raise BadInput(
            "--questions is missing: a JSONL file or hub:OWNER/NAME", hint="quaere eval --questions FILE ..."
        )
    if args.checkpoint is not None and args.run_name is None:
        raise BadInput("--checkpoint needs --run", hint="quaere eval --run RUN --checkpoint N ...")
    if args.index is None and not args.closed_book:
        raise BadInput("give --index, or --closed-book to answer without searching", hint="quaere eval --index DIR ...")
    if args.resume is not None and args.deterministic:
        raise BadInput(
            "--resume cannot continue a --deterministic evaluation: the other questions would be batched differently",
            hint="omit --resume",
        )
    check_positive(args, (*LIMITS, "limit", "max_rows"))
    if not 1 <= args.judge_items <= _MAX_JUDGE_ITEMS:
        raise BadInput(f"--judge-items must be between 1 and {_MAX_JUDGE_ITEMS}, not {args.judge_items}")
    _check_output(args)


def _check_output(args: argparse.Namespace) -> None:
    from quaere.evaluation.qa.items import SUFFIX, check_items_path
    from quaere.search.json_lines import is_rows_file

    if args.out is not None and is_rows_file(args.out):
        raise BadInput(f"--out writes one JSON object, not JSON Lines: {args.out}", hint=f"--items {args.out}")
    if args.items is not None:
        check_items_path(args.items)
    for option, path in (("--out", args.out), ("--items", args.items)):
        if path is not None and (path.is_dir() or not path.absolute().parent.is_dir()):
            raise BadInput(f"{option} {path} cannot be written: it is a folder, or its folder does not exist")
    if args.items is None and args.out is not None:
        args.items = args.out.with_suffix(SUFFIX)


def _find_weights(args: argparse.Namespace) -> RoleWeights | None:
    if args.run_name is None:
        return None
    from quaere.dialects.notes import use_role

    weights, _ = use_role(partial(_find_role, args), lambda weights: None)
    if weights.role == "actor":
        raise BadInput(
            f"{args.run_name} was trained to write reports, and `eval` scores short answers only",
            hint=f"quaere export {args.run_name} --merge --out DIR, then quaere report --model DIR and quaere grade",
        )
    return weights


def _find_role(args: argparse.Namespace) -> RoleWeights:
    from quaere.dialects.notes import find_role
    from quaere.runs import find_run, runs_root

    return find_role(find_run(runs_root(args.runs), args.run_name), args.role, args.checkpoint, say_line)


def _open_searcher(args: argparse.Namespace) -> Searcher:
    from quaere.search.searcher import NoSearcher, open_searcher

    return NoSearcher() if args.closed_book else open_searcher(args.index)


# ------------------------------------------------------------------------------------------------------- answering


async def _evaluate(
    args: argparse.Namespace,
    weights: RoleWeights | None,
    questions: list[Question],
    searcher: Searcher,
    others: list[Scored],
) -> None:
    from msgspec import structs
    from rich.console import Console

    from quaere.evaluation.qa.items import write_items
    from quaere.evaluation.qa.scores import Evaluation, judge_spans, score_answering, write_evaluation
    from quaere.search.searcher import check_reachable

    quiet = Console(stderr=True, highlight=False)

    def report(line: str) -> None:
        quiet.print(line, style="dim", markup=False)

    async with AsyncExitStack() as held:
        held.push_async_callback(searcher.close)
        await check_reachable(searcher)
        protocol, limits = _arrange(args, weights)
        if args.judge and not getattr(protocol, "evidence", False):
            raise BadInput("--judge grades evidence, so it needs --evidence", hint="quaere eval --evidence --judge ...")
        judge, judging = await _open_judge(args, held, report)
        weights, policy = _open_policy(args, weights, report)
        held.push_async_callback(policy.stop)
        settings = _settings(args, weights.name if weights else args.model, protocol, limits)
        with _open_run(args, settings) as stored:
            scores = await _answer(args, policy, protocol, searcher, questions, limits, stored, quiet)
            if judge and judging:
                report("judging the spans")
                scores, num_unread = await judge_spans(judge, scores, questions)
                judging = structs.replace(judging, num_unread=num_unread)
            score = score_answering(scores)
            stored.log_metrics(0, _metrics(score))
    evaluation = Evaluation(settings["name"], settings["model"], settings, score, tuple(scores), judging)
    if args.out:
        write_evaluation(evaluation, args.out)
    if args.items:
        write_items(evaluation.items, args.items)
    _show(args, evaluation, others, stored)


def _open_run(args: argparse.Namespace, settings: dict[str, Any]) -> Run:
    """A new run, or the stopped one that goes on."""
    from quaere.runs import Run, find_run, runs_root

    if args.resume is None:
        return Run.start(runs_root(args.runs), "eval", settings)
    from quaere.cli.stopped_eval import reopen

    return reopen(find_run(runs_root(args.runs), args.resume), settings)


async def _open_judge(
    args: argparse.Namespace, held: AsyncExitStack, note: Callable[[str], None]
) -> tuple[Judge | None, Judging | None]:
    if args.judge is None:
        return None, None
    from quaere.api.evaluation import open_judging

    engine = {"concurrency": args.max_rows, "device": args.device, "dtype": args.dtype, "mode": _mode(args)}
    return await open_judging(args.judge, args.judge_items, held, engine, note)


def _metrics(score: AnsweringScore) -> dict[str, float]:
    found = {"answer/exact_match": score.exact_match.mean, "answer/f1": score.f1.mean}
    if score.unanswered is not None:
        found["answer/unanswered"] = score.unanswered
    for name in ("present", "verbatim", "supported", "joint", "gold", "gold_joint"):
        share = getattr(score.evidence, name, None)
        if share is not None:
            found[f"evidence/{name}"] = share.mean
    return found


def _show(args: argparse.Namespace, evaluation: Scored, others: list[Scored], stored: Run | None = None) -> None:
    from quaere.api.evaluation_table import print_json, print_results

    arms = _compare_arms(args, [*others, evaluation])
    (print_json if args.json else print_results)(evaluation, others, stored, arms)


def _compare_arms(args: argparse.Namespace, results: list[Scored]) -> list[ArmDifference]:
    """With --seeds, the last arm of the compared files minus each of the others."""
    if args.seeds is None:
        return []
    from quaere.evaluation.qa.differences import compare_arms, group_seeds

    arms = group_seeds(zip((path.name.partition(".")[0] for path in args.compare), results, strict=True))
    *others, name = arms
    paired = args.seeds == "paired"
    return [compare_arms(name, arms[name], other, arms[other], same_start=paired) for other in others]


def _arrange(args: argparse.Namespace, weights: RoleWeights | None) -> tuple[Protocol, Limits]:
    """How to ask: as the command line says, else as the model was trained, else as the paper has it."""
    from quaere.api.solver_setup import choose_solver
    from quaere.dialects.registry import usual_limits
    from quaere.policies.catalogue import needs_guide

    names = (*LIMITS, "answer_turn", "titles_first")
    return choose_solver(
        _notes(args, weights),
        needs_guide=needs_guide(args.model),
        dialect=args.solver_dialect,
        style=args.style,
        evidence=args.evidence,
        guided=args.guided,
        closed_book=args.closed_book,
        limits={name: getattr(args, name) for name in names if getattr(args, name) is not None},
        usual=usual_limits,
        turns_option="--max-turns",
    )


def _notes(args: argparse.Namespace, weights: RoleWeights | None) -> Notes:
    from quaere.dialects.notes import find_notes

    return weights.notes if weights else find_notes(args.model)


def _settings(args: argparse.Namespace, model: str, protocol: Protocol, limits: Limits) -> dict[str, Any]:
    """The settings stored with the result, with which the evaluation can be repeated."""
    from msgspec import structs

    return {
        "name": args.name or (f"{model} (closed book)" if args.closed_book else model),
        "model": model,
        "questions": args.questions,
        "limit": args.limit,
        "facts": args.facts,
        "index": None if args.closed_book else args.index,
        "protocol": protocol.name,
        "style": getattr(protocol, "style", None),
        "evidence": getattr(protocol, "evidence", False),
        "judge": args.judge,
        "judge_items": args.judge_items if args.judge else None,
        "gold_sets": args.gold_sets,
        "limits": structs.asdict(limits),
        "device": args.device,
        "dtype": args.dtype,
        "max_rows": args.max_rows,
        "deterministic": args.deterministic,
        "seed": args.seed,
    }


def _open_policy(
    args: argparse.Namespace, weights: RoleWeights | None, report: Callable[[str], None]
) -> tuple[RoleWeights | None, Policy]:
    """The policy and its weights; those of a running training may be newer than the ones found before."""
    from quaere.dialects.notes import role_policy, use_role
    from quaere.rollout.policy import open_policy

    engine: dict[str, Any] = {"device": args.device, "dtype": args.dtype, "mode": _mode(args)}
    engine["max_rows"] = args.max_rows
    report(f"loading {weights.name if weights else args.model}")
    if weights:
        load = partial(role_policy, report=report, **engine)
        return use_role(partial(_find_role, args), load, found=weights, report=report)
    return None, open_policy(args.model, report=report, **engine)


def _mode(args: argparse.Namespace) -> Literal["deterministic", "fast"]:
    return "deterministic" if args.deterministic else "fast"


async def _answer(
    args: argparse.Namespace,
    policy: Policy,
    protocol: Protocol,
    searcher: Searcher,
    questions: list[Question],
    limits: Limits,
    stored: Run,
    quiet: Console,
) -> list[QuestionScore]:
    """Answer the questions that the run has no answers to; every episode is stored as soon as it ends."""
    from quaere.chat.terminal_text import shorten_number
    from quaere.cli.stopped_eval import read_scores
    from quaere.evaluation.qa.scores import evaluate

    done = read_scores(stored, questions, evidence=getattr(protocol, "evidence", False))
    left = [question for question in questions if question.id not in done]
    failures: list[str] = []
    rights = [score.exact_match for score in done.values()]
    started, num_tokens = time.monotonic(), 0

    with counting("answering", len(left), quiet) as advance:

        def count(turn: Turn) -> None:
            nonlocal num_tokens
            num_tokens += turn.num_tokens

        def keep(episode: Episode, score: QuestionScore) -> None:
            metrics = {"answer/exact_match": score.exact_match, "answer/f1": score.f1}
            if score.span is not None:
                metrics |= {"evidence/present": float(score.present), "evidence/verbatim": float(score.verbatim)}
                metrics |= {"evidence/gold": float(score.gold)} if score.gold is not None else {}
            stored.add_episode(episode, metrics)
            if episode.end == "failed" and (failure := episode.turns[-1].failure):
                failures.append(failure.message)
            rights.append(score.exact_match)
            rate = num_tokens / max(time.monotonic() - started, 1e-9)
            advance(f"EM {sum(rights) / len(rights):.3f}, {shorten_number(rate)} tok/s")

        how: dict[str, Any] = {"seed": args.seed, "concurrency": args.max_rows, "on_episode": keep, "on_turn": count}
        scores = await evaluate(policy, protocol, searcher, left, limits, **how)
    if len(failures) == len(questions):
        raise SamplingFailed(failures[0])
    done |= {score.id: score for score in scores}
    return [done[question.id] for question in questions]
