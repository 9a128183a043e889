"""What reports know: facts told and proven, by hand, in any order and by the oracle's pen; gaps; a judge's truth."""

import asyncio
import random

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from properties import examples
from quaere.chat.statements import split_statements
from quaere.dialects.report.report_writer import numbered_sources
from quaere.errors import BadInput, SamplingFailed
from quaere.evaluation.reports.citations import CitationCheck, CitationChecks, check_citations
from quaere.evaluation.reports.fact_coverage import Knowing, judge_truth, know_report, label_citations, proves
from quaere.evaluation.reports.report_sources import read_facts
from quaere.records import Evidence, Passage, Question, Report, Source, Statement
from quaere.rollout.episode import Limits
from quaere.warmup.lessons import build_world
from quaere.warmup.oracle_reports import write_draft
from quaere.warmup.report_lessons import Research
from quaere.worlds import generate_world
from quaere.worlds.dice import Dice
from quaere.worlds.open_questions import KnownFact, ReportLine, ask_open_questions

BRIDGE = "The Halm Bridge is old. Orsolya Venn drew its plans. Its 16 arches are of unequal width. Trolden paid for it."
MILL = "The Oss Mill grinds rye. Pip Brod drew its plans. It has six wheels."
TEXTS = {"b": ("Halm Bridge", BRIDGE), "m": ("Oss Mill", MILL)}
SOURCES = tuple(
    Source(number, Passage(f"{name}#0", name, title, text, 0, len(text)))
    for number, (name, (title, text)) in enumerate(TEXTS.items(), start=1)
)


def fact(doc, relation, statement, proof, *answers, names=()):
    title, text = TEXTS[doc]
    start = text.index(proof)
    evidence = Evidence(doc, start, start + len(proof), proof)
    return KnownFact(doc, title, relation, answers[0], statement, evidence, (title, *names), answers)


BUILDER = fact("b", "builder", "The builder of the Halm Bridge is Orsolya Venn.", "Orsolya Venn drew its plans.",
               "Orsolya Venn", names=("the Old Arch",))  # fmt: skip
ARCHES = fact("b", "arches", "The Halm Bridge has 16 arches.", "Its 16 arches are of unequal width.", "16", "sixteen")
PAYER = fact("b", "payer", "The town that paid for the Halm Bridge is Trolden.", "Trolden paid for it.", "Trolden")
MILLER = fact("m", "builder", "The builder of the Oss Mill is Pip Brod.", "Pip Brod drew its plans.", "Pip Brod")
WHEELS = fact("m", "wheels", "The Oss Mill has six wheels.", "It has six wheels.", "six", "6")
GAPS = ("the guild that collects the tolls on the Halm Bridge", "the length of the Halm Bridge")
ONE = ReportLine("q1", "What is known of the Halm Bridge?", "overview", ("b",), (BUILDER, ARCHES, PAYER), GAPS, "e")
TWO = ReportLine("q2", "Compare them!", "comparison", ("b", "m"), (BUILDER, ARCHES, MILLER, WHEELS), (), "e")


def make_report(text, line=ONE, sources=SOURCES):
    return Report(Question(line.id, line.question), text, split_statements(text), sources)


def know(text, line=ONE, sources=SOURCES):
    """Relations that are told, and those that are proven too."""
    facts = know_report(make_report(text, line, sources), line).facts
    return [f.relation for f in facts if f.told_by], [f.relation for f in facts if f.proven_by]


# ------------------------------------------------------------------------------------------------------------- by hand


