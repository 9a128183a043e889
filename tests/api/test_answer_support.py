"""The sentence printed beside an answer: found in prose, and in the markup and code of documentation."""

import pytest

from evaluated import answer, episode, passage, search
from quaere.api.answer import find_support


def supported(said, *texts):
    found = find_support(
        episode(search(*(passage(text, f"d{number}") for number, text in enumerate(texts))), answer(said))
    )
    return found and (found[0].doc_id, found[0].text)


@pytest.mark.parametrize(
    ("said", "sentence"),
    [
        ("secure_filename", "Always call :func:`~werkzeug.utils.secure_filename` on it."),
        ("1000", "Middleware(GZipMiddleware, minimum_size=1000)"),
        ("FLASK_SECRET_KEY", '$ export FLASK_SECRET_KEY="5f35"'),
        ("Port  5000", "It listens on host:port 5000/tcp."),
    ],
)
def test_an_answer_inside_markup_or_code_is_found(said, sentence):
    assert supported(said, f"It is a page. {sentence}") == ("d0", sentence)


def test_a_word_of_prose_is_preferred_to_a_word_inside_code():
    assert supported("1000", "Call it with minimum_size=1000", "The default is 1000.") == ("d1", "The default is 1000.")


@pytest.mark.parametrize(("said", "sentence"), [("9", "It needs 3.9.1 here."), ("filename", "Use secure_filename(x).")])
def test_a_part_of_a_number_or_a_name_is_no_support(said, sentence):
    assert supported(said, sentence) is None
