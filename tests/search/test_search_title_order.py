"""Results whose titles the query names come first."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from quaere.records import Hit, Passage
from quaere.search.engines import titles_first


def hits(*titles):
    return [Hit(Passage(f"d{n}#0", f"d{n}", title, "text", 0, 4), 9.0 - n) for n, title in enumerate(titles)]


def shown(query, *titles, topk=3):
    return [hit.passage.title for hit in titles_first(query, hits(*titles), topk)]


def test_a_page_that_the_query_names_comes_before_better_scores():
    assert shown("who built the Halm bridge?", "Bridges of Oss", "Masons", "Halm bridge") == [
        "Halm bridge",
        "Bridges of Oss",
        "Masons",
    ]


def test_the_longest_name_comes_first_and_equal_ones_stay_in_order():
    found = shown("when was the Old Halm Bridge built?", "Halm", "Mill", "Halm Bridge", "Old Halm Bridge", topk=4)
    assert found == ["Old Halm Bridge", "Halm Bridge", "Halm", "Mill"]
    twice = hits("Mill", "Halm", "Halm")
    assert titles_first("Halm", twice, 3) == [twice[1], twice[2], twice[0]]


def test_further_hits_take_the_place_of_the_last():
    assert shown("the mayor of Oss", "Mayors", "Towns", "Oss", topk=1) == ["Oss"]


@pytest.mark.parametrize(
    ("query", "title", "named"),
    [
        ("who discovered Mercury?", "Mercury (planet)", True),
        ("who directed Exorcist?", "The Exorcist", True),
        ("What limits a request?", "Request", False),  # one word must be written alike
        ("What limits a Request?", "Request", True),
        ("praldock broth: who made it?", "Praldock broth", True),
        ("the cafes of Zurich old town", "Zürich Old Town", True),
        ("Oss", "Oss river", False),
        ("Ossian's poems", "Oss", False),
        ("東京都の人口は?", "東京都", True),
        ("京都の人口は?", "東京都", False),
        ("anything", "", False),
        ("the", "The", False),
        ("(x)", "(x)", False),
    ],
)
def test_which_titles_are_named(query, title, named):
    assert (shown(query, "Qq Zz", title)[0] == title) is named


@given(st.text(max_size=30), st.lists(st.text(max_size=12), max_size=12), st.integers(1, 12))
def test_nothing_is_lost_or_added(query, titles, topk):
    given_hits = hits(*titles)
    found = titles_first(query, given_hits, len(given_hits) or 1)
    assert sorted(found, key=lambda hit: -hit.score) == given_hits
    assert titles_first(query, given_hits, topk) == found[:topk]
