"""Rules of every recipe's config: bounds of single settings stand in their types, rules between settings here.

check_run(DrZeroConfig(iterations=0))    # BadInput: iterations must be at least 1, not 0
check_limits("solver.limits", Limits(answer_tokens=64, sequence_tokens=64))    # BadInput: no passage could be shown
"""

from __future__ import annotations

from collections.abc import Sequence

from quaere.dialects.registry import check_turns
from quaere.errors import BadInput
from quaere.rollout.episode import Limits
from quaere.setting_types import check_settings
from quaere.training.phases.solver import SolverConfig
from quaere.training.settings import RunConfig, SamplingSettings


def check_run(config: RunConfig) -> None:
    """Check every setting against its type, and that sampling is on-policy."""
    check_settings(config)
    _check_on_policy(config.sampling)


def check_limits(section: str, limits: Limits) -> None:
    """Refuse limits that cannot do what they say; `section` is how the user names them."""
    if limits.thought_tokens >= limits.turn_tokens:
        raise BadInput(
            f"{section}.thought_tokens must be below turn_tokens ({limits.turn_tokens}), or a thought could take the "
            f"whole turn; it is {limits.thought_tokens}"
        )
    if limits.answer_turn and min(limits.answer_tokens, limits.turn_tokens) >= limits.sequence_tokens:
        raise BadInput(
            f"{section}.answer_tokens must be below sequence_tokens ({limits.sequence_tokens}), or no passage "
            f"could be shown; it is {limits.answer_tokens}"
        )


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
    """Check the settings of the solver's phase, including what its dialect needs."""
    check_limits("solver.limits", solver.limits)
    solver.evaluation.check("solver.evaluation")
    check_turns(solver.dialect, solver.limits)


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
