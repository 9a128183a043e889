"""`quaere ask`: a model answers by searching; every episode is stored.

quaere ask "Who built the Halm bridge?" --index docs-index --model smollm2-135m
quaere ask "Who built the Halm bridge?" --index docs-index --evidence
quaere ask "Who built the Halm bridge?" --index docs-index --min-overlap 0
quaere ask --questions world/questions.jsonl --limit 10 --index world-index
"""

from __future__ import annotations

import argparse
import asyncio
import sys
from typing import TYPE_CHECKING, Any

from quaere.api.answer import (
    BY_CHANCE,
    answer_scores,
    describe_place,
    find_span,
    find_support,
    is_about_question,
    is_found,
    passage_name,
    passage_number,
    refuse_all_failed,
    refuse_unanswered,
)
from quaere.cli.ask_options import (
    LIMITS,
    add_asked,
    add_plain,
    add_sampling,
    asked_settings,
    check_numbers,
    choose_plain,
    episode_setting,
    open_model,
    read_asked,
)
from quaere.cli.eval_options import add_titles_first
from quaere.cli.interrupt import interruptible
from quaere.dialects.registry import SOLVER_DIALECTS

_MAX_SEEN = 10  # passages listed when no answer was found

if TYPE_CHECKING:
    from rich.console import Console
    from rich.text import Text

    from quaere.chat.protocol import Protocol
    from quaere.records import Episode, Question
    from quaere.rollout.episode import Limits
    from quaere.rollout.policy import Policy
    from quaere.runs import Run
    from quaere.search.searcher import Searcher


