"""Villages and hamlets: records that a model made from nothing can read, and names that find one of them or four."""

from __future__ import annotations

import re

import pytest

from quaere.errors import BadInput
from quaere.search.chunks import ChunkSettings
from quaere.search.index import IndexSettings
from quaere.search.index_build import build_index
from quaere.worlds import SMALL_FAMILIES, generate_world, write_world
from quaere.worlds.open_questions import state_fact
from quaere.worlds.schema import load_family

RECORD = re.compile(r"[A-Z][a-z]+ (built|painted|bought|cursed) it\.")

small = pytest.mark.parametrize("family", SMALL_FAMILIES)


@pytest.mark.parametrize(("family", "num_records"), [("village", 4), ("hamlet", 1)])
def test_an_article_is_as_many_records_as_its_family_has(family: str, num_records: int) -> None:
    for article in generate_world(7, 300, family).articles():
        records = re.split(r"(?<=\.) ", article.text)
        assert len(records) == len(article.supports) == num_records
        assert all(RECORD.fullmatch(record) for record in records)
        assert {support.evidence.text for support in article.supports} == set(records)


@small
def test_a_question_is_answered_by_a_record_of_its_house(family: str) -> None:
    world = generate_world(7, 300, family)
    for question in world.questions(100):
        [hop] = question.chain
        assert question.text == f"Who {hop.relation} {world.entity(hop.entity).title}?"
        assert hop.evidence.text == f"{question.answers[0]} {hop.relation} it."


def test_in_a_village_a_query_must_say_what_is_asked(tmp_path) -> None:
    """Passages of three words are records. A name finds any of a house's four, name and verb the right one."""
    world = generate_world(7, 200, "village")
    write_world(world, tmp_path / "world", num_questions=0)
    index = build_index(
        tmp_path / "world" / "corpus.jsonl", tmp_path / "index", IndexSettings(chunks=ChunkSettings(3, row_words=0))
    )
    hops = [question.chain[0] for question in world.questions(40)]

    def share_found(query: str) -> float:
        queries = [query.format(name=hop.mention, verb=hop.relation) for hop in hops]
        found = [hits[0].passage.text for hits in index.search(queries, 1)]
        return sum(text == hop.evidence.text for text, hop in zip(found, hops, strict=True)) / len(hops)

    assert share_found("{name} {verb}") == 1
    assert share_found("{name}") < 0.5


def test_a_hamlet_has_the_words_of_a_village() -> None:
    village, hamlet = map(load_family, ("village", "hamlet"))
    assert village.lexicon == hamlet.lexicon and village.relations == hamlet.relations
    assert [kind.naming for kind in village.kinds] == [kind.naming for kind in hamlet.kinds]


@small
def test_its_facts_can_be_said_in_reports(family: str) -> None:
    world = generate_world(7, 200, family)
    fact = next(world.facts())
    name = world.entities[fact.subject].name
    assert state_fact(world.graph, fact, fact.value) == f"{fact.value} {fact.relation} {name}."


@small
def test_what_such_a_world_does_not_have_is_refused(family: str) -> None:
    with pytest.raises(BadInput, match=f"of the {family} family must have 200 to 1000 articles, not 1001") as caught:
        generate_world(7, 1001, family)
    assert caught.value.hint == "--articles 1000"  # of `quaere world`, and of `quaere warmup`
    with pytest.raises(BadInput, match="from 1 to 1"):
        generate_world(7, 200, family).questions(5, facts=(2,))
    full = generate_world(48, 1000, family)  # its last names take more than 200 draws
    assert {question.facts for question in full.questions()} == {1}
