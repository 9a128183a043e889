"""`quaere eval`: scores a model, or a role of a training run, on a set of questions; or many, which a suite names.

quaere eval --model smollm2-135m --questions world/eval.jsonl --index world-index --out base.json
quaere eval --run drzero-20250301-101500 --questions world/eval.jsonl --index world-index --compare base.json
quaere eval --compare base.items.jsonl.gz evolved.items.jsonl.gz
quaere eval --model smollm2-135m --closed-book --questions world/eval.jsonl
quaere eval --model smollm2-135m --questions world/eval.jsonl --index world-index --evidence --judge string
quaere eval benchmarks/untrained.yaml --out untrained
"""

from __future__ import annotations

import argparse
import asyncio
import shlex
import sys
from contextlib import AsyncExitStack
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

from msgspec import Meta, Struct, structs

from quaere.chat.protocol import PromptStyle, Protocol
from quaere.cli import options
from quaere.cli.terminal import interruptible, note_line
from quaere.dialects.registry import FROM_MEMORY, SOLVER_DIALECTS, usual_limits
from quaere.errors import BadInput
from quaere.policies.catalogue import needs_guide
from quaere.rollout.policy import Policy
from quaere.rollout.question_files import read_questions
from quaere.search.json_lines import check_plain, is_rows_file
from quaere.setting_types import PositiveCount, fields_of

if TYPE_CHECKING:
    from quaere.dialects.notes import Notes, RoleWeights
    from quaere.evaluation.judges.judge import Judge
    from quaere.evaluation.qa.differences import ArmDifference
    from quaere.evaluation.qa.scores import Judging, Scored
    from quaere.records import Question
    from quaere.rollout.episode import Limits
    from quaere.runs import Run
    from quaere.search.searcher import Searcher

_OF_SUITES = {"out", "json", "device", "dtype", "max_rows", "deterministic"}  # options that are given with a suite


class SuiteOption(Struct):
    """A suite in place of a model and its questions.

    Attributes:
        suite: evaluate methods, models and sets of questions that a file names, into the folder --out; the same command
            continues it after a stop
    """

    suite: Annotated[Path, "SUITE.yaml", options.Flag("suite", nargs="?")] | None = None


class EvaluatedModel(options.RoleOptions):
    """The model to evaluate.

    Attributes:
        model: catalogue name, directory, hub id, or openai:MODEL@BASE_URL
        role: role of the run (default: solver)
    """


class EvalOptions(Struct):
    """Options of `quaere eval`: what is asked, and how.

    Attributes:
        questions: JSONL or Parquet file of questions, or a data set of the hub,
            hub:OWNER/NAME[/SUBSET][@REVISION][:SPLIT]
        limit: only the first N questions of the file (default: all)
        facts: only questions that combine N facts (default: all; --hops is the earlier name)
        index: what is searched: an index directory, URL of a search server (repeatable: requests are spread over the
            servers), mcp:COMMAND|URL, web:NAME[@URL], record:FILE@PLACE or replay:FILE
        closed_book: one turn without search: measures what the model knows
        style: style of the prompts (default: as the model was trained, else full)
        solver_dialect: prompts and protocol of the model (default: as it was trained, else tool-call)
        guided: search with the question itself first, and write the start of the answer, for models too small to follow
            the dialect (default: only for models of the catalogue that need it)
        abstention: let the model answer that the documents do not say (default: as it was trained)
        hide_answers: ask each question a second time, with all passages that contain its answers left out: it should
            then abstain
    """

    questions: options.QuestionPlace | None = None
    limit: PositiveCount | None = None
    facts: Annotated[tuple[int, ...], "N", options.Several, options.Flag("--facts", "--hops")] = ()
    index: options.IndexPlace | None = None
    closed_book: bool = False
    style: PromptStyle | None = None
    solver_dialect: Annotated[str, options.Flag(choices=SOLVER_DIALECTS)] | None = None
    guided: bool | None = None
    abstention: bool | None = None
    hide_answers: bool = False


class EvidenceOptions(Struct):
    """Evidence and its judge.

    Attributes:
        evidence: ask for the sentence that proves each answer (default: only for models taught to quote evidence)
        judge: what decides whether evidence supports the answer: a string check, or a model as after --model (default:
            nothing)
        judge_items: questions to measure the judge's accuracy on first, each with its gold span and six corrupted ones
        gold_sets: sets whose `gold_ids` name every passage that proves the answer: there, evidence is also scored by
            whether it is of such a passage (default: the sets all of whose questions have gold_ids)
    """

    evidence: bool | None = None
    judge: Annotated[str, "string|MODEL"] | None = None
    judge_items: Annotated[int, "N", Meta(ge=1, le=400)] = 100
    gold_sets: Annotated[list[str], "SET", options.Several] | None = None


