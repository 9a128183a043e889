"""Eval-RAR, from top to bottom (the paper's Eq. 2 to 5).

    repeat:
        draw questions, and let the solver play G episodes of each:
            think, <search>, <information>, <evaluate> what it found or what is missing, ..., <answer>
        reward each episode with 1 for the right answer, else 0.1 if an evaluation has it   (Eq. 2 to 5)
        compare the episodes of a question with one another                                 (GRPO)
        one clipped update, averaged over the tokens of each episode, with a KL term

Retrieved text carries no loss and earns no reward: only the policy's own words count as evaluations.
"""

from __future__ import annotations

from quaere.recipes.evalrar.config import EvalRarConfig
from quaere.runs import Run
from quaere.training.phases.solver import solver_of
from quaere.training.progress import Reporter
from quaere.training.qa_run import open_practice


async def train(config: EvalRarConfig, store: Run, reporter: Reporter) -> None:
    """Train from the run's last checkpoint, or from the start; close all resources at the end."""
    solver = solver_of(config.solver, config.prompts)  # its protocol and reward: `dialects/registry.py`
    async with open_practice(config, store, reporter) as practice:
        await practice.run(solver)
