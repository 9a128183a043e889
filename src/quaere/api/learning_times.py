"""What the times of a plan follow from: episodes that are sampled, how long one takes, and how fast the GPU is.

time_episode(0.0, [7.0, 8.0, 9.0, 11.0], num_at_once=2) == 1.5
"""

import timeit
from collections.abc import Sequence
from typing import Any


def count_steps(config: Any, num: int) -> float:
    """The episodes that a training samples, as steps of the solver, of which there are `num` an iteration.

    A proposer samples as well, and so do the attempts at what it asks.
    """
    if not hasattr(config, "proposer"):
        return num
    proposer, generation = config.proposer, config.generation
    asked = proposer.steps * proposer.num_samples
    num_sampled = asked * (1 + proposer.attempts)
    num_sampled += (generation.candidates or asked) * (generation.samples + generation.attempts)
    return float(config.iterations * (num + num_sampled / config.solver.num_samples))


def time_episode(opened_s: float, answered_s: Sequence[float], num_at_once: int) -> float:
    """Seconds by which each episode prolongs an evaluation, from the times at which its episodes ended.

    Of two batches and more the first is left out: while it is answered, kernels are compiled and graphs captured.

    time_episode(0.0, [7.0, 8.0, 9.0, 11.0], num_at_once=2) == 1.5  # seconds from 8 to 11, for two episodes
    """
    first = num_at_once if len(answered_s) >= 2 * num_at_once else 0
    began_s = answered_s[first - 1] if first else opened_s
    return (answered_s[-1] - began_s) / (len(answered_s) - first)


def measure_tflops() -> float:
    """How fast the GPU multiplies matrices in bfloat16; the best of several tries, as load varies."""
    import torch

    size = 4096
    matrix = torch.ones(size, size, device="cuda", dtype=torch.bfloat16)

    def multiply() -> None:
        matrix @ matrix
        torch.cuda.synchronize()

    return 2 * size**3 / min(timeit.repeat(multiply, number=1, repeat=5)) / 1e12
