"""`quaere.evaluate`: how well an agent answers a set of questions.

result = evaluate(agent, "questions.jsonl")
result.table()
result.score.exact_match -> Interval(mean=0.31, low=0.27, high=0.35, num=500)
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable
from contextlib import AsyncExitStack
from pathlib import Path
from typing import TYPE_CHECKING, Any

from msgspec import structs

from quaere.api.agent import Agent, show_progress
from quaere.api.answer import refuse_all_failed
from quaere.errors import BadInput
from quaere.evaluation.qa import differences, scores
from quaere.evaluation.qa.differences import Difference
from quaere.evaluation.qa.items import keep_whole_gold
from quaere.evaluation.qa.scores import Judging, QuestionScore, Scored, score_answering
from quaere.records import Episode, Question
from quaere.rollout.question_files import read_questions

if TYPE_CHECKING:
    from quaere.evaluation.judges.judge import Judge


class Evaluation(scores.Evaluation, frozen=True):
    """The scores of an agent on a set of questions: `score` in all, `questions` one by one.

    Evaluation(name="warm", model="warm", settings={...}, score=AnsweringScore(...), questions=(QuestionScore(...),))
    """

    def table(self, *others: Scored) -> None:
        """Print the scores with their intervals, and the paired differences to other results."""
        from quaere.api.evaluation_table import print_results

        print_results(self, list(others), None)

    def compare(self, other: Scored) -> Difference | None:
        """This result minus another, over the questions both were asked; None if there is none."""
        return differences.compare(self, other)

    def write(self, path: str | Path) -> None:
        """Write it as JSON, for `Evaluation.read` and for `quaere eval --compare`."""
        scores.write_evaluation(self, Path(path))

    @classmethod
    def read(cls, path: str | Path) -> Evaluation:
        """A result that `write` or `quaere eval --out` wrote."""
        return cls(**structs.asdict(scores.read_evaluation(Path(path))))


def evaluate(
    agent: Agent,
    questions: str | Path | Iterable[Question],
    *,
    limit: int | None = None,
    facts: Collection[int] = (),
    name: str = "",
    judge: str | None = None,
    judge_items: int = 100,
    gold_sets: Collection[str] | None = None,
    progress: bool = True,
) -> Evaluation:
    """Answer every question greedily and compare with its accepted answers: exact match and F1.

    `questions` is a JSONL file or a data set of the hub (`hub:OWNER/NAME:SPLIT`), of which `limit` and `facts` may take
    a part, or a list of questions. The protocol and the limits are the agent's. `judge`, for an agent asked for
    evidence, says whether the quoted sentence supports the answer: "string" for a check by words, else a model as for
    `Agent`; its accuracy is measured first, on `judge_items` questions. `gold_sets` are the
    sets whose `gold_ids` are complete; None means those that have them throughout.
    """
    asked = read_questions(questions, limit, facts) if isinstance(questions, str | Path) else list(questions)
    if not asked or not all(isinstance(question, Question) for question in asked):
        hint = 'quaere.Question("q1", "Who built it?", answers=("Venn",))'
        raise BadInput("evaluate takes a JSONL file or a list of Question", hint=hint)
    scores.refuse_unanswerable(asked)
    asked = keep_whole_gold(asked, gold_sets)
    if judge and not getattr(agent.protocol, "evidence", False):
        raise BadInput("a judge has nothing to judge without evidence", hint="Agent(..., evidence=True)")
    settings = {
        "questions": str(questions) if isinstance(questions, str | Path) else None,
        "protocol": agent.protocol.name,
        "evidence": getattr(agent.protocol, "evidence", False),
        "limits": structs.asdict(agent.limits),
        "judge": judge,
        "gold_sets": None if gold_sets is None else list(gold_sets),
        "seed": agent.seed,
    }
    found, judging = agent.run(_evaluate(agent, asked, judge, judge_items, progress))
    return Evaluation(name or agent.model, agent.model, settings, score_answering(found), tuple(found), judging)


async def _evaluate(
    agent: Agent, questions: list[Question], judge: str | None, judge_items: int, progress: bool
) -> tuple[list[QuestionScore], Judging | None]:
    judging: Judging | None = None
    episodes: list[Episode] = []
    async with AsyncExitStack() as held:
        if judge:
            engine = {**agent.engine, "concurrency": agent.max_rows}
            opened, judging = await open_judging(judge, judge_items, held, engine)
        with show_progress("answering", len(questions), progress) as advance:

            def keep(episode: Episode, score: QuestionScore) -> None:
                episodes.append(episode)
                advance("")

            found = await scores.evaluate(
                agent.policy,
                agent.protocol,
                agent.searcher,
                questions,
                agent.limits,
                seed=agent.seed,
                concurrency=agent.max_rows,
                on_episode=keep,
            )
        refuse_all_failed(episodes)
        if judge and judging:
            found, num_unread = await scores.judge_spans(opened, found, questions)
            judging = structs.replace(judging, num_unread=num_unread)
    return found, judging


async def open_judging(
    name: str,
    num_items: int,
    held: AsyncExitStack,
    engine: dict[str, Any],
    note: Callable[[str], None] = lambda line: None,
) -> tuple[Judge, Judging]:
    """Open a judge and measure its accuracy, before anything is answered: one that cannot be reached is refused now.

    `held` stops the judge at its end.
    """
    from quaere.evaluation.judges.judge import open_judge
    from quaere.evaluation.judges.judge_accuracy import validate_judge

    note(f"validating the judge {name} on {num_items} questions")
    judge = open_judge(name, report=note, **engine)
    held.push_async_callback(judge.stop)
    return judge, Judging(judge.name, await validate_judge(judge, num_items), num_unread=0)
