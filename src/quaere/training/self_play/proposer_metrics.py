"""Metrics of the proposer's phase and of the generation, beside those of every step."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from quaere.objectives.advantages import Advantages
from quaere.training.measures import mean_parts, measure_advantages, measure_proposals, pass_histogram
from quaere.training.phases.proposals import Proposed
from quaere.training.step import Step

# Episodes per document of GRPO, for comparison: 4 questions about each document, each attempted 4 times.
GRPO_ROLLOUTS = 4 * (4 + 1)


class Paid(Protocol):
    """A proposal with the solver's attempts and the components of its reward."""

    @property
    def proposed(self) -> Proposed:
        """The proposal."""
        ...

    @property
    def num_right(self) -> int:
        """Number of right attempts."""
        ...

    @property
    def num_attempts(self) -> int:
        """Number of attempts."""
        ...

    def measured(self) -> dict[str, float]:
        """All components of the reward, for the store."""
        ...


def measure_proposer(
    step: Step, judged: Sequence[Paid], advantages: Advantages, num_documents: int, num_attempts: int
) -> None:
    """Add metrics of rewards, question format, the solver's attempts and cost to the step, and keep its episodes."""
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
    """Add metrics of kept candidates, their searches needed, and the drop reasons to the step."""
    count = len(step.candidates)
    step.metrics["curriculum/candidates"] = float(count)
    step.metrics["curriculum/kept"] = float(sum(candidate.kept for candidate in step.candidates))
    if needs := [candidate.num_searches for candidate in step.candidates if candidate.kept]:
        step.metrics["curriculum/searches_needed"] = sum(needs) / len(needs)
    for reason in {candidate.reason for candidate in step.candidates if candidate.reason}:
        dropped = sum(candidate.reason == reason for candidate in step.candidates)
        step.metrics[f"curriculum/{reason.replace(' ', '_')}"] = float(dropped)
