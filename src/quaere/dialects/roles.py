"""Roles that are opened with more than a style: what each of them is opened with.

A folder of `dialects/` registers a role as a `RoleDialect`, a solver as a `SolverDialect` (`solver.py`).

    WRITER: RoleDialect[OpenWriter] = RoleDialect(ReportWriter)
    WRITER.open(style="brief")
"""

from __future__ import annotations

import typing
from collections.abc import Sequence
from typing import Generic, TypeVar

from msgspec import Struct

from quaere.chat.dimensions import POOL
from quaere.chat.prompt_style import PromptStyle
from quaere.chat.protocol import Protocol
from quaere.dialects.demonstration import ProposerTurns
from quaere.records import Dimension, Harness, ProcessRules, Rubric

Open = TypeVar("Open")


class OpenProposer(typing.Protocol):
    """The protocol of a proposer; with `evidence` it quotes the sentence its answer rests on."""

    def __call__(self, *, style: PromptStyle = "full", evidence: bool = False) -> Protocol:
        """Open it for one task or many."""
        ...


class Writer(Protocol, typing.Protocol):
    """The protocol of a writer of reports, with how it was opened."""

    style: PromptStyle
    guided: bool


class OpenWriter(typing.Protocol):
    """The protocol of a writer of reports; `pool` says what the dimensions of a task's rubric mean."""

    def __call__(
        self, *, style: PromptStyle = "full", guided: bool = False, pool: Sequence[Dimension] = POOL
    ) -> Writer:
        """Open it for one task or many."""
        ...


class OpenRubric(typing.Protocol):
    """The protocol of an evaluator that chooses a rubric within a harness."""

    def __call__(self, harness: Harness, /, *, style: PromptStyle = "full") -> Protocol:
        """Open it for one task or many."""
        ...


class OpenAssessment(typing.Protocol):
    """The protocol of an evaluator that scores so many reports by a rubric."""

    def __call__(
        self,
        rubric: Rubric,
        num_reports: int,
        /,
        *,
        style: PromptStyle = "full",
        scale: float = 10.0,
        separate_validity: bool = False,
        process: ProcessRules = ProcessRules(),  # noqa: B008 (it is frozen)
    ) -> Protocol:
        """Open it for one task or many."""
        ...


class OpenVerifier(typing.Protocol):
    """The protocol of a solver that answers without searching, shown a `span` or nothing."""

    def __call__(self, *, guided: bool = False, span: str = "", evidence: bool = False) -> Protocol:
        """Open it for one task or many."""
        ...


class RoleDialect(Struct, Generic[Open], frozen=True):
    """One role of a dialect, as its folder registers it: `open` makes its protocol.

    RoleDialect(ReportWriter)
    """

    open: Open


class ProposerDialect(RoleDialect[OpenProposer], frozen=True):
    """A proposer of a dialect; without a `demonstration` no oracle can show how it is done.

    ProposerDialect(ToolCallProposer, demonstration=ToolCallProposals())
    """

    demonstration: ProposerTurns | None = None
