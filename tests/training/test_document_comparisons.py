"""Comparisons out of checked questions: what is put together, and what the answer is then."""

import pytest
from msgspec import structs

from quaere.records import Passage
from quaere.rewards.answers import find_alternative
from quaere.warmup.documents.askable_facts import Fact
from quaere.warmup.documents.chains import Bridge
from quaere.warmup.documents.checked_question import Draft, Worded
from quaere.warmup.documents.comparisons import (
    Pair,
    chained_comparisons,
    comparable_pairs,
    comparison_questions,
    read_choice,
    read_wording,
)
from quaere.worlds.dice import Dice


def asked(name, question, answer, kind="name"):
    """A kept question about the page of this name."""
    text = f"Of {name} it is told: {answer}."
    passage = Passage(f"{name}#0", name, name, text, 0, len(text))
    start = text.rindex(answer)
    fact = Fact(f"{name}:{start}", passage, name, text, 0, start, start + len(answer), kind)
    return Worded(Draft(fact.id, "single", (fact,), (answer,)), question)


def born(name, year):
    return asked(name, f"When was {name} born?", str(year), "date")


BRIDGE = asked("Halm Bridge", "Who built Halm Bridge?", "Orsolya Venn")
HALL = asked("Ferrin Hall", "Who painted Ferrin Hall?", "Marta Oleen")
VENN, OLEEN = born("Orsolya Venn", 1671), born("Marta Oleen", 1690)
DESCRIPTIONS = {BRIDGE.draft.id: "the builder of Halm Bridge", HALL.draft.id: "the painter of Ferrin Hall"}
BIRTHS = {("when was born", form): [f"Who was born {form}, {{X}} or {{Y}}?"] for form in ("earlier", "later")}


LINKS = [Bridge(BRIDGE.fact, VENN, "Orsolya Venn"), Bridge(HALL.fact, OLEEN, "Marta Oleen")]


def test_dates_are_compared_by_year_and_asked_both_ways():
    people = [born(f"Person {letter}", 1600 + 10 * number) for number, letter in enumerate("ABCDEFGHIJKL")]
    people.append(born("Person Z", 1600))  # as old as A
    pairs = comparable_pairs(people, Dice(3))
    assert {pair.form for pair in pairs} == {"earlier", "later"}
    years = {f"Person {letter}": 1600 + 10 * number for number, letter in enumerate("ABCDEFGHIJKL")} | {
        "Person Z": 1600
    }
    for pair in pairs:
        names = (pair.one.fact.name, pair.other.fact.name)
        assert years[names[0]] != years[names[1]]
        assert pair.answers == ((min if pair.form == "earlier" else max)(names, key=years.get),)
    worded = comparison_questions(pairs, BIRTHS)
    assert len(worded) == len(pairs)
    first = pairs[0]
    names = (first.one.fact.name, first.other.fact.name)
    assert worded[0].question == f"Who was born {first.form}, {names[0]} or {names[1]}?"
    assert worded[0].draft.kind == "comparison" and worded[0].draft.told_by == worded[0].draft.facts


def test_a_comparison_was_checked_as_well_as_its_weaker_half():
    surer, weaker = structs.replace(VENN, scores={"with_page": 1.0}), structs.replace(OLEEN, scores={"with_page": 0.6})
    made = comparison_questions(comparable_pairs([surer, weaker], Dice(3)), BIRTHS)
    assert [worded.scores for worded in made] == [{"with_page": 0.6}]


def test_two_names_of_one_place_are_not_two_places():
    places = ["New York", "New York", "New York City", "New York City", "York"]
    people = [asked(f"Person {n}", f"Where was Person {n} born?", place) for n, place in enumerate(places)]
    assert comparable_pairs(people, Dice(5)) == []


def test_agreements_say_yes_as_often_as_no():
    places = ["Sall", "Sall", "Sall", "Ferrin", "Ferrin", "Halm"]
    people = [asked(f"Person {n}", f"Where was Person {n} born?", place) for n, place in enumerate(places)]
    pairs = comparable_pairs(people, Dice(5))
    answers = [pair.answers for pair in pairs]
    assert answers.count(("yes",)) == answers.count(("no",)) > 0
    for pair in pairs:
        assert (pair.one.draft.answers == pair.other.draft.answers) == (pair.answers == ("yes",))
    assert comparable_pairs(people[:2], Dice(5)) == []  # a template that is always "yes" would tell the answer


