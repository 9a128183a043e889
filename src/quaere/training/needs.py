"""Metrics grouped by the number of searches a question needs, and how much the solver still searches.

    measure_asked(questions) | measure_attempts(episodes, paid)
    -> {"questions/searches_needed": 1.5, "solver/searches_n1": 1.0, "solver/searches_n2": 1.7, ...}

The suffix `_n2` stands for questions that need two searches. Questions whose number is unknown are left out.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from quaere.records import Episode, Question, SolveTask

WINDOW = 5  # steps per moving average: a single step's value is mostly noise


def measure_asked(questions: Sequence[Question]) -> dict[str, float]:
    """Mean number of searches the questions need.

    measure_asked([Question("q1", "Who?", searches=1), Question("q2", "Where?", searches=2)])
    -> {"questions/searches_needed": 1.5}
    """
    needs = [question.searches for question in questions if question.searches]
    return {"questions/searches_needed": _mean(needs)} if needs else {}


def measure_attempts(episodes: Sequence[Episode], paid: Sequence[Mapping[str, float]]) -> dict[str, float]:
    """Solver's searches, exact match and reward by the searches its questions need; `paid[i]` belongs to `episodes[i]`.

    -> {"solver/searches_n1": 1.0, "answer/exact_match_n1": 0.5, "reward/mean_n1": 0.5, "solver/searches_n2": 1.7, ...}
    """
    groups: dict[int, list[tuple[Episode, Mapping[str, float]]]] = {}
    for episode, parts in zip(episodes, paid, strict=True):
        assert isinstance(episode.task, SolveTask)
        groups.setdefault(episode.task.question.searches, []).append((episode, parts))
    groups.pop(0, None)
    measured = {}
    for need, group in sorted(groups.items()):
        measured[f"solver/searches_n{need}"] = _mean([episode.num_searches for episode, _ in group])
        measured[f"answer/exact_match_n{need}"] = _mean([parts["answer/exact_match"] for _, parts in group])
        measured[f"reward/mean_n{need}"] = _mean([parts["reward/total"] for _, parts in group])
    return measured


def measure_searches_kept(searches: Sequence[float], needs: Sequence[float]) -> dict[str, float]:
    """Ratio of the solver's current searches to those in the first steps of its phase, adjusted for the questions.

    Both arguments are means per step, of all steps so far. Averages over the last `WINDOW` steps are compared with
    those over the first; if the questions need fewer searches than at the start, only the fall beyond that counts. {}
    while there are too few steps or if the need is unknown.

        measure_searches_kept([1.7] * 5 + [1.0] * 5, [2.0] * 10) -> {"solver/searches_kept": 0.588}
        measure_searches_kept([1.7] * 5 + [1.0] * 5, [2.0] * 5 + [1.0] * 5) -> {"solver/searches_kept": 1.176}
    """
    if len(searches) != len(needs) or len(searches) <= WINDOW or not any(searches[:WINDOW]):
        return {}
    needed = min(1.0, _change(needs))  # questions that need more do not excuse a solver that searches less
    return {"solver/searches_kept": _change(searches) / needed}


def _change(values: Sequence[float]) -> float:
    return _mean(values[-WINDOW:]) / _mean(values[:WINDOW])


def _mean(values: Sequence[float]) -> float:
    return sum(values) / len(values)
