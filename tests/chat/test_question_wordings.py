"""Which questions of a model are kept: their length and what they name."""

import pytest

import tiny
from quaere.chat.question_wordings import find_question_fault

PASSAGE = tiny.passage("Venn built the bridge in 1702.")


@pytest.mark.parametrize(
    ("text", "fault"),
    [
        ("Why was Halm built?", ""),
        ("Why is Halm?", "is too short"),
        ("why " + "oh " * 38 + "Halm?", ""),
        ("why " + "oh " * 39 + "Halm?", "is too long"),
        ("Which oh " + "o" * 285 + " Halm?", ""),
        ("Which oh " + "o" * 286 + " Halm?", "is too long"),
        ("Why did Venn build Halm?", ""),
        ("Why did Hask build Halm?", "names something new"),
    ],
)
def test_a_question_of_a_few_words_with_known_names_is_kept(text, fault):
    assert find_question_fault(text, "Halm", PASSAGE) == fault