@pytest.mark.parametrize(
    ("text", "told", "proven"),
    [
        ("", "", ""),
        ("Nothing is worth saying here [1].", "", ""),
        ("The builder of the Halm Bridge is Orsolya Venn [1].", "builder", "builder"),
        ("the halm bridge’s builder was “Orsolya Venn”—no doubt of it [1].", "builder", "builder"),
        ("The Old Arch was built by Orsolya Venn [1].", "builder", "builder"),
        ("The builder of the Halm Bridge is Orsolya Venn.", "builder", ""),  # no citation
        ("The builder of the Halm Bridge is Orsolya Venn [2].", "builder", ""),  # the wrong one
        ("The builder of the Halm Bridge is Orsolya Venn [7].", "builder", ""),  # one that leads nowhere
        ("The builder of the Halm Bridge is Orsolya Venn [2, 1].", "builder", "builder"),
        ("The builder of the Halm Bridge is Pip Brod [1].", "", ""),  # wrong value
        ("The builder of the Oss Mill is Orsolya Venn [2].", "", ""),  # other subject
        ("The Halm Bridge has sixteen arches [1].", "arches", "arches"),
        ("The Halm Bridge has 160 arches [1].", "", ""),
        ("The Halm Bridge has 1.6 arches [16].", "", ""),  # a citation is no value
        ("The Halm Bridge was not built by Orsolya Venn [1].", "", ""),
        ("The Halm Bridge was not built by Pip Brod, but by Orsolya Venn [1].", "builder", "builder"),
        # names inside other names
        ("The Halm Bridge Inn belongs to Orsolya Venn.", "", ""),
        ("The Second Halm Bridge was built by Orsolya Venn.", "", ""),
        ("The Second Halm Bridge was built by Orsolya Venn [1].", "", ""),
        ("The Halm Bridge was built by Orsolya Venn the Tall.", "", ""),
        ("The Halm Bridge was built by Orsolya Venner.", "", ""),
        ("The Halm Bridge leads to Trolden-on-Oss.", "", ""),
        ("The Halm Bridge leads to Upper Trolden.", "", ""),
        # plainly about it
        ("Its 16 arches are of unequal width [1].", "arches", "arches"),
        ("It has 16 arches.", "arches", ""),
        ("It was paid for by Trolden.", "payer", ""),
        ("Orsolya Venn drew the plans [1].", "builder", "builder"),
        ("Orsolya Venn died in a ditch.", "", ""),  # about her
        ("Orsolya Venn died in a ditch [2].", "", ""),
        ("Sixteen people of Korrin saw it.", "", ""),  # who knows what
        # several facts, and one twice
        ("Orsolya Venn built the Halm Bridge, which has 16 arches [1].", "builder arches", "builder arches"),
        ("The Halm Bridge has 16 arches. The Halm Bridge has 16 arches [1].", "arches", "arches"),
    ],
)
def test_one_thing_is_asked_about(text, told, proven):
    assert know(text) == (told.split(), proven.split())


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("The Halm Bridge was built by Orsolya Venn and the Oss Mill by Pip Brod [1, 2].", ["b", "m"]),
        ("The Halm Bridge was built by Pip Brod and the Oss Mill by Orsolya Venn [1, 2].", []),
        ("The Halm Bridge and the Oss Mill were built by Pip Brod [2].", ["m"]),
        ("It was built by Pip Brod.", []),  # which of them?
        ("It was built by Pip Brod [2].", ["m"]),
        ("It was built by Pip Brod [1].", []),
        ("The Oss Mill is younger, and Pip Brod, who was in debt, built it [2].", ["m"]),
    ],
)
def test_two_things_are_kept_apart(text, told):
    found = know_report(make_report(text, TWO), TWO).facts
    assert [one.entity for one in found if one.relation == "builder" and one.told_by] == told


def test_facts_about_the_same_two_things_are_told_apart_by_words():
    owner = fact("b", "owner", "The owner of the Halm Bridge is Orsolya Venn.", "Orsolya Venn drew its plans.",
                 "Orsolya Venn")  # fmt: skip
    line = msgspec.structs.replace(ONE, facts=(BUILDER, owner))
    assert know("The builder of the Halm Bridge is Orsolya Venn.", line)[0] == ["builder"]
    assert know("Orsolya Venn is the owner of the Halm Bridge.", line)[0] == ["owner"]
    assert know("Orsolya Venn was builder and owner of the Halm Bridge.", line)[0] == ["builder", "owner"]
    # Who also owns something else can still be named as an owner.
    mill = fact("m", "owner", "The owner of the Oss Mill is Orsolya Venn.", "The Oss Mill grinds rye.", "Orsolya Venn")
    line = msgspec.structs.replace(TWO, facts=(BUILDER, mill))
    assert know("Its later owner Orsolya Venn is praised [1].", line)[0] == ["builder"]


def test_an_object_that_has_a_name_is_not_taken_for_a_word_about_the_subject():
    payer = fact("b", "payer", PAYER.statement, PAYER.evidence.text, "Trolden", "the town")
    line = msgspec.structs.replace(ONE, facts=(payer,))
    assert know("Trolden paid for everything.", line)[0] == []
    assert know("Trolden paid for all of it.", line)[0] == ["payer"]


def passages(*spans, doc="b", title="", text=BRIDGE):
    return [Passage(f"{doc}#{start}", doc, title, text[start:end], start, end) for start, end in spans]


def test_a_proof_is_shown_whole():
    start, end = ARCHES.evidence.start, ARCHES.evidence.end
    assert proves(passages((start, end)), ARCHES)
    assert not proves(passages((start + 1, end)), ARCHES) and not proves(passages((0, end - 1)), ARCHES)
    assert proves(passages((start + 5, end), (0, start + 9)), ARCHES)  # two that overlap
    assert not proves(passages((0, start + 5), (start + 6, end)), ARCHES)  # a letter is missing
    assert not proves(passages((0, len(BRIDGE)), text=BRIDGE.replace("16", "17")), ARCHES)  # another edition
    assert not proves(passages((0, len(BRIDGE)), doc="x"), ARCHES)  # the same words about something else
    assert proves(passages((0, len(BRIDGE)), doc="x", title="Halm Bridge"), ARCHES)  # another index
    assert not proves([], ARCHES)


