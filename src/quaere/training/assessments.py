"""Assessment of reports: all reports on a question together, in several passes, each in another order.

    viewings = view_reports(groups, rubrics, harness, passes=2, name="i0-r3", seed=step.seed)
    assessed = await assess_reports(stage, step, "actor", viewings, EvaluatorConfig())
    assessed["q1"][0] -> Verdict(scores=Scores(1, {"factuality": 7.0}), num_searches=2)

The order is shuffled so that no score depends on a report's position, and position bias can be measured
(`measure_places`). Scores are mapped back to their reports. A report that the evaluator did not score has the result
None and is not penalised for it.
"""

import math
import random
from collections.abc import Mapping, Sequence

from msgspec import Struct

from quaere.chat.protocol import PromptStyle, Protocol
from quaere.dialects.registry import find_dialect
from quaere.dialects.report.assessment import count_searches
from quaere.dialects.report.evaluator_prompts import Verification
from quaere.policies.sampler import SamplingParams
from quaere.records import Assessment, AssessTask, Episode, Harness, Report, Rubric, Scores
from quaere.rewards.reports import mean_scores
from quaere.rollout.episode import Job
from quaere.rollout.policy import derive_seed
from quaere.training.report_run import EvaluatorConfig
from quaere.training.rollouts import Stage
from quaere.training.step import Step, mean_of

NAME = "assessments"  # prefix of the episodes' metrics


class Viewing(Struct, frozen=True):
    """One pass over the reports on a question: `order[place]` is the index of the report shown at that place.

    Viewing(task=AssessTask(...), order=(2, 0, 1))
    """

    task: AssessTask
    order: tuple[int, ...]


class Verdict(Struct, frozen=True):
    """Result of a report over all passes: its mean scores, and the minimum number of searches made about it.

    `scores.number` is the report's own number, from 1. Only passes that scored the report count.

        Verdict(scores=Scores(3, {"factuality": 7.0}), num_searches=2)
    """

    scores: Scores
    num_searches: int


class Assessed(Struct, frozen=True):
    """All passes with their episodes, and by question the result of each report; None if no pass scored it.

    Assessed(passes=[(Viewing(...), Episode(...))], verdicts={"q1": [Verdict(...), None]})
    """

    passes: list[tuple[Viewing, Episode]]
    verdicts: dict[str, list[Verdict | None]]


def view_reports(
    groups: Sequence[Sequence[Report]],
    rubrics: Sequence[Rubric],
    harness: Harness,
    *,
    passes: int,
    name: str,
    seed: int,
) -> list[Viewing]:
    """`passes` viewings of each group of reports on one question, each in another random order.

    `rubrics[i]` is the rubric for `groups[i]`; an empty group has no viewing. `name` and the pass make the task's id.
    """
    viewings = []
    for reports, rubric in zip(groups, rubrics, strict=True):
        for number in range(passes if reports else 0):
            question = reports[0].question
            order = draw_order(len(reports), derive_seed(seed, "order", question.id, number))
            shown = tuple(reports[place] for place in order)
            task = AssessTask(f"{name}-{question.id}-a{number}", question, rubric, harness, shown)
            viewings.append(Viewing(task, order))
    return viewings


def draw_order(num_reports: int, seed: int) -> tuple[int, ...]:
    """A random permutation of `range(num_reports)` that depends on the seed alone.

    sorted(draw_order(3, 7)) == [0, 1, 2]
    """
    order = list(range(num_reports))
    random.Random(seed).shuffle(order)
    return tuple(order)


async def assess_reports(
    stage: Stage, step: Step, role: str, viewings: Sequence[Viewing], how: EvaluatorConfig, style: PromptStyle = "full"
) -> Assessed:
    """Let `role` assess the reports of every viewing; passes in which a search failed are left out of the result."""
    jobs = [Job(_assessor(viewing.task, how, style), viewing.task, viewing.task.id) for viewing in viewings]
    params = SamplingParams(temperature=how.temperature)
    played = await stage.play(step, role, jobs, how.limits, name=NAME, params=params)
    passes = [
        (viewing, episode)
        for viewing, episode in zip(viewings, played.episodes, strict=True)
        if not episode.search_failed
    ]
    nums = {viewing.task.question.id: len(viewing.order) for viewing in viewings}
    counted = how.verification
    return Assessed(passes, {question: _verdicts(question, num, passes, counted) for question, num in nums.items()})


def _assessor(task: AssessTask, how: EvaluatorConfig, style: PromptStyle) -> Protocol:
    return find_dialect("report", "assessment").open(
        task.rubric,
        len(task.reports),
        style=style,
        scale=how.score_scale,
        separate_validity=how.validity == "separate",
        process=task.harness.process,
        verification=how.verification,
    )


