"""A task of Inspect: an agent answers a file of questions, and Inspect keeps the log.

    inspect eval quaere/answer --model none -T agent=smollm2-135m -T index=INDEX -T questions=QUESTIONS.jsonl

Inspect finds it by the entry point `inspect_ai`; nothing else imports this file, which needs the extra `inspect`. The
agent samples from its own model, so that Inspect is given none.
"""

from __future__ import annotations

import asyncio
from functools import cache
from typing import TYPE_CHECKING, Any

from inspect_ai import Task, task
from inspect_ai.dataset import Sample
from inspect_ai.model import ChatMessageAssistant, ModelOutput
from inspect_ai.scorer import Score, mean, scorer, stderr
from inspect_ai.solver import solver

from quaere.api.agent import Agent
from quaere.records import Question
from quaere.rewards.answers import exact_match_score, f1_score
from quaere.rollout.question_files import read_questions

if TYPE_CHECKING:
    from inspect_ai.scorer import Scorer, Target
    from inspect_ai.solver import Generate, Solver, TaskState


@task
def answer(agent: str, questions: str, index: str = "", limit: int = 0, **options: Any) -> Task:
    """The questions of a file or of the hub, answered by an agent and scored as `quaere eval` does.

    `agent` is a model as after `quaere ask --model`; without `index`, it answers from memory. Other options are those
    of `quaere.Agent`, such as `dialect` and `max_turns`. Questions without an answer are left out.
    """
    asked = [one for one in read_questions(questions, limit or None) if one.answers]
    samples = [Sample(input=one.text, target=list(one.answers), id=one.id) for one in asked]
    return Task(dataset=samples, solver=ask_agent(agent, index, **options), scorer=[exact_match(), token_f1()])


@solver
def ask_agent(agent: str, index: str = "", **options: Any) -> Solver:
    """A solver that asks an agent, opened at the first question and kept for all."""

    @cache
    def opened() -> Agent:
        return Agent(agent, index or None, closed_book=not index, **options)

    async def solve(state: TaskState, generate: Generate) -> TaskState:
        question, answering = Question(str(state.sample_id), state.input_text, tuple(state.target)), opened()
        found = await asyncio.to_thread(answering.ask, question)
        episode = found.episode
        state.store.set("num_searches", episode.num_searches)
        state.store.set("search_failed", episode.search_failed)
        state.messages.append(ChatMessageAssistant(content=found.text, model=agent))
        state.output = ModelOutput.from_content(agent, found.text)
        return state

    return solve


@scorer(metrics=[mean(), stderr()])
def exact_match() -> Scorer:
    """Exact match with any accepted answer."""
    return _score_by(exact_match_score)


@scorer(metrics=[mean(), stderr()])
def token_f1() -> Scorer:
    """Token F1 with the nearest accepted answer."""
    return _score_by(f1_score)


def _score_by(measure: Any) -> Scorer:
    async def score(state: TaskState, target: Target) -> Score:
        # As in an evaluation: without what was searched for, an answer is wrong.
        said = "" if state.store.get("search_failed") else state.output.completion
        return Score(value=measure(said, list(target)), answer=state.output.completion)

    return score
