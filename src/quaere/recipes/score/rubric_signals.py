"""What a rubric earns: the agreement of the reports under it, against a baseline, on the rubric's own tokens.

    chosen = [Chosen(rubric, places=(0, 1), episode=episode, valid=True)]
    compare_with_average(chosen, [0.6, 0.4], 0.4, 0.7)        # ([0.1], 0.43): against earlier steps
    compare_pairs([first, second], [0.6, 0.4, 0.5, 0.1])      # [0.2, -0.2]: two rubrics on the same two questions

For pairs the questions of a step stand twice in its batch, under other ids; the second half has rubrics of its own.
"""

from collections.abc import Sequence

from msgspec import Struct, structs

from quaere.objectives.policy_gradient import ema_centered, pair_centered
from quaere.records import Episode, Question, Rubric
from quaere.training.batches import Sample, make_sample


class Chosen(Struct, frozen=True):
    """The rubric for the questions at `places`, and the episode that chose it; the default rubric is not `valid`.

    Chosen(rubric=Rubric(...), places=(0, 1, 2), episode=Episode(...), valid=True)
    """

    rubric: Rubric
    places: tuple[int, ...]
    episode: Episode | None = None
    valid: bool = False


def ask_twice(questions: Sequence[Question]) -> list[Question]:
    """The questions, and then the same under other ids.

    [question.id for question in ask_twice([Question("q1", "Why?")])] -> ["q1", "q1~2"]
    """
    return [*questions, *(structs.replace(question, id=f"{question.id}~2") for question in questions)]


def find_scopes(num_questions: int, num_rubrics: int, *, per_question: bool) -> list[tuple[int, ...]]:
    """The places of the questions that each rubric is for, one after another.

    find_scopes(4, 1, per_question=False) -> [(0, 1, 2, 3)]; find_scopes(4, 2, per_question=False) -> [(0, 1), (2, 3)]
    """
    size = 1 if per_question else num_questions // num_rubrics
    return [tuple(range(start, start + size)) for start in range(0, num_questions, size)]


def spread_rubrics(chosen: Sequence[Chosen], num_questions: int) -> list[Rubric]:
    """The rubric of every question, by its place."""
    found = {place: one.rubric for one in chosen for place in one.places}
    return [found[place] for place in range(num_questions)]


def compare_with_average(
    chosen: Sequence[Chosen], agreements: Sequence[float | None], baseline: float, beta: float
) -> tuple[list[float | None], float]:
    """Each rubric's mean agreement minus the moving average, and the next average; None for a rubric without either."""
    means = [mean_known([agreements[place] for place in one.places]) if one.valid else None for one in chosen]
    centered = ema_centered([mean for mean in means if mean is not None], baseline, beta=beta)
    values = iter(centered.values)
    return [None if mean is None else next(values) for mean in means], centered.baseline


def compare_pairs(chosen: Sequence[Chosen], agreements: Sequence[float | None]) -> list[float | None]:
    """Each rubric's agreement minus that of the other rubric for the same questions, which is half of the list away.

    A default rubric, which is not valid, learns nothing and still is a baseline: it does not depend on the choice.
    """
    half = len(chosen) // 2
    told = [[agreements[place] for place in one.places] for one in chosen]
    return [
        pair_centered(own, other) if one.valid else None
        for one, own, other in zip(chosen, told, told[half:] + told[:half], strict=True)
    ]


def rubric_sample(episode: Episode, advantage: float, rubric_only: bool) -> Sample:
    """The training sample of a chosen rubric: the tokens of the rubric alone, or of the whole turn."""
    sample, start = make_sample(episode, advantage), episode.turns[-1].acts_at if rubric_only else 0
    mask = tuple(flag and place >= start for place, flag in enumerate(sample.loss_mask))
    advantages = tuple(value if flag else 0.0 for value, flag in zip(sample.advantages, mask, strict=True))
    return structs.replace(sample, loss_mask=mask, advantages=advantages)


def mean_known(values: Sequence[float | None]) -> float | None:
    """The mean of the values that are known; None if none is."""
    known = [value for value in values if value is not None]
    return sum(known) / len(known) if known else None
