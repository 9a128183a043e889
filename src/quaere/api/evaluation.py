"""`quaere.evaluate`: how well an agent answers a set of questions.

result = evaluate(agent, "questions.jsonl")
result.table()
result.score.exact_match -> Interval(mean=0.31, low=0.27, high=0.35, num=500)
"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Collection, Iterable, Sequence
from contextlib import AsyncExitStack
from pathlib import Path
from typing import TYPE_CHECKING, Any

from msgspec import structs

from quaere.api.agent import Agent, show_progress
from quaere.api.answer import refuse_all_failed
from quaere.errors import BadInput
from quaere.evaluation.qa import differences, scores
from quaere.evaluation.qa.differences import Difference
from quaere.evaluation.qa.evidence_scores import keep_whole_gold
from quaere.evaluation.qa.scores import Judging, QuestionScore, Scored, score_answering
from quaere.records import Episode, Question
from quaere.rollout.question_files import read_questions

if TYPE_CHECKING:
    from quaere.evaluation.judges.judge import Judge
if TYPE_CHECKING:
    from rich.console import Console
    from rich.table import Table

    from quaere.evaluation.intervals import Interval, SeededInterval
    from quaere.evaluation.qa.differences import ArmDifference, Difference
    from quaere.evaluation.qa.evidence_scores import EvidenceScore
    from quaere.evaluation.qa.scores import Judging, Scored
    from quaere.runs import Run


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


# --------------------------------------------------------------------------------------------------------------- tables


_MEASURES = {
    "exact_match": "EM",
    "f1": "F1",
    "present": "present",
    "verbatim": "verbatim",
    "supported": "supported",
    "joint": "joint",
    "gold": "gold",
    "gold_joint": "gold joint",
    "open_exact_match": "EM without yes/no and choices",
}
_LEGEND = (
    "in brackets the 95 % interval over questions alone; in parentheses the smallest difference that could be shown"
)
_ARM_LEGEND = (
    "in brackets the 95 % interval over questions and seeds; in parentheses the smallest difference that could be shown"
)
_MAX_INTERVALS = 4  # columns with intervals that fit into 120 characters
_GOLD_LEGEND = "gold: the span is verbatim of a gold passage that was shown and holds the answer; gold joint: and EM"


def print_results(
    evaluation: Scored, others: list[Scored], stored: Run | None, arms: Sequence[ArmDifference] = ()
) -> None:
    """Print a table of all results, the paired differences, and where the episodes are stored."""
    from rich.console import Console
    from rich.text import Text

    from quaere.api.printing import count
    from quaere.chat.terminal_text import printable
    from quaere.evaluation.qa.constant_answers import say_constant
    from quaere.evaluation.qa.differences import compare

    # With seeds, one file's difference to another says less than that of their arms.
    differences = [] if arms else [compare(evaluation, other) for other in others]
    # A file or pipe has no width of its own; 120 columns keep the tables from being wrapped at 80.
    console = Console(highlight=False, width=None if sys.stdout.isatty() else 120)
    console.print(_table([*others, evaluation]))
    if (groups := _group_table([*others, evaluation])) is not None:
        console.print(groups)
    _print_evidence(console, [*others, evaluation])
    for other, difference in zip(others, differences, strict=not arms):
        console.print(Text(printable(_difference_line(evaluation, other, difference))))
    for arm in arms:
        console.print(Text(printable(_arm_line(arm))))
    if arms or any(differences):
        console.print(_ARM_LEGEND if arms else _LEGEND, style="dim", markup=False)
    for one in (*others, evaluation):
        for constant in one.score.constants:
            if constant.is_constant:
                console.print(Text(printable(say_constant(one.name, constant)), style="yellow"))
    score = evaluation.score
    if score.num_search_failed:
        told = f"search failed in {count(score.num_search_failed, 'episode')}; each counts as wrong"
        console.print(told, style="yellow", markup=False)
    if score.num_failed:
        console.print(f"the model failed in {count(score.num_failed, 'episode')}", style="yellow", markup=False)
    if score.unanswered:
        told = f"{score.unanswered:.1%} of the questions were left unanswered at a limit of turns or tokens"
        console.print(told, style="yellow", markup=False)
    costs = f"{score.mean_turns:.2f} turns and {score.mean_tokens:.0f} tokens an episode"
    console.print(
        f"{count(score.exact_match.num, 'question')}; {costs}; {score.num_malformed} malformed turns", style="dim"
    )
    if stored is not None:
        console.print(f"quaere runs show {stored.path}", style="dim", markup=False)


def print_json(
    evaluation: Scored, others: list[Scored], stored: Run | None, arms: Sequence[ArmDifference] = ()
) -> None:
    """Print the result and what it is compared with; the questions one by one are in the run and in --out."""
    import msgspec

    from quaere.evaluation.qa.differences import compare

    found = {
        "name": evaluation.name,
        "settings": evaluation.settings,
        "score": evaluation.score,
        "judging": evaluation.judging,
        "compare": [
            {"name": other.name, "score": other.score, "difference": compare(evaluation, other)} for other in others
        ],
        "arms": arms,
        "run": str(stored.path) if stored else None,
    }
    print(json.dumps(json.loads(msgspec.json.encode(found)), indent=2))


def _table(evaluations: list[Scored]) -> Table:
    table = _plain_table("questions", "EM %", "F1 %", "searches", "answered")
    for evaluation in evaluations:
        score = evaluation.score
        numbers = (str(score.exact_match.num), _between(score.exact_match), _between(score.f1))
        searches = f"{score.mean_searches:.2f}"
        if score.mean_searches_needed is not None:
            searches += f" of {score.mean_searches_needed:.2f} needed"
        table.add_row(*_cells(evaluation.name, *numbers, searches, f"{score.answered:.1%}"))
    return table


def _group_table(evaluations: list[Scored]) -> Table | None:
    """Exact match by facts, kind of answer and searches needed; None if no grouping has two groups."""
    groups = [_groups(evaluation) for evaluation in evaluations]
    names = list(dict.fromkeys(name for found in reversed(groups) for name in found))
    if not names:
        return None
    table = _plain_table("questions")
    table.columns[0].header = "EM % by group"
    say, width = (_between, 21) if len(evaluations) <= _MAX_INTERVALS else (_percent, 12)
    for heading in _cells(*(evaluation.name for evaluation in evaluations)):
        table.add_column(heading, min_width=width, max_width=width)  # long names are wrapped
    for name in names:
        found = [group.get(name) for group in groups]
        num = next(interval.num for interval in reversed(found) if interval)
        cells = ("" if interval is None else say(interval) + _of_other(interval.num, num) for interval in found)
        table.add_row(*_cells(name, str(num), *cells))
    return table


def _groups(evaluation: Scored) -> dict[str, Interval]:
    """Exact match by group, of each grouping that has several; searches only if they differ from facts."""
    score = evaluation.score
    facts = {_count(group.facts, "fact", "facts"): group.exact_match for group in score.by_facts}
    kinds = {group.name: group.exact_match for group in score.by_kind}
    searches = {_count(int(group.name), "search", "searches"): group.exact_match for group in score.by_searches}
    differ = any(item.searches_needed not in (0, item.facts) for item in evaluation.items)
    groupings = [facts, kinds, searches if differ else {}]
    return {name: interval for found in groupings if len(found) > 1 for name, interval in found.items()}


def _count(number: int, one: str, several: str) -> str:
    if not number:
        return f"{several} unknown"
    return f"{number} {one if number == 1 else several}"


def _of_other(num: int, usual: int) -> str:
    """How many questions a cell is of, where its row says another number."""
    return "" if num == usual else f" of {num}"


def _print_evidence(console: Console, evaluations: list[Scored]) -> None:
    """Print the accuracy of every judge, then the evidence scores of results that have them."""
    cited = [evaluation for evaluation in evaluations if evaluation.score.evidence]
    if not cited:
        return
    # A judge's accuracy comes before anything it decided.
    judgings = {evaluation.judging.judge: evaluation.judging for evaluation in cited if evaluation.judging}
    for judging in judgings.values():
        _print_judging(console, judging)
    table = _plain_table("present %", "verbatim %", "supported %", "joint %", "judged by")
    for evaluation in cited:
        score, judge = _evidence(evaluation), evaluation.judging.judge if evaluation.judging else "no judge"
        shares = (score.present, score.verbatim, score.supported, score.joint)
        table.add_row(*_cells(evaluation.name, *(_between(share) if share else "" for share in shares), judge))
    console.print(table)
    _print_gold(console, cited)


def _print_gold(console: Console, evaluations: list[Scored]) -> None:
    """Print the shares of spans out of gold passages, where results have them."""
    table = _plain_table("questions with gold", "gold %", "gold joint %")
    for evaluation in evaluations:
        score = _evidence(evaluation)
        if score.gold and score.gold_joint:
            shares = (str(score.gold.num), _between(score.gold), _between(score.gold_joint))
            table.add_row(*_cells(evaluation.name, *shares))
    if table.row_count:
        console.print(table)
        console.print(_GOLD_LEGEND, style="dim", markup=False)


def _evidence(evaluation: Scored) -> EvidenceScore:
    assert evaluation.score.evidence is not None  # results without were left out
    return evaluation.score.evidence


def _print_judging(console: Console, judging: Judging) -> None:
    from rich.text import Text

    from quaere.api.printing import count
    from quaere.chat.terminal_text import printable

    trust = judging.validation
    num = count(trust.balanced.num, "question")
    console.print(Text(printable(f"judge accuracy of {judging.judge!r}: {num} ({trust.world})")))
    table = _plain_table("right on %", "of")
    table.columns[0].header = "spans"
    summary = {
        "gold, called supported (sensitivity)": trust.sensitivity,
        "corrupted, called not supported (specificity)": trust.specificity,
        "both (balanced accuracy; 50 is no better than chance)": trust.balanced,
    }
    kinds = {f"  {agreement.kind}": agreement.right for agreement in trust.by_kind}
    for name, share in (summary | kinds).items():
        table.add_row(*_cells(name, _between(share), str(share.num)))
    console.print(table)
    if trust.balanced.low <= 0.5:
        told = "this judge has not been shown to be better than chance: do not rely on `supported`"
        console.print(told, style="yellow", markup=False)
    for num_unread, where in ((trust.num_unread, "there"), (judging.num_unread, "here")):
        if num_unread:
            told = f"{count(num_unread, 'verdict')} could not be read {where}; each counts as not supported"
            console.print(told, style="yellow", markup=False)


def _plain_table(*headings: str) -> Table:
    """A table without lines: the result's name, which is wrapped on narrow terminals, and columns of numbers."""
    from rich.table import Table

    table = Table("result", box=None, pad_edge=False, padding=(0, 2, 0, 0))
    for heading in headings:
        table.add_column(heading, no_wrap=True)
    return table


