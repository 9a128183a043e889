"""Is a run still learning, or has it collapsed? Alarms from the metrics of its steps.

    watch = Watch(HealthSettings(patience=3))
    watch.reset()                               # a phase begins
    for alarm in watch.check(metrics, "solver"):
        ...                                     # Alarm(kind="entropy", message="the solver's entropy is ...")

What to do about an alarm (say so, stop, go back) is not decided here.
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
    "saturation",
    "spread",
    "citation hack",
]

# An actor writes reports, and is known by these; both its roles learn by one setting.
_EPISODES = {"actor": "reports"}
_SETTINGS = {"actor": "solver"}


class Alarm(Struct, frozen=True):
    """A condition that has held for too long; `message` is a line a person can act on.

    Alarm(kind="entropy", message="entropy: 0.012 nats a token, 3 steps in a row below health.min_entropy=0.02; ...")
    """

    kind: Kind
    message: str


class Watch:
    """Counts, per condition, how many steps in a row it has held.

    A condition becomes an alarm at its `patience`-th step in a row, and can do so again only after one healthy step
    (or a `reset`): what goes on being bad is said once. A metric that is missing or not a number is not judged: the
    count stays where it is. The counts are the whole state, so a restored watch goes on as if never interrupted.
    """

    def __init__(self, settings: HealthSettings) -> None:
        self._settings = settings
        self._counts: dict[str, int] = {}

    def check(self, metrics: Mapping[str, float], role: str) -> list[Alarm]:
        """Judge one training step of a role.

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
        """Has any condition begun to hold? A checkpoint written now is not one to go back to."""
        return any(self._counts.values())

    def reset(self) -> None:
        """Forget what was counted: a new phase begins."""
        self._counts = {}

    def state(self) -> dict[str, int]:
        """What `restore` needs, for a checkpoint.

        watch.state() -> {"entropy": 2}
        """
        return {kind: count for kind, count in self._counts.items() if count}

    def restore(self, state: Mapping[str, int]) -> None:
        """Go on where `state` was called. Conditions that have been switched off since are forgotten."""
        kinds = {condition.kind for condition in _conditions(self._settings, "")}
        self._counts = {kind: count for kind, count in state.items() if kind in kinds}


class _Condition(Struct, frozen=True):
    """A metric on the wrong side of its limit; `seen` says a value in words.

    `noise` names a metric that says how far below its limit the value may be by chance.
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
        """What was seen, against which limit, what it usually means and what to change."""
        row = f"{num_steps} steps in a row" if num_steps > 1 else "1 step"
        limit = f"({self.setting})" if self.side == "at" else f"{self.side} {self.setting}={self.limit:g}"
        return f"{self.kind}: {self.seen.format(value)}, {row} {limit}; {self.meaning}"


def _conditions(settings: HealthSettings, role: str) -> list[_Condition]:
    """What is watched while this role is trained; limits that are switched off are left out."""
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
    """A proposer is judged by its questions, a solver by its turns."""
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
    """Under which name the config has what this role learns by."""
    return _SETTINGS.get(role, role)
