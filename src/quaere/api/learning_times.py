"""What the times of a plan follow from: episodes that are sampled, how long one takes, and how fast the GPU is.

Answered().add(0.0, [7.0, 8.0, 9.0, 11.0], num_at_once=2).episode_s == 1.5
"""

import timeit
from collections.abc import Sequence
from typing import Any

from msgspec import Struct


def count_steps(config: Any, num: int) -> float:
    """The episodes that a training samples, as steps of the solver, of which there are `num` an iteration.

    A proposer samples as well, and so do the attempts at what it asks.
    """
    if not hasattr(config, "proposer"):
        return num
    from quaere.training.self_play import count_candidates

    proposer, generation = config.proposer, config.generation
    num_sampled = proposer.steps * proposer.num_samples * (1 + proposer.attempts)
    num_sampled += count_candidates(generation, proposer) * (generation.samples + generation.attempts)
    return float(config.iterations * (num + num_sampled / config.solver.num_samples))


class Answered(Struct, frozen=True):
    """The episodes that calls of an evaluation answered, and in how many seconds.

    Answered(num=2, seconds=3.0).episode_s == 1.5
    """

    num: int = 0
    seconds: float = 0.0

    @property
    def episode_s(self) -> float:
        """Seconds by which each episode prolongs an evaluation."""
        return self.seconds / self.num

    def add(self, opened_s: float, answered_s: Sequence[float], num_at_once: int) -> "Answered":
        """With those of one more call, by the times at which its episodes ended.

        Of two batches and more the first is left out: while it is answered, kernels are compiled and graphs captured.

        Answered().add(0.0, [7.0, 8.0, 9.0, 11.0], num_at_once=2) == Answered(2, 3.0)  # from 8 to 11
        """
        if not answered_s:
            return self
        first = num_at_once if len(answered_s) >= 2 * num_at_once else 0
        began_s = answered_s[first - 1] if first else opened_s
        return Answered(self.num + len(answered_s) - first, self.seconds + answered_s[-1] - began_s)


def measure_tflops() -> float:
    """How fast the GPU multiplies matrices in bfloat16; the best of several tries, as load varies."""
    import torch

    size = 4096
    matrix = torch.ones(size, size, device="cuda", dtype=torch.bfloat16)

    def multiply() -> None:
        matrix @ matrix
        torch.cuda.synchronize()

    return 2 * size**3 / min(timeit.repeat(multiply, number=1, repeat=5)) / 1e12
