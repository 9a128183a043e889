"""Reports of the warm-up follow the rubric that their writer is shown: one feature for each dimension."""

import re
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from properties import examples
from quaere.chat.dimensions import POOL
from quaere.dialects.report.report_writer import numbered_sources
from quaere.errors import SamplingFailed
from quaere.records import Rubric, Weight
from quaere.rollout.episode import Limits
from quaere.warmup.lessons import build_world
from quaere.warmup.oracle_reports import MIN_CLAIMS, facts_in, find_facts
from quaere.warmup.report_lessons import Research
from quaere.warmup.rubric_drafts import JOINING, write_by_rubric
from quaere.worlds.dice import Dice
from quaere.worlds.open_questions import ask_open_questions, state_fact

BENCHMARKS = Path(__file__).parents[2] / "benchmarks"
LIMITS = Limits(max_turns=8)
NAMES = [item.name for item in POOL]


@pytest.fixture(scope="module")
def place(tmp_path_factory):
    return build_world(1, 300, tmp_path_factory.mktemp("drafts"))


@pytest.fixture(scope="module")
def gathered(place):
    """Questions with the sources that a writer would have found."""
    world, index = place
    research = Research(world, index, LIMITS, style="brief", seed=0)
    found = []
    for gold in ask_open_questions(world.graph, world.seed, 40):
        sources = numbered_sources(research._gather(gold, Dice(gold.id)))
        try:
            write_by_rubric(world, gold, sources, Rubric("factuality"), Dice(gold.id))
        except SamplingFailed:
            continue
        found.append((gold, sources))
    assert len(found) > 25
    return found


def under(*names):
    return Rubric("factuality", tuple(Weight(name, 0.3) for name in names))


def write(place, gathered, *names):
    """The drafts on all questions, with equal dice."""
    world, _ = place
    return [write_by_rubric(world, gold, sources, under(*names), Dice(gold.id)) for gold, sources in gathered]


def mean(values):
    values = list(values)
    return sum(values) / len(values)


def statements(draft, gathered_at):
    return draft.bind(*gathered_at).statements


# -------------------------------------------------------------------------------------------------- what each asks for


@pytest.fixture(scope="module")
def plain(place, gathered):
    return write(place, gathered)


def test_coverage_states_more_of_what_is_known(place, gathered, plain):
    wide = write(place, gathered, "coverage")
    assert all(len(more.covered) >= len(less.covered) for more, less in zip(wide, plain, strict=True))
    assert mean(len(draft.covered) for draft in wide) > mean(len(draft.covered) for draft in plain) + 1


def test_depth_goes_on_to_linked_things_and_prefers_figures(place, gathered, plain):
    world, _ = place

    def linked(draft, gold):
        named = [world.entity(entity).index for entity in gold.entities]
        return sum(claim.finding.fact.subject not in named for claim in draft.claims)

    def figures(draft):
        return sum(any(char.isdigit() for char in claim.said) for claim in draft.claims)

    golds, deep = [gold for gold, _ in gathered], write(place, gathered, "depth")
    assert mean(map(linked, deep, golds)) > mean(map(linked, plain, golds)) + 0.5
    assert all(figures(more) >= figures(less) for more, less in zip(deep, plain, strict=True))
    assert mean(map(figures, deep)) > mean(map(figures, plain)) + 0.2
    for draft, (gold, sources) in zip(deep, gathered, strict=True):
        for index in [world.entity(entity).index for entity in gold.entities]:
            known = [one.said for one in find_facts(world, sources) if one.fact.subject == index]
            stated = [claim.said for claim in draft.claims if claim.finding.fact.subject == index]
            if any(map(has_figure, known)):
                assert any(map(has_figure, stated))


def has_figure(text):
    return any(char.isdigit() for char in text)


def test_uncertainty_says_what_no_document_does(place, gathered, plain):
    careful = write(place, gathered, "uncertainty")
    for draft, (gold, _) in zip(careful, gathered, strict=True):
        assert bool(draft.num_gaps) == bool(gold.unknown)
        assert sum(gap.lower() in draft.text.lower() for gap in gold.unknown) >= draft.num_gaps
    assert mean(draft.num_gaps for draft in careful) > 0.8 and not any(draft.num_gaps for draft in plain)


def test_citation_puts_a_mark_on_every_claim(place, gathered, plain):
    def marks(draft):
        body, _ = draft.text.split("Conclusion:")
        return len(re.findall(r"\[\d[\d, ]*\]", body))

    marked = write(place, gathered, "citation")
    assert all(marks(draft) == len(draft.claims) for draft in marked)
    assert mean(marks(draft) / len(draft.claims) for draft in plain) < 0.6