@pytest.mark.parametrize(
    ("form", "line", "read"),
    [
        ("earlier", "Who was born first, Orsolya Venn or Marta Oleen?", "Who was born first, {X} or {Y}?"),
        ("earlier", "Which of Orsolya Venn and Marta Oleen was born first?", "Which of {X} and {Y} was born first?"),
        ("earlier", "Orsolya Venn or Marta Oleen?", ""),
        ("earlier", "Who was born first, Orsolya Venn or her?", ""),
        ("earlier", "Were Orsolya Venn and Marta Oleen born then?", ""),
        ("earlier", "Who was born later, Orsolya Venn or Marta Oleen?", ""),
        ("earlier", "Who died first, Orsolya Venn or Marta Oleen?", ""),
        ("later", "Which was born later, Orsolya Venn or Marta Oleen?", "Who was born later, {X} or {Y}?"),
        ("earlier", "Which mason was born first, Orsolya Venn or Marta Oleen?", ""),
        ("earlier", "Orsolya Venn or Marta Oleen, who was born first?", ""),
        ("earlier", "Who was born first, Orsolya Venn or Marta Oleen", ""),
        ("earlier", "Who was born first, Orsolya Venn and Marta Oleen?", ""),
        ("later", 'Who was born later, "Orsolya Venn" or Marta Oleen?', "Who was born later, {X} or {Y}?"),
        (
            "same",
            "Were Orsolya Venn and Marta Oleen born in the same place?",
            "Were {X} and {Y} born in the same place?",
        ),
        ("same", "Was Orsolya Venn and Marta Oleen born in the same year?", "Were {X} and {Y} born in the same year?"),
        ("same", "Did Orsolya Venn and Marta Oleen grow up in the same place?", ""),
        ("same", "Were Orsolya Venn and Marta Oleen born there?", ""),
        ("same", "Was it Orsolya Venn or Marta Oleen?", ""),
    ],
)
def test_only_wordings_that_ask_what_is_meant_become_forms(form, line, read):
    assert read_wording(line, Pair(VENN, OLEEN, form, ("yes",))) == read


@pytest.mark.parametrize(
    ("line", "read"),
    [
        ("Were Low Water and Grey Coast directed by the same person?", "Were {X} and {Y} directed by the same person?"),
        ("Were the films Low Water and Grey Coast directed by the same person?", True),
        ("Were the novels Low Water and Grey Coast directed by the same person?", ""),
        ("Were Low Water and Grey Coast by the same person?", ""),
    ],
)
def test_what_a_page_is_called_may_be_left_out_but_not_made_up(line, read):
    one, other = (asked(name, f"Who directed the film {name}?", "Ada Brandt") for name in ("Low Water", "Grey Coast"))
    form = read_wording(line, Pair(one, other, "same", ("yes",)))
    assert form == read if isinstance(read, str) else form


@pytest.mark.parametrize(
    ("question", "line", "read"),
    [
        ("When did {} die?", "Which was died earlier, Low Water or Grey Coast?", "Who died earlier, {X} or {Y}?"),
        (
            "When did {} pass away?",
            "Which was passed away earlier, Low Water or Grey Coast?",
            "Who passed away earlier",
        ),
        ("When did {} marry?", "Who was married earlier, Low Water or Grey Coast?", "Who married earlier"),
        ("When did {} start?", "Which was started earlier, Low Water or Grey Coast?", "Which started earlier"),
        ("When was {} released?", "Which was released earlier, Low Water or Grey Coast?", "Which was released earlier"),
    ],
)
def test_a_wording_becomes_english(question, line, read):
    one, other = (
        asked(name, question.format(name), year, "date")
        for name, year in (("Low Water", "1974"), ("Grey Coast", "1981"))
    )
    assert read_wording(line, Pair(one, other, "earlier", ("Low Water",))).startswith(read)


