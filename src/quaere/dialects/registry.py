"""Registry of dialects by name and role: prompts and protocol of each role and, for a solver, its reward.

tool-call     solver       JSON calls, as in Dr. Zero                      exact match
              proposer     the same; a question and its answer
search-r1     solver       tags                                            exact match
autorefine    solver       tags, notes on what was found                   F1, or else a bonus for notes with the answer
evalrar       solver       tags, an evaluation of what was found           exact match, or else the same bonus
evalact       solver       JSON calls, every search evaluated and scored   F1 if the format holds; PCAR
report        writer       tags; a report that cites passages by number
              rubric       the dimensions that reports are graded by
              assessment   searches into reports, and their scores
closed-book   verifier     one turn without searching, with a span of evidence or without
direct, cot   solver       the same, answered at once or after a thought   exact match
rag           solver       one search with the question                    exact match
ircot         solver       a search with every sentence of reasoning       exact match
search-o1     solver       tags, its own notes in place of passages        exact match

open_solver("evalact", style="brief", settings=EvaluationSettings(pcar=False))
find_dialect("report", "writer").open(style="brief")

An installed package adds a dialect with an entry point NAME.ROLE of the group `quaere.dialects` (`plugins.py`).
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Annotated, Any, Literal, NamedTuple, overload

from msgspec import Meta

from quaere.errors import BadInput
from quaere.plugins import Names, Registry
from quaere.rewards.abstention import AbstentionRewards

if TYPE_CHECKING:
    from quaere.chat.protocol import PromptStyle, Protocol
    from quaere.dialects.report.report_writer import ReportWriter
    from quaere.dialects.roles import AnswerScore, DialectSettings, ProposerDialect, RoleDialect, Solver, SolverDialect
    from quaere.rollout.episode import Limits

Role = Literal["solver", "proposer", "writer", "rubric", "assessment", "verifier"]

# By dialect and role: the module and its constant. It is imported on first use: the options of a command list all
# dialects, and printing its help must not import every one of them.
_DIALECTS = Registry(
    "dialect",
    "quaere.dialects",
    {
        "tool-call.solver": "quaere.dialects.tool_call:SOLVER",
        "tool-call.proposer": "quaere.dialects.tool_call:PROPOSER",
        "search-r1.solver": "quaere.dialects.tag_dialects:SEARCH_R1",
        "autorefine.solver": "quaere.dialects.tag_dialects:AUTOREFINE",
        "evalrar.solver": "quaere.dialects.tag_dialects:EVALRAR",
        "evalact.solver": "quaere.dialects.evalact_reward:SOLVER",
        "report.writer": "quaere.dialects.report.report_writer:WRITER",
        "report.rubric": "quaere.dialects.report.rubric:RUBRIC",
        "report.assessment": "quaere.dialects.report.assessment:ASSESSMENT",
        "closed-book.verifier": "quaere.dialects.closed_book:VERIFIER",
        "direct.solver": "quaere.dialects.closed_book:DIRECT",
        "cot.solver": "quaere.dialects.closed_book:COT",
        "rag.solver": "quaere.dialects.untrained:RAG",
        "ircot.solver": "quaere.dialects.untrained:IRCOT",
        "search-o1.solver": "quaere.dialects.untrained:SEARCH_O1",
    },
)


def _with_role(names: Iterable[str], role: str) -> list[str]:
    """The dialects that have this role, of names such as `tool-call.solver`."""
    return [name.removesuffix(f".{role}") for name in names if name.endswith(f".{role}")]


SOLVER_DIALECTS = Names(_with_role(_DIALECTS.places, "solver"), lambda: _with_role(_DIALECTS.outside, "solver"))

UNTRAINED = ("direct", "cot", "rag", "ircot", "search-o1")  # methods that no warm-up teaches
FROM_MEMORY = ("direct", "cot")  # methods that search nothing

SolverDialectName = Annotated[str, Meta(extra={"names": SOLVER_DIALECTS})]


@overload
def find_dialect(dialect: str, role: Literal["solver"]) -> SolverDialect: ...
@overload
def find_dialect(dialect: str, role: Literal["proposer"]) -> ProposerDialect: ...
@overload
def find_dialect(dialect: str, role: Literal["writer"]) -> RoleDialect[ReportWriter]: ...
@overload
def find_dialect(dialect: str, role: Literal["rubric", "assessment", "verifier"]) -> RoleDialect[Protocol]: ...
def find_dialect(dialect: str, role: Role) -> Any:
    """The entry of a dialect's role, such as a `SolverDialect`; BadInput if the dialect has no such role.

    find_dialect("tool-call", "proposer").open(style="brief").name == "drzero-proposer"
    """
    if f"{dialect}.{role}" not in _DIALECTS.names:
        able = ", ".join(_with_role(_DIALECTS.names, role))
        raise BadInput(f"there is no dialect {dialect} with the role {role}; dialects with that role: {able}")
    from quaere.dialects import roles

    kinds: dict[str, type] = {"solver": roles.SolverDialect, "proposer": roles.ProposerDialect}
    return _DIALECTS.load(f"{dialect}.{role}", kinds.get(role, roles.RoleDialect))


def roles_of(dialect: str) -> tuple[Role, ...]:
    """The roles that a dialect has.

    roles_of("tool-call") == ("solver", "proposer")
    """
    roles: tuple[Role, ...] = ("solver", "proposer", "writer", "rubric", "assessment", "verifier")
    return tuple(role for role in roles if f"{dialect}.{role}" in _DIALECTS.names)


# ------------------------------------------------------------------------------------------------------------- solvers


def open_solver(
    dialect: str,
    *,
    style: PromptStyle = "full",
    evidence: bool = False,
    settings: DialectSettings | None = None,
    guided: bool = False,
    answer_score: AnswerScore = "own",
    abstention: AbstentionRewards | None = None,
) -> Solver:
    """The solver of a dialect: protocol and reward.

    `evidence` asks for the sentence it relies on, `guided` writes the start of its turns. With `abstention`, it may
    answer that the documents do not say, and gets these rewards for it; None: it may not. If `settings` are those of
    another dialect, this one's defaults are used.
    """
    from quaere.dialects.roles import SolverOptions, let_abstain

    found = find_dialect(dialect, "solver")
    if guided and not found.can_be_guided:
        own = _with_role(_DIALECTS.places, "solver")  # others might be broken, and hide this error
        able = ", ".join(name for name in own if find_dialect(name, "solver").can_be_guided)
        raise BadInput(f"only the {able} dialect can be guided, not {dialect}", hint="leave --guided out")
    settings = settings if type(settings) is found.settings else found.settings()
    settings.check()
    score = found.score if answer_score == "own" else answer_score
    solver = found.open(SolverOptions(style, evidence, guided, settings, score, abstention is not None))
    if abstention is None:
        return solver
    if not getattr(solver.protocol, "abstention", False):
        raise BadInput(f"the dialect {dialect} has no way to abstain", hint="leave abstention off")
    return let_abstain(solver, abstention)


def open_protocol(
    dialect: str,
    *,
    style: PromptStyle = "full",
    evidence: bool = False,
    settings: DialectSettings | None = None,
    guided: bool = False,
    abstention: bool = False,
) -> Protocol:
    """The protocol of a dialect's solver (`open_solver`)."""
    may = AbstentionRewards() if abstention else None
    return open_solver(
        dialect, style=style, evidence=evidence, settings=settings, guided=guided, abstention=may
    ).protocol


