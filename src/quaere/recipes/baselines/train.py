"""Search-R1 and AutoRefine, from top to bottom.

repeat:
    draw questions, and let the solver play G episodes of each:
        Search-R1:   think, <search>, <information>, ..., <answer>
        AutoRefine:  think, <search>, <documents>, <refine> what helps, ..., <answer>
    reward each episode
        Search-R1:   1 for the right answer
        AutoRefine:  F1 of the answer or, if that is 0, 0.1 if a note contains the right answer
    compare the episodes of a question with one another                                 (GRPO)
    one clipped update, with a KL term
"""

from __future__ import annotations

from quaere.runs import Run
from quaere.training.phases.solver import solver_of
from quaere.training.progress import Reporter
from quaere.training.qa_run import PracticeConfig, open_practice


async def train(config: PracticeConfig, store: Run, reporter: Reporter) -> None:
    """Train from the run's last checkpoint, or from the start; close all resources at the end."""
    solver = solver_of(config.solver, config.prompts)  # its protocol and reward: `dialects/registry.py`
    async with open_practice(config, store, reporter) as practice:
        await practice.run(solver)
