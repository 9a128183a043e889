"""Signatures with which the roles of a dialect are opened, and the structs that register them.

A folder of `dialects/` registers a role as a `RoleDialect`, a solver as a `SolverDialect` (`solver_dialect.py`).

    WRITER: RoleDialect[OpenWriter] = RoleDialect(ReportWriter)
    WRITER.open(style="brief")
"""

from __future__ import annotations

import typing
from collections.abc import Sequence
from typing import Generic, TypeVar

from msgspec import Struct

from quaere.chat.dimensions import POOL
from quaere.chat.protocol import PromptStyle, Protocol
from quaere.dialects.demonstration import ProposerTurns
from quaere.records import Dimension, Harness, ProcessRules, Rubric

Open = TypeVar("Open")


class OpenProposer(typing.Protocol):
    """Opens a proposer's protocol; with `evidence` it quotes the sentence its answer rests on."""

    def __call__(self, *, style: PromptStyle = "full", evidence: bool = False) -> Protocol:
        """The protocol, for any number of tasks."""
        ...


class Writer(Protocol, typing.Protocol):
    """The protocol of a report writer, with the options it was opened with."""

    style: PromptStyle
    guided: bool


class OpenWriter(typing.Protocol):
    """Opens a report writer's protocol; `pool` holds the meanings of the rubric's dimensions."""

    def __call__(
        self, *, style: PromptStyle = "full", guided: bool = False, pool: Sequence[Dimension] = POOL
    ) -> Writer:
        """The protocol, for any number of tasks."""
        ...


class OpenRubric(typing.Protocol):
    """Opens the protocol of an evaluator that chooses a rubric within a harness."""

    def __call__(self, harness: Harness, /, *, style: PromptStyle = "full") -> Protocol:
        """The protocol, for any number of tasks."""
        ...


class OpenAssessment(typing.Protocol):
    """Opens the protocol of an evaluator that scores `num_reports` reports by a rubric."""

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
        """The protocol, for any number of tasks."""
        ...


class OpenVerifier(typing.Protocol):
    """Opens the protocol of a solver that answers without searching, with or without a `span` of evidence."""

    def __call__(self, *, guided: bool = False, span: str = "", evidence: bool = False) -> Protocol:
        """The protocol, for any number of tasks."""
        ...


class RoleDialect(Struct, Generic[Open], frozen=True):
    """One role of a dialect, as its folder registers it: `open` creates the protocol.

    RoleDialect(ReportWriter)
    """

    open: Open


class ProposerDialect(RoleDialect[OpenProposer], frozen=True):
    """The proposer of a dialect; an oracle can demonstrate it only if it has a `demonstration`.

    ProposerDialect(ToolCallProposer, demonstration=ToolCallProposals())
    """

    demonstration: ProposerTurns | None = None