def test_gaps_are_admitted():
    def admitted(text):
        return know_report(make_report(text), ONE).admitted

    assert admitted("The documents do not tell the length of the Halm Bridge.") == GAPS[1:]
    assert admitted("Nothing was found on the guild that collects the tolls on the Halm Bridge.") == GAPS[:1]
    assert admitted("Its length is not documented.") == GAPS[1:]
    assert admitted("It is unknown which guild collects its tolls.") == GAPS[:1]
    assert admitted("The length of the Oss Mill is not documented.") == ()
    assert admitted("The length of the Halm Bridge is not great.") == ()
    assert admitted("The length of the Halm Bridge is 90 feet.") == ()
    assert admitted("Not much is known. The Halm Bridge is old.") == ()
    found = know_report(make_report("Its length is unknown. Its length is unknown."), ONE)
    assert found.admitted_share == 0.5 and Knowing(()).told_share is None and Knowing(()).admitted_share is None


# ---------------------------------------------------------------------------------------------------------- in general

PIECES = ["The Halm Bridge", "the Oss Mill", "Orsolya Venn", "Pip Brod", "Trolden", "16", "six", "it", "not", "and",
          "was built by", "has", "arches", "wheels", ", while", "Second", "the Tall", "Orsolya Venn's"]  # fmt: skip
SENTENCES = st.tuples(st.lists(st.sampled_from(PIECES), max_size=8), st.lists(st.integers(1, 3), max_size=2))


def say(sentence):
    words, numbers = sentence
    return " ".join([*words, *(f"[{number}]" for number in numbers)]) + "."


def report_of(sentences, line):
    texts = [say(sentence) for sentence in sentences]
    statements = tuple(
        Statement(text, 0, 0, tuple(numbers)) for text, (_, numbers) in zip(texts, sentences, strict=True)
    )
    return Report(Question(line.id, line.question), " ".join(texts), statements, SOURCES)


@settings(max_examples=examples(100), deadline=None)
@given(st.lists(SENTENCES, max_size=6), SENTENCES, st.sampled_from([ONE, TWO]), st.randoms(use_true_random=False))
def test_shares_and_order(sentences, another, line, rng):
    found = know_report(report_of(sentences, line), line)
    assert 0 <= found.proven_share <= found.told_share <= 1
    assert all(set(one.proven_by) <= set(one.told_by) for one in found.facts)
    mixed = rng.sample(sentences, len(sentences))
    again = know_report(report_of(mixed, line), line)
    assert (again.told_share, again.proven_share) == (found.told_share, found.proven_share)
    assert set(again.admitted) == set(found.admitted)
    more = know_report(report_of([*sentences, another], line), line)
    for before, after in zip(found.facts, more.facts, strict=True):
        assert before.told_by == after.told_by[: len(before.told_by)]
        assert before.proven_by == after.proven_by[: len(before.proven_by)]


