"""Metrics of the proposer's phase and of the generation, beside what every step measures."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from quaere.objectives.advantages import Advantages
from quaere.training.measures import mean_parts, measure_advantages, measure_proposals, pass_histogram
from quaere.training.phases.proposals import Proposed
from quaere.training.training_run import Step

# What GRPO would have cost: 4 questions about each document, each tried 4 times.
GRPO_ROLLOUTS = 4 * (4 + 1)


class Paid(Protocol):
    """A proposal with what the solver made of it and what it earned for what."""

    @property
    def proposed(self) -> Proposed:
        """What was written."""
        ...

    @property
    def num_right(self) -> int:
        """Of the attempts, how many were right."""
        ...

    @property
    def num_attempts(self) -> int:
        """How often it was tried."""
        ...

    def measured(self) -> dict[str, float]:
        """Every part of the reward, for the store."""
        ...


def measure_proposer(
    step: Step, judged: Sequence[Paid], advantages: Advantages, num_documents: int, num_attempts: int
) -> None:
    """Rewards by component, questions by form, what the solver made of them, and what it cost."""
    measured = [item.measured() for item in judged]
    for item, values, advantage in zip(judged, measured, advantages.values.tolist(), strict=True):
        step.keep(item.proposed.episode, {**values, "advantage": advantage})
    step.metrics |= mean_parts(measured)
    step.metrics |= measure_advantages(advantages)
    step.metrics |= measure_proposals(
        [item.proposed.episode for item in judged],
        [item.proposed.hops for item in judged],
        [item.proposed.score.valid for item in judged],
        [item.proposed.text for item in judged],
    )
    tried = [item for item in judged if item.num_attempts]
    step.metrics |= pass_histogram(
        [item.num_right for item in tried if item.num_attempts == num_attempts], num_attempts
    )
    step.metrics |= {
        "cost/documents": float(num_documents),
        "cost/proposer_episodes": step.metrics["proposer/episodes"],
        "cost/solver_episodes": step.metrics.get("solver/episodes", 0.0),
        "cost/valid_questions": float(len(tried)),
        "cost/grpo_episodes": float(GRPO_ROLLOUTS * num_documents),
    }


def measure_generation(step: Step) -> None:
    """How many candidates were kept, how many searches those need, and why the others were not kept."""
    count = len(step.candidates)
    step.metrics["curriculum/candidates"] = float(count)
    step.metrics["curriculum/kept"] = float(sum(candidate.kept for candidate in step.candidates))
    if needs := [candidate.facts for candidate in step.candidates if candidate.kept]:
        step.metrics["curriculum/searches_needed"] = sum(needs) / len(needs)
    for reason in {candidate.reason for candidate in step.candidates if candidate.reason}:
        dropped = sum(candidate.reason == reason for candidate in step.candidates)
        step.metrics[f"curriculum/{reason.replace(' ', '_')}"] = float(dropped)
