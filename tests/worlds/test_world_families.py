"""The two families are well formed, and share nothing that could be learned by heart."""

from __future__ import annotations

import re
from collections.abc import Iterator

import pytest

from quaere.worlds import generate_world
from quaere.worlds.schema import SAME, Family, ends_in_slot, load_family, split_forms, split_slots

EVALUATION, WARMUP = load_family("evaluation"), load_family("warmup")
SUBJECT_SLOTS = {"S", "S's", "he", "him", "his", "himself"}
FREE_SLOTS = {"noun", "later", "small", "big", "times"}
FUNCTION_WORDS = frozenset(
    "a an the of in on at by to for from with and or as is was are were be been it its that this which what where when "
    "who whom whose how many did does do has have had into out up down so not no for one first over said seen".split()
)

both_families = pytest.mark.parametrize("family", [EVALUATION, WARMUP], ids=lambda family: family.name)


def fact_templates(family: Family) -> Iterator[str]:
    for relation in family.relations:
        yield from relation.sentences
        yield from relation.phrases
        yield from relation.questions
        yield from relation.inverse_questions


def prose_templates(family: Family) -> Iterator[str]:
    for kind in family.kinds:
        yield from kind.openings
        yield from kind.colour
        yield from kind.asides
        yield from kind.alias_sentences


def trigrams(template: str) -> Iterator[tuple[str, ...]]:
    """Runs of three words between slots, in any of the template's forms, that are not all function words."""
    for piece in re.split(r"\{[^}]*\}|[.,;:?|\[\]]", template.lower()):
        tokens = piece.split()
        for at in range(len(tokens) - 2):
            gram = tuple(tokens[at : at + 3])
            if not FUNCTION_WORDS.issuperset(gram):
                yield gram


def slots(template: str) -> list[str]:
    return list(split_slots("".join(split_forms(template)))[1::2])


def test_families_share_no_kind_relation_or_template() -> None:
    assert not {kind.name for kind in EVALUATION.kinds} & {kind.name for kind in WARMUP.kinds}
    assert not {relation.name for relation in EVALUATION.relations} & {relation.name for relation in WARMUP.relations}
    for templates in (fact_templates, prose_templates):
        assert not set(templates(EVALUATION)) & set(templates(WARMUP))


def test_families_share_no_surface_phrase_of_a_relation() -> None:
    one, other = ({gram for t in fact_templates(family) for gram in trigrams(t)} for family in (EVALUATION, WARMUP))
    assert len(one) > 1000
    assert len(other) > 1000
    assert sorted(one & other) == []


def test_families_share_no_name() -> None:
    one, other = (generate_world(3, 2000, name).entities for name in ("evaluation", "warmup"))
    assert not {name for entity in one for name in entity.names} & {name for entity in other for name in entity.names}


@both_families
def test_templates_have_only_slots_that_can_be_filled(family: Family) -> None:
    kinds = {kind.name for kind in family.kinds} | set(family.groups)

    def is_known(slot: str, extra: set[str]) -> bool:
        plain = slot.removeprefix("a:")
        if slot.startswith("other:"):
            return slot[6:] in kinds
        return plain in SUBJECT_SLOTS | FREE_SLOTS | extra or plain in family.lexicon

    for relation in family.relations:
        for sentence in relation.sentences:
            assert [slot for slot in slots(sentence) if not is_known(slot, {"O"})] == [], sentence
            assert sum(slot in ("O", "a:O") for slot in slots(sentence)) == 1, sentence
        for template in (*relation.phrases, *relation.questions, *relation.inverse_questions):
            assert slots(template) == ["X"], template
    for kind in family.kinds:
        for sentence in (*kind.openings, *kind.colour, *kind.asides):
            assert [slot for slot in slots(sentence) if not is_known(slot, {"Name"})] == [], sentence
        for sentence in kind.alias_sentences:
            assert slots(sentence).count("A") == 1, sentence
        for opening in kind.openings:
            assert any(slot in ("S", "Name") for slot in slots(opening)), opening
        assert not any("{other:" in sentence for sentence in kind.colour)
        assert all("{other:" in sentence for sentence in kind.asides)


@both_families
def test_every_relation_can_be_told_and_asked_in_several_ways(family: Family) -> None:
    kinds = {kind.name for kind in family.kinds}
    for relation in family.relations:
        assert kinds.issuperset(relation.subjects)
        assert relation.objects == SAME or kinds.issuperset(relation.objects)
        assert len(relation.sentences) >= 4, relation.name
        assert len(relation.questions) >= 2, relation.name
        assert any(map(ends_in_slot, relation.questions)), relation.name
        assert relation.is_literal or (len(relation.phrases) >= 2 and any(map(ends_in_slot, relation.phrases)))
        assert not relation.inverse_questions or any(map(ends_in_slot, relation.inverse_questions))
    for kind in family.kinds:
        assert len(kind.openings) >= 4, kind.name
        assert len(kind.colour) >= 9, kind.name
        assert len(kind.asides) >= 6, kind.name
        assert len(kind.alias_sentences) >= 4, kind.name
