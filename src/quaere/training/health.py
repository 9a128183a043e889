"""Detection of training collapse: alarms from the metrics of the steps.

    watch = Watch(HealthSettings(patience=3))
    watch.reset()                               # a phase begins
    for alarm in watch.check(metrics, "solver"):
        ...                                     # Alarm(kind="entropy", message="the solver's entropy is ...")

The reaction to an alarm (warn, stop, roll back) is decided elsewhere.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Literal

from msgspec import Struct

from quaere.training.settings import HealthSettings

Kind = Literal[
    "entropy",
    "length",
    "validity",
    "advantages",
    "mismatch",
    "update",
    "searches",
    "curriculum",
    "saturation",
    "spread",
    "citation hack",
]

# The actor's episode metrics are named `reports/...`, and its learner settings are under `solver`.
_EPISODES = {"actor": "reports"}
_SETTINGS = {"actor": "solver"}


class Alarm(Struct, frozen=True):
    """A condition that has held for too long; `message` tells the user what to change.

    Alarm(kind="entropy", message="entropy: 0.012 nats a token, 3 steps in a row below health.min_entropy=0.02; ...")
    """

    kind: Kind
    message: str


class Watch:
    """Counts, per condition, for how many consecutive steps it has held.

    A condition raises an alarm at its `patience`-th consecutive step, and again only after a healthy step or a `reset`,
    so that a lasting problem is reported once. A missing or NaN metric leaves the count unchanged. The counts are the
    whole state, so a restored watch continues as if never interrupted.
    """

    def __init__(self, settings: HealthSettings) -> None:
        self._settings = settings
        self._counts: dict[str, int] = {}

    def check(self, metrics: Mapping[str, float], role: str) -> list[Alarm]:
        """Alarms of one training step of a role.

        watch.check({"policy/entropy": 0.9, "mismatch/mean": 0.01}, "proposer") -> []
        """
        alarms: list[Alarm] = []
        patience = self._settings.patience
        for condition in _conditions(self._settings, role):
            value = metrics.get(condition.metric, math.nan)
            if math.isnan(value):
                continue
            count = self._counts.get(condition.kind, 0) + 1 if condition.holds(value, metrics) else 0
            self._counts[condition.kind] = count
            if count == patience:
                alarms.append(Alarm(condition.kind, condition.describe(value, patience)))
        return alarms

    @property
    def suspect(self) -> bool:
        """True if any condition currently holds: a checkpoint written now is not one to roll back to."""
        return any(self._counts.values())

    def reset(self) -> None:
        """Clear all counts, at the start of a phase."""
        self._counts = {}

    def state(self) -> dict[str, int]:
        """The state for a checkpoint, as `restore` takes it.

        watch.state() -> {"entropy": 2}
        """
        return {kind: count for kind, count in self._counts.items() if count}

    def restore(self, state: Mapping[str, int]) -> None:
        """Continue from a saved state; conditions that have been switched off since are dropped."""
        kinds = {condition.kind for condition in _conditions(self._settings, "")}
        self._counts = {kind: count for kind, count in state.items() if kind in kinds}


def check_curriculum(num_new: int, iteration: int, settings: HealthSettings) -> list[Alarm]:
    """The alarm of an iteration whose curriculum has too few new questions; [] if there are enough.

    It is raised at once: an iteration has one curriculum, and there is no series of steps to be patient with.

        check_curriculum(0, 1, HealthSettings()) -> [Alarm(kind="curriculum", message="curriculum: iteration 2 ...")]
    """
    if num_new >= settings.min_new_questions:
        return []
    message = (
        f"curriculum: iteration {iteration + 1} has {num_new} new questions that the solver may solve sometimes, below "
        f"health.min_new_questions={settings.min_new_questions}; its solver has nothing new to learn from; raise "
        "generation.candidates, set proposer.carry_on=true for other documents in every iteration, or stop here"
    )
    return [Alarm("curriculum", message)]


class _Condition(Struct, frozen=True):
    """A metric on the wrong side of its limit; `seen` is a format string that describes a value.

    `noise` names a metric that says how far below the limit the value may be by chance.
    """

    kind: Kind
    metric: str
    side: Literal["below", "at", "above"]
    limit: float
    setting: str
    seen: str
    meaning: str
    noise: str = ""

    def holds(self, value: float, metrics: Mapping[str, float]) -> bool:
        if self.side == "below":
            return value < self.limit - metrics.get(self.noise, 0.0)
        return value > self.limit if self.side == "above" else value == self.limit

    def describe(self, value: float, num_steps: int) -> str:
        """The alarm's message: value, limit, usual meaning and what to change."""
        row = f"{num_steps} steps in a row" if num_steps > 1 else "1 step"
        limit = f"({self.setting})" if self.side == "at" else f"{self.side} {self.setting}={self.limit:g}"
        return f"{self.kind}: {self.seen.format(value)}, {row} {limit}; {self.meaning}"


