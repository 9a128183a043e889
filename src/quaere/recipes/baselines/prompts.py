"""How the solver is spoken to: tags, in AutoRefine with a note on what was found after every search."""

from __future__ import annotations

from quaere.chat.protocol import Protocol
from quaere.dialects.registry import open_protocol
from quaere.training.qa_run import PracticeConfig


def solver_protocol(config: PracticeConfig) -> Protocol:
    """While it is trained and in evaluation."""
    return open_protocol(config.solver.dialect, style=config.prompts, settings=config.solver.evaluation)