def can_abstain(dialect: str) -> bool:
    """True if the dialect's solver has a way to abstain; one of another package may have none."""
    from quaere.dialects.roles import SolverOptions

    found = find_dialect(dialect, "solver")
    opened = found.open(SolverOptions(settings=found.settings(), abstention=True))
    return bool(getattr(opened.protocol, "abstention", False))


def usual_limits(dialect: str) -> Limits:
    """The default episode limits of a dialect: EvalAct has more turns, because a search takes two.

    usual_limits("evalact").max_turns == 42
    """
    return find_dialect(dialect, "solver").limits


def check_turns(dialect: str, limits: Limits, option: str = "solver.limits.max_turns") -> None:
    """Raise `BadInput` if the limits leave no room for a search and an answer; `option` names the limit."""
    needed = find_dialect(dialect, "solver").turns
    if limits.max_turns < len(needed):
        raise BadInput(
            f"{option} must be at least {len(needed)} for {dialect} ({', '.join(needed)}), not {limits.max_turns}"
        )


# ------------------------------------------------------------------------------------------------- dialects of warm-ups


class Taught(NamedTuple):
    """What a warm-up teaches: a dialect, with evidence or without.

    Taught("tool-call", evidence=True)
    """

    dialect: str
    evidence: bool = False


# A warm-up has the name of the recipe it prepares for, which for most dialects is the dialect's own name.
_TAUGHT: dict[str, Taught] = {
    "drzero": Taught("tool-call"),
    "eve": Taught("tool-call", evidence=True),
    "eve-search-r1": Taught("search-r1", evidence=True),  # for EVE with solver.dialect=search-r1
    **{name: Taught(name) for name in _with_role(_DIALECTS.places, "solver") if name not in ("tool-call", *UNTRAINED)},
    "score": Taught("report"),
}
TAUGHT_NAMES = Names(_TAUGHT, lambda: _with_role(_DIALECTS.outside, "solver"))


def find_taught(name: str) -> Taught:
    """The dialect that a warm-up of this name teaches; `BadInput` if there is none.

    find_taught("eve") == Taught("tool-call", evidence=True)
    """
    if name not in TAUGHT_NAMES:
        raise BadInput(f"there is no warm-up for {name}; choose one of {', '.join(TAUGHT_NAMES)}")
    return _TAUGHT.get(name, Taught(name))


def taught_name(dialect: str) -> str:
    """The name under which a warm-up teaches a dialect, without evidence.

    taught_name("tool-call") == "drzero"
    """
    return next((name for name, taught in _TAUGHT.items() if taught == Taught(dialect)), dialect)


def taught_dialect(names: Iterable[str]) -> str | None:
    """The solver's dialect that warm-ups of these recipes teach; None if they teach several or none.

    taught_dialect(("eve", "drzero")) == "tool-call"; taught_dialect(("drzero", "evalact")) is None
    """
    taught = {find_taught(name).dialect for name in names if name in TAUGHT_NAMES}
    found = {dialect for dialect in taught if dialect in SOLVER_DIALECTS}
    return found.pop() if len(found) == 1 else None
