"""Whether a sentence goes on over a line break of a hard-wrapped text."""

import pytest

from quaere.chat.statements import goes_on, split_statements, starts_own_line

FULL = "The river Oss, which rises in the hills above the old town of"  # 61 characters


@pytest.mark.parametrize(
    ("line", "following", "width", "expected"),
    [
        (FULL, "Halmgate, flows down to Korrin.", 65, True),  # its first word did not fit
        (FULL, "Halmgate, flows down to Korrin.", 75, False),  # it would have fitted
        (FULL, "the two bridges.", 200, True),
        ("Length: 40 km", "Source: Korrin", 14, False),  # too short to have been full
        (f"{FULL} Halm.", "They meet there.", 66, False),
        (f"{FULL} Halm:", "eels", 66, False),
        (f"{FULL} (Halm.)", "They meet there.", 66, False),
        (FULL, "- eels", 61, False),
        (FULL, "", 61, True),
        ("", "eels", 61, False),
        ("| a | b", "c", 61, False),
        (FULL * 3, "Halmgate", 183, False),  # no text is wrapped as wide as that
    ],
)
def test_a_sentence_goes_on_where_the_line_was_full(line, following, width, expected):
    assert goes_on(line, following, width) is expected


@pytest.mark.parametrize(
    "line", ["- a", "  * a", "1. a", "(b) a", "| a", "## a", "> a", ":field: a", ".. a", "--- ", "[1] a"]
)
def test_items_rows_and_headings_have_lines_of_their_own(line):
    assert starts_own_line(line)


@pytest.mark.parametrize("line", ["a", "etc. and so on", "is. It", ":ref:`a`", "#5 of", "-1 degrees", "(see below)"])
def test_text_may_go_on_a_sentence(line):
    assert not starts_own_line(line)


def test_a_statement_goes_on_over_full_lines():
    text = f"{FULL}\nHalmgate and Korrin, is crossed by the seven bridges of\nSallow. It is short.\n\nHere\nThere"
    assert [said.text for said in split_statements(text)] == [
        f"{FULL}\nHalmgate and Korrin, is crossed by the seven bridges of\nSallow.",
        "It is short.",
        "Here",
        "There",
    ]
    assert all(text[said.start : said.end] == said.text for said in split_statements(text))
