"""The corpus selector: learns which topics and question types to give a proposer (EVE-Agent, Sec. 3.3 and App. F).

    selector = Selector(embed_index(index, run / "embeddings"), SelectorSettings(), seed=7)
    choices = selector.draw(256, seed=step.seed)                      # within an iteration the bandits stand still
    selector.learn(iteration, samples, proposer_reward=1.1, solver_reward=0.4)     # between iterations they learn
    selector.save(checkpoint); selector.load(checkpoint)              # goes on bit for bit

Its state is the clusters, two bandits and the number of draws of each passage. A draw depends only on these and on its
seed, so a resumed run makes the same draws as an uninterrupted one.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
from msgspec import Struct

from quaere.dialects.tool_call_prompts import TYPE_NAMES
from quaere.errors import BadInput
from quaere.rollout.policy import derive_seed
from quaere.setting_types import NonNegativeFloat, PositiveInt, check_settings
from quaere.training.selector.bandits import Arms, PreviousMean, learn_pulls, pull
from quaere.training.selector.choices import Mask, Uses, choose_passages
from quaere.training.selector.clusters import Clustering, count_clusters, fit_clusters, inherit
from quaere.training.selector.feedback import (
    PROPOSER_RANGE,
    SOLVER_RANGE,
    Choice,
    Pulled,
    RunScore,
    raw_rewards,
    run_score,
)
from quaere.training.selector.passage_vectors import Embedded

STATE_FILE = "selector.safetensors"


class SelectorSettings(Struct, frozen=True, forbid_unknown_fields=True):
    """The corpus selector: how many topics it knows, and how its bandits explore.

        SelectorSettings(num_clusters=10, growth=0.5)

    Attributes:
        num_clusters: Topics in the first iteration: K0. [EVE-Agent, Eq. 29]
        growth: Topics that join in each iteration: alpha. [EVE-Agent, Eq. 29]
        exploration: Weight of the exploration bonus: beta of UCB1. [EVE-Agent, Eq. 30]
        run_score: How both roles' mean rewards become one score: clip cuts their mean off at 1, rescale maps
            each role's range to 0..1 first. [EVE-Agent]
        previous_mean: What an arm's reward is compared with: the raw rewards it used to bring, or the mean it
            was paid. [EVE-Agent]
    """

    num_clusters: PositiveInt = 10
    growth: NonNegativeFloat = 0.0
    exploration: NonNegativeFloat = 1.0
    run_score: RunScore = "clip"
    previous_mean: PreviousMean = "raw reward"

    def check(self) -> None:
        """Refuse values out of bounds."""
        check_settings(self, "selector")
        for name in ("growth", "exploration"):
            if np.isinf(getattr(self, name)):
                raise BadInput(f"selector.{name} must be finite")


@dataclass(frozen=True)
class SelectorState:
    """The state of a selector. `iteration` is the one it draws for; all earlier ones have been learned from.

    SelectorState(iteration=0, clustering=..., clusters=Arms.fresh(10), types=Arms.fresh(5), uses=[0, 0, 0, ...])
    """

    iteration: int
    clustering: Clustering
    clusters: Arms
    types: Arms
    uses: Uses


class Selector:
    """Draws choices and learns from their rewards. Passages are clustered at the first use."""

    def __init__(self, embedded: Embedded, settings: SelectorSettings, seed: int) -> None:
        settings.check()
        self._embedded = embedded
        self._settings = settings
        self._seed = seed
        self._state: SelectorState | None = None

    @property
    def state(self) -> SelectorState:
        """The current state."""
        if self._state is None:
            clustering = self._cluster(0)
            uses = np.zeros(len(self._embedded.vectors), np.int32)
            self._state = SelectorState(0, clustering, Arms.fresh(len(clustering)), Arms.fresh(len(TYPE_NAMES)), uses)
        return self._state

    def draw(self, num: int, seed: int, among: Mask | None = None) -> list[Choice]:
        """Passages and question types for `num` tasks; `among` restricts the passages.

        A batch is drawn at random; a single task gets the arms with the highest scores, which stay the same until the
        next `learn`.

            selector.draw(2, seed=7) -> [Choice(17, 3, "causal"), Choice(250, 8, "factual")]
        """
        if num < 1:
            raise ValueError(f"the number of tasks must be at least 1, not {num}")
        if among is not None and (among.shape != self.state.uses.shape or not among.any()):
            raise ValueError("`among` must have one boolean per passage, at least one of them true")
        chances = {name: np.random.default_rng(derive_seed(seed, name)) for name in ("clusters", "types", "passages")}
        clusters = pull(self.state.clusters, num, chances["clusters"], self._settings.exploration)
        types = pull(self.state.types, num, chances["types"], self._settings.exploration)
        passages = choose_passages(clusters, self.state.clustering, self.state.uses, chances["passages"], among)
        found = zip(passages, clusters.tolist(), types.tolist(), strict=True)
        return [Choice(passage, cluster, TYPE_NAMES[kind]) for passage, cluster, kind in found]

    def learn(
        self,
        iteration: int,
        samples: Sequence[Pulled],
        *,
        proposer_reward: float,
        solver_reward: float,
        proposer_range: tuple[float, float] = PROPOSER_RANGE,
        solver_range: tuple[float, float] = SOLVER_RANGE,
    ) -> None:
        """Update the bandits with an iteration's samples, then refine the clusters.

        The rewards are the last mean rewards of both roles; the ranges are their possible values, used only if the
        score is rescaled. An iteration that was already learned from is skipped, so that a resumed run may repeat the
        call.
        """
        state = self.state
        if iteration < state.iteration:
            return
        if iteration > state.iteration:
            raise ValueError(f"learn from iteration {state.iteration} first, then from iteration {iteration}")
        ranges = {"proposer_range": proposer_range, "solver_range": solver_range}
        score = run_score(proposer_reward, solver_reward, self._settings.run_score, **ranges)
        rewards = raw_rewards(samples, score)
        clusters = np.array([sample.cluster for sample in samples], dtype=np.int64)
        names: list[str] = list(TYPE_NAMES)
        types = np.array([names.index(sample.question_type) for sample in samples], dtype=np.int64)
        previous_mean = self._settings.previous_mean
        self._state = replace(
            state,
            iteration=iteration + 1,
            clusters=learn_pulls(state.clusters, clusters, rewards, previous_mean),
            types=learn_pulls(state.types, types, rewards, previous_mean),
        )
        self._refine()

    def save(self, folder: Path) -> None:
        """Write the state to a file in `folder`."""
        from safetensors.numpy import save_file

        header = _Header(self.state.iteration, self._embedded.fingerprint)
        save_file(_to_arrays(self.state), folder / STATE_FILE, {"selector": msgspec.json.encode(header).decode()})

    def load(self, folder: Path) -> None:
        """Restore what `save` wrote. The passages and their vectors must be the same."""
        from safetensors import SafetensorError, safe_open

        file = folder / STATE_FILE
        try:
            with safe_open(file, framework="np") as opened:
                header = msgspec.json.decode(opened.metadata()["selector"], type=_Header)
                arrays = {name: opened.get_tensor(name) for name in opened.keys()}  # noqa: SIM118 (it is no mapping)
            state = _from_arrays(header.iteration, arrays)
        except (OSError, SafetensorError, msgspec.DecodeError, KeyError, TypeError) as error:
            raise BadInput(f"{file} is missing or is not a selector's state") from error
        same_size = len(state.uses) == len(self._embedded.vectors)
        if header.embeddings != self._embedded.fingerprint or not same_size:
            raise BadInput(f"{file} belongs to another index: resume with the index the run was started with")
        self._state = state

    def _cluster(self, iteration: int) -> Clustering:
        wanted = count_clusters(self._settings.num_clusters, self._settings.growth, iteration)
        return fit_clusters(self._embedded.vectors, wanted, derive_seed(self._seed, "clusters", iteration))

    def _refine(self) -> None:
        """Cluster again if more clusters are due and there are enough passages; arms inherit their statistics."""
        state, settings = self.state, self._settings
        wanted = count_clusters(settings.num_clusters, settings.growth, state.iteration)
        if min(wanted, len(state.uses)) <= len(state.clustering):
            return
        finer = self._cluster(state.iteration)
        heirs = inherit(state.clusters, state.clustering.centroids, finer.centroids)
        self._state = replace(state, clustering=finer, clusters=heirs)


class _Header(Struct, frozen=True, forbid_unknown_fields=True):
    """Metadata of a state file."""

    iteration: int
    embeddings: str


def _to_arrays(state: SelectorState) -> dict[str, Any]:
    arrays: dict[str, Any] = {"uses": state.uses}
    for prefix, record in (("clustering", state.clustering), ("clusters", state.clusters), ("types", state.types)):
        arrays |= {f"{prefix}.{name}": values for name, values in vars(record).items()}
    return arrays


def _from_arrays(iteration: int, arrays: dict[str, Any]) -> SelectorState:
    def part(prefix: str) -> dict[str, Any]:
        return {name.split(".")[1]: values for name, values in arrays.items() if name.startswith(f"{prefix}.")}

    clustering, clusters, types = Clustering(**part("clustering")), Arms(**part("clusters")), Arms(**part("types"))
    return SelectorState(iteration, clustering, clusters, types, arrays["uses"])
