"""How a model is asked questions: the protocol it is spoken to in, and the limits of an episode.

protocol, limits = choose_solver(find_notes("warm"), needs_guide=False, limits={"max_turns": 3})
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, Literal

from msgspec import structs

from quaere.dialects.registry import SolverDialectName, check_turns, find_dialect, open_protocol, usual_limits

if TYPE_CHECKING:
    from quaere.chat.protocol import PromptStyle, Protocol
    from quaere.dialects.notes import Notes
    from quaere.rollout.episode import Limits

Device = Literal["auto", "cpu", "cuda"]


def asking_limits(dialect: SolverDialectName) -> Limits:
    """The default limits of `quaere ask` and `quaere.Agent`: shorter turns than in training, a longer sequence."""
    usual = usual_limits(dialect)
    return structs.replace(usual, turn_tokens=256, sequence_tokens=max(4096, usual.sequence_tokens))


def choose_solver(
    notes: Notes,
    *,
    needs_guide: bool,
    dialect: SolverDialectName | None = None,
    style: PromptStyle | None = None,
    evidence: bool | None = None,
    guided: bool | None = None,
    closed_book: bool = False,
    limits: Mapping[str, Any],
    usual: Callable[[SolverDialectName], Limits] = asking_limits,
    turns_option: str = "max_turns",
) -> tuple[Protocol, Limits]:
    """Protocol and limits: as given, else as the model was trained (its notes say so), else as `usual`.

    `needs_guide` is whether the model is too small to follow the protocol; `turns_option` is how the caller names the
    number of turns.
    """
    name = dialect or notes.dialect or "tool-call"
    if guided is None:
        guided = needs_guide and (name == "tool-call" or closed_book)
    allowed = structs.replace(trained_limits(name, notes) or usual(name), **limits)
    if closed_book:
        asking = find_dialect("closed-book", "verifier").open(guided=guided, evidence=wants_evidence(evidence, notes))
        return asking, structs.replace(allowed, max_turns=1)
    check_turns(name, allowed, turns_option)
    opened = open_protocol(
        name,
        style=style or notes.style or "full",
        evidence=wants_evidence(evidence, notes),
        settings=notes.evaluation,
        guided=guided,
    )
    return opened, allowed


def trained_limits(dialect: str, notes: Notes) -> Limits | None:
    """The limits a model was trained under, if it was trained in this dialect.

    trained_limits("evalact", Notes(limits=Limits(max_turns=3), dialect="tool-call")) is None
    """
    return notes.limits if dialect == (notes.dialect or "tool-call") else None


def wants_evidence(given: bool | None, notes: object) -> bool:
    """True if evidence is asked for: as the user says, else if the model was taught to give it.

    A model that was not taught to quote is not asked to: a small one would then often fail to answer at all.

        wants_evidence(None, Notes(style="brief")) -> False
    """
    return bool(getattr(notes, "evidence", False)) if given is None else given
