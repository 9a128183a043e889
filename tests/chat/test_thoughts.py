"""No dialect acts on what stands in a thought, closed or not: a stop string may end a turn inside one."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from quaere.dialects.closed_book import ClosedBook
from quaere.dialects.evalact import EvaluateSolver
from quaere.dialects.report.assessment import Assessor
from quaere.dialects.report.report_writer import ReportWriter
from quaere.dialects.tag_dialects import TagSolver
from quaere.dialects.tool_call import ToolCallProposer, ToolCallSolver
from quaere.records import Malformed, Rubric

CALL = '<tool_call>{"name": "search", "arguments": {"query_list": ["Halm"]}}</tool_call>'
SEARCH_ONE = '<tool_call>{"name": "search", "arguments": {"query": "Halm"}}</tool_call>'
ANSWER, SEARCH = "<answer>Venn</answer>", "<search>Halm</search>"
ACTS = [
    *((ToolCallSolver(evidence=evidence), act) for evidence in (False, True) for act in (CALL, ANSWER)),
    (ToolCallProposer(), CALL),
    (ToolCallProposer(), f"<question>Who?</question>{ANSWER}"),
    *((TagSolver(dialect), act) for dialect in ("search-r1", "evalrar", "autorefine") for act in (SEARCH, ANSWER)),
    (EvaluateSolver(), SEARCH_ONE),
    (EvaluateSolver(), ANSWER),
    (ClosedBook(), ANSWER),
    (ReportWriter(), SEARCH),
    (ReportWriter(), "<answer>Venn built it [1].</answer>"),
    (Assessor(Rubric("factuality"), 1), "<search>[1] Halm</search>"),
]
PROTOCOLS = list({protocol.name: protocol for protocol, _ in ACTS}.values())


@pytest.mark.parametrize(("protocol", "act"), ACTS, ids=lambda part: getattr(part, "name", part))
def test_an_act_inside_an_unclosed_thought_is_none(protocol, act):
    assert not isinstance(protocol.read(f"<think>So.</think>{act}"), Malformed)
    for thought in (f"<think>maybe {act}", f"<think>So.</think><think>maybe {act}", f"<think>{act}{act}"):
        read = protocol.read(thought)
        assert isinstance(read, Malformed) and "not closed" in read.reason


pieces = st.sampled_from([CALL, SEARCH_ONE, ANSWER, SEARCH, "<think>", "<question>Who?</question>", "<answer>", "hm"])


@given(st.sampled_from(PROTOCOLS), st.lists(pieces, max_size=6).map("".join))
def test_nothing_in_an_unclosed_thought_acts(protocol, thought):
    assert isinstance(protocol.read(f"<think>{thought}"), Malformed)
