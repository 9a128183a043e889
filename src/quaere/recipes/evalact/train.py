"""EvalAct, top to bottom (the paper's Eq. 4 to 10).

    repeat:
        draw questions, and let the solver play G episodes of each:
            think, Search, Evaluate with a score, a cue by the score, ..., answer
        pay each episode F1 if it kept to the format, else nothing                          (Eq. 4)
        compare the episodes of a question with one another                                 (GRPO)
        weigh the tokens of each search and its evaluation by the score given               (PCAR, Eq. 5 to 10)
        one clipped update, summed over the tokens of an episode, with a KL term

The scores are the policy's own; whether they were right is measured, and is no part of the reward.
"""

from __future__ import annotations

from quaere.recipes.evalact.config import EvalActConfig
from quaere.runs import Run
from quaere.training.phases.solver import solver_of
from quaere.training.progress import Reporter
from quaere.training.qa_run import open_practice


async def train(config: EvalActConfig, store: Run, reporter: Reporter) -> None:
    """Train from wherever the run stands, and close everything behind it."""
    # How it is spoken to, what it is paid, how its tokens are weighed, and what is measured: `dialects/registry.py`.
    solver = solver_of(config.solver, config.prompts)
    async with open_practice(config, store, reporter) as practice:
        await practice.run(solver)
