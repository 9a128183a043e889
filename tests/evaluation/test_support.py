"""A report held to its sources: what has no support goes, or is marked, and every citation that stays holds."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from quaere.chat.statements import split_statements, strip_citations
from quaere.evaluation.reports.citations import Checked, CitationChecks
from quaere.evaluation.reports.support import UNSUPPORTED, hold_to_sources
from quaere.records import Question, Report
from reported import GOOD, SOURCES, make_report


def written(text):
    statements = split_statements(text)
    return Report(Question("q", "What?"), text, statements, SOURCES)


async def held(text, **how):
    return await hold_to_sources(written(text), CitationChecks(), **how)


async def test_a_good_report_stays_as_it_is():
    report = await hold_to_sources(make_report(), CitationChecks())
    assert report.text == GOOD and report.statements == make_report().statements and report.sources == SOURCES


TEXT = """# The bridge

The Halm bridge was built in 1702 [1, 9]. It was built in 1802 [1]. Nobody knows why.

## Money

- It cost 99 crowns [1].
- Tallow paid [7].

## The river

### Its source

The Oss rises in the Korrin hills [2][8].

Conclusion: It is wide [2]."""


async def test_what_has_no_support_is_left_out_with_its_heading():
    report = await held(TEXT)
    assert report.text == (
        "# The bridge\n\nThe Halm bridge was built in 1702 [1].\n\n## The river\n\n### Its source\n\n"
        "The Oss rises in the Korrin hills [2]."
    )
    assert [source.number for source in report.sources] == [1, 2] and not report.unresolved
    assert report.conclusion == "The Oss rises in the Korrin hills [2]."


async def test_or_it_is_marked():
    report = await held(TEXT, strict=False)
    assert "The Halm bridge was built in 1702 [1]. It was built in 1802 [1] (unsupported). Nobody knows" in report.text
    assert "Nobody knows why (unsupported)." in report.text and "- Tallow paid [7] (unsupported)." in report.text
    assert report.text.count(UNSUPPORTED) == 5


@pytest.mark.parametrize("text", ["Nobody knows.", "# Only a heading [9]\n\nIt was built in 1802 [1]."])
async def test_without_support_there_is_no_report(text):
    assert await held(text) is None


class Coin:
    """A judge of its own mind: it supports what has an even number of letters."""

    name = "coin"

    async def check(self, items, *, seed=0, advance=None):
        return [Checked("supported" if len(one.statement) % 2 == 0 else "unsupported") for one in items]


SENTENCES = ["The Oss rises here [2].", "It is wide [1, 3].", "It is so [7].", "Nobody knows.", "Halm is old [1][2]!"]
LINES = st.one_of(
    st.lists(st.sampled_from(SENTENCES), min_size=1, max_size=4).map(" ".join),
    st.sampled_from(["# Head", "## Head", "", "- It is a list [3].", "Conclusion: It ends [2].", "**Label**"]),
)


def bare(statement):
    return " ".join(strip_citations(statement.text).split())


@given(st.lists(LINES, max_size=8).map("\n".join))
async def test_every_sentence_that_stays_was_supported_and_no_other_is_lost(text):
    report = written(text)
    kept = await hold_to_sources(report, Coin())
    known = {source.number for source in SOURCES}
    wanted = [bare(one) for one in report.statements if known & {*one.citations} and len(bare(one)) % 2 == 0]
    assert ([bare(one) for one in kept.statements] if kept else []) == wanted
    assert not kept or not kept.unresolved
