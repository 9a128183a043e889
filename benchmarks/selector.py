"""What the corpus selector sees of a skewed corpus, next to drawing passages uniformly, at equal draws.

    python benchmarks/selector.py
    python benchmarks/selector.py --seeds 20 --share 0.99

The corpus is synthetic: vectors around ten topics, one of which holds most of the passages. The questions are not
written by a model; every one counts as well formed, so only the selector's own rule is seen. The ways compared:

    uniform         passages as `draw_tasks` draws them; question types uniformly too
    habit           the same passages; types as of a proposer nobody tells what to ask, which asks for a fact nine
                    times in ten (an assumption, to be replaced by a measured habit)
    even            a cluster and a type uniformly, nothing learned: what the clusters alone are worth
    selector        all of it: the bandits learn after every iteration
"""

from __future__ import annotations

import argparse
from statistics import mean

import numpy as np
from tables import as_table

from quaere.dialects.tool_call import TYPE_NAMES
from quaere.recipes.passage_clusters import Embedded
from quaere.recipes.selector import Choice, Selector, SelectorSettings
from quaere.records import Candidate, Passage
from quaere.training.rollouts import draw_tasks

NUM_TOPICS = 10
HABIT = (0.9, 0.025, 0.025, 0.025, 0.025)


class Numbered:
    """Passages that are known by their numbers only."""

    def __init__(self, size: int) -> None:
        self.size = size

    def __len__(self) -> int:
        return self.size

    def passage(self, number: int) -> Passage:
        return Passage(str(number), str(number), "", "", 0, 0)


def make_corpus(num_passages: int, share: float, seed: int) -> tuple[np.ndarray, np.ndarray]:
    """Vectors of length one and their topics; topic 0 holds `share` of them, the others are alike."""
    chance = np.random.default_rng(seed)
    num_large = round(share * num_passages)
    topics = np.concatenate([np.zeros(num_large, int), 1 + np.arange(num_passages - num_large) % (NUM_TOPICS - 1)])
    chance.shuffle(topics)
    centres = chance.normal(size=(NUM_TOPICS, 32))
    vectors = centres[topics] + 0.4 * chance.normal(size=(num_passages, 32))
    return (vectors / np.linalg.norm(vectors, axis=1, keepdims=True)).astype(np.float32), topics


def play(way: str, selector: Selector, iterations: int, batch: int, seed: int) -> list[Choice]:
    """All choices of a run that goes this way."""
    chance = np.random.default_rng(seed)
    labels = selector.state.clustering.labels
    chosen: list[Choice] = []
    for iteration in range(iterations):
        if way == "selector":
            choices = selector.draw(batch, seed=seed * 1_000 + iteration)
            samples = [
                Candidate(
                    *("a", 1, iteration, "a", "", 1, f"a question of a good length, number {number}", "answer"),
                    cluster=choice.cluster,
                    question_type=choice.question_type,
                )
                for number, choice in enumerate(choices)
            ]
            selector.learn(iteration, samples, proposer_reward=0.9, solver_reward=0.4)
        elif way == "even":
            clusters = chance.integers(len(selector.state.clustering), size=batch)
            passages = [int(chance.choice(np.flatnonzero(labels == cluster))) for cluster in clusters]
            choices = [Choice(n, int(labels[n]), TYPE_NAMES[chance.integers(5)]) for n in passages]
        else:
            numbers = range(iteration * batch, (iteration + 1) * batch)
            tasks = draw_tasks(Numbered(len(labels)), numbers, (1,), seed=seed, name="")
            types = chance.choice(5, size=batch, p=HABIT if way == "habit" else None)
            passages = [int(task.document.doc_id) for task in tasks if task.document]
            choices = [Choice(n, int(labels[n]), TYPE_NAMES[kind]) for n, kind in zip(passages, types, strict=True)]
        chosen += choices
    return chosen


def describe(choices: list[Choice], topics: np.ndarray, labels: np.ndarray) -> dict[str, float]:
    """How many different ones were drawn. Clusters are those of the first clustering, for every way."""
    return {
        "topics": len({int(topics[choice.passage]) for choice in choices}),
        "clusters": len({int(labels[choice.passage]) for choice in choices}),
        "types": len({choice.question_type for choice in choices}),
        "pairs": len({(int(labels[choice.passage]), choice.question_type) for choice in choices}),
        "passages": len({choice.passage for choice in choices}),
        "large": mean(int(topics[choice.passage] == 0) for choice in choices),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--passages", type=int, default=2000)
    parser.add_argument("--share", type=float, default=0.9, help="of the largest topic")
    parser.add_argument("--batch", type=int, default=32, help="draws an iteration")
    parser.add_argument("--seeds", type=int, default=10)
    parser.add_argument("--growth", type=float, default=0.0, help="clusters that join in an iteration")
    asked = parser.parse_args()
    rows = []
    for iterations in (1, 2, 4, 8):
        for way in ("uniform", "habit", "even", "selector"):
            found = []
            for seed in range(asked.seeds):
                vectors, topics = make_corpus(asked.passages, asked.share, seed)
                selector = Selector(Embedded(vectors, "synthetic"), SelectorSettings(growth=asked.growth), seed)
                labels = selector.state.clustering.labels
                found.append(describe(play(way, selector, iterations, asked.batch, seed), topics, labels))
            means = {name: mean(item[name] for item in found) for name in found[0]}
            cells = [f"{means[name]:.1f}" for name in ("topics", "clusters", "types", "pairs", "passages")]
            rows.append((str(iterations * asked.batch), way, *cells, f"{means['large']:.0%}"))
    print(f"{asked.passages} passages, {NUM_TOPICS} topics, {asked.share:.0%} in one; mean of {asked.seeds} seeds")
    print(as_table(("draws", "way", "topics", "clusters", "types", "pairs", "passages", "large topic"), rows))


if __name__ == "__main__":
    main()