@pytest.mark.parametrize(
    ("form", "descriptions", "asked_of"),
    [
        (
            "Who was born earlier, {X} or {Y}?",
            ("the director of the 1974 film Low Water", 'the director of the film "Grey Coast"'),
            "Which film has the director who was born earlier, Low Water or Grey Coast?",
        ),
        (
            "Who died first, {X} or {Y}?",
            ("the director of the film Low Water", "the director of Grey Coast"),
            "Which has the director who died first, Low Water or Grey Coast?",
        ),
        ("Who was born earlier, {X} or {Y}?", ("the writer of Low Water", "the director of Grey Coast"), None),
        ("Who was born earlier, {X} or {Y}?", ("the son of Low Water of Sall", "the son of Grey Coast"), None),
        ("Who was born earlier, {X} or {Y}?", ("the man who made Low Water", "the man who made Grey Coast"), None),
        ("Which was released earlier, {X} or {Y}?", ("the album of Low Water", "the album of Grey Coast"), None),
    ],
)
def test_two_people_of_one_role_may_be_asked_for_by_what_they_made(form, descriptions, asked_of):
    names = ("Low Water", "Grey Coast")
    assert read_choice(form, descriptions, names) == asked_of


def test_what_was_made_by_the_person_is_then_the_answer():
    films = [asked(name, f"Who directed {name}?", who) for name, who in (("Low Water", "Ada"), ("Grey Coast", "Bo"))]
    people = [born("Ada", 1901), born("Bo", 1950)]
    links = [Bridge(film.fact, person, person.fact.name) for film, person in zip(films, people, strict=True)]
    told = {film.fact.id: f"the director of the film {film.fact.name}" for film in films}
    made = [chained_comparisons(links, told, BIRTHS, Dice(seed))[0] for seed in range(20)]
    named = [item for item in made if item.question.startswith("Which film has the director who was born ")]
    assert 0 < len(named) < 20
    for item in made:  # facts are in the question's order, by which EVE finds the sentence about the answer
        side = next(place for answer in item.answers if (place := find_alternative(item.question, answer)) is not None)
        assert {fact.name for fact in item.draft.facts[2 * side : 2 * side + 2]} & set(item.answers)
    for item in named:
        assert item.answers == (("Low Water",) if "earlier" in item.question else ("Grey Coast",))
        assert item.draft.hidden in ("Ada Bo", "Bo Ada") and len(item.draft.facts) == 4


def test_what_is_compared_may_be_described():
    (made,) = chained_comparisons(LINKS, DESCRIPTIONS, BIRTHS, Dice(2))
    described = {"the builder of Halm Bridge", "the painter of Ferrin Hall"}
    assert all(description in made.question for description in described)
    earlier = "earlier" in made.question
    assert made.answers == (
        ("Orsolya Venn", "the builder of Halm Bridge") if earlier else ("Marta Oleen", "the painter of Ferrin Hall")
    )
    assert len(made.draft.facts) == 4 and set(made.draft.names) == {"Halm Bridge", "Ferrin Hall"}
    assert "Venn" in made.draft.hidden and "Oleen" in made.draft.hidden


def test_four_facts_are_compared_only_where_both_are_described_named_and_dated():
    def made(links, descriptions=DESCRIPTIONS):
        return chained_comparisons(links, descriptions, BIRTHS, Dice(2))

    assert made(LINKS)
    assert made(LINKS, {BRIDGE.draft.id: DESCRIPTIONS[BRIDGE.draft.id]}) == []
    untitled = Bridge(structs.replace(HALL.fact, name=""), OLEEN, "Marta Oleen")
    assert made([LINKS[0], untitled]) == []
    placed = Bridge(HALL.fact, asked("Marta Oleen", "When was Marta Oleen born?", "Korrin"), "Marta Oleen")
    assert made([LINKS[0], placed]) == []
    same_year = Bridge(HALL.fact, born("Marta Oleen", 1671), "Marta Oleen")
    assert made([LINKS[0], same_year]) == []
    same_person = Bridge(HALL.fact, VENN, "Marta Oleen")
    assert made([LINKS[0], same_person]) == []


def test_pages_without_a_name_are_not_compared():
    untitled = [structs.replace(item.fact, name="") for item in (VENN, OLEEN)]
    questions = [
        Worded(Draft(fact.id, "single", (fact,), (fact.answer,)), "When was the builder born?") for fact in untitled
    ]
    assert comparable_pairs(questions, Dice(3)) == [] and comparable_pairs([VENN, OLEEN], Dice(3))
