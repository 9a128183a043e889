"""One training step in progress: its place in the run, its learner, its results, and the metrics computed from them.

    step.keep(episode, {"reward/total": 1.0})
    step.metrics |= measure_episodes(episodes, seconds=12.0, role="solver") | pass_histogram([0, 2, 5], 5)

The functions that measure are pure, but for those of the learner and the process; each returns metrics by name
(`area/name`), ready to be merged. A metric that cannot be computed (the mean of nothing) is left out instead of set to
0, so that it cannot be mistaken for a measurement.
"""

from __future__ import annotations

import math
import sys
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import chain, compress
from typing import TYPE_CHECKING

from msgspec import Struct

from quaere.grouping import grouped
from quaere.records import LIMIT_ENDS, Candidate, Episode, Malformed, ProposeTask, Question, SolveTask, searches_needed
from quaere.records.episodes import TokenTrace
from quaere.rewards.answers import normalise_answer
from quaere.rollout.policy import derive_seed
from quaere.training.health import Alarm

if TYPE_CHECKING:
    from quaere.objectives.policy_gradient import Advantages
    from quaere.training.batches import Sample
    from quaere.training.learner import Learner
    from quaere.training.tinker_learner import TinkerLearner

MIN_TOKENS = 2000
_GIB = 2**30


class Validated(Struct, frozen=True):
    """Mean rating on the validation questions: exact match, or for an abstention (where allowed) its reward.

    Validated(rating=0.42, num_questions=64, variance=0.2436)
    """

    rating: float
    num_questions: int
    variance: float | None = None  # of a question's rating


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
    num_searches: int = 0  # searches that were answered
    search_failure: str = ""  # why the last failed search failed

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

    def count_searches(self, episodes: Iterable[Episode]) -> None:
        """Count the searches of these episodes that were answered, and note why others failed."""
        for turn in chain.from_iterable(episode.turns for episode in episodes):
            self.num_searches += len(turn.results)
            if turn.failure and turn.search_failed:
                self.search_failure = turn.failure.message


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


# ----------------------------------------------------------------------------------- episodes, rewards and the process


def measure_episodes(episodes: Sequence[Episode], seconds: float, *, role: str) -> dict[str, float]:
    """Metrics of a role's episodes; `seconds` is the time it took to play all of them.

    `truncated` is the share that ran out of tokens, in a turn or in the whole sequence; `unanswered` the share ended by
    a limit without an answer; `call_validity` the share of turns that could be parsed.

        measure_episodes(episodes, 12.0, role="solver") -> {"solver/episodes": 64.0, "solver/answered": 0.75, ...}
    """
    if not episodes:
        return {}
    turns = [turn for episode in episodes for turn in episode.turns]
    model_tokens = [sum(episode.loss_mask) for episode in episodes]
    measured: dict[str, float] = {
        "episodes": len(episodes),
        "model_tokens": _mean(model_tokens),
        "tokens": _mean([len(episode.token_ids) for episode in episodes]),
        "turns": _mean([len(episode.turns) for episode in episodes]),
        "truncated": _mean([_is_truncated(episode) for episode in episodes]),
        "answered": _mean([episode.end == "answered" for episode in episodes]),
        "unanswered": _mean([episode.end in LIMIT_ENDS for episode in episodes]),
        "searches": _mean([episode.num_searches for episode in episodes]),
        "search_failures": sum(turn.search_failed for turn in turns),
    }
    if turns:
        measured["call_validity"] = _mean([not isinstance(turn.action, Malformed) for turn in turns])
    # Searches that were refused (last turn, none left) never reached the search engine and have no latency.
    if waits := [turn.search_s for turn in turns if turn.results or turn.search_failed]:
        measured["search_s"] = _mean(waits)
    if seconds > 0:
        measured["tokens_per_s"] = sum(model_tokens) / seconds
    return {f"{role}/{name}": float(value) for name, value in measured.items()}


def measure_advantages(advantages: Advantages) -> dict[str, float]:
    """Metrics of a batch's advantages.

    Groups with equal rewards (`zero_variance`) and groups of one (`lone`) are disjoint shares of all groups; `nonzero`
    is the share of episodes with a non-zero advantage.

        measure_advantages(grpo([1, 0, 1, 1], [0, 0, 1, 1]))
        -> {"advantage/std": 0.5, "advantage/max_abs": 0.707, "advantage/zero_variance": 0.5, "advantage/lone": 0.0,
            "advantage/nonzero": 0.5}
    """
    values = advantages.values
    if not len(values):
        return {}
    return {
        "advantage/std": float(values.std(correction=0)),
        "advantage/max_abs": float(values.abs().max()),
        "advantage/zero_variance": advantages.num_zero_variance / advantages.num_groups,
        "advantage/lone": advantages.num_lone / advantages.num_groups,
        "advantage/nonzero": float((values != 0).double().mean()),
    }


