"""What is measured in a step of Dr. Zero beside what every step measures."""

from __future__ import annotations

from collections.abc import Sequence

from quaere.objectives.advantages import Advantages
from quaere.recipes.drzero.rewards import Judged
from quaere.records import Episode
from quaere.training.measures import measure_advantages, measure_proposals, pass_histogram
from quaere.training.trainingrun import Step

# What GRPO would have cost: 4 questions about each document, each tried 4 times.
GRPO_ROLLOUTS = 4 * (4 + 1)


def measure_proposer(
    step: Step, judged: Sequence[Judged], advantages: Advantages, num_documents: int, num_attempts: int
) -> None:
    """Rewards by component, questions by form, what the solver made of them, and what it cost."""
    for item, advantage in zip(judged, advantages.values.tolist(), strict=True):
        step.keep(item.proposed.episode, {**item.measured(), "advantage": advantage})
    measured = [item.measured() for item in judged]
    parts = ("reward/total", "reward/format", "reward/difficulty", "format/think", "format/tool", "format/answer")
    for name in parts if measured else ():
        mean = sum(values[name] for values in measured) / len(measured)
        step.metrics["reward/mean" if name == "reward/total" else name] = mean
    step.metrics |= measure_advantages(advantages)
    step.metrics |= measure_proposals(
        [item.proposed.episode for item in judged],
        [item.proposed.hops for item in judged],
        [item.proposed.score.valid for item in judged],
        [item.proposed.text for item in judged],
    )
    tried = [item for item in judged if item.proposed.question is not None]
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
    """How many candidates were kept, and why the others were not."""
    count = len(step.candidates)
    step.metrics["curriculum/candidates"] = float(count)
    step.metrics["curriculum/kept"] = float(sum(candidate.kept for candidate in step.candidates))
    for reason in {candidate.reason for candidate in step.candidates if candidate.reason}:
        dropped = sum(candidate.reason == reason for candidate in step.candidates)
        step.metrics[f"curriculum/{reason.replace(' ', '_')}"] = float(dropped)


def measure_solver(
    step: Step, episodes: Sequence[Episode], rewards: Sequence[float], advantages: Advantages, num_attempts: int
) -> None:
    """Rewards, advantages, and how often each question was solved."""
    rights: dict[str, list[float]] = {}
    for episode, reward, advantage in zip(episodes, rewards, advantages.values.tolist(), strict=True):
        step.keep(episode, {"answer/exact_match": reward, "reward/total": reward, "advantage": advantage})
        rights.setdefault(episode.task.id, []).append(reward)
    step.metrics["reward/mean"] = sum(rewards) / max(1, len(rewards))
    step.metrics |= measure_advantages(advantages)
    whole = [int(sum(group)) for group in rights.values() if len(group) == num_attempts]
    step.metrics |= pass_histogram(whole, num_attempts)
