"""The corpus selector: learns which topics and question types to give a proposer (EVE-Agent, Sec. 3.3 and App. F).

    selector = Selector(embed_index(index, run / "embeddings"), SelectorSettings(), seed=7)
    choices = selector.draw(256, seed=step.seed)
    selector.count(choices, yields)                                   # learns="yield": after every step
    selector.learn(iteration, samples, proposer_reward=1.1, solver_reward=0.4)     # between iterations they learn
    selector.save(checkpoint); selector.load(checkpoint)              # goes on bit for bit

Two UCB1 bandits, over clusters of passages and over question types, learn from one raw reward per question written.
The selector's state is the clusters, the bandits and the number of draws of each passage. A draw depends only on these
and on its seed, so a resumed run makes the same draws as an uninterrupted one.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace
from math import isfinite, sqrt
from pathlib import Path
from typing import Any, Literal

import msgspec
import numpy as np
from msgspec import Struct

from quaere.dialects.tool_call import TYPE_NAMES, QuestionType
from quaere.errors import BadInput
from quaere.grouping import grouped
from quaere.recipes.passage_clusters import (
    Clustering,
    Embedded,
    Floats,
    Integers,
    Mask,
    Uses,
    Vectors,
    choose_passages,
    count_clusters,
    draw_weighted,
    fit_clusters,
    nearest,
)
from quaere.records import Candidate
from quaere.rollout.policy import derive_seed
from quaere.runs import Run
from quaere.runs.rows import PHASES
from quaere.setting_types import NonNegativeFloat, PositiveInt, check_settings

PreviousMean = Literal["raw reward", "arm mean"]
RunScore = Literal["clip", "rescale"]
Learns = Literal["kept", "yield"]

STATE_FILE = "selector.safetensors"
UTILITY_WEIGHT = 0.5
_NEVER = 1e-8  # keeps the logarithm of a share finite
# Scores whose relative difference is below this differ only by rounding.
_ROUNDING = 1e-12
# Ranges of EVE's rewards with its default weights: F/2 + R + 0.5 V + 0.1 B, and EM + 0.3 F1.
PROPOSER_RANGE = (-0.5, 2.1)
SOLVER_RANGE = (0.0, 1.3)


# -------------------------------------------------------------------------------------------------------------- bandits


@dataclass(frozen=True)
class Arms:
    """Per arm: number of pulls, sum of arm rewards, and sum of the raw rewards they were computed from.

    Arms(pulls=[1, 5], rewards=[0.0, 4.1], raw_rewards=[0.0, 1.6])
    """

    pulls: Integers
    rewards: Floats
    raw_rewards: Floats

    @staticmethod
    def fresh(num_arms: int) -> Arms:
        """Arms with one virtual pull of reward 0, so that no score is infinite."""
        return Arms(np.ones(num_arms, np.int64), np.zeros(num_arms), np.zeros(num_arms))

    def __len__(self) -> int:
        return len(self.pulls)


def score_arms(arms: Arms, exploration: float = 1.0) -> Floats:
    """Upper confidence bound of each arm: U = S / N + exploration * sqrt(log N_tot / N).

    score_arms(Arms(pulls=[1, 4], rewards=[0.0, 2.0], ...)) -> [sqrt(log 5), 0.5 + sqrt(log 5 / 4)]
    """
    pulls = np.maximum(arms.pulls, 1)
    bonus = np.sqrt(np.log(max(int(arms.pulls.sum()), 1)) / pulls)
    return np.asarray(arms.rewards / pulls + exploration * bonus)


def batch_probabilities(scores: Floats) -> Floats:
    """Probability of each arm in a batch: softmax of the scores divided by their standard deviation.

    batch_probabilities([1, 2, 3]) -> softmax([1, 2, 3] / 0.8165) = [0.0595, 0.2024, 0.7381]

    Arms with equal scores get equal probabilities.
    """
    below_best = scores - scores.max()
    widest = float(-below_best.min())
    if widest <= _ROUNDING * float(np.abs(scores).max()):
        return np.full(len(scores), 1 / len(scores))
    below_best = below_best / widest  # scaled to [-1, 0] first, so that squaring cannot overflow
    weights = np.exp(below_best / below_best.std())
    return np.asarray(weights / weights.sum())


def pull(arms: Arms, num: int, chance: np.random.Generator, exploration: float = 1.0) -> Integers:
    """Arms to pull: the best one if `num` is 1 (the first among equals), else a batch drawn by softmax.

    pull(Arms.fresh(5), 256, np.random.default_rng(7)) -> about 51 times each arm
    """
    scores = score_arms(arms, exploration)
    if num == 1:
        return np.array([int(scores.argmax())])
    return draw_weighted(batch_probabilities(scores), num, chance)


def learn_pulls(arms: Arms, pulled: Integers, earned: Floats, previous_mean: PreviousMean = "raw reward") -> Arms:
    """The arms updated with these pulls and the raw reward of each.

    An arm's reward is higher for rare arms and for a raw reward above the previous mean: `-log(N_k / N_tot) + 0.5 *
    (earned - previous mean)`. Counts and means are those before the update for all its pulls, so their order does not
    matter. The previous mean is that of the raw rewards or of the arm rewards; both include the virtual pull.

        learn_pulls(Arms.fresh(2), [0, 0], [0.5, 0.25])
        -> Arms(pulls=[3, 1], rewards=[2 log 2 + 0.375, 0], raw_rewards=[0.75, 0])
    """
    if len(pulled) != len(earned):
        raise ValueError(f"each pull needs one reward: {len(pulled)} pulls, {len(earned)} rewards")
    if not np.isfinite(earned).all():
        raise ValueError("rewards of pulls must be finite")
    if len(pulled) and not 0 <= pulled.min() <= pulled.max() < len(arms):
        raise ValueError(f"arms must be below {len(arms)}, not {int(pulled.min())} to {int(pulled.max())}")
    before = (arms.raw_rewards if previous_mean == "raw reward" else arms.rewards) / np.maximum(arms.pulls, 1)
    rarity = -np.log(arms.pulls / max(int(arms.pulls.sum()), 1) + _NEVER)
    paid = rarity[pulled] + UTILITY_WEIGHT * (earned - before[pulled])
    return Arms(
        pulls=arms.pulls + np.bincount(pulled, minlength=len(arms)),
        rewards=arms.rewards + np.bincount(pulled, paid, minlength=len(arms)),
        raw_rewards=arms.raw_rewards + np.bincount(pulled, earned, minlength=len(arms)),
    )


def learn_yields(arms: Arms, pulled: Integers, earned: Floats) -> Arms:
    """The arms updated with these pulls: an arm's reward is what its pulls yield, and nothing for being rare.

    learn_yields(Arms.fresh(2), [0, 0], [1.0, 0.0]) -> Arms(pulls=[3, 1], rewards=[1.0, 0.0], raw_rewards=[1.0, 0.0])
    """
    paid = np.bincount(pulled, earned, minlength=len(arms))
    pulls = arms.pulls + np.bincount(pulled, minlength=len(arms))
    return Arms(pulls, arms.rewards + paid, arms.raw_rewards + paid)


def inherit(arms: Arms, old: Vectors, new: Vectors) -> Arms:
    """The arms of the new clusters, each a child of the nearest old cluster.

    Each of c children gets max(floor(N / c), 1) pulls and 1 / c of the rewards. The paper does not define old clusters
    without a child; here their nearest new cluster gets all they have, so that no reward is lost.

        inherit(Arms(pulls=[5], rewards=[3.0], raw_rewards=[1.0]), old=[[0, 0]], new=[[0, 1], [1, 0]])
        -> Arms(pulls=[2, 2], rewards=[1.5, 1.5], raw_rewards=[0.5, 0.5])
    """
    parents, _ = nearest(new, old)
    num_children = np.bincount(parents, minlength=len(old))
    shares = np.maximum(num_children, 1)
    childless = np.flatnonzero(num_children == 0)
    heirs, _ = nearest(old[childless], new)

    def pass_on(sums: Floats) -> Floats:
        return np.asarray((sums / shares)[parents] + np.bincount(heirs, sums[childless], minlength=len(new)))

    pulls = np.maximum(arms.pulls // shares, 1)[parents]
    np.add.at(pulls, heirs, arms.pulls[childless])
    return Arms(pulls, pass_on(arms.rewards), pass_on(arms.raw_rewards))


# -------------------------------------------------------------------------------------------------------------- rewards


class Choice(Struct, frozen=True):
    """A proposer's assignment: passage number in the index, the pulled cluster, and a question type.

    Choice(passage=17, cluster=3, question_type="causal")
    """

    passage: int
    cluster: int
    question_type: QuestionType


def judge_quality(question: str, answer: str, num_copies: int) -> float:
    """Quality of a sample's form in [0, 1], from its lengths in characters and the number of copies of its question.

    judge_quality("Who built the bridge at Halmgate?", "Orsolya Venn", num_copies=4) -> 1 * 1 / sqrt(4) = 0.5
    judge_quality("Who?", "", num_copies=1) -> 0.65 * 0.55
    """
    length = 1.0 if 20 <= len(question) <= 220 else 0.65
    return length * (1.0 if 1 <= len(answer) <= 80 else 0.55) / sqrt(max(num_copies, 1))


def run_score(
    proposer_reward: float,
    solver_reward: float,
    how: RunScore = "clip",
    *,
    proposer_range: tuple[float, float] = PROPOSER_RANGE,
    solver_range: tuple[float, float] = SOLVER_RANGE,
) -> float:
    """Score of an iteration in [0, 1]: the average of both roles' last mean rewards.

    These rewards can leave [0, 1]: "clip" clips their average; "rescale" maps each role's range to [0, 1] first.

        run_score(1.5, 0.9, "clip") -> 1.0
        run_score(0.8, 0.65, "rescale") -> (1.3 / 2.6 + 0.65 / 1.3) / 2 = 0.5
    """
    if not (isfinite(proposer_reward) and isfinite(solver_reward)):
        raise ValueError(f"mean rewards must be finite, not {proposer_reward} and {solver_reward}")
    if how == "rescale":
        proposer_reward = _rescale(proposer_reward, *proposer_range)
        solver_reward = _rescale(solver_reward, *solver_range)
    return min(max((proposer_reward + solver_reward) / 2, 0.0), 1.0)


def _rescale(value: float, low: float, high: float) -> float:
    return min(max((value - low) / (high - low), 0.0), 1.0)


def raw_rewards(samples: Sequence[Candidate], score: float) -> Floats:
    """Raw reward of each sample: the run's score times the sample's quality.

    raw_rewards([sample, sample], score=0.8) -> [0.8 / sqrt(2), 0.8 / sqrt(2)], as each is a copy of the other
    """
    copies = Counter(sample.question for sample in samples)
    qualities = [judge_quality(sample.question, sample.answer, copies[sample.question]) for sample in samples]
    return score * np.array(qualities, dtype=np.float64)


def pulled_questions(store: Run, iteration: int) -> list[Candidate]:
    """The iteration's kept questions that arms led to."""
    return [item for item in store.candidates(iteration=iteration, kept=True) if item.cluster >= 0]


def last_reward(store: Run, iteration: int, phase: str) -> float:
    """The mean reward in the last step of a phase; 0 if the phase has no step."""
    iterations, phases = (
        {metric.step: metric.value for metric in store.metrics(f"run/{name}")} for name in ("iteration", "phase")
    )
    place = (iteration, PHASES.index(phase))
    rewards = store.metrics("reward/mean")
    found = [metric.value for metric in rewards if (iterations[metric.step], phases[metric.step]) == place]
    return found[-1] if found else 0.0


# --------------------------------------------------------------------------------------------------------- the selector


class SelectorSettings(Struct, frozen=True, forbid_unknown_fields=True):
    """The corpus selector: how many topics it knows, and how its bandits explore.

        SelectorSettings(num_clusters=10, growth=0.5)

    Attributes:
        num_clusters: Topics in the first iteration: K0. [EVE-Agent, Eq. 29]
        growth: Topics that join in each iteration: alpha. [EVE-Agent, Eq. 29]
        exploration: Weight of the exploration bonus: beta of UCB1. [EVE-Agent, Eq. 30]
        run_score: How both roles' mean rewards become one score: clip cuts their mean off at 1, rescale maps
            each role's range to 0..1 first. [EVE-Agent]
        learns: What the bandits learn from: kept: between iterations, from the kept questions, as in the paper; yield:
            after every step, from all that was drawn, which earns 1 if the solver can learn from it and else 0.
            [EVE-Agent; Quaere]
        previous_mean: What a raw reward is compared with: the mean of the arm's earlier raw rewards, or of its earlier
            arm rewards. [EVE-Agent]
    """

    num_clusters: PositiveInt = 10
    growth: NonNegativeFloat = 0.0
    exploration: NonNegativeFloat = 1.0
    learns: Learns = "kept"
    run_score: RunScore = "clip"
    previous_mean: PreviousMean = "raw reward"

    def check(self) -> None:
        """Raise BadInput for values out of bounds."""
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


# The parts of a state that consist of arrays, with their types.
_PARTS: dict[str, Any] = {"clustering": Clustering, "clusters": Arms, "types": Arms}


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

    def count(self, drawn: Sequence[Choice], yields: Sequence[float]) -> None:
        """Update the bandits with what these choices yielded, if they learn from yields; next draws depend on it."""
        if self._settings.learns != "yield" or not drawn:
            return
        names: list[str] = list(TYPE_NAMES)
        clusters = np.array([choice.cluster for choice in drawn], dtype=np.int64)
        types = np.array([names.index(choice.question_type) for choice in drawn], dtype=np.int64)
        earned = np.array(yields, dtype=np.float64)
        arms = learn_yields(self.state.clusters, clusters, earned), learn_yields(self.state.types, types, earned)
        self._state = replace(self.state, clusters=arms[0], types=arms[1])

    def learn(
        self,
        iteration: int,
        samples: Sequence[Candidate],
        *,
        proposer_reward: float,
        solver_reward: float,
        proposer_range: tuple[float, float] = PROPOSER_RANGE,
        solver_range: tuple[float, float] = SOLVER_RANGE,
    ) -> None:
        """Update the bandits with an iteration's samples (unless they learn from yields), then refine the clusters.

        The rewards are the last mean rewards of both roles; the ranges are their possible values, used only if the
        score is rescaled. An iteration that was already learned from is skipped, so that a resumed run may repeat the
        call.
        """
        state = self.state
        if iteration < state.iteration:
            return
        if iteration > state.iteration:
            raise ValueError(f"learn from iteration {state.iteration} first, then from iteration {iteration}")
        if self._settings.learns == "yield":
            samples = ()  # counted already
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
        parts = {name: vars(getattr(self.state, name)) for name in _PARTS}
        arrays = {f"{part}.{name}": values for part, fields in parts.items() for name, values in fields.items()}
        arrays["uses"] = self.state.uses
        save_file(arrays, folder / STATE_FILE, {"selector": msgspec.json.encode(header).decode()})

    def load(self, folder: Path) -> None:
        """Restore what `save` wrote. The passages and their vectors must be the same."""
        from safetensors import SafetensorError, safe_open

        file = folder / STATE_FILE
        try:
            with safe_open(file, framework="np") as opened:
                header = msgspec.json.decode(opened.metadata()["selector"], type=_Header)
                arrays = {name: opened.get_tensor(name) for name in opened.keys()}  # noqa: SIM118 (it is no mapping)
            named = grouped((name.partition(".")[0], (name.partition(".")[2], array)) for name, array in arrays.items())
            made = {part: kind(**dict(named[part])) for part, kind in _PARTS.items()}
            state = SelectorState(header.iteration, **made, uses=arrays["uses"])
        except (OSError, SafetensorError, msgspec.DecodeError, KeyError, TypeError) as error:
            raise BadInput(f"{file} is missing or is not a selector's state") from error
        if header.embeddings != self._embedded.fingerprint or len(state.uses) != len(self._embedded.vectors):
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
