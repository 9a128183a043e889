"""Sentences of a report, what they cite, and what the report comes to."""

from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from quaere.chat.statements import (
    MAX_CITATION,
    extract_conclusion,
    find_citations,
    keep_whole_sentences,
    split_statements,
)


def said(text):
    return [(statement.text, statement.citations) for statement in split_statements(text)]


def cited(text):
    return [number for cite in find_citations(text) for number in cite.numbers]


@pytest.mark.parametrize(
    ("text", "numbers"),
    [
        ("a [1] b [2, 3] c [4][5]", [1, 2, 3, 4, 5]),
        ("[ 1 ,\t2 ]", [1, 2]),
        ("[1-3] [a] [1; 2] [^1] [1,] [,1] [] [1\n] [-1] [1.5] [１] (1)", []),
        ("[0] [007] [[8]]", [0, 7, 8]),
        ("[999999999] [1000000000] [123456789012345678901234567890]", [999_999_999, MAX_CITATION, MAX_CITATION]),
        (f"[{'9' * 9999}] [{'0' * 9999}1]", [MAX_CITATION, 1]),
        ("[1](http://x) ![2](y)", [1, 2]),
    ],
)
def test_what_cites(text, numbers):
    assert cited(text) == numbers


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("One [1]. Two [2].", [("One [1].", (1,)), ("Two [2].", (2,))]),
        ("Dr. Venn met J. S. Hask at St. Oln, e.g. in 1702. So it is.", 2),
        ("See Fig. 3 and No. 5. No. That is all.", 3),
        ("It is short, e.g. Halm is.", 1),
        ("We call it x. So it is.", 2),
        (
            "Das gilt z. B. für Oss, d. h. Halm, u. a. Brod. Am 3. Oktober war es so, im 19. Jahrhundert bzw. Mai.",
            2,
        ),
        ("Hask et al. (2020) met Brod et al. So it is, see Eq. (3). So it was in 30. It was.", 4),
        ("« Il part\u00a0! » dit-il. « Il part\u202f! » Elle reste. « Oui ! », dit-il. Er geht. »Halt!« rief er.", 6),
        ("„Ich gehe.“ Er ging. »Halt.« Er blieb.", 4),
        ("यह पुल है। वह नदी है। هل هذا جسر؟ نعم. یہ پل ہے۔ وہ دریا ہے۔", 6),
        ("It is at x.org. So it is.", 2),
        ("It cost 3.5 marks. The U.S. Navy paid! Did it? Yes… It did.", 5),
        (
            "It rises at Korrin. [2] It is short.[1][3]",
            [("It rises at Korrin. [2]", (2,)), ("It is short.[1][3]", (1, 3))],
        ),
        ("[1] It is short. [2] It is so. [3]", [("[1] It is short.", (1,)), ("[2] It is so. [3]", (2, 3))]),
        ("It is short. [2] says so.", [("It is short.", ()), ("[2] says so.", (2,))]),
        ('"It is short." (So they say.) **It is.** Fine', 4),
        (
            "# The Oss\n\nIt is short.\n\n**Length**\nIt is ten miles.\n---\n",
            [("It is short.", ()), ("It is ten miles.", ())],
        ),
        ("## Length [4]\nIt is ten.", [("Length [4]", (4,)), ("It is ten.", ())]),
        ("It has:\n- a spring [1]\n* a mouth [2]\n  1. and a ford. It is deep [3]", 4),
        (
            "It rises\nat Korrin [1]\nand ends.\nThe mouth is wide",
            [("It rises\nat Korrin [1]\nand ends.", (1,)), ("The mouth is wide", ())],
        ),
        ("Conclusion: It is short [1].", [("It is short [1].", (1,))]),
        ("**Conclusion:** It is short.", [("It is short.", ())]),
        ("河很短[1]。它在北方。", [("河很短[1]。", (1,)), ("它在北方。", ())]),
        ("[3]", [("[3]", (3,))]),
        ("> quoted [1]\n| a | b [2] |", [("quoted [1]", (1,)), ("| a | b [2] |", (2,))]),
        ("", []),
        ("\n \n***\n...\n", []),
    ],
)
def test_statements_by_hand(text, expected):
    found = said(text)
    assert (len(found) if isinstance(expected, int) else found) == expected


