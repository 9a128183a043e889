"""`quaere ask`: a model answers by searching; every episode is stored.

quaere ask "Who built the Halm bridge?" --index docs-index --model smollm2-135m
quaere ask "Who built the Halm bridge?" --index docs-index --evidence
quaere ask "Who built the Halm bridge?" --index docs-index --min-overlap 0
quaere ask "Who built the Halm bridge?" --index docs-index --attempts 8
quaere ask --questions world/questions.jsonl --limit 10 --index world-index
"""

from __future__ import annotations

import argparse
import asyncio
import json
import shlex
from typing import TYPE_CHECKING, Annotated, Any

from msgspec import Meta
from msgspec.structs import asdict

from quaere.api.answer import (
    Answer,
    find_span,
    find_support,
    refuse_all_failed,
    refuse_unanswered,
    summarise_answers,
)
from quaere.api.printing import counting, plain_table
from quaere.cli import options
from quaere.cli.terminal import interruptible, open_console
from quaere.dialects.registry import SOLVER_DIALECTS
from quaere.records import Episode, Question, SolveTask

if TYPE_CHECKING:
    from quaere.api.agent import OpenAgent
    from quaere.runs import Run
    from quaere.search.searcher import Searcher


class AskOptions(options.AskedOptions, kw_only=True):
    """Options of `quaere ask`.

    Attributes:
        guided: search with the question itself first, and write the start of the answer, for models too small to follow
            the dialect (default: only for models of the catalogue that need it)
        evidence: ask for the sentence that proves the answer, and check that the model was shown it (default: only for
            models that were taught to quote evidence)
        min_overlap: share of the question's names (without names, of its words) that the passage with the answer must
            have; with fewer the answer is 'not found' (default: as was measured for the model, else 0: every answer
            counts)
        abstention: let the model answer that the documents do not say (default: as it was trained; on for a model that
            was taught nothing)
        solver_dialect: prompts and protocol of the model (default: as it was trained, else tool-call)
        show: with --questions: also print the first episode in full
    """

    guided: bool | None = None
    evidence: bool | None = None
    min_overlap: Annotated[float, "X", Meta(ge=0, le=1)] | None = None
    abstention: bool | None = None
    solver_dialect: Annotated[str, options.Flag(choices=SOLVER_DIALECTS)] | None = None
    show: bool = False


class AskLimits(options.EpisodeLimits):
    """How far an episode may go.

    Attributes:
        max_turns: most turns of an episode (5; evalact: 42)
        topk: passages per search (3)
        turn_tokens: most tokens per turn (256)
        sequence_tokens: most tokens of an episode (4096; evalact: 16384)
        titles_first: show passages first whose title the query names, among the first ten found
    """

    titles_first: bool | None = None


def _run(args: argparse.Namespace) -> None:
    """Answer one question and show every turn, or answer a file of questions and print a table."""
    from quaere.search.searcher import open_searcher

    questions = options.read_asked(args, "ask")
    options.choose_plain(args)
    with interruptible():
        asyncio.run(_ask(args, questions, open_searcher(args.index)))


fill = options.command(
    _run,
    AskOptions,
    options.VotingOptions,
    options.PlainOption,
    options.RunsFolder,
    options.group("limits", AskLimits, about="default: as the model was trained, else the values in parentheses"),
    options.group("sampling", options.SamplingOptions),
)


async def _ask(args: argparse.Namespace, questions: list[Question], searcher: Searcher) -> None:
    from quaere.api.agent import open_agent
    from quaere.runs import Run, runs_root

    how = options.sampling_settings(args) | {"limits": options.given_limits(args, "titles_first")}
    asked = ("min_overlap", "attempts", "min_confidence", "evidence", "guided", "abstention")
    how |= {name: getattr(args, name) for name in asked}
    agent = await open_agent(args.model, searcher, dialect=args.solver_dialect, turns_option="--max-turns", **how)
    args.min_overlap, args.titles_first = agent.min_overlap, agent.limits.titles_first
    args.abstention, args.min_confidence = getattr(agent.protocol, "abstention", False), agent.min_confidence
    settings = options.asked_settings(args, agent.limits, hidden=("show", "solver_dialect", "plain"))
    try:
        with Run.start(runs_root(args.runs), "ask", settings | {"protocol": agent.protocol.name}) as stored:
            if args.question:
                await _ask_one(args, questions[0], agent, stored)
            else:
                await _ask_many(args, questions, agent, stored)
    finally:
        await agent.close()


