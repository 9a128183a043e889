"""EvalAct, from top to bottom (the paper's Eq. 4 to 10).

    repeat:
        draw questions, and let the solver play G episodes of each:
            think, Search, Evaluate with a score, a cue by the score, ..., answer
        reward each episode with F1 if it kept the format, else 0                           (Eq. 4)
        compare the episodes of a question with one another                                 (GRPO)
        scale the advantages of each search's and evaluation's tokens by the score          (PCAR, Eq. 5 to 10)
        one clipped update, summed over the tokens of an episode, with a KL term

The scores are the policy's own; their calibration is measured, but is no part of the reward.
"""

from __future__ import annotations

from quaere.recipes.evalact.config import EvalActConfig
from quaere.runs import Run
from quaere.training.phases.solver import solver_of
from quaere.training.progress import Reporter
from quaere.training.qa_run import open_practice


async def train(config: EvalActConfig, store: Run, reporter: Reporter) -> None:
    """Train from the run's last checkpoint, or from the start; close all resources at the end."""
    # Its protocol, reward, token weights and metrics: `dialects/registry.py`.
    solver = solver_of(config.solver, config.prompts)
    async with open_practice(config, store, reporter) as practice:
        await practice.run(solver)
