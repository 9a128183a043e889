"""Prompt styles, and the instructions on how to finish an episode.

`full` explains the protocol to a model that has never seen it; `brief` reminds a model that was trained on it.
"""

from __future__ import annotations

from typing import Literal

PromptStyle = Literal["full", "brief"]

SOLVER_FINISH = "put the answer between <answer> and </answer>"
CITED_SOLVER_FINISH = (
    "copy the sentence your answer rests on between <evidence> and </evidence>, then put the answer between <answer> "
    "and </answer>"
)