class EvalLimits(options.EpisodeLimits):
    """How far an episode may go.

    Attributes:
        max_searches: most searches of an episode
        tool_response_tokens: most tokens of a search's results
        answer_turn: reserve the last turn for the answer, and tell the model when no searches are left
        titles_first: show passages first whose title the query names, among the first ten found
    """

    max_searches: PositiveCount | None = None
    tool_response_tokens: PositiveCount | None = None
    answer_turn: bool | None = None
    titles_first: bool | None = None


class OutputOptions(options.JsonOption):
    """Files and printed output.

    Attributes:
        name: name of this result (default: the model)
        out: write the result to a file, for --compare; of a suite, the folder of its results (default: its key `out`)
        items: write one small line per question (default: beside --out, as FILE.items.jsonl.gz)
        compare: compare with earlier results; without a model, the last of them with the others
        seeds: take compared files whose names differ in a last number (warm-0, warm-1) as seeds of one arm, and compare
            the last arm with the others over questions and seeds; paired: seed N of both had the same start
        resume: continue a stopped evaluation, with the same options: what it has answered is not asked again
    """

    name: Annotated[str, "LABEL"] | None = None
    out: Annotated[Path, "FILE.json|DIR"] | None = None
    items: Annotated[Path, "FILE.jsonl.gz"] | None = None
    compare: Annotated[tuple[Path, ...], "EVAL.json|ITEMS.jsonl.gz", options.Several] = ()
    seeds: Literal["independent", "paired"] | None = None
    resume: Annotated[str, "RUN", options.Named] | None = None


def _run(args: argparse.Namespace) -> None:
    """Check all input first, then load the model, answer, score and print."""
    from quaere.evaluation.qa.items import keep_whole_gold
    from quaere.evaluation.qa.scores import name_apart, read_scored
    from quaere.search.searcher import NoSearcher, open_searcher

    if args.suite is not None:
        _run_suite(args)
        return
    others = name_apart([(path, read_scored(path)) for path in args.compare])
    if args.seeds and (args.model or args.run_name or len(others) < 2):
        raise BadInput("--seeds compares files, without a model", hint="quaere eval --compare FILE ... --seeds paired")
    if len(others) > 1 and args.model is args.run_name is args.questions is None:
        _show(args, others[-1], others[:-1])
        return
    _check(args)
    questions = read_questions(args.questions, args.limit, args.facts, to_score=True)
    questions = keep_whole_gold(questions, args.gold_sets)
    questions = _add_hidden(questions) if args.hide_answers else questions
    weights = _find_weights(args)
    searcher = NoSearcher() if args.closed_book else open_searcher(args.index)
    again = ["quaere", *sys.argv[1:]]  # until there is a run, the same command
    with interruptible(lambda: f"episodes that are finished are stored, and `{shlex.join(again)}` goes on"):
        asyncio.run(_evaluate(args, weights, questions, searcher, others, again))


def _run_suite(args: argparse.Namespace) -> None:
    """Evaluate a suite, write its tables into its folder and print them."""
    from quaere.api.printing import as_json
    from quaere.api.suite import Engine, run_suite
    from quaere.api.suite_file import read_suite
    from quaere.api.suite_table import print_tables, write_tables
    from quaere.cli.suite_plot import draw_rows
    from quaere.disk import write_file
    from quaere.runs import runs_root

    for schema in (EvaluatedModel, EvalOptions, EvidenceOptions, EvalLimits, OutputOptions, options.EngineOptions):
        for field in fields_of(schema):
            if field.name not in _OF_SUITES and getattr(args, field.name) not in (field.default, []):
                flag = "--run" if field.name == "run_name" else f"--{field.name.replace('_', '-')}"
                raise BadInput(f"{flag} cannot be given with a suite, which says it itself", hint=f"edit {args.suite}")
    suite = read_suite(args.suite)
    if args.out is None and not suite.out:
        raise BadInput(f"{args.suite} has no key `out`", hint=f"quaere eval {args.suite} --out DIR")
    out = args.out or Path(suite.out)
    engine = options.read_options(args, Engine)
    with interruptible("episodes that are finished are stored, and the same command goes on after them"):
        rows = asyncio.run(run_suite(suite, out, engine=engine, runs=runs_root(args.runs), on_note=note_line))
    write_tables(rows, out)
    write_file(out / "table.svg", draw_rows(rows))
    print(as_json(rows)) if args.json else print_tables(rows)