def _difference_line(evaluation: Scored, other: Scored, difference: Difference | None) -> str:
    if difference is None:
        return f"{evaluation.name} and {other.name} share no question, so no paired difference can be given"
    pair = f"{evaluation.name} - {other.name}, over {difference.exact_match.num} shared questions"
    found = [
        f"{word} {_between(getattr(difference, measure), '+')} ({100 * difference.smallest[measure]:.1f})"
        for measure, word in _MEASURES.items()
        if measure in difference.smallest
    ]
    return f"{pair}: {', '.join(found)}"


def _arm_line(arm: ArmDifference) -> str:
    """A difference of arms: over questions and seeds, and over the seeds' means alone."""
    measures = {"EM": arm.exact_match, "F1": arm.f1, "EM without yes/no and choices": arm.open_exact_match}
    found = [
        f"{word} {_between(interval, '+')} ({100 * interval.smallest:.1f})"
        + (f", t over seeds [{100 * seeds.low:+.1f}, {100 * seeds.high:+.1f}]" if (seeds := interval.by_seed) else "")
        for word, interval in measures.items()
        if interval
    ]
    ours, theirs = arm.num_seeds
    pair = f"{arm.name} - {arm.other}, {ours} and {theirs} seeds, over {arm.exact_match.num} questions and seeds"
    return f"{pair}: {'; '.join(found)}"


def _percent(interval: Interval) -> str:
    return f"{100 * interval.mean:.1f}"


def _between(interval: Interval | SeededInterval, sign: str = "") -> str:
    """Mean and interval in percent: `31.0 [27.0, 35.0]`."""
    mean, low, high = (f"{100 * value:{sign}.1f}" for value in (interval.mean, interval.low, interval.high))
    return f"{mean} [{low}, {high}]"


def _cells(*values: str) -> list[Any]:
    from rich.text import Text

    from quaere.chat.terminal_text import printable

    return [Text(printable(value)) for value in values]