async def _ask_one(args: argparse.Namespace, question: Question, agent: OpenAgent, stored: Run) -> None:
    """Answer one question; print every turn as it is sampled, then the answer."""
    from quaere.cli.episode_view import render_doubt, render_end, render_evidence, render_support, render_turn

    console = open_console()
    show = None if args.json else lambda turn: console.print(render_turn(turn))
    episode = await agent.play(SolveTask(question), on_turn=show)
    stored.add_episode(episode)
    answer = agent.read(episode)
    if args.json:
        _print_json(answer, agent, stored)
    else:
        console.print(render_end(episode, agent.min_confidence))
        if episode.agreement is not None:
            agreeing = round(episode.agreement * agent.attempts)
            console.print(f"{agreeing} of {agent.attempts} attempts end like this", style="dim")
        if not answer.abstained:
            if agent.cites or answer.found or answer.support or not answer.text:  # else its doubt says as much
                console.print(render_evidence(episode) if agent.cites else render_support(episode))
            console.print(render_doubt(episode, agent.min_overlap), end="")
        console.print(f"quaere runs show {shlex.quote(str(stored.path))}", style="dim", markup=False, soft_wrap=True)
    refuse_all_failed([episode])
    refuse_unanswered(episode, agent.min_overlap, agent.min_confidence)


async def _ask_many(args: argparse.Namespace, questions: list[Question], agent: OpenAgent, stored: Run) -> None:
    """Answer all questions of a file in batches, and score them against the file's answers."""
    answers: list[Answer] = []
    ended: dict[str, Episode] = {}  # those that are not stored yet, as an earlier question is still being answered
    played = agent.play_many(
        [SolveTask(question) for question in questions], on_episode=lambda one: ended.update({one.id: one})
    )
    try:
        with counting("answering", len(questions)) as advance:
            async for episode in played:
                answers.append(agent.read(episode))
                stored.add_episode(ended.pop(episode.id), answers[-1].scores)
                advance("")
                if args.json:
                    _print_json(answers[-1], agent, stored)
    finally:  # at a Ctrl-C, what is finished is stored
        for episode in ended.values():
            stored.add_episode(episode, agent.read(episode).scores)
    if not args.json:
        _print_table(answers, stored, agent, show_first=args.show)
    refuse_all_failed([answer.episode for answer in answers])


# --------------------------------------------------------------------------------------------------------- printing


def _print_json(answer: Answer, agent: OpenAgent, stored: Run) -> None:
    from quaere.cli.episode_view import episode_row

    episode = answer.episode
    evidence: dict[str, Any] | None = None
    support: dict[str, Any] | None = None
    if agent.cites:
        span, found, passage = find_span(episode)
        evidence = {"span": span, "verbatim": found is not None}
        if found and passage:  # `text` is the document's own text, `span` the model's
            evidence |= asdict(found) | {"title": passage.title, "place": passage.place}
    if supporting := find_support(episode):
        sentence, passage = supporting
        support = asdict(sentence) | {"title": passage.title, "place": passage.place}
    found_of = {
        "question": answer.question.text,
        "answer": answer.text if episode.end == "answered" else None,
        "found": answer.found,
        "abstained": answer.abstained,
        "confidence": answer.confidence,
        "evidence": evidence,
        "support": support,
        "passages": [hit.passage.id for result in answer.searches for hit in result.hits],
        "scores": answer.scores,
    }
    print(json.dumps(found_of | episode_row(episode, stored)))


def _print_table(answers: list[Answer], stored: Run, agent: OpenAgent, *, show_first: bool) -> None:
    from quaere.cli.episode_view import render_episode, trim

    console = open_console()
    if show_first:
        console.print(render_episode(answers[0].episode, min_confidence=agent.min_confidence))
        console.print()
    rows = []
    for answer in answers:
        question, score, is_answered = answer.question, answer.scores, answer.episode.end == "answered"
        words = trim(answer.text, 30) if is_answered else f"({answer.episode.end})"
        words = "(abstained)" if answer.abstained else words
        doubt = " (not found)" if is_answered and not answer.found and not answer.abstained else ""
        right = "" if not score else ("yes" if score["answer/exact_match"] else "no")
        expected = trim(question.answers[0], 30) if question.answers else ""
        quoted = "" if not agent.cites else "verbatim" if answer.evidence else "not found" if answer.span else "none"
        row = (str(question.facts or ""), trim(question.text, 70), words + doubt, expected, right)
        rows.append((*row, str(answer.episode.num_searches), quoted))
    names = ("facts", "question", "answer", "expected", "right", "searches", "evidence")
    console.print(plain_table(*names, rows=rows, filled=True))
    console.print(summarise_answers(answers, evidence=agent.cites), style="bold", markup=False)
    console.print(f"quaere runs show {shlex.quote(str(stored.path))}", style="dim", markup=False, soft_wrap=True)
