"""The small families: articles a model made from nothing can learn to read, and names it has met in both."""

from __future__ import annotations

import pytest

from quaere.errors import BadInput
from quaere.worlds import generate_world
from quaere.worlds.families import load_family

small_families = pytest.mark.parametrize("family", ["village", "harbour"])


@small_families
def test_an_article_names_three_people_one_of_whom_is_asked_for(family: str) -> None:
    world = generate_world(7, 300, family)
    people = set(world.family.lexicon["person"])
    for question in world.questions(100):
        article = world.article(world.entity(question.chain[0].entity))
        named = [word.strip(".") for word in article.text.split() if word.strip(".") in people]
        assert len(article.text.split()) <= 22
        assert len(named) == 3
        assert question.answers[0] in named


@small_families
def test_the_order_of_the_three_gives_nothing_away(family: str) -> None:
    world = generate_world(7, 300, family)
    asked = next(iter(world.family.relations)).sentences[0].split()[2]
    places = [
        article.text.split(". ").index(next(s for s in article.text.split(". ") if f"remembers {asked} " in s))
        for article in world.articles()
    ]
    assert all(80 <= places.count(place) <= 120 for place in (1, 2, 3))


def test_the_two_share_their_names_and_none_of_their_facts() -> None:
    village, harbour = load_family("village"), load_family("harbour")
    assert village.lexicon == harbour.lexicon
    said = [
        {
            word
            for kind in family.kinds
            for text in (*kind.colour, *(r.sentences[0] for r in family.relations))
            for word in text.split()[2:3]
        }
        for family in (village, harbour)
    ]
    assert not said[0] & said[1]


@small_families
def test_what_such_a_world_does_not_have_is_refused(family: str) -> None:
    with pytest.raises(BadInput, match="200 to 1000 articles, not 1001"):
        generate_world(7, 1001, family)
    with pytest.raises(BadInput, match="from 1 to 1"):
        generate_world(7, 200, family).questions(5, facts=(2,))
    assert {question.facts for question in generate_world(7, 1000, family).questions()} == {1}