def register(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Add `ask` to the command line."""
    parser = commands.add_parser("ask", help="let a model answer questions by searching an index")
    add_asked(parser)
    add_plain(parser)
    parser.add_argument(
        "--guided",
        action=argparse.BooleanOptionalAction,
        help="search with the question itself first, and write the start of the answer, for models too small to follow "
        "the dialect (default: only for models of the catalogue that need it)",
    )
    parser.add_argument(
        "--evidence",
        action=argparse.BooleanOptionalAction,
        help="ask for the sentence that proves the answer, and check that the model was shown it "
        "(default: only for models that were taught to quote evidence)",
    )
    parser.add_argument(
        "--min-overlap",
        type=float,
        metavar="X",
        help="share of the question's names (without names, of its words) that the passage with the answer must have; "
        "with fewer the answer is 'not found' (default: as was measured for the model, else 0: every answer counts)",
    )
    parser.add_argument(
        "--solver-dialect",
        choices=SOLVER_DIALECTS,
        help="prompts and protocol of the model (default: as it was trained, else tool-call)",
    )
    limits = parser.add_argument_group("limits", "default: as the model was trained, else the values in parentheses")
    limits.add_argument("--max-turns", type=int, metavar="N", help="most turns of an episode (5; evalact: 42)")
    limits.add_argument("--topk", type=int, metavar="N", help="passages per search (3)")
    limits.add_argument("--turn-tokens", type=int, metavar="N", help="most tokens per turn (256)")
    limits.add_argument(
        "--sequence-tokens", type=int, metavar="N", help="most tokens of an episode (4096; evalact: 16384)"
    )
    add_titles_first(limits)
    add_sampling(parser)
    parser.add_argument("--show", action="store_true", help="with --questions: also print the first episode in full")
    parser.add_argument("--json", action="store_true", help="print JSON, one object per question")
    parser.set_defaults(run=run)


def run(args: argparse.Namespace) -> None:
    """Answer one question and show every turn, or answer a file of questions and print a table."""
    from quaere.search.searcher import open_searcher

    questions = read_asked(args, "ask")
    choose_plain(args)
    check_numbers(args)
    searcher = open_searcher(args.index)
    with interruptible():
        asyncio.run(_ask(args, questions, searcher))


async def _ask(args: argparse.Namespace, questions: list[Question], searcher: Searcher) -> None:
    from rich.console import Console

    from quaere.runs import Run, runs_root
    from quaere.search.searcher import check_reachable

    quiet = Console(stderr=True, highlight=False)
    await check_reachable(searcher)
    protocol, limits = _arrange(args)
    args.min_overlap, args.titles_first = _min_overlap(args), limits.titles_first
    policy = open_model(args, quiet)
    settings = asked_settings(args, limits, hidden=("show", "solver_dialect", "plain")) | {"protocol": protocol.name}
    try:
        with Run.start(runs_root(args.runs), "ask", settings) as stored:
            if len(questions) == 1 and args.question:
                await _ask_one(args, questions[0], policy, protocol, limits, searcher, stored)
            else:
                await _ask_many(args, questions, policy, protocol, limits, searcher, stored, quiet)
    finally:
        await searcher.close()
        await policy.stop()


def _arrange(args: argparse.Namespace) -> tuple[Protocol, Limits]:
    """How to ask: as the command line says, else as the model was trained, which its notes say."""
    from quaere.api.solver_setup import choose_solver
    from quaere.dialects.notes import find_notes
    from quaere.policies.catalogue import needs_guide

    return choose_solver(
        find_notes(args.model),
        needs_guide=needs_guide(args.model),
        dialect=args.solver_dialect,
        evidence=args.evidence,
        guided=args.guided,
        limits={key: getattr(args, key) for key in (*LIMITS, "titles_first") if getattr(args, key) is not None},
        turns_option="--max-turns",
    )


def _min_overlap(args: argparse.Namespace) -> float:
    """The share of a question's key words that the passage of its answer must have, given or from the model's notes."""
    from quaere.dialects.notes import find_notes

    return find_notes(args.model).min_overlap if args.min_overlap is None else float(args.min_overlap)


async def _ask_one(
    args: argparse.Namespace,
    question: Question,
    policy: Policy,
    protocol: Protocol,
    limits: Limits,
    searcher: Searcher,
    stored: Run,
) -> None:
    """Answer one question; print every turn as it is sampled, then the answer."""
    from rich.console import Console

    from quaere.cli.episode_view import render_end, render_turn
    from quaere.records import SolveTask
    from quaere.rollout.episode import run_episode

    console = Console(highlight=False)
    show = None if args.json else lambda turn: console.print(render_turn(turn))
    evidence = getattr(protocol, "evidence", False)
    setting = episode_setting(args, limits)
    episode = await run_episode(policy, protocol, searcher, SolveTask(question), on_turn=show, **setting)
    stored.add_episode(episode)
    if args.json:
        _print_json(episode, stored, evidence=evidence, min_overlap=args.min_overlap)
    else:
        console.print(render_end(episode))
        console.print(render_evidence(episode) if evidence else render_support(episode))
        console.print(render_doubt(episode, args.min_overlap), end="")
        console.print(f"quaere runs show {stored.path}", style="dim", markup=False)
    refuse_all_failed([episode])
    refuse_unanswered(episode, args.min_overlap)


async def _ask_many(
    args: argparse.Namespace,
    questions: list[Question],
    policy: Policy,
    protocol: Protocol,
    limits: Limits,
    searcher: Searcher,
    stored: Run,
    quiet: Console,
) -> None:
    """Answer all questions of a file in batches, and score them against the file's answers."""
    from rich.progress import MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn, TimeRemainingColumn

    from quaere.records import SolveTask
    from quaere.rollout.episode import Job, run_many

    evidence = getattr(protocol, "evidence", False)
    jobs = [Job(protocol, SolveTask(question)) for question in questions]
    episodes: list[Episode] = []
    done, left = (MofNCompleteColumn(), TimeElapsedColumn()), (TextColumn("left"), TimeRemainingColumn())
    shown: dict[str, Any] = {"console": quiet, "disable": not sys.stderr.isatty(), "transient": True}
    with Progress(TextColumn("answering"), *done, *left, **shown) as progress:
        bar = progress.add_task("answering", total=len(jobs))
        async for episode in run_many(policy, jobs, searcher, **episode_setting(args, limits)):
            stored.add_episode(episode, answer_scores(episode))
            episodes.append(episode)
            progress.advance(bar)
            if args.json:
                _print_json(episode, stored, evidence=evidence, min_overlap=args.min_overlap)
    if not args.json:
        _print_table(episodes, stored, show_first=args.show, evidence=evidence, min_overlap=args.min_overlap)
    refuse_all_failed(episodes)


# --------------------------------------------------------------------------------------------------------- evidence


def render_evidence(episode: Episode) -> Text:
    """The span and its place in the document; or the span as written, and that it was found nowhere."""
    from rich.text import Text

    from quaere.cli.episode_view import printable

    span, found, passage = find_span(episode)
    if not span:
        return Text.assemble(("Evidence: ", "dim"), ("it gave none\n", "yellow"), render_support(episode))
    if found is None or passage is None:
        lost = "\n  not found in anything it was shown"
        return Text.assemble(("Evidence: ", "dim"), (printable(span) + lost, "yellow"))
    place = printable(f"\n  found verbatim in {passage_number(episode, passage)} {describe_place(found, passage)}")
    return Text.assemble(("Evidence: ", "dim"), (printable(found.text), "green"), (place, "dim"))


def render_support(episode: Episode) -> Text:
    """The sentence shown that contains the answer, and the number of its passage as it was shown above.

    A sentence of a passage that has no word of the question proves nothing, and is not called the answer's source.
    Without an answer, the passages that were seen.
    """
    from rich.text import Text

    from quaere.cli.episode_view import printable
    from quaere.records import Answer

    if not isinstance(episode.outcome, Answer):
        return _render_seen(episode)
    found = find_support(episode)
    if not found:
        return Text("No sentence it was shown contains this answer", "yellow")
    sentence, passage = found
    place = printable(f"\n  {passage_number(episode, passage)} {describe_place(sentence, passage)}")
    if not is_about_question(episode, passage):
        return Text.assemble((f"{BY_CHANCE}: ", "yellow"), printable(sentence.text), (place, "dim"))
    return Text.assemble(("Found in: ", "dim"), (printable(sentence.text), "green"), (place, "dim"))


def render_doubt(episode: Episode, min_overlap: float) -> Text:
    """Why an answer does not count as found, and the passages that were seen; empty if it counts."""
    from rich.text import Text

    from quaere.api.answer import question_overlap
    from quaere.records import Answer

    if not isinstance(episode.outcome, Answer) or is_found(episode, min_overlap):
        return Text()
    share = f"{question_overlap(episode):.0%} of the question's key words, less than {min_overlap:.0%}"
    doubt = f"The passage with this answer has {share}: do not rely on it\n", "yellow"
    return Text.assemble(doubt, _render_seen(episode), "\n")


def _render_seen(episode: Episode) -> Text:
    from rich.text import Text

    from quaere.chat.spans import shown_passages
    from quaere.cli.episode_view import printable

    seen = [f"\n  {passage_name(passage)}" for passage in shown_passages(episode)[:_MAX_SEEN]]
    return Text("Passages seen:" + printable("".join(seen)) if seen else "No passage was seen", "dim")


def _evidence_word(episode: Episode) -> str:
    span, found, _ = find_span(episode)
    return "verbatim" if found else "not found" if span else "none"


def _evidence_row(episode: Episode) -> dict[str, Any]:
    """The evidence for `--json`: `text` is the document's own text, `span` the model's."""
    span, found, passage = find_span(episode)
    row: dict[str, Any] = {"span": span, "verbatim": found is not None}
    if found is not None and passage is not None:
        row |= {"text": found.text, "doc_id": found.doc_id, "title": passage.title, "place": passage.place}
        row |= {"start": found.start, "end": found.end}
    return row


def _support_row(episode: Episode) -> dict[str, Any] | None:
    """The sentence that contains the answer, for `--json`."""
    found = find_support(episode)
    if not found:
        return None
    sentence, passage = found
    row = {"text": sentence.text, "doc_id": sentence.doc_id, "title": passage.title, "place": passage.place}
    return row | {"start": sentence.start, "end": sentence.end}


# --------------------------------------------------------------------------------------------------------- printing


def _print_json(episode: Episode, stored: Run, *, evidence: bool, min_overlap: float) -> None:
    import json

    from quaere.records import Answer, SolveTask

    assert isinstance(episode.task, SolveTask)
    found = {
        "question": episode.task.question.text,
        "answer": episode.outcome.text if isinstance(episode.outcome, Answer) else None,
        "found": is_found(episode, min_overlap),
        "evidence": _evidence_row(episode) if evidence else None,
        "support": _support_row(episode),
        "end": episode.end,
        "searches": [result.query for turn in episode.turns for result in turn.results],
        "passages": [hit.passage.id for turn in episode.turns for result in turn.results for hit in result.hits],
        "failures": [f"{turn.failure.boundary}: {turn.failure.message}" for turn in episode.turns if turn.failure],
        "scores": answer_scores(episode),
        "run": str(stored.path),
        "episode": episode.id,
    }
    print(json.dumps(found))


def _print_table(episodes: list[Episode], stored: Run, *, show_first: bool, evidence: bool, min_overlap: float) -> None:
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    from quaere.cli.episode_view import printable, render_episode, trim
    from quaere.records import Answer, SolveTask

    console = Console(highlight=False)
    if show_first:
        console.print(render_episode(episodes[0]))
        console.print()
    table = Table("facts", "question", "answer", "expected", "right", "searches", box=None, pad_edge=False)
    if evidence:
        table.add_column("evidence")
    scores = [answer_scores(episode) for episode in episodes]
    for episode, score in zip(episodes, scores, strict=True):
        assert isinstance(episode.task, SolveTask)
        question = episode.task.question
        answer = episode.outcome.text if isinstance(episode.outcome, Answer) else f"({episode.end})"
        doubt = " (not found)" if isinstance(episode.outcome, Answer) and not is_found(episode, min_overlap) else ""
        right = "" if not score else ("yes" if score["answer/exact_match"] else "no")
        cells = (
            str(question.facts or ""),
            trim(question.text, 70),
            trim(answer, 30) + doubt,
            trim(question.answers[0], 30) if question.answers else "",
            right,
            str(episode.num_searches),
            *((_evidence_word(episode),) if evidence else ()),
        )
        table.add_row(*(Text(printable(cell)) for cell in cells))
    console.print(table)
    marked = [score for score in scores if score]
    num_answered = sum(episode.end == "answered" for episode in episodes)
    line = f"{len(episodes)} questions, {num_answered} answered"
    if num_doubted := num_answered - sum(is_found(episode, min_overlap) for episode in episodes):
        line += f", {num_doubted} of these not found"
    if marked:
        exact = sum(score["answer/exact_match"] for score in marked)
        f1 = sum(score["answer/f1"] for score in marked) / len(marked)
        line += f", {exact:.0f} of {len(marked)} exactly right, mean F1 {f1:.2f}"
    if evidence:
        num_found = sum(_evidence_word(episode) == "verbatim" for episode in episodes)
        line += f", evidence of {num_found} found verbatim"
    console.print(line, style="bold", markup=False)
    console.print(f"quaere runs show {stored.path}", style="dim", markup=False)
