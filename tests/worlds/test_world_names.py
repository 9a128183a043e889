"""Names are unique, invented, and the same everywhere."""

from __future__ import annotations

import pytest

from quaere.worlds import generate_world
from quaere.worlds.dice import Dice
from quaere.worlds.names import BLOCKED, capitalise, is_inventable, strip_article
from quaere.worlds.schema import load_family


def test_dice_are_the_same_everywhere() -> None:
    dice = Dice(7, "names")
    assert [dice.below(1000) for _ in range(6)] == [927, 82, 901, 205, 939, 704]
    assert Dice(7, "names").below(1 << 60) != Dice(7, "facts").below(1 << 60)


def test_dice_cover_their_range() -> None:
    dice = Dice(1)
    faces = [dice.between(1, 6) for _ in range(6000)]
    assert set(faces) == {1, 2, 3, 4, 5, 6}
    assert all(800 < faces.count(face) < 1200 for face in range(1, 7))
    items = list(range(50))
    dice.shuffle(items)
    assert sorted(items) == list(range(50))
    assert items != list(range(50))


def test_small_change() -> None:
    assert strip_article("the Oss") == "Oss"
    assert strip_article("The Salt Ledger") == "The Salt Ledger"
    assert capitalise("the Oss") == "The Oss"
    assert is_inventable("Halm")
    assert not is_inventable("Hand")


@pytest.mark.parametrize("family", ["evaluation", "warmup"])
@pytest.mark.parametrize("num_articles", [5000, pytest.param(100_000, marks=pytest.mark.slow)])
def test_titles_and_aliases_are_unique(family: str, num_articles: int) -> None:
    entities = generate_world(11, num_articles, family).entities
    keys = [strip_article(name).lower() for entity in entities for name in (entity.name, *entity.aliases)]
    assert len(keys) == len(set(keys))
    assert len({entity.title for entity in entities}) == num_articles
    assert [entity.id for entity in entities[:2]] == [f"{family[0]}11-000000", f"{family[0]}11-000001"]


@pytest.mark.parametrize("family", ["evaluation", "warmup"])
def test_people_and_places_are_not_english_words(family: str) -> None:
    entities = generate_world(5, 5000, family).entities
    people = [word for entity in entities if entity.short != entity.name for word in entity.name.split()[:2]]
    places = [strip_article(entity.name) for entity in entities if entity.kind in ("town", "river", "island")]
    assert len(people) > 2000
    assert len(places) > 500
    assert not BLOCKED & {word.lower() for word in people + places}


@pytest.mark.parametrize("family", ["evaluation", "warmup"])
def test_some_entities_are_near_namesakes(family: str) -> None:
    world = generate_world(5, 1000, family)
    names = {strip_article(entity.name) for entity in world.entities}
    variants = [name for name in names for word in (name.split()[-1],) if name != word and word in names]
    surnames = [entity.short for entity in world.entities if entity.short != entity.name]
    assert len(variants) > 5
    assert len(set(surnames)) < len(surnames) / 2  # families of several people
    pairs: dict[str, list[str]] = {}
    for entity in world.entities:
        if entity.short != entity.name:
            pairs.setdefault(" ".join(entity.name.split()[:2]), []).append(entity.name)
    twins = [sorted(group) for group in pairs.values() if len(group) > 1]
    assert twins
    assert all(name.count(" ") >= 3 for group in twins for name in group)  # every one of them has its epithet


@pytest.mark.parametrize("family", ["evaluation", "warmup"])
def test_a_namesake_has_the_article_of_the_name_it_is_made_from(family: str) -> None:
    """The Oss and the Little Oss."""
    entities = generate_world(5, 1000, family).entities
    checked = set()
    for kind in load_family(family).kinds:
        begins = {pattern.startswith("the ") for pattern in kind.naming.names}
        if begins == {True} or not (begins | {form.startswith("the ") for form in kind.naming.namesakes}) - {False}:
            checked |= begins
            assert {one.name.startswith("the ") for one in entities if one.kind == kind.name} == begins
    assert checked == {True, False}


def test_a_town_on_a_river_is_on_that_river() -> None:
    world = generate_world(5, 2000)
    towns = [entity for entity in world.entities if "-on-" in entity.name]
    assert towns
    for town in towns:
        river = world.graph.object_of(town.index, "town_river")
        assert river is not None
        assert town.name.endswith("-on-" + strip_article(world.entities[river].name))
