"""Gold questions: unique answers, exact evidence, no leaks. Checked by means of their own, not by the generator's."""

from __future__ import annotations

import re
from collections import Counter, defaultdict

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from properties import examples
from quaere.errors import BadInput
from quaere.worlds import GoldQuestion, World, generate_world
from quaere.worlds.gold_questions import says

FAMILIES = ("evaluation", "warmup")


@pytest.fixture(scope="module", params=FAMILIES)
def world(request: pytest.FixtureRequest) -> World:
    return generate_world(31, 600, request.param)


@pytest.fixture(scope="module")
def questions(world: World) -> list[GoldQuestion]:
    return list(world.questions(480))


class Oracle:
    """Answers a chain by brute force over a plain list of facts (subject id, relation, object id or literal)."""

    def __init__(self, world: World) -> None:
        ids = [entity.id for entity in world.entities]
        self.facts = [
            (ids[fact.subject], fact.relation, fact.value if fact.object is None else ids[fact.object])
            for fact in world.facts()
        ]
        self.called: dict[str, set[str]] = defaultdict(set)
        for entity in world.entities:
            for name in (entity.title, entity.name, *entity.also, *entity.aliases):
                self.called[name].add(entity.id)

    def answers(self, question: GoldQuestion) -> set[str]:
        reached = self.called[question.chain[0].mention]
        assert len(reached) == 1  # the first entity is named without ambiguity
        for hop in question.chain:
            if hop.inverse:
                reached = {
                    subject for subject, relation, thing in self.facts if relation == hop.relation and thing in reached
                }
            else:
                reached = {
                    thing for subject, relation, thing in self.facts if relation == hop.relation and subject in reached
                }
        return reached


def check_unique(world: World, questions: list[GoldQuestion]) -> None:
    oracle = Oracle(world)
    for question in questions:
        reached = oracle.answers(question)
        assert len(reached) == 1, question.text
        (answer,) = reached
        last = question.chain[-1]
        if last.answer_id is not None:
            assert answer == last.answer_id
            entity = world.entity(answer)
            accepted = {re.sub(r"^the ", "", name).lower() for name in (entity.title, entity.name, *entity.aliases)}
            assert accepted == {text.lower() for text in question.answers}
        else:
            assert answer in question.answers
        assert last.answer in question.answers


def check_evidence(world: World, questions: list[GoldQuestion]) -> None:
    for question in questions:
        assert len(set(question.gold_ids)) == question.facts == len(question.chain)
        mention = question.chain[0].mention
        assert mention.lower() in question.text.lower()
        for number, hop in enumerate(question.chain):
            assert hop.mention == mention
            article = world.article(world.entity(hop.evidence.doc_id))
            assert article.text[hop.evidence.start : hop.evidence.end] == hop.evidence.text
            witness = hop.answer_id if hop.inverse else hop.entity
            assert hop.evidence.doc_id == witness
            stated = world.entity(hop.entity).names if hop.inverse else (hop.said,)
            assert any(name.lower() in hop.evidence.text.lower() for name in stated)
            assert number == 0 or hop.entity == question.chain[number - 1].answer_id
            mention = hop.said


def check_no_leak(world: World, questions: list[GoldQuestion]) -> None:
    for question in questions:
        text = " " + re.sub(r"\W+", " ", question.text.lower()) + " "
        hidden = set(question.answers)
        for hop in question.chain[1:]:
            entity = world.entity(hop.entity)
            hidden |= {entity.title, entity.name, *entity.also, *entity.aliases}
        for name in hidden:
            plain = re.sub(r"\W+", " ", re.sub(r"^the ", "", name).lower()).strip()
            assert f" {plain} " not in text, (question.text, name)


def test_answers_are_unique_by_brute_force(world: World, questions: list[GoldQuestion]) -> None:
    check_unique(world, questions)


def test_evidence_is_exact_and_from_different_articles(world: World, questions: list[GoldQuestion]) -> None:
    check_evidence(world, questions)


def test_no_question_names_its_answer_or_a_middle_entity(world: World, questions: list[GoldQuestion]) -> None:
    check_no_leak(world, questions)


def test_an_entity_that_answers_is_not_mentioned_before_the_last_hop(
    world: World, questions: list[GoldQuestion]
) -> None:
    for question in questions:
        if question.chain[-1].answer_id is not None:
            for article_id in question.gold_ids[:-1]:
                text = world.article(world.entity(article_id)).text
                assert not any(says(text, answer) for answer in question.answers)


def test_hops_relations_and_directions_are_varied(world: World, questions: list[GoldQuestion]) -> None:
    assert Counter(question.facts for question in questions) == {1: 120, 2: 120, 3: 120, 4: 120}
    last = Counter(question.chain[-1].relation for question in questions)
    assert len(last) > 0.8 * len(world.family.relations)
    assert max(last.values()) < len(questions) / 10
    assert any(question.chain[-1].inverse for question in questions)
    assert any(question.chain[-1].answer_id is None for question in questions)
    by_alias = [q for q in questions if q.chain[0].mention in world.entity(q.chain[0].entity).aliases]
    assert len(questions) / 20 < len(by_alias) < len(questions) / 3
    assert len({question.text for question in questions}) == len({question.id for question in questions}) == 480


def test_questions_are_single_clean_sentences(questions: list[GoldQuestion]) -> None:
    for question in questions:
        assert re.fullmatch(r"[A-Z][^?{}\[\]|]+\?", question.text)
        assert "  " not in question.text
        assert len(question.text.split()) <= 45


def test_conversion_to_the_common_record(questions: list[GoldQuestion]) -> None:
    question = questions[3]
    record = question.to_question()
    assert (record.id, record.text, record.answers, record.hops) == (question.id, question.text, question.answers, 4)
    assert (record.facts, record.searches) == (4, 4)
    assert tuple(evidence.doc_id for evidence in record.evidence) == question.gold_ids


def test_number_and_mix_of_hops_can_be_chosen(world: World) -> None:
    assert [question.facts for question in world.questions(5, facts=(3, 1))] == [3, 1, 3, 1, 3]
    assert list(world.questions(0)) == []
    assert sum(1 for _ in world.questions()) == 600
    with pytest.raises(BadInput, match="from 1 to 4"):
        world.questions(5, facts=(5,))
    with pytest.raises(BadInput, match="0 or more"):
        world.questions(-1)


def test_asking_for_too_many_questions_says_how_many_there_are() -> None:
    with pytest.raises(BadInput, match=r"facts for only \d+ different questions, not 100000"):
        list(generate_world(1, 200).questions(100_000, facts=(1,)))


def test_says() -> None:
    assert says("Who built Halmgate-on-Oss?", "the Oss")
    assert not says("Who built Ossgate?", "the Oss")


@settings(max_examples=examples(12), deadline=None)
@given(seed=st.integers(0, 2**40), family=st.sampled_from(FAMILIES))
def test_any_small_world_has_sound_questions_of_every_length(seed: int, family: str) -> None:
    world = generate_world(seed, 200, family)
    questions = list(world.questions(40))
    assert Counter(question.facts for question in questions) == {1: 10, 2: 10, 3: 10, 4: 10}
    check_unique(world, questions)
    check_evidence(world, questions)
    check_no_leak(world, questions)