def _verdicts(
    question: str, num_reports: int, passes: Sequence[tuple[Viewing, Episode]], verification: Verification
) -> list[Verdict | None]:
    """The result of each report on the question over all passes; None for a report that no pass scored."""
    scores: list[list[Scores]] = [[] for _ in range(num_reports)]
    searches: list[list[int]] = [[] for _ in range(num_reports)]
    for viewing, episode in passes:
        if viewing.task.question.id != question or not isinstance(episode.outcome, Assessment):
            continue
        counts = count_searches(episode, num_reports, verification)
        for place, number in enumerate(viewing.order):
            if (found := episode.outcome.find(place + 1)) is not None:
                scores[number].append(found)
                searches[number].append(counts[place])
    means = [mean_scores(several, number + 1) for number, several in enumerate(scores)]
    return [
        Verdict(mean, min(counts)) if mean is not None else None for mean, counts in zip(means, searches, strict=True)
    ]


# ------------------------------------------------------------------------------------------------------------ measures


def _overall_score(scores: Scores, scale: float) -> float:
    """Overall score of a report: the mean over the dimensions, from 0 to 1.

    _overall_score(Scores(1, {"factuality": 7.0, "coverage": 5.0}), 10.0) -> 0.6
    """
    return sum(scores.scores.values()) / len(scores.scores) / scale


def measure_assessments(assessed: Assessed, scale: float) -> dict[str, float]:
    """Metrics of assessments: readable share, searches, spread of the scores and position bias.

    measure_assessments(assessed, 10.0)
    -> {"assessments/readable": 0.9, "scores/mean": 0.6, "scores/spread": 0.08, "scores/ceiling": 0.1,
        "position/correlation": -0.2, "position/first_minus_last": 0.05, "verification/searches": 1.5, ...}
    """
    verdicts = [verdict for group in assessed.verdicts.values() for verdict in group]
    told = [verdict for verdict in verdicts if verdict is not None]
    return {
        **mean_of("assessments/readable", [isinstance(one.outcome, Assessment) for _, one in assessed.passes]),
        **mean_of("assessments/judged", [verdict is not None for verdict in verdicts]),
        **mean_of("verification/searches", [verdict.num_searches for verdict in told]),
        **(measure_spread(assessed, scale) if told else {}),
        **measure_places(assessed.passes, scale),
    }


def measure_spread(assessed: Assessed, scale: float) -> dict[str, float]:
    """Metrics of how well scores separate reports; `spread` is their mean standard deviation within a question.

    `ceiling` is the share of reports whose overall score is at least 0.95; `num` is the number of reports.

        measure_spread(assessed, 10.0) -> {"scores/num": 64.0, "scores/mean": 0.6, "scores/spread": 0.08, ...}
    """
    groups = [[verdict.scores for verdict in group if verdict is not None] for group in assessed.verdicts.values()]
    overall = [[_overall_score(scores, scale) for scores in group] for group in groups]
    whole = [score for group in overall for score in group]
    return {
        "scores/mean": sum(whole) / len(whole),
        "scores/num": float(len(whole)),
        "scores/ceiling": sum(score >= 0.95 for score in whole) / len(whole),
        **mean_of("scores/spread", [_deviation(group) for group in overall if len(group) > 1]),
    }


def measure_places(passes: Sequence[tuple[Viewing, Episode]], scale: float) -> dict[str, float]:
    """Position bias over all passes that scored several reports.

    Places are random, so without bias both metrics are 0 on average. `correlation` is between place and score, each
    centred within its pass; `first_minus_last` is the mean score of the first place minus that of the last.

        measure_places(passes, 10.0) -> {"position/correlation": -0.2, "position/first_minus_last": 0.05}
    """
    places: list[float] = []
    scores: list[float] = []
    gaps = []
    for viewing, episode in passes:
        if not isinstance(episode.outcome, Assessment) or len(episode.outcome.reports) < 2:
            continue
        found = {item.number: _overall_score(item, scale) for item in episode.outcome.reports}
        places += _centred(list(found))
        scores += _centred(list(found.values()))
        if 1 in found and len(viewing.order) in found:
            gaps.append(found[1] - found[len(viewing.order)])
    correlation = correlate(places, scores)
    bias = {} if correlation is None else {"position/correlation": correlation}
    return bias | mean_of("position/first_minus_last", gaps)


def correlate(first: Sequence[float], second: Sequence[float]) -> float | None:
    """Pearson correlation; None if one of the sequences is constant.

    correlate([1, 2, 3], [2, 4, 6]) -> 1.0
    """
    if len(first) < 2:
        return None
    a, b = _centred(first), _centred(second)
    lengths = math.sqrt(sum(value * value for value in a)) * math.sqrt(sum(value * value for value in b))
    return sum(x * y for x, y in zip(a, b, strict=True)) / lengths if lengths > 1e-12 else None


def _centred(values: Sequence[float]) -> list[float]:
    mean = sum(values) / len(values)
    return [value - mean for value in values]


def _deviation(values: Sequence[float]) -> float:
    return math.sqrt(sum(value * value for value in _centred(values)) / len(values))


def verdict_parts(scores: Mapping[str, float]) -> dict[str, float]:
    """The scores of a report by metric name, as a run stores them.

    verdict_parts({"factuality": 7.0}) -> {"score/factuality": 7.0}
    """
    return {f"score/{name}": value for name, value in scores.items()}