@settings(max_examples=examples(40), deadline=None)
@given(st.text(max_size=200))
def test_any_text_is_read(text):
    found = know_report(make_report(text), ONE)
    assert 0 <= found.proven_share <= found.told_share <= 1


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("The builder of the Halm Bridge is Orsolya Venn; ", 1 / 3),
        ("The Halm Bridge and the Halm Bridge Inn of Orsolya Venn the Tall ", 0),  # others of similar names
    ],
)
def test_a_statement_of_100_kb_tells_what_its_part_does(text, told):
    """In a second or two; a search that backtracks would never come to its end."""
    for times in (1, 100_000 // len(text)):
        long = text * times
        report = Report(Question("q1", ONE.question), long, (Statement(long, 0, len(long), (1,)),), SOURCES)
        assert know_report(report, ONE).told_share == pytest.approx(told)


# ------------------------------------------------------------------------------------------------------------- a world


@pytest.mark.parametrize("family", ["evaluation", "warmup"])
def test_exactly_the_facts_that_are_stated_are_told_and_proven(family):
    """In the world's own plain sentences; in none where every value is another's."""
    world = generate_world(3, 250, family)
    num = 0
    for gold in ask_open_questions(world.graph, 3, 25):
        line, rng = gold, random.Random(gold.id)
        kept = [place for place in range(len(gold.facts)) if rng.random() < 0.5]
        articles = list(dict.fromkeys(gold.facts[place].entity for place in kept))
        sources, said = [], []
        for number, entity in enumerate(articles, start=1):
            article = world.article(world.entity(entity))
            passage = Passage(f"{entity}#0", entity, article.title, article.text, 0, len(article.text))
            sources.append(Source(number, passage))
        for place in kept:
            known = gold.facts[place]
            said.append(f"{known.statement[:-1]} [{articles.index(known.entity) + 1}].")
        report = make_report(" ".join(said), line, tuple(sources))
        found = know_report(report, line).facts
        assert [place for place, one in enumerate(found) if one.proven_by] == kept
        assert [place for place, one in enumerate(found) if one.told_by] == kept
        num += len(kept)
    assert num > 60


@pytest.fixture(scope="module")
def drafts(tmp_path_factory):
    """Sound reports by the oracle, and others that cite wrongly."""
    world, index = build_world(1, 250, tmp_path_factory.mktemp("world"))
    limits = Limits(max_turns=8, turn_tokens=6000, sequence_tokens=60_000, tool_response_tokens=2500)
    research = Research(world, index, limits, style="brief", seed=0)
    made = []
    for gold in ask_open_questions(world.graph, world.seed, 20):
        sources = numbered_sources(research._gather(gold, Dice(gold.id)))
        try:
            both = [write_draft(world, gold, sources, Dice(gold.id), flaws) for flaws in ((), ("miscited",))]
        except SamplingFailed:
            continue
        made.append((gold, *((draft, draft.bind(gold, sources)) for draft in both)))
    assert len(made) > 12
    return world, made


def test_an_oracle_proves_every_fact_it_states(drafts):
    world, made = drafts
    num_told = num_stated = 0
    for gold, (draft, report), _ in made:
        found = know_report(report, gold)
        stated = {claim.finding.key for claim in draft.claims}
        for known, one in zip(gold.facts, found.facts, strict=True):
            if (world.entity(known.entity).index, known.relation) in stated:
                assert one.proven_by
                num_stated += 1
            num_told += bool(one.told_by)
        assert len(found.admitted) == draft.num_gaps
    assert num_stated <= num_told <= 1.05 * num_stated


def test_the_judge_is_held_against_the_facts(drafts):
    _, made = drafts
    reports, labels = [], []
    for gold, *both in made:
        for _, report in both:
            line = gold
            reports.append(report)
            labels.append(label_citations(report, line, know_report(report, line)))
    truth = judge_truth(asyncio.run(check_citations(CitationChecks(), reports)), labels)
    assert truth.num_proving > 80 and truth.proving.mean > 0.9
    assert truth.num_others > 5 and truth.others.mean > 0.8
    assert judge_truth([[]], [{}]) is None


def test_labels_by_hand():
    report = make_report(
        "The builder of the Halm Bridge is Orsolya Venn [1]. The builder of the Halm Bridge is Orsolya Venn [2]. "
        "The Halm Bridge has 16 arches [1, 2]. The builder of the Halm Bridge is Orsolya Venn [9]."
    )
    labels = label_citations(report, ONE, know_report(report, ONE))
    assert labels == {(0, 1): True, (1, 2): False, (2, 1): True}
    said = [CitationCheck(0, 1, "supported"), CitationCheck(1, 2, "supported"), CitationCheck(2, 1, "unknown")]
    truth = judge_truth([said], [labels])
    assert (truth.num_proving, truth.proving.mean, truth.num_others, truth.others.mean) == (2, 0.5, 1, 0.0)


# -------------------------------------------------------------------------------------------------------------- a file


def test_facts_from_a_file(tmp_path):
    path = tmp_path / "questions.jsonl"
    path.write_bytes(b"".join(msgspec.json.encode(line) + b"\n" for line in (ONE, TWO)))
    book = read_facts(path)
    assert book.find("What is known of  the Halm Bridge?") == ONE and book.find("?") is None


@pytest.mark.parametrize(
    ("line", "said"),
    [
        (b"", "contains no question"),
        (b"{", "line 1: not a question with known facts"),
        (b'{"id": "q", "question": "Who?"}', "missing required field"),
        (msgspec.json.encode(msgspec.structs.replace(ONE, question=" ")), "the question is empty"),
        (msgspec.json.encode(ONE).replace(b'["16","sixteen"]', b'["the"]'), "'arches' names nothing"),
        (msgspec.json.encode(ONE).replace(b'"text":"Its 16', b'"text":"Its 1'), "is not a span"),
        (msgspec.json.encode(ONE) + b"\n" + msgspec.json.encode(ONE), "line 2: the question occurs twice"),
    ],
)
def test_bad_facts_are_refused_in_a_line(tmp_path, line, said):
    path = tmp_path / "questions.jsonl"
    path.write_bytes(line + b"\n")
    with pytest.raises(BadInput, match=said) as refusal:
        read_facts(path)
    assert "\n" not in str(refusal.value)