def test_coherence_keeps_the_order_of_the_passages_and_joins(place, gathered, plain):
    world, _ = place
    ordered = write(place, gathered, "coherence")
    for draft, (gold, sources) in zip(ordered, gathered, strict=True):
        named = [world.entity(entity).index for entity in gold.entities]
        found = [one.key for one in find_facts(world, sources)]
        own = [claim.finding for claim in draft.claims if claim.finding.fact.subject in named]
        places = [(named.index(one.fact.subject), found.index(one.key)) for one in own]
        assert places == sorted(places)
    joined = [sum(f"{word}, the " in draft.text for word in JOINING) for draft in ordered]
    assert mean(joined) > 0.4
    assert not any(f"{word}, the " in draft.text for draft in plain for word in JOINING)


def test_readability_has_shorter_sentences_than_coverage(place, gathered):
    def length(draft, gold_and_sources):
        body = [one for one in statements(draft, gold_and_sources) if "Conclusion:" not in one.text]
        return mean(len(one.text.split()) for one in body)

    short = list(map(length, write(place, gathered, "readability"), gathered))
    long = list(map(length, write(place, gathered, "coverage"), gathered))
    assert mean(short) < 0.75 * mean(long)
    assert mean(a < b for a, b in zip(short, long, strict=True)) > 0.9
    graph = place[0].graph
    for draft in write(place, gathered, "readability"):
        for claim in draft.claims:
            forms = [state_fact(graph, claim.finding.fact, claim.said, form=form) for form in range(6)]
            assert min(forms, key=len).removesuffix(".") in draft.text


def test_insight_has_a_longer_conclusion(place, gathered, plain):
    def length(draft):
        return len(draft.text.split("Conclusion:")[1].split())

    thoughtful = write(place, gathered, "insight")
    assert all(length(more) >= length(less) for more, less in zip(thoughtful, plain, strict=True))
    assert mean(map(length, thoughtful)) > 1.5 * mean(map(length, plain))
    # Where linked things are treated as well, some conclusions lead over one of them to a third.
    further = [draft.text.split("Conclusion:")[1] for draft in write(place, gathered, "insight", "depth")]
    assert mean(bool(re.search(r"By way of | leads over ", text)) for text in further) > 0.2


def test_balance_gives_equally_many_facts_to_each(place, gathered, plain):
    world, _ = place

    def lead(draft, gold):
        named = [world.entity(entity).index for entity in gold.entities]
        counts = [sum(claim.finding.fact.subject == index for claim in draft.claims) for index in named]
        return max(counts) - min(counts)

    pairs = [at for at, (gold, _) in enumerate(gathered) if len(gold.entities) == 2]
    assert len(pairs) > 8
    golds, even = [gold for gold, _ in gathered], write(place, gathered, "balance")
    assert mean(lead(even[at], golds[at]) for at in pairs) < 0.3
    assert mean(lead(plain[at], golds[at]) for at in pairs) > 1


# ---------------------------------------------------------------------------------------------------------- every draft


@settings(max_examples=examples(60), deadline=None)
@given(st.data())
def test_whatever_is_asked_for_a_draft_is_true_and_cites_what_says_so(place, gathered, data):
    world, _ = place
    gold, sources = data.draw(st.sampled_from(gathered))
    names = data.draw(st.lists(st.sampled_from(NAMES[1:]), unique=True))
    draft = write_by_rubric(world, gold, sources, under(*names), Dice(data.draw(st.integers(0, 99))))
    assert len(draft.claims) >= MIN_CLAIMS and draft.num_treated == draft.num_named
    assert len({claim.finding.key for claim in draft.claims}) == len(draft.claims)
    for claim in draft.claims:
        (number,) = claim.citations
        stated = {(fact.subject, fact.relation): said for fact, said in facts_in(world, sources[number].passage)}
        assert not claim.flaw and stated[claim.finding.key] == claim.said
    report = draft.bind(gold, sources)
    assert report.conclusion and report.citations and not report.unresolved
    assert {number for claim in draft.claims for number in claim.citations} == {*report.citations}
    assert not re.search(r"\{|\}|\|| \.|  |\.\.", draft.text)


def test_dimensions_that_hold_for_every_draft_change_nothing(place, gathered, plain):
    assert [draft.text for draft in write(place, gathered, "instruction")] == [draft.text for draft in plain]


def test_as_a_control_rubrics_are_shown_and_ignored(place):
    world, index = place

    def draw(**how):
        research = Research(world, index, LIMITS, style="brief", seed=0, **how)
        return [research.draw("report") for _ in range(20)]

    followed, ignored = draw(), draw(ignore_rubrics=True)
    assert [one.task for one in followed] == [one.task for one in ignored]
    assert [one.script.rubric for one in followed] == [one.task.rubric for one in followed]
    assert {one.script.rubric for one in ignored} == {None}
    deep = [one for one in followed if one.task.rubric and "depth" in one.task.rubric.dimensions]
    assert deep and all(one.script.num_searches == research_limit(LIMITS) for one in deep)


def research_limit(limits):
    return min(4, limits.max_turns - 1)
