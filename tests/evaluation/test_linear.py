"""Texts that were read in quadratic time: repeated citations and apostrophes. The limit only ends a test that hangs."""

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from quaere.evaluation.reports import citations as citing
from quaere.evaluation.reports.citations import CitationChecks, check_citations, find_cited
from quaere.evaluation.reports.lexical import _strip_possessive, split_words
from reported import make_report

MB = 1 << 20
pytestmark = pytest.mark.timeout(60)


def test_possessive_endings():
    assert split_words("The Oss's mouth, the millers' bridge, Venn’s.") == ("oss", "mouth", "millers", "bridge", "venn")


@given(st.text(alphabet="aé's’_.,-", max_size=12))
def test_a_possessive_ending_is_what_stands_before_the_last_marks(chunk):
    by_definition = re.sub(r"['’]s?(?=\W*$)", "", chunk)  # quadratic, and fit for short chunks
    assert _strip_possessive(chunk) == by_definition


def test_many_apostrophes():
    assert split_words("'" * MB + "x") == ("x",)
    assert split_words("x" + "'" * MB) == ("x",)


def test_a_statement_that_cites_many_times():
    found = find_cited(make_report("Orsolya Venn built the bridge " + "[1] " * (MB // 4) + "[2]."))
    assert len(found) == MB // 4 + 1
    assert {(check.citation, len(cited.beside)) for check, cited in found} == {(1, 1), (2, 1)}


async def test_what_is_cited_again_is_checked_once(monkeypatch):
    checked = []
    check_support = citing.check_support
    monkeypatch.setattr(citing, "check_support", lambda item: checked.append(item) or check_support(item))
    advanced = []
    report = make_report("Orsolya Venn built the Halm bridge in 1702 " + "[1] " * 50 + ".")
    (checks,) = await check_citations(CitationChecks(), [report], advance=lambda: advanced.append(1))
    assert [check.verdict for check in checks] == ["supported"] * 50
    assert (len(checked), len(advanced)) == (1, 50)
