"""Prompts of the baselines' solver: tags; AutoRefine adds a note on the results after every search."""

from __future__ import annotations

from quaere.chat.protocol import Protocol
from quaere.dialects.registry import open_protocol
from quaere.training.qa_run import PracticeConfig


def solver_protocol(config: PracticeConfig) -> Protocol:
    """The solver's protocol, in training and in evaluation."""
    return open_protocol(config.solver.dialect, style=config.prompts, settings=config.solver.evaluation)