def _add_hidden(questions: list[Question]) -> list[Question]:
    from quaere.evaluation.qa.abstaining import add_hidden

    asked, num_open = add_hidden(questions)
    if num_open:
        note_line(
            f"{num_open} of {len(questions)} questions are asked once: what they name, yes and no cannot be hidden"
        )
    return asked


fill = options.command(
    _run,
    SuiteOption,
    options.group("model to evaluate", EvaluatedModel),
    EvalOptions,
    options.VotingOptions,
    options.group("evidence", EvidenceOptions),
    options.group("limits", EvalLimits, about="default: as the model was trained, else those of the paper"),
    options.group("engine", options.EngineOptions),
    options.group("output", OutputOptions, options.RunsFolder),
)


def _check(args: argparse.Namespace) -> None:
    if (args.model is None) == (args.run_name is None):
        raise BadInput("give either --model or --run", hint="quaere eval --model NAME ...")
    options.choose_plain(args)
    args.closed_book = args.closed_book or args.solver_dialect in FROM_MEMORY
    if args.questions is None:
        hint = "quaere eval --questions FILE ..."
        raise BadInput("--questions is missing: a JSONL file or hub:OWNER/NAME", hint=hint)
    if args.checkpoint is not None and args.run_name is None:
        raise BadInput("--checkpoint needs --run", hint="quaere eval --run RUN --checkpoint N ...")
    if args.index is None and not args.closed_book:
        raise BadInput("give --index, or --closed-book to answer without searching", hint="quaere eval --index DIR ...")
    if args.hide_answers and args.closed_book:
        raise BadInput("--hide-answers leaves out passages, and --closed-book shows none", hint="leave out one of them")
    if args.resume is not None and args.deterministic:
        said = "--resume cannot continue a --deterministic evaluation: the other questions would be batched differently"
        raise BadInput(said, hint="omit --resume")
    _check_output(args)


def _check_output(args: argparse.Namespace) -> None:
    from quaere.evaluation.qa.items import SUFFIX, check_items_path

    if args.out is not None and is_rows_file(args.out):
        raise BadInput(f"--out writes one JSON object, not JSON Lines: {args.out}", hint=f"--items {args.out}")
    check_plain(args.out)
    if args.items is not None:
        check_items_path(args.items)
    options.check_writable(args.out, "--out", [args.questions])
    options.check_writable(args.items, "--items", [args.questions])
    if args.items is None and args.out is not None:
        args.items = args.out.with_suffix(SUFFIX)


def _find_weights(args: argparse.Namespace) -> RoleWeights | None:
    if args.run_name is None:
        return None
    from quaere.dialects.notes import use_role

    weights, _ = use_role(partial(options.find_weights, args, args.run_name), lambda weights: None)
    if weights.role == "actor":
        run = shlex.quote(str(options.named_run(args, args.run_name)))
        hint = f"quaere export {run} --merge --out DIR, then quaere report --model DIR and quaere grade"
        raise BadInput(f"{args.run_name} was trained to write reports, and `eval` scores short answers only", hint=hint)
    return weights


# ------------------------------------------------------------------------------------------------------- answering