def measure_groups(advantages: Advantages) -> dict[str, float]:
    """Number and share of groups of attempts with different rewards; all others have zero advantage.

    measure_groups(grpo([1, 0, 1, 1], [0, 0, 1, 1])) -> {"groups/informative": 1.0, "groups/informative_share": 0.5}
    """
    num = advantages.num_groups - advantages.num_zero_variance - advantages.num_lone
    share = {"groups/informative_share": num / advantages.num_groups} if advantages.num_groups else {}
    return {"groups/informative": float(num), **share}


def measure_draws(num_steps: int, batch: int, num_questions: int, num_distinct: int) -> dict[str, float]:
    """Number of distinct questions (`count_distinct`), and epochs over all, in the first `num_steps` steps of a phase.

    measure_draws(3, 4, num_questions=8, num_distinct=8) -> {"questions/distinct": 8.0, "questions/epochs": 1.5}
    """
    num_draws = num_steps * min(batch, num_questions)
    return {"questions/distinct": float(num_distinct), "questions/epochs": num_draws / num_questions}


def measure_pace(metrics: Mapping[str, float], seconds: float) -> dict[str, float]:
    """Duration of a step, and informative groups per minute if it had groups.

    measure_pace({"groups/informative": 20.0}, seconds=12.0) -> {"step/seconds": 12.0, "groups/per_minute": 100.0}
    """
    informative = metrics.get("groups/informative")
    pace = {} if informative is None or seconds <= 0 else {"groups/per_minute": 60 * informative / seconds}
    return {"step/seconds": seconds, **pace}


def measure_proposals(
    episodes: Sequence[Episode], hops: Sequence[int], valid: Sequence[bool], questions: Sequence[str]
) -> dict[str, float]:
    """Metrics of the proposer's questions; entry i of each list belongs to episode i, "" if it wrote no question.

    A question of h hops takes h - 1 searches if it starts from a document that is shown, else h: `search_gap` is the
    mean distance from that.
    `searches_needed` is the mean number of searches a solver needs for the valid ones, by the requested hops.

        measure_proposals(episodes, hops=[1, 2], valid=[True, False], questions=["Who?", ""])
        -> {"proposer/valid": 0.5, "proposer/duplicates": 0.0, "proposer/searches_needed": 1.0,
            "proposer/searches_h1": 0.0, "proposer/searches_h2": 2.0, "proposer/search_gap": 0.5}
    """
    if not episodes:
        return {}
    searches = [(wanted, episode.num_searches) for wanted, episode in zip(hops, episodes, strict=True)]
    needs = [searches_needed(wanted) for wanted, is_valid in zip(hops, valid, strict=True) if is_valid]
    measured = {"proposer/valid": _mean(valid)}
    if texts := [text for text in map(normalise_answer, questions) if text]:
        measured["proposer/duplicates"] = 1 - len(set(texts)) / len(texts)
    measured |= mean_of("proposer/searches_needed", needs)
    for hop in sorted(set(hops)):
        measured[f"proposer/searches_h{hop}"] = _mean([number for wanted, number in searches if wanted == hop])
    shown = [isinstance(episode.task, ProposeTask) and episode.task.document is not None for episode in episodes]
    gaps = [abs(number - (wanted - is_shown)) for (wanted, number), is_shown in zip(searches, shown, strict=True)]
    return measured | {"proposer/search_gap": _mean(gaps)}


def pass_histogram(num_rights: Sequence[int], num_attempts: int) -> dict[str, float]:
    """Share of the questions per number of right attempts; `passes/mean` is the pass rate over all attempts.

    pass_histogram([0, 2, 2], 2) -> {"passes/0": 0.333, "passes/1": 0.0, "passes/2": 0.667, "passes/mean": 0.667}
    """
    if not num_rights:
        return {}
    if num_attempts < 1 or not all(0 <= number <= num_attempts for number in num_rights):
        raise ValueError(f"numbers of right attempts must be 0 to {num_attempts}, not {sorted(set(num_rights))}")
    counts = Counter(num_rights)
    shares = {f"passes/{number}": counts[number] / len(num_rights) for number in range(num_attempts + 1)}
    return shares | {"passes/mean": _mean(num_rights) / num_attempts}


