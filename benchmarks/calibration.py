"""Are EvalAct's scores worth anything? Those of a run's stored episodes against what its searches returned.

    quaere eval --run RUN --solver-dialect evalact --questions FILE --index INDEX --runs evals ...
    python benchmarks/calibration.py evals/eval-...

A search was good if a passage it returned holds an accepted answer or the next hop's evidence, as in training
(`quaere/dialects/evalact_reward.py`). Intervals are percentiles of 1,000 resamples of whole episodes.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable, Sequence
from pathlib import Path
from statistics import fmean

import numpy as np

from quaere.dialects.evalact_reward import find_pairs, judge_searches, measure_evaluations
from quaere.objectives.pcar import MAX_SCORE
from quaere.rewards.calibration import auroc, expected_calibration_error
from quaere.runs import Run

Judged = list[tuple[float, bool]]  # of one episode: the score of each search, and whether it was good
Measure = Callable[[Sequence[float], Sequence[bool]], float | None]


def ece(scores: Sequence[float], labels: Sequence[bool]) -> float | None:
    return expected_calibration_error([score / MAX_SCORE for score in scores], labels)


def resampled(episodes: Sequence[Judged], measure: Measure, num: int = 1000) -> str:
    """A figure over the searches of all episodes, with its interval: "0.498 [0.465, 0.532]"."""

    def of(chosen: Sequence[Judged]) -> float | None:
        judged = [pair for episode in chosen for pair in episode]
        return measure([score for score, _ in judged], [good for _, good in judged])

    value = of(episodes)
    if value is None:
        return "-"
    dice = np.random.default_rng(0)
    drawn = [of([episodes[place] for place in dice.integers(0, len(episodes), len(episodes))]) for _ in range(num)]
    low, high = np.quantile([one for one in drawn if one is not None], [0.025, 0.975])
    return f"{value:.3f} [{low:.3f}, {high:.3f}]"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("run", type=Path, nargs="+", help="directory of a run whose solver speaks evalact")
    for path in parser.parse_args().run:
        with Run.open(path) as run:
            episodes = list(run.episodes())
        verdicts = [judge_searches(episode) for episode in episodes]
        judged = [
            [(pair.score, good[pair.turn]) for pair in find_pairs(episode) if pair.turn in good]
            for episode, good in zip(episodes, verdicts, strict=True)
        ]
        judged = [pairs for pairs in judged if pairs]
        said = {
            wanted: [score for pairs in judged for score, good in pairs if good is wanted] for wanted in (True, False)
        }
        means = [f"{fmean(said[wanted]):.2f}" if said[wanted] else "-" for wanted in (True, False)]
        constant = measure_evaluations(episodes).get("evaluate/constant")
        print(f"{path}: {sum(map(len, judged))} searches of {len(judged)} episodes")
        print(f"  AUROC              {resampled(judged, auroc)}")
        print(f"  calibration error  {resampled(judged, ece)}")
        print(f"  mean score         {means[0]} of good searches, {means[1]} of bad ones")
        print(f"  all scores alike   {'-' if constant is None else f'{constant:.0%} of the episodes with two or more'}")


if __name__ == "__main__":
    main()
