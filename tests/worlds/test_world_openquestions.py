"""Open-ended questions of a world, and what is known beside them: true, proved, and the same for the same seed."""

import pytest

from quaere.errors import BadInput
from quaere.worlds import FAMILIES, SMALL_FAMILIES, generate_world, write_world
from quaere.worlds.gold_questions import says
from quaere.worlds.names import capitalise
from quaere.worlds.open_questions import _LITERALS, ask_open_questions, name_unknown, state_fact, unknown_relations
from quaere.worlds.schema import load_family
from quaere.worlds.world import open_world

both = pytest.mark.parametrize("family", list(FAMILIES))


@both
def test_everything_that_is_known_is_proved(family):
    world = generate_world(3, 250, family)
    asked = list(ask_open_questions(world.graph, 3, 60))
    assert len({question.id for question in asked}) == len({question.question for question in asked}) == 60
    assert {question.kind for question in asked} == {"overview", "comparison", "story", "connection", "open"}
    for question in asked:
        assert question.question.endswith("?") and question.facts
        for entity_id in question.entities:
            assert says(question.question, world.entity(entity_id).name)
        own = {fact.entity for fact in question.facts}
        assert set(question.entities) <= own
        for fact in question.facts:
            article = world.article(world.entity(fact.entity))
            evidence = fact.evidence
            assert article.text[evidence.start : evidence.end] == evidence.text and evidence.doc_id == fact.entity
            assert fact.said.lower() in evidence.text.lower()
            assert fact.said.lower() in fact.statement.lower()
            assert says(fact.statement, world.entity(fact.entity).name)


@both
def test_what_is_unknown_is_said_nowhere(family):
    world = generate_world(3, 250, family)
    for question in ask_open_questions(world.graph, 3, 30):
        known = {(fact.entity, fact.relation) for fact in question.facts}
        for entity_id in question.entities:
            entity = world.entity(entity_id)
            for relation in unknown_relations(world.graph, entity.index):
                assert (entity_id, relation) not in known
                assert name_unknown(world.graph, entity.index, relation) in question.unknown
                assert all(support.relation != relation for support in world.article(entity).supports)


@both
def test_every_fact_can_be_stated(family):
    world = generate_world(2, 200, family)
    literals = {relation.name for relation in load_family(family).relations if relation.is_literal}
    assert literals <= set(_LITERALS)
    for fact in world.facts():
        for form in range(4):
            text = state_fact(world.graph, fact, fact.value, form=form)
            assert text.endswith(".") and text[0] == text[0].upper() and not set("{}[]|") & set(text)


def test_the_form_of_a_statement_chooses_phrase_and_order():
    graph = generate_world(7, 200).graph
    fact = next(
        fact
        for fact in graph.facts()
        if len(graph.relations[fact.relation].phrases) > 1 and not graph.relations[fact.relation].is_literal
    )
    subject, phrases = graph.entities[fact.subject].name, graph.relations[fact.relation].phrases
    first, second = (phrase.replace("{X}", subject) for phrase in phrases[:2])
    said = [state_fact(graph, fact, "Ilse Varn", form=form) for form in range(4)]
    assert said == [
        f"{capitalise(first)} is Ilse Varn.",
        f"Ilse Varn is {first}.",
        f"{capitalise(second)} is Ilse Varn.",
        f"Ilse Varn is {second}.",
    ]
    assert state_fact(graph, fact, "Ilse Varn") == said[0]


def test_families_share_no_statement():
    names = [{relation.name for relation in family.relations} for family in map(load_family, FAMILIES)]
    texts = [{text for name in own & set(_LITERALS) for text in _LITERALS[name]} for own in names]
    assert not texts[0] & texts[1]
    small = {relation.name for family in map(load_family, SMALL_FAMILIES) for relation in family.relations}
    assert set(_LITERALS) <= names[0] | names[1] | small


def test_the_seed_and_the_draw_decide():
    world = generate_world(3, 200)

    def ask(draw):
        return [question.question for question in ask_open_questions(world.graph, 3, 20, draw=draw)]

    assert ask(0) == ask(0) != ask(1)
    with pytest.raises(BadInput, match="facts for only"):
        list(ask_open_questions(world.graph, 3, 5000))


def test_a_world_is_opened_from_its_folder(tmp_path):
    world = generate_world(5, 200, "warmup")
    write_world(world, tmp_path / "world", 0)
    again = open_world(tmp_path / "world")
    assert (again.family.name, again.seed, again.entities) == ("warmup", 5, world.entities)
    line = next(ask_open_questions(again.graph, 5, 1))
    assert (line.set, line.question[-1]) == ("warmup", "?")
    with pytest.raises(BadInput, match="is not a world"):
        open_world(tmp_path)
    manifest = tmp_path / "world" / "world.json"
    today = manifest.read_text()
    manifest.write_text(today.replace('"generator_version": 2', '"generator_version": 1'))
    assert open_world(tmp_path / "world").entities == world.entities  # the articles are the same
    manifest.write_text(today.replace('"generator_version": 2', '"generator_version": 0'))
    with pytest.raises(BadInput, match="generator version 0"):
        open_world(tmp_path / "world")
