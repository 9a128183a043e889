"""Metrics by the number of searches a question needs: what is drawn, how a solver fares, and if it still searches.

    measure_asked(questions) | measure_attempts(episodes, paid)
    -> {"questions/searches_needed": 1.5, "solver/searches_n1": 1.0, "solver/searches_n2": 1.7, ...}

A suffix `_n2` means the questions that need two searches. Questions of unknown need are left out.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from quaere.records import Episode, Question, SolveTask

WINDOW = 5  # steps whose mean is a level: of a single step's questions it would be mostly noise


def measure_asked(questions: Sequence[Question]) -> dict[str, float]:
    """The mean number of searches that questions need.

    measure_asked([Question("q1", "Who?", searches=1), Question("q2", "Where?", searches=2)])
    -> {"questions/searches_needed": 1.5}
    """
    needs = [question.searches for question in questions if question.searches]
    return {"questions/searches_needed": _mean(needs)} if needs else {}


def measure_attempts(episodes: Sequence[Episode], paid: Sequence[Mapping[str, float]]) -> dict[str, float]:
    """A solver's searches, exact match and reward by the searches its questions need; `paid[i]` is of `episodes[i]`.

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
    """How much of a solver's searching in the first steps of its phase is left, by what its questions need.

    Both are means per step, of all steps so far. The level now is compared with the level at the start (means over
    `WINDOW` steps); where the questions' need has fallen, only a fall beyond that counts. Left out while there are too
    few steps, and where need is unknown.

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