PIECES = st.sampled_from(
    ["[1]", "[2, 3]", "[", "]", "1", ",", " ", "\n", "\n\n", ".", "!", "…", "。", "# ", "- ", "1. ", "Oss", "the",
     "Dr.", "**", "Conclusion", ":", ">", "\t", "\r\n", "\u2028", "[99999999999]", '"', "é", "_"]
)  # fmt: skip
TEXTS = st.one_of(st.lists(PIECES, max_size=40).map("".join), st.text(max_size=60))


@given(TEXTS)
def test_offsets_are_exact_and_no_citation_is_lost(text):
    statements = split_statements(text)
    assert all(text[statement.start : statement.end] == statement.text for statement in statements)
    assert all(one.end <= two.start for one, two in pairwise(statements))
    assert [number for statement in statements for number in statement.citations] == cited(text)
    assert all(statement.text == statement.text.strip() != "" for statement in statements)
    assert extract_conclusion(text) in text


UNITS = [
    "[1,",
    "[",
    "1",
    ". ",
    ".",
    "a\n",
    "\n",
    "Conclusion:",
    "**",
    "> ",
    " ",
    "#",
    "[1]",
    "- ",
    "Dr. A. ",
    '."',
    "\t,",
]


@pytest.mark.timeout(60)
@pytest.mark.parametrize("unit", [*UNITS, "# a\n", "a. [1] ", "[1] "])
def test_a_text_made_to_be_slow_is_read_all_the_same(unit):
    """Linear, it takes less than a second; with a square in it somewhere it would take many minutes."""
    text = (unit * 100_000)[:100_000] + "x"
    assert all(text[one.start : one.end] == one.text for one in split_statements(text))
    assert extract_conclusion(text) in text
    assert text.startswith(keep_whole_sentences(text))


@pytest.mark.parametrize(
    ("text", "conclusion"),
    [
        ("The Oss rises at Korrin.\n\nConclusion: It is short [1].", "It is short [1]."),
        ("It rises. Conclusion: It is short.", "It is short."),
        ("Conclusion: no.\n\nMore.\n\nConclusion: yes.", "yes."),
        ("a\n\n## Conclusion\n\nIt is short.\n\nReally.", "It is short.\n\nReally."),
        ("a\n\n**Conclusion**\nIt is short.\n\n## Sources\n[1] Oss", "It is short."),
        ("a\n\n### 5. CONCLUSIONS:\nIt is short.\n\nReferences:\n[1] Oss", "It is short."),
        ("**Conclusion:** It is short.", "It is short."),
        ("One.\n\nTwo [1].", "Two [1]."),
        ("One.\n\nTwo.\n\n## Sources\n\n[1] Oss", "Two."),
        ("One.\n\nTwo.\n\nConclusion:", "Two."),
        ("Conclusion: One.\n\nTwo.\n\nConclusion:", "Two."),
        ("One.\n\nSources:\n[1] Oss\n\nTwo.\n\nSources:\n[1] Oss", "Two."),
        ("The section on a Conclusion: nothing.\n\nLast.", "Last."),
        ("# Only a title", "# Only a title"),
        ("  ", ""),
    ],
)
def test_conclusions(text, conclusion):
    assert extract_conclusion(text) == conclusion


@pytest.mark.parametrize(
    ("text", "kept"),
    [
        ("It rises at Korrin [1]. It is sh", "It rises at Korrin [1]."),
        ("It rises at Korrin [1]. It is short.", "It rises at Korrin [1]. It is short."),  # cut off between sentences
        ('He said "it is short." [2] And th', 'He said "it is short." [2]'),
        ("It is short.[1] [2] It is", "It is short.[1] [2]"),
        ("短い。長い", "短い。"),
        ("It is sh", ""),
        ("", ""),
        # It says the same again, whatever it cites.
        ("[1] A is so. [2] B is not. [3] A is so. [4] C is.", "[1] A is so. [2] B is not."),
        ("A is so [1]. A is so [1]. A is so [1]. A is", "A is so [1]."),
        ("A is so. A is so, too. A is", "A is so. A is so, too."),
    ],
)
def test_what_is_whole_of_a_text_that_was_cut_off(text, kept):
    assert keep_whole_sentences(text) == kept


@given(st.lists(st.sampled_from(["It is so.", "And this!", "[1]", "Who (she)?", "no end", "\n", " "])).map(" ".join))
def test_what_is_kept_begins_the_text_and_says_nothing_twice(text):
    kept = keep_whole_sentences(text)
    assert text.startswith(kept) and keep_whole_sentences(kept) == kept
    said = [statement.text.replace("[1]", "").strip() for statement in split_statements(kept)]
    assert len(said) == len(set(said)) and all(one[-1] in ".!?" for one in said)