def _conditions(settings: HealthSettings, role: str) -> list[_Condition]:
    """The conditions checked while this role is trained, without those that are switched off."""
    watched = (
        (settings.min_entropy > 0, _entropy(settings.min_entropy, role)),
        (settings.min_tokens > 0, _length(settings.min_tokens, role)),
        (settings.min_valid > 0, _validity(settings.min_valid, role)),
        (settings.zero_advantages, _advantages(role)),
        (settings.max_mismatch > 0, _mismatch(settings.max_mismatch)),
        (settings.min_update_seen > 0, _update(settings.min_update_seen)),
        (settings.min_searches_kept > 0, _searches(settings.min_searches_kept)),
        (settings.max_ceiling > 0, _ceiling(settings.max_ceiling)),
        (settings.min_spread > 0, _spread(settings.min_spread)),
        (settings.max_hack > 0, _hack(settings.max_hack)),
    )
    return [condition for is_on, condition in watched if is_on]


def _entropy(limit: float, role: str) -> _Condition:
    return _Condition(
        kind="entropy",
        metric="policy/entropy",
        side="below",
        limit=limit,
        setting="health.min_entropy",
        seen="{:.3g} nats a token",
        meaning=f"the {role} writes nearly the same every time and explores nothing; lower "
        f"{_settings(role)}.learner.learning_rate or raise {_settings(role)}.learner.kl_beta",
    )


def _length(limit: float, role: str) -> _Condition:
    return _Condition(
        kind="length",
        metric=f"{_EPISODES.get(role, role)}/model_tokens",
        side="below",
        limit=limit,
        setting="health.min_tokens",
        seen="{:.3g} model tokens an episode",
        meaning=f"the {role} has all but stopped writing, as one does whose every attempt is paid badly; look at its "
        f"episodes, then lower {_settings(role)}.learner.learning_rate",
    )


def _validity(limit: float, role: str) -> _Condition:
    """The condition on valid output: valid questions for a proposer, parsed turns for a solver."""
    if role == "proposer":
        metric, seen, lost = "proposer/valid", "{:.1%} of the questions are valid", "hardly any question earns anything"
    else:
        metric, seen = f"{_EPISODES.get(role, role)}/call_validity", f"{{:.1%}} of the {role}'s turns can be read"
        lost = "the form of calls and answers is lost"
    return _Condition(
        kind="validity",
        metric=metric,
        side="below",
        limit=limit,
        setting="health.min_valid",
        seen=seen,
        meaning=f"{lost}; if turns are cut off, raise {_settings(role)}.limits.turn_tokens, otherwise lower "
        f"{_settings(role)}.learner.learning_rate",
    )


def _advantages(role: str) -> _Condition:
    if role == "proposer":
        remedy = "raise proposer.attempts or proposer.batch, so that rewards can differ"
    elif role == "actor":
        remedy = "raise solver.attempts, or warm the model up if assessments cannot be read"
    else:
        remedy = "let generation.attempts=5 drop the questions that are never or always solved"
    return _Condition(
        kind="advantages",
        metric="advantage/nonzero",
        side="at",
        limit=0.0,
        setting="health.zero_advantages",
        seen=f"none of the {role}'s episodes has an advantage",
        meaning=f"all rewards that are compared are equal, so there is nothing to learn; {remedy}",
    )


def _mismatch(limit: float) -> _Condition:
    return _Condition(
        kind="mismatch",
        metric="mismatch/mean",
        side="above",
        limit=limit,
        setting="health.max_mismatch",
        seen="{:.3g} nats a token between sampler and learner",
        meaning="the policy that writes is not the one that is trained; set engine.dtype=float32 and "
        "sampling.temperature=1",
    )


def _update(limit: float) -> _Condition:
    return _Condition(
        kind="update",
        metric="sampler/update_seen",
        side="below",
        limit=limit,
        setting="health.min_update_seen",
        seen="{:.1%} of the learner's change reaches the sampler",
        meaning="the sampler's precision loses what is learned; set engine.dtype=bfloat16 or float32",
        noise="sampler/update_noise",
    )


def _searches(limit: float) -> _Condition:
    return _Condition(
        kind="searches",
        metric="solver/searches_kept",
        side="below",
        limit=limit,
        setting="health.min_searches_kept",
        seen="{:.0%} of the solver's searches in the phase's first steps are left for questions that need as many",
        meaning="it stops searching too early, and unlearns questions that need more; compare solver/searches_n2 with "
        "answer/exact_match_n2, train on more questions that need several searches, or lower "
        "solver.learner.learning_rate",
    )


def _ceiling(limit: float) -> _Condition:
    return _Condition(
        kind="saturation",
        metric="scores/ceiling",
        side="above",
        limit=limit,
        setting="health.max_ceiling",
        seen="{:.1%} of the reports are at the top of the scale",
        meaning="the evaluator no longer tells good reports from better ones; stop here, or set harness.kind=rules",
    )


def _spread(limit: float) -> _Condition:
    return _Condition(
        kind="spread",
        metric="scores/spread",
        side="below",
        limit=limit,
        setting="health.min_spread",
        seen="scores of one question's reports differ by {:.3g}",
        meaning="the evaluator gives all reports the same; raise evaluator.passes, or stop here",
    )


def _hack(limit: float) -> _Condition:
    return _Condition(
        kind="citation hack",
        metric="gauge/citation_hack",
        side="above",
        limit=limit,
        setting="health.max_hack",
        seen="rewards or agreement rose by {:.3g} while citations fell by as much",
        meaning="the evaluator is being played, or plays; look at its rubrics, then go back to an earlier checkpoint "
        "or set harness.dimensions.must_include=citation",
    )


def _settings(role: str) -> str:
    """Name of the config section with the role's learner settings."""
    return _SETTINGS.get(role, role)
