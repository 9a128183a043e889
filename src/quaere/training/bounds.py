"""Bounds on settings that every recipe's config has; an invalid value is refused with one line.

check_phase("solver", SolverConfig(batch=0))    # BadInput: solver.batch must be at least 1, not 0
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Protocol

from quaere.dialects.registry import check_turns
from quaere.errors import BadInput
from quaere.rollout.episode import Limits
from quaere.training.learner import LearnerSettings
from quaere.training.phases.solver import SolverConfig
from quaere.training.settings import (
    RunConfig,
    SamplingSettings,
)


class BoundedPhase(Protocol):
    """What of a config every phase has in which somebody learns."""

    @property
    def steps(self) -> int:
        """How many."""
        ...

    @property
    def batch(self) -> int:
        """Tasks a step."""
        ...

    @property
    def attempts(self) -> int:
        """Of the solver at each question."""
        ...

    @property
    def limits(self) -> Limits:
        """How far an episode may go."""
        ...

    @property
    def learner(self) -> LearnerSettings:
        """How it learns."""
        ...


def check_least(least: float, values: Mapping[str, float]) -> None:
    """Raise BadInput for the first value below `least`."""
    for name, value in values.items():
        if value < least:
            raise BadInput(f"{name} must be at least {least}, not {value}")


def check_run(config: RunConfig) -> None:
    """Check the settings of engine, checkpoints, adapter and sampling."""
    ones = {
        "engine.max_rows": config.engine.max_rows,
        "checkpoints.every": config.checkpoints.every,
        "checkpoints.keep": config.checkpoints.keep,
    }
    check_least(1, ones)
    zeros = {
        "adapter.rank": config.adapter.rank,
        "sampling.top_k": config.sampling.top_k,
        "health.update_every": config.health.update_every,
    }
    check_least(0, zeros)
    _check_rate("sampling.temperature", config.sampling.temperature)
    _check_rate("sampling.top_p", config.sampling.top_p)
    _check_on_policy(config.sampling)


def check_phase(name: str, phase: BoundedPhase) -> None:
    """Check the settings of one phase; `name` is its name in the config."""
    limits = phase.limits
    ones = {
        "batch": phase.batch,
        "limits.max_turns": limits.max_turns,
        "limits.turn_tokens": limits.turn_tokens,
        "limits.sequence_tokens": limits.sequence_tokens,
        "limits.tool_response_tokens": limits.tool_response_tokens,
        "limits.topk": limits.topk,
        "limits.answer_tokens": limits.answer_tokens,
    }
    check_least(1, {f"{name}.{key}": value for key, value in ones.items()})
    if limits.answer_turn and min(limits.answer_tokens, limits.turn_tokens) >= limits.sequence_tokens:
        raise BadInput(
            f"{name}.limits.answer_tokens must be below sequence_tokens ({limits.sequence_tokens}), or no passage "
            f"could be shown; it is {limits.answer_tokens}"
        )
    zeros = {
        "steps": phase.steps,
        "limits.max_searches": limits.max_searches,
        "learner.kl_beta": phase.learner.kl_beta,
        "learner.min_warmup_steps": phase.learner.min_warmup_steps,
    }
    check_least(0, {f"{name}.{key}": value for key, value in zeros.items()})
    _check_rate(f"{name}.learner.learning_rate", phase.learner.learning_rate)
    if phase.attempts < 2:
        raise BadInput(f"{name}.attempts must be at least 2, or nothing can be told apart; it is {phase.attempts}")


def check_hops(hop_ratio: Sequence[int], limits: Limits, *, document: bool) -> None:
    """Raise BadInput if the hop ratio asks for more hops than a proposer can reach under its limits.

    Each hop is searched for after the one before it is known, so each takes a turn, and the proposal one more. With a
    document, the first hop is in the document and needs no search.

        check_hops((0, 0, 0, 0, 0, 1), Limits(max_turns=5), document=True)    # BadInput: 6 hops take 6 turns
    """
    hops = max(number for number, weight in enumerate(hop_ratio, start=1) if weight)
    num_searches = hops - 1 if document else hops
    for name, allowed, needed in (
        ("max_turns", limits.max_turns, num_searches + 1),
        ("max_searches", limits.max_searches, num_searches),
    ):
        if allowed < needed:
            raise BadInput(
                f"proposer.hop_ratio asks for {hops} hops, which take {num_searches} searches in {num_searches + 1} "
                f"turns, and proposer.limits.{name} is {allowed}",
                hint=f"--set proposer.limits.{name}={needed}",
            )


def check_solver(solver: SolverConfig) -> None:
    """Check the settings of the solver's phase, including what its protocol needs."""
    check_phase("solver", solver)
    check_least(0, {"solver.max_draws": solver.max_draws})
    solver.evaluation.check()
    check_turns(solver.protocol, solver.limits)


def _check_on_policy(sampling: SamplingSettings) -> None:
    """Raise BadInput for off-policy sampling settings unless `sampling.off_policy` is set."""
    plain = {"temperature": 1.0, "top_p": 1.0, "top_k": 0}
    for name, value in plain.items():
        found = getattr(sampling, name)
        if found != value and not sampling.off_policy:
            raise BadInput(
                f"sampling.{name} must be {value:g} in training, not {found:g}: log-probs and gradients are those of "
                f"temperature 1 with nothing cut off",
                hint="--set sampling.off_policy=true trains on such samples without a correction",
            )


def _check_rate(name: str, rate: float) -> None:
    if rate <= 0:
        raise BadInput(f"{name} must be above 0 to learn anything, not {rate}")
