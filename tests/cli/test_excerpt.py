"""Excerpts of passages: around the words of the query, cut between words, and marked."""

import pytest

from quaere.cli.search import excerpt, find_matches

FILLING = "It rises at Korrin and goes on to the sea. " * 12
ENDING = "Venn built the Halm bridge in 1702."


def marked(query, text):
    return [text[start:end] for start, end, _ in find_matches(query, text)]


@pytest.mark.parametrize(
    ("query", "text", "words"),
    [
        ("halm bridges", "The Halm bridge, a BRIDGE", ["Halm", "bridge", "BRIDGE"]),
        ("who built the bridge?", "Who was the one who built a bridge", ["built", "bridge"]),
        ("max_wal_size", "set max_wal_size, not walrus", ["max", "wal", "size"]),
        ("cafe", "the Café of Ferrin", ["Café"]),
        ("configuraci\u00f3n", "la Configuraci\u00f3n", ["Configuraci\u00f3n"]),
        ("the", "the Oss", ["the"]),  # nothing else was asked for
        ("東京都", "首都は東京", ["東京"]),
        ("xyzzy", "The Halm bridge", []),
    ],
)
def test_the_words_of_a_query_are_found_in_other_forms(query, text, words):
    assert marked(query, text) == words


def test_a_short_passage_is_whole_and_on_one_line():
    assert excerpt("halm", "The Oss\n\nrises  at\tHalm.\n", 80) == "The Oss rises at Halm."


@pytest.mark.parametrize("before", ["", FILLING])
@pytest.mark.parametrize("after", ["", FILLING])
def test_an_excerpt_has_the_words_and_ends_between_words(before, after):
    found = excerpt("halm bridge", f"{before}{ENDING} {after}", 80)
    assert "Halm bridge" in found and len(found) <= 84
    assert found.startswith("… ") == bool(before)
    assert found.endswith(" …") == bool(after)
    assert set(found.strip("… ").split()) <= set(f"{FILLING} {ENDING}".split())


def test_the_place_with_most_words_of_the_query_is_shown():
    text = f"A bridge is a bridge. {FILLING} {ENDING} {FILLING} Halm."
    assert ENDING in excerpt("Halm bridge", text, 80)


def test_a_passage_without_the_words_begins_at_its_beginning():
    found = excerpt("xyzzy", FILLING, 60)
    assert found.startswith("It rises at Korrin") and found.endswith(" …")