async def _evaluate(
    args: argparse.Namespace,
    weights: RoleWeights | None,
    questions: list[Question],
    searcher: Searcher,
    others: list[Scored],
    again: list[str],
) -> None:
    from quaere.api.agent import OpenAgent, least_confidence
    from quaere.api.answering import answer_questions, score_metrics
    from quaere.dialects.notes import find_notes
    from quaere.evaluation.qa.items import write_items
    from quaere.evaluation.qa.scores import Evaluation, judge_spans, name_apart, score_answering, write_evaluation
    from quaere.search.searcher import check_reachable, find_fingerprint

    async with AsyncExitStack() as held:
        held.push_async_callback(searcher.close)
        await check_reachable(searcher)
        notes = weights.notes if weights else find_notes(args.model)
        protocol, limits = _arrange(args, notes)
        if args.judge and not getattr(protocol, "evidence", False):
            raise BadInput("--judge grades evidence, so it needs --evidence", hint="quaere eval --evidence --judge ...")
        judge, judging = await _open_judge(args, held)
        weights, policy = _open_policy(args, weights)
        held.push_async_callback(policy.stop)
        args.min_confidence = least_confidence(args.min_confidence, args.attempts, policy)
        settings = _settings(args, weights.name if weights else args.model, protocol, limits)
        settings["index_fingerprint"] = await find_fingerprint(searcher)
        how = {name: getattr(args, name) for name in ("seed", "max_rows", "attempts", "min_confidence")}
        agent = OpenAgent(policy, searcher, protocol, limits, notes, 0.0, **how)
        with _open_run(args, settings, again) as stored:
            scores = await answer_questions(agent, questions, stored=stored)
            if judge and judging:
                note_line("judging the spans")
                scores, num_unread = await judge_spans(judge, scores, questions)
                judging = structs.replace(judging, num_unread=num_unread)
            score = score_answering(scores)
            stored.log_metrics(0, score_metrics(score))
    evaluation = Evaluation(settings["name"], settings["model"], settings, score, tuple(scores), judging)
    if args.out:
        write_evaluation(evaluation, args.out)
    if args.items:
        write_items(evaluation.items, args.items)
    _show(args, evaluation, name_apart([*zip(args.compare, others, strict=True)], evaluation.name), stored)


def _open_run(args: argparse.Namespace, settings: dict[str, Any], again: list[str]) -> Run:
    """A new run, or the stopped one that goes on; the command that goes on with it is `again`."""
    from quaere.api.answering import open_stored
    from quaere.runs import Run, runs_root

    if args.resume is None:
        run = Run.start(runs_root(args.runs), "eval", settings)
        again += [] if args.deterministic else ["--resume", run.path.name]
        return run
    return open_stored(options.named_run(args, args.resume), settings)


async def _open_judge(args: argparse.Namespace, held: AsyncExitStack) -> tuple[Judge | None, Judging | None]:
    if args.judge is None:
        return None, None
    from quaere.api.evaluation import open_judging

    engine = options.engine_settings(args, "concurrency")
    return await open_judging(args.judge, args.judge_items, held, engine, note_line)


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


def _arrange(args: argparse.Namespace, notes: Notes) -> tuple[Protocol, Limits]:
    """How to ask: as the command line says, else as the model was trained, else as the paper has it."""
    from quaere.api.agent import choose_solver

    how = {name: getattr(args, name) for name in ("style", "evidence", "guided", "abstention", "closed_book")}
    limits = options.given_limits(args, "max_searches", "tool_response_tokens", "answer_turn", "titles_first")
    how |= {"needs_guide": needs_guide(args.model), "dialect": args.solver_dialect, "limits": limits}
    # A model that was not taught to abstain is not asked to: its scores would not compare with the papers'.
    return choose_solver(notes, usual=usual_limits, turns_option="--max-turns", untaught_abstain=False, **how)


def _settings(args: argparse.Namespace, model: str, protocol: Protocol, limits: Limits) -> dict[str, Any]:
    """The settings stored with the result, with which the evaluation can be repeated."""
    kept = ("questions", "limit", "facts", "judge", "gold_sets", *options.EngineOptions.__struct_fields__)
    return {name: getattr(args, name) for name in kept} | {
        "name": args.name or (f"{model} (closed book)" if args.closed_book else model),
        "model": model,
        "index": None if args.closed_book else args.index,
        "protocol": protocol.name,
        "style": getattr(protocol, "style", None),
        "evidence": getattr(protocol, "evidence", False),
        # None and not False, which evaluations that were stopped before these settings existed do not have.
        "abstention": getattr(protocol, "abstention", False) or None,
        "hide_answers": args.hide_answers or None,
        "attempts": args.attempts if args.attempts > 1 else None,
        "min_confidence": args.min_confidence or None,
        "judge_items": args.judge_items if args.judge else None,
        "limits": structs.asdict(limits),
    }


def _open_policy(args: argparse.Namespace, weights: RoleWeights | None) -> tuple[RoleWeights | None, Policy]:
    """The policy and its weights; those of a running training may be newer than the ones found before."""
    from quaere.dialects.notes import role_policy, use_role
    from quaere.rollout.policy import open_policy

    engine = options.engine_settings(args, "max_rows") | {"report": note_line}
    note_line(f"loading {weights.name if weights else args.model}")
    if weights:
        load = partial(role_policy, **engine)
        return use_role(partial(options.find_weights, args, args.run_name), load, found=weights, report=note_line)
    return None, open_policy(args.model, **engine)
