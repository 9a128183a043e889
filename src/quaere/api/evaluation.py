"""`quaere.evaluate`: how well an agent answers a set of questions.

result = evaluate(agent, "questions.jsonl")
result.table()
result.score.exact_match -> Interval(mean=0.31, low=0.27, high=0.35, num=500)
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Iterable, Sequence
from contextlib import AbstractContextManager, AsyncExitStack, nullcontext
from functools import partial
from pathlib import Path
from typing import Any

from msgspec import structs

from quaere.api.agent import Agent
from quaere.api.answering import answer_questions, open_stored, score_metrics
from quaere.api.evaluation_table import print_results
from quaere.api.printing import Progress
from quaere.errors import BadInput
from quaere.evaluation.judges.judge import Judge, open_judge
from quaere.evaluation.judges.judge_accuracy import validate_judge
from quaere.evaluation.qa import differences, scores
from quaere.evaluation.qa.abstaining import add_hidden
from quaere.evaluation.qa.differences import Difference
from quaere.evaluation.qa.items import keep_whole_gold
from quaere.evaluation.qa.scores import Judging, QuestionScore, Scored, score_answering
from quaere.records import Episode, Question
from quaere.rollout.question_files import read_questions
from quaere.runs import Run
from quaere.search.searcher import NoSearcher, find_fingerprint


class Evaluation(scores.Evaluation, frozen=True):
    """The scores of an agent on a set of questions: `score` in all, `questions` one by one.

    Evaluation(name="warm", model="warm", settings={...}, score=AnsweringScore(...), questions=(QuestionScore(...),))
    """

    def table(self, *others: Scored) -> None:
        """Print the scores with their intervals, and the paired differences to other results."""
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
    hide_answers: bool = False,
    run: str | Path | None = None,
    known: Sequence[Episode] = (),
    progress: bool = True,
    on_progress: Progress | None = None,
) -> Evaluation:
    """Answer every question and compare with its accepted answers: exact match and F1.

    `questions` is a JSONL file or a data set of the hub (`hub:OWNER/NAME:SPLIT`), of which `limit` and `facts` may take
    a part, or a list of questions. The protocol, the limits and whether it may abstain are the agent's: one that was
    taught nothing may, and `quaere eval` asks it without. `judge`, for an agent asked for evidence, says whether the
    quoted sentence supports the answer: "string" for a check by words, else a model as for `Agent`; its accuracy is
    measured first, on `judge_items` questions. `gold_sets` are the sets whose `gold_ids` are complete; None means those
    that have them throughout. With `hide_answers`, each question is asked a second time with passages that contain its
    answers left out, if that makes it unanswerable. Every episode is stored in the directory `run`, if one is named;
    called again after a stop, the others are answered.
    `known` are episodes of the same weights: those whose searches find the same now are not played again.
    """
    asked = list(
        read_questions(questions, limit, facts, to_score=True) if isinstance(questions, str | Path) else questions
    )
    if not asked:
        raise BadInput("there is no question to evaluate: the list is empty")
    if not all(isinstance(question, Question) for question in asked):
        hint = 'quaere.Question("q1", "Who built it?", answers=("Venn",))'
        raise BadInput("evaluate takes a JSONL file or a list of Question", hint=hint)
    [(twice, num)] = Counter(question.id for question in asked).most_common(1)
    if num > 1:
        said = f"two questions have the id {twice}"
        raise BadInput(said, hint="give each an id of its own: their answers are kept apart by it")
    asked = keep_whole_gold(asked, gold_sets)
    if hide_answers and isinstance(agent.searcher, NoSearcher):
        raise BadInput("hide_answers leaves out passages, and a closed-book agent is shown none")
    asked = add_hidden(asked)[0] if hide_answers else asked
    if judge and not agent.opened.cites:
        raise BadInput("a judge has nothing to judge without evidence", hint="Agent(..., evidence=True)")
    settings = {
        "questions": str(questions) if isinstance(questions, str | Path) else None,
        "protocol": agent.protocol.name,
        "evidence": agent.opened.cites,
        "abstention": getattr(agent.protocol, "abstention", False),
        "hide_answers": hide_answers,
        "attempts": agent.opened.attempts if agent.opened.attempts > 1 else None,
        "min_confidence": agent.opened.min_confidence or None,
        "limits": structs.asdict(agent.limits),
        "judge": judge,
        "gold_sets": None if gold_sets is None else list(gold_sets),
        "seed": agent.opened.seed,
        "index_fingerprint": agent.run(find_fingerprint(agent.searcher)),
    }
    kept = {**settings, "model": agent.model, "index": str(agent.index.path) if agent.index else None}
    if run is not None and Path(run).exists() and agent.engine["mode"] == "deterministic":
        said = f"{run}: a deterministic evaluation cannot continue, as the other questions would be batched differently"
        raise BadInput(said, hint="name another run")
    keeps = partial(_open_run, Path(run), kept) if run is not None else nullcontext
    found, judging = agent.run(_evaluate(agent, asked, judge, judge_items, keeps, known, on_progress or progress))
    return Evaluation(name or agent.model, agent.model, settings, score_answering(found), tuple(found), judging)


def _open_run(path: Path, settings: dict[str, Any]) -> Run:
    """The run of an evaluation, new or stopped."""
    return open_stored(path, settings) if path.exists() else Run.create(path, "eval", settings)


async def _evaluate(
    agent: Agent,
    questions: list[Question],
    judge: str | None,
    judge_items: int,
    keeps: Callable[[], AbstractContextManager[Run | None]],
    known: Sequence[Episode],
    progress: bool | Progress,
) -> tuple[list[QuestionScore], Judging | None]:
    judging: Judging | None = None
    async with AsyncExitStack() as held:
        if judge:
            engine = {**agent.engine, "concurrency": agent.opened.max_rows}
            judged_by, judging = await open_judging(judge, judge_items, held, engine)
        with keeps() as stored:  # in the thread that writes to it
            found = await answer_questions(agent.opened, questions, stored=stored, known=known, progress=progress)
            if stored:
                stored.log_metrics(0, score_metrics(score_answering(found)))
        if judge and judging:
            found, num_unread = await scores.judge_spans(judged_by, found, questions)
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
    note(f"validating the judge {name} on {num_items} questions")
    judge = open_judge(name, report=note, **engine)
    held.push_async_callback(judge.stop)
    return judge, Judging(judge.name, await validate_judge(judge, num_items), num_unread=0)
