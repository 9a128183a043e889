"""Eval-RAR, top to bottom (the paper's Eq. 2 to 5).

    repeat:
        draw questions, and let the solver play G episodes of each:
            think, <search>, <information>, <evaluate> what it found or what is missing, ..., <answer>
        pay each episode 1 for the right answer, else 0.1 if an evaluation holds it         (Eq. 2 to 5)
        compare the episodes of a question with one another                                 (GRPO)
        one clipped update, averaged over the tokens of each episode, with a KL term

What was retrieved carries no loss, and what it says earns nothing: only the policy's own words are evaluations.
"""

from __future__ import annotations

from quaere.recipes.evalrar.config import EvalRarConfig
from quaere.runs import Run
from quaere.training.phases.solver import solver_of
from quaere.training.progress import Reporter
from quaere.training.qa_run import open_practice


async def train(config: EvalRarConfig, store: Run, reporter: Reporter) -> None:
    """Train from wherever the run stands, and close everything behind it."""
    solver = solver_of(config.solver, config.prompts)  # how it is spoken to and paid: `dialects/registry.py`
    async with open_practice(config, store, reporter) as practice:
        await practice.run(solver)
