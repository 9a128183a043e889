"""One training step in progress: its place in the run, its learner and its results."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from itertools import chain, compress
from typing import TYPE_CHECKING

from msgspec import Struct

from quaere.records import Candidate, Episode
from quaere.records.episodes import TokenTrace
from quaere.rollout.episode import Sample
from quaere.rollout.policy import derive_seed
from quaere.training.health import Alarm

if TYPE_CHECKING:
    from quaere.training.learner import Learner
    from quaere.training.tinker_learner import TinkerLearner

MIN_TOKENS = 2000


class Validated(Struct, frozen=True):
    """Exact match on the validation questions; where a solver may abstain, abstaining counts as its reward.

    Validated(exact_match=0.42, num_questions=64)
    """

    exact_match: float
    num_questions: int


@dataclass(eq=False)
class Step:
    """One step in progress: its place in the run, its learner, and its results.

    `validated_before` and `validated_after` are the validation results of the role's weights before and after the step.

        Step(step=53, iteration=0, phase="solver", number=2, seed=7, _learner=None)
    """

    step: int
    iteration: int
    phase: str
    number: int
    seed: int
    _learner: Learner | TinkerLearner | None
    measures_update: bool = False  # True if `sampler/update_seen` is due
    num_traced: int = 0  # episodes of each update whose tokens are stored with their values
    traces: dict[str, TokenTrace] = field(default_factory=dict)  # by episode
    metrics: dict[str, float] = field(default_factory=dict)
    candidates: list[Candidate] = field(default_factory=list)
    episodes: list[Episode] = field(default_factory=list)
    measured: list[Mapping[str, float]] = field(default_factory=list)
    validation: list[tuple[Episode, Mapping[str, float]]] = field(default_factory=list)  # stored as phase "validation"
    alarms: list[Alarm] = field(default_factory=list)  # raised by the phase itself, not by the health watch
    validated_before: Validated | None = None
    validated_after: Validated | None = None

    @property
    def name(self) -> str:
        """Short name, unique in the run: "i0-p3" is the fourth proposer step of the first iteration."""
        return f"i{self.iteration}-{self.phase[0]}{self.number}"

    @property
    def learner(self) -> Learner | TinkerLearner:
        """The learner of this phase."""
        assert self._learner is not None, f"the {self.phase} phase has no learner"
        return self._learner

    def keep(self, episode: Episode, measured: Mapping[str, float]) -> None:
        """Store this episode with its metrics when the step is done."""
        self.episodes.append(episode)
        self.measured.append(measured)


def trace_tokens(step: Step, samples: Sequence[Sample], learner: Learner | TinkerLearner | None = None) -> None:
    """Keep advantage, log-prob and entropy of every token of some samples, for the viewer. Call it before the update.

    `step.num_traced` samples are chosen by the step's seed. The learner, by default the step's, scores them once more,
    without gradients: no weight and no random draw depends on it.

        step.traces["i0-s3-q1-r0"].logprobs[0] -> -0.26
    """
    if not step.num_traced:
        return
    usable = [sample for sample in samples if sample.episode_id and any(sample.loss_mask)]
    chosen = sorted(usable, key=lambda sample: derive_seed(step.seed, "trace", sample.episode_id))[: step.num_traced]
    for sample, scores in zip(chosen, (learner or step.learner).score_tokens(chosen), strict=True):
        places = tuple(place for place, flag in enumerate(sample.loss_mask) if flag)
        advantages = tuple(sample.advantages[place] for place in places)
        step.traces[sample.episode_id] = TokenTrace(places, advantages, *scores)


# ------------------------------------------------------------------------------- how much of an update the sampler has


def measure_update(learner: Learner | TinkerLearner, samples: Sequence[Sample]) -> dict[str, float]:
    """Share of the learner's change since the start of the run that its sampler has; 1 if both are the same policy.

    For the same model tokens there are three log-probs: the learner's, those of the model the run started from (the
    start), and the sampler's, which come with the samples. `update_seen` is the least-squares slope, through the
    origin, of sampler - start on learner - start. A mismatch between two engines is noise around that line; a sampler
    that lost part of the change lies below it.

    Two effects bias the slope slightly. Learner and start are computed by the same engine, whose noise s pulls the
    slope towards 1/2 if the change is not larger than s: by s**2 over the mean square of learner - start.
    `update_noise` is at least that, if the sampler's engine has similar noise, and the alarm allows for it. Also, the
    tokens were drawn from the sampler, so its own noise favours them; that effect is of order s**2, against a change of
    order s.

    The first samples with 2,000 model tokens are used, or all; {} if the start model is not available. Call it before
    the learner's step: the samples come from a sampler with the weights before it.

        measure_update(learner, samples) -> {"sampler/update_seen": 0.99, "sampler/update_size": 0.21, ...}
    """
    chosen: list[Sample] = []
    num_tokens = 0
    for sample in samples:
        if num_tokens < MIN_TOKENS and any(sample.loss_mask):
            chosen.append(sample)
            num_tokens += sum(sample.loss_mask)
    if not (chosen and learner.has_reference):
        return {}
    start, now = (list(chain(*rows)) for rows in (learner.score_reference(chosen), learner.score(chosen)))
    return compare_update(start, now, [*chain(*(compress(sample.logprobs, sample.loss_mask) for sample in chosen))])


def compare_update(start: Sequence[float], learner: Sequence[float], sampler: Sequence[float]) -> dict[str, float]:
    """Slope, size and noise of a change, from log-probs of the same tokens.

    `size` is the root mean square of learner - start. `noise` is the residual mean square over that of the change.
    Slope (`seen`) and noise are left out if the learner has not changed; {} if a log-prob is not finite.

        compare_update([0.0, 0.0], [-1.0, 2.0], [-0.5, 1.0])
        -> {"sampler/update_size": 1.58, "sampler/update_seen": 0.5, "sampler/update_noise": 0.0}
    """
    changes = [new - old for new, old in zip(learner, start, strict=True)]
    seen = [new - old for new, old in zip(sampler, start, strict=True)]
    if not all(map(math.isfinite, (*changes, *seen))):
        return {}  # the learner's step will stop with the cause
    total = math.fsum(change * change for change in changes)
    measured = {"sampler/update_size": math.sqrt(total / len(changes))}
    if not total:
        return measured
    slope = math.fsum(a * b for a, b in zip(changes, seen, strict=True)) / total
    unexplained = math.fsum((b - slope * a) ** 2 for a, b in zip(changes, seen, strict=True))
    return measured | {"sampler/update_seen": slope, "sampler/update_noise": unexplained / total}
