"""One training step in progress."""

from __future__ import annotations

from collections.abc import Mapping

from msgspec import Struct

from quaere.records import Candidate, Episode
from quaere.records.episodes import TokenTrace
from quaere.training.health import Alarm
from quaere.training.role_learner import RoleLearner


class Validated(Struct, frozen=True):
    """Exact match on the validation questions.

    Validated(exact_match=0.42, num_questions=64)
    """

    exact_match: float
    num_questions: int


class Step:
    """One step in progress: its place in the run, its learner, and its results.

    `validated_before` and `validated_after` are the validation results of the role's weights before and after the step.
    """

    def __init__(
        self,
        step: int,
        iteration: int,
        phase: str,
        number: int,
        seed: int,
        learner: RoleLearner | None,
        *,
        measures_update: bool = False,
        num_traced: int = 0,
    ) -> None:
        self.step = step
        self.iteration = iteration
        self.phase = phase
        self.number = number
        self.seed = seed
        self._learner = learner
        self.measures_update = measures_update  # True if `sampler/update_seen` is due
        self.num_traced = num_traced  # episodes of each update whose tokens are stored with their values
        self.traces: dict[str, TokenTrace] = {}  # by episode
        self.metrics: dict[str, float] = {}
        self.candidates: list[Candidate] = []
        self.episodes: list[Episode] = []
        self.measured: list[Mapping[str, float]] = []
        self.validation: list[tuple[Episode, Mapping[str, float]]] = []  # stored under the phase "validation"
        self.alarms: list[Alarm] = []  # raised by the phase itself, beside those of the health watch
        self.validated_before: Validated | None = None
        self.validated_after: Validated | None = None

    @property
    def name(self) -> str:
        """Short name, unique in the run: "i0-p3" is the fourth proposer step of the first iteration."""
        return f"i{self.iteration}-{self.phase[0]}{self.number}"

    @property
    def learner(self) -> RoleLearner:
        """The learner of this phase."""
        assert self._learner is not None, f"the {self.phase} phase has no learner"
        return self._learner

    def keep(self, episode: Episode, measured: Mapping[str, float]) -> None:
        """Store this episode with its metrics when the step is done."""
        self.episodes.append(episode)
        self.measured.append(measured)