def mean_parts(measured: Sequence[Mapping[str, float]]) -> dict[str, float]:
    """Mean of every reward component and score over the episodes; the mean of `reward/total` is `reward/mean`.

    A component that some episodes lack is averaged over those that have it.

    mean_parts([{"reward/total": 1.0, "format/think": 0.5}, {"reward/total": 0.0}])
    -> {"reward/mean": 0.5, "format/think": 0.5}
    """
    names = dict.fromkeys(name for values in measured for name in values)
    areas = ("reward/", "format/", "answer/", "evidence/")
    return {
        "reward/mean" if name == "reward/total" else name: _mean([one[name] for one in measured if name in one])
        for name in names
        if name.startswith(areas) and name != "format/valid"  # measured elsewhere, by hops as well
    }


def measure_memory() -> dict[str, float]:
    """Peak memory of this process in GiB; also that of the GPU if one is in use.

    measure_memory() -> {"memory/process_gib": 3.1, "memory/gpu_gib": 41.7}
    """
    measured: dict[str, float] = {}
    if sys.platform != "win32":
        import resource

        peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        measured["memory/process_gib"] = peak * _rss_unit(sys.platform) / _GIB
    torch = sys.modules.get("torch")  # measuring must not load torch
    if torch is not None and torch.cuda.is_initialized():
        measured["memory/gpu_gib"] = torch.cuda.max_memory_allocated() / _GIB
    return measured


def _rss_unit(platform: str) -> int:
    """Bytes per unit of `ru_maxrss`: 1 on macOS, 1024 elsewhere."""
    return 1 if platform == "darwin" else 1024


def _is_truncated(episode: Episode) -> bool:
    return episode.end == "sequence_limit" or any(turn.stop_reason == "length" for turn in episode.turns)


def _mean(values: Sequence[float]) -> float:
    return sum(values) / len(values)


def mean_of(name: str, values: Sequence[float]) -> dict[str, float]:
    """The mean of the values as a metric; {} if there are none: `mean_of("a/b", [1, 2]) -> {"a/b": 1.5}`."""
    return {name: _mean(values)} if values else {}


# ------------------------------------------------------------------------------------- by the searches a question needs


WINDOW = 5  # steps per moving average: a single step's value is mostly noise


def measure_asked(questions: Sequence[Question]) -> dict[str, float]:
    """Mean number of searches the questions need.

    measure_asked([Question("q1", "Who?", searches=1), Question("q2", "Where?", searches=2)])
    -> {"questions/searches_needed": 1.5}
    """
    return mean_of("questions/searches_needed", [question.searches for question in questions if question.searches])


def measure_attempts(episodes: Sequence[Episode], paid: Sequence[Mapping[str, float]]) -> dict[str, float]:
    """Mean searches, exact match and reward of the solver's episodes, by the number of searches their questions need.

    `paid[i]` are the reward components of `episodes[i]`.

    -> {"solver/searches_n1": 1.0, "answer/exact_match_n1": 0.5, "reward/mean_n1": 0.5, "solver/searches_n2": 1.7, ...}
    """
    pairs = zip(episodes, paid, strict=True)
    groups = grouped(
        (one.task.question.searches, (one, parts)) for one, parts in pairs if isinstance(one.task, SolveTask)
    )
    measured = {}
    for need, played in sorted(groups.items()):
        if need:
            measured[f"solver/searches_n{need}"] = _mean([episode.num_searches for episode, _ in played])
            measured[f"answer/exact_match_n{need}"] = _mean([parts["answer/exact_match"] for _, parts in played])
            measured[f"reward/mean_n{need}"] = _mean([parts["reward/total"] for _, parts in played])
    return measured


def measure_searches_kept(searches: Sequence[float], needs: Sequence[float]) -> dict[str, float]:
    """Ratio of the solver's current searches to those in the first steps of its phase, adjusted for the questions.

    Both arguments are means per step, of all steps so far. Averages over the last `WINDOW` steps are compared with
    those over the first; if the questions need fewer searches than at the start, only the fall beyond that counts. {}
    while there are too few steps or if the need is unknown.

        measure_searches_kept([1.7] * 5 + [1.0] * 5, [2.0] * 10) -> {"solver/searches_kept": 0.588}
        measure_searches_kept([1.7] * 5 + [1.0] * 5, [2.0] * 5 + [1.0] * 5) -> {"solver/searches_kept": 1.176}
    """
    if len(searches) != len(needs) or len(searches) <= WINDOW or not any(searches[:WINDOW]):
        return {}
    needed = min(1.0, _change(needs))  # questions that need more do not excuse a solver that searches less
    return {"solver/searches_kept": _change(searches) / needed}


def _change(values: Sequence[float]) -> float:
    return _mean(values[-WINDOW:]) / _mean(values[:WINDOW])
