"""Validation without labels: some of the solver's own questions are held back to select the best checkpoint."""

from __future__ import annotations

import time
from collections.abc import Sequence

from quaere.chat.protocol import Protocol
from quaere.policies.sampler import SamplingParams
from quaere.records import Answer, Episode, Question, SolveTask
from quaere.rewards.answers import exact_match_score, f1_score
from quaere.rollout.episode import Limits
from quaere.rollout.policy import derive_seed
from quaere.training.phases.attempts import attempt_jobs
from quaere.training.phases.stage import Stage
from quaere.training.settings import MIN_VALIDATION, ValidationSettings
from quaere.training.step import Step, Validated

_ROLE = "solver"
_GREEDY = SamplingParams(temperature=0.0)


# -------------------------------------------------------------------------------------------------------- held back


def count_held_back(num_questions: int, settings: ValidationSettings) -> int:
    """Number of questions that are held back.

    count_held_back(400, ValidationSettings(questions=64, share=0.1)) == 40
    """
    count = min(settings.questions, int(settings.share * num_questions))
    return count if count >= MIN_VALIDATION else 0


def hold_back(
    questions: Sequence[Question], settings: ValidationSettings, seed: int
) -> tuple[list[Question], list[Question]]:
    """The questions to train on and those to validate on, with the same distribution of hops.

    The selection derives from the question ids and the seed alone: a resumed run holds back the same questions, and
    adding or rejecting a question moves hardly any other.
    """
    size, total = count_held_back(len(questions), settings), len(questions)
    groups: dict[int, list[Question]] = {}
    # Sorted by a hash of the id, not shuffled: a shuffle would change completely with one added question.
    for question in sorted(questions, key=lambda question: derive_seed(seed, "validation", question.id)):
        groups.setdefault(question.hops, []).append(question)
    # Largest remainder method: each group's share rounded down, plus one for those with the largest remainders.
    counts = {hops: len(group) * size // total for hops, group in groups.items()}
    by_remainder = sorted(groups, key=lambda hops: (-(len(groups[hops]) * size % total), hops))
    for hops in by_remainder[: size - sum(counts.values())]:
        counts[hops] += 1
    held = {question.id for hops, group in groups.items() for question in group[: counts[hops]]}
    train = [question for question in questions if question.id not in held]
    return train, [question for question in questions if question.id in held]


# -------------------------------------------------------------------------------------------------------------- scoring


class Validator:
    """Evaluates the solver greedily on the held-back questions at certain steps of its phase.

    validator = Validator(stage, ToolCallSolver(), held_back, Limits(), every=10, num_steps=50)
    """

    def __init__(
        self,
        stage: Stage,
        protocol: Protocol,
        questions: Sequence[Question],
        limits: Limits,
        *,
        every: int,
        num_steps: int,
    ) -> None:
        self.stage = stage
        self.protocol = protocol
        self.questions = questions
        self.limits = limits
        self.every = every
        self.num_steps = num_steps

    async def before(self, step: Step) -> None:
        """Evaluate the weights at the start of the phase, in its first step."""
        if self.questions and step.number == 0:
            step.validated_before = await self._score(step, "validation_start")

    async def after(self, step: Step) -> None:
        """Evaluate the weights after the step, if validation is due."""
        num_done = step.number + 1
        if self.questions and (num_done % self.every == 0 or num_done == self.num_steps):
            self.stage.actors.weights_changed(_ROLE)  # otherwise the sampler would still have the old weights
            step.validated_after = await self._score(step, "validation")

    async def _score(self, step: Step, name: str) -> Validated | None:
        """Exact match over the episodes without a failed search; None if there are none."""
        started = time.perf_counter()
        jobs = attempt_jobs(self.protocol, self.questions, 1, f"{step.name}-{name}")
        played = await self.stage.play(step, _ROLE, jobs, self.limits, name=name, params=_GREEDY)
        scored = [(episode, score_answer(episode)) for episode in played.episodes if not episode.search_failed]
        step.metrics[f"{name}/seconds"] = time.perf_counter() - started
        if not scored:
            return None
        step.validation += scored
        for part in ("exact_match", "f1"):
            step.metrics[f"{name}/{part}"] = sum(scores[f"answer/{part}"] for _, scores in scored) / len(scored)
        answered = sum(isinstance(episode.outcome, Answer) for episode, _ in scored)
        step.metrics[f"{name}/unanswered"] = 1 - answered / len(scored)
        return Validated(step.metrics[f"{name}/exact_match"], len(scored))


def score_answer(episode: Episode) -> dict[str, float]:
    """Exact match and F1 of the answer; both are 0 without an answer."""
    assert isinstance(episode.task, SolveTask)
    accepted = episode.task.question.answers
    if not isinstance(episode.outcome, Answer):
        return {"answer/exact_match": 0.0, "answer/f1": 0.0}
    text = episode.outcome.text
    return {"answer/exact_match": exact_match_score(text, accepted), "answer/f1": f1_score(text, accepted)}


def plan_validation(settings: ValidationSettings) -> tuple[str, str]:
    """The line of a dry run about validation."""
    if not settings.questions:
        return "validation", "none; the last checkpoint counts"
    return (
        "validation",
        f"{settings.questions} questions held back, at most {settings.share:.0%} of all, answered greedily every "
        f"{settings.every} steps; the best checkpoint counts",
    )
