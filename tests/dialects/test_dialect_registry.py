"""The registry of dialects: every role of every dialect can be opened, and names cost no import."""

import subprocess
import sys

import pytest
from msgspec import structs

from quaere.dialects import tag_dialects
from quaere.dialects.evalact_reward import EvaluationSettings
from quaere.dialects.registry import (
    SOLVER_DIALECTS,
    TAUGHT_NAMES,
    UNTRAINED,
    find_dialect,
    find_taught,
    open_protocol,
    open_solver,
    roles_of,
    taught_dialect,
    taught_name,
)
from quaere.errors import BadInput
from quaere.records import Answer, Dimension, DimensionRules, Harness, Proposal, Rubric, Search
from quaere.warmup import dialects as warmup

TAUGHT = [name for name in SOLVER_DIALECTS if name not in UNTRAINED]
HARNESS = Harness(0, (Dimension("factuality", "Good."), Dimension("coverage", "Good.")), DimensionRules(k=2))


def test_names_cost_no_import():
    code = (
        "import sys, quaere.dialects.registry as registry; print(*registry.SOLVER_DIALECTS, *registry.TAUGHT_NAMES);"
        "print(*(name for name in sys.modules if name.startswith('quaere.dialects.')))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    names, modules = done.stdout.splitlines()
    assert "evalact" in names.split() and "eve" in names.split()
    assert modules.split() == ["quaere.dialects.registry"]


def test_every_role_is_opened_by_dialect_and_role():
    opened = {
        ("tool-call", "proposer"): find_dialect("tool-call", "proposer").open(style="brief"),
        ("report", "writer"): find_dialect("report", "writer").open(style="brief", guided=True),
        ("report", "rubric"): find_dialect("report", "rubric").open(HARNESS, style="brief"),
        ("report", "assessment"): find_dialect("report", "assessment").open(Rubric("factuality"), 2, scale=5.0),
        ("closed-book", "verifier"): find_dialect("closed-book", "verifier").open(span="Venn built it."),
        **{(name, "solver"): open_protocol(name, style="brief") for name in SOLVER_DIALECTS},
    }
    assert {place: protocol.name for place, protocol in opened.items()} == {
        ("tool-call", "proposer"): "drzero-proposer",
        ("report", "writer"): "report-writer",
        ("report", "rubric"): "rubric-chooser",
        ("report", "assessment"): "report-assessor",
        ("closed-book", "verifier"): "closed-book-with-span",
        ("tool-call", "solver"): "drzero-solver",
        ("search-r1", "solver"): "search-r1-solver",
        ("autorefine", "solver"): "autorefine-solver",
        ("evalrar", "solver"): "evalrar-solver",
        ("evalact", "solver"): "evalact-solver",
        ("direct", "solver"): "closed-book",
        ("cot", "solver"): "closed-book-cot",
        ("rag", "solver"): "rag",
        ("ircot", "solver"): "ircot",
        ("search-o1", "solver"): "search-o1",
    }
    slow = {place for place, protocol in opened.items() if protocol.turns_per_search != 1}
    assert slow == {("evalact", "solver")} and opened["evalact", "solver"].turns_per_search == 2
    assert set(opened) == {(name, role) for name in {name for name, _ in opened} for role in roles_of(name)}


def test_a_role_that_a_dialect_does_not_have_is_refused():
    with pytest.raises(BadInput, match="no dialect evalact with the role proposer; dialects with that role: tool-call"):
        find_dialect("evalact", "proposer")
    with pytest.raises(BadInput, match="no dialect morse with the role writer"):
        find_dialect("morse", "writer")


def test_only_a_dialect_that_can_be_is_guided():
    assert open_protocol("tool-call", guided=True).prefix(0, True) == "<answer>"
    assert open_protocol("tool-call").prefix(0, True) == ""
    with pytest.raises(BadInput, match="only the tool-call dialect can be guided, not evalact"):
        open_protocol("evalact", guided=True)


@pytest.mark.parametrize("name", SOLVER_DIALECTS)
def test_evidence_is_asked_for_if_it_is_wanted(name):
    for opened in (open_protocol, lambda name, **options: open_solver(name, **options).protocol):
        plain, cited = opened(name), opened(name, evidence=True)
        assert plain.evidence is False and cited.evidence is True


def test_settings_reach_the_solver_that_evaluates_its_searches():
    usual = open_solver("evalact")
    assert (usual.protocol.bad_score, usual.protocol.think_before_evaluate) == ("format_fail", "allow")
    settings = EvaluationSettings(bad_score="clamp", think_before_evaluate="fail", pcar=False)
    changed = open_solver("evalact", settings=settings)
    assert (changed.protocol.bad_score, changed.protocol.think_before_evaluate) == ("clamp", "fail")
    assert usual.weigh is not None and changed.weigh is None
    assert usual.gated and not open_solver("tool-call").gated
    with pytest.raises(BadInput, match=r"evaluation\.base must be at most evaluation\.most"):
        open_solver("evalact", settings=EvaluationSettings(base=0.9, most=0.1))


@pytest.mark.parametrize("name", TAUGHT)
def test_what_is_demonstrated_is_read_by_the_same_dialect(name):
    turns, protocol = find_dialect(name, "solver").demonstration, open_protocol(name)
    assert turns is not None
    assert structs.replace(protocol.read(turns.search("Look.", "Halm bridge")), note="") == Search(("Halm bridge",))
    cited = open_protocol(name, evidence=True).read(turns.answer("There.", "Venn", span="Venn built it."))
    assert cited == Answer("Venn", span="Venn built it.")
    # A turn for each search, and one more where its evaluation is a turn of its own.
    assert (turns.remarks == "turn") == (len(find_dialect(name, "solver").turns) == 3)


def test_what_a_proposer_demonstrates_is_read_by_it():
    proposer = find_dialect("tool-call", "proposer")
    protocol = proposer.open(evidence=True)
    assert protocol.read(proposer.demonstration.search("Look.", "Halm")) == Search(("Halm",))
    asked = proposer.demonstration.proposal("So.", "Who built it?", "Venn", "Venn built it.")
    assert protocol.read(asked) == Proposal("Who built it?", "Venn", "Venn built it.")


def test_warm_ups_teach_dialects_by_the_names_of_recipes():
    assert {name: find_taught(name) for name in ("drzero", "eve", "score")} == {
        "drzero": ("tool-call", False),
        "eve": ("tool-call", True),
        "score": ("report", False),
    }
    assert find_taught("eve-search-r1") == ("search-r1", True)
    others = {"drzero", "eve", "eve-search-r1", "score"}
    assert set(TAUGHT_NAMES) - others == set(TAUGHT) - {"tool-call"}
    assert taught_name("search-r1") == "search-r1" and taught_dialect(("search-r1", "eve-search-r1")) == "search-r1"
    assert [taught_name(name) for name in ("tool-call", "evalact", "report")] == ["drzero", "evalact", "score"]
    assert taught_dialect(("eve", "drzero", "score")) == "tool-call"
    assert taught_dialect(("drzero", "evalact")) is taught_dialect(("score",)) is taught_dialect(("unknown",)) is None
    assert [warmup.roles_of(name) for name in ("drzero", "evalact", "score")] == [
        ("solver", "proposer"),
        ("solver",),
        ("solver", "evaluator"),
    ]


def test_a_dialect_without_demonstration_turns_needs_a_teacher(monkeypatch):
    monkeypatch.setattr(tag_dialects, "SEARCH_R1", structs.replace(tag_dialects.SEARCH_R1, demonstration=None))
    with pytest.raises(BadInput, match="the oracle cannot demonstrate search-r1") as refused:
        warmup.solver_turns("search-r1")
    assert "--teacher" in refused.value.hint
