"""What a search is worth: by hand, against a naive reading of the rule, and what must hold for any results."""

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec import structs

from quaere.records import Evidence, Passage, Question
from quaere.rewards.self_evaluation import is_good, value_searches


def passage(doc_id, start=0, end=50, text="x"):
    return Passage(f"{doc_id}#{start}", doc_id, "", text * (end - start), start, end)


FIRST, SECOND = Evidence("halm", 10, 40, "x" * 30), Evidence("guild", 100, 120, "y" * 20)
TWO = Question("q", "Who led the guild that ordered it?", ("Marta Oleen",), evidence=(FIRST, SECOND))
HALM, GUILD, OTHER = passage("halm"), passage("guild", 90, 150), passage("road")
HALM_ELSEWHERE = passage("halm", 200, 300)


@pytest.mark.parametrize(
    ("searches", "values"),
    [
        ([[HALM, GUILD]], [10]),
        ([[HALM], [GUILD]], [8, 10]),
        ([[GUILD], [HALM]], [8, 10]),  # in any order
        ([[HALM], [HALM], [GUILD], [GUILD]], [8, 1, 10, 1]),  # each sentence once
        ([[HALM_ELSEWHERE], [HALM], [HALM_ELSEWHERE]], [5, 8, 1]),  # a page with nothing missing is of no use
        ([[OTHER], [], [HALM_ELSEWHERE, OTHER, GUILD]], [1, 1, 8]),
        ([[passage("halm", 11, 60)], [passage("halm", 10, 40)]], [5, 8]),  # the whole sentence
    ],
)
def test_sentences_by_hand(searches, values):
    assert value_searches(TWO, searches) == values


def test_a_copy_of_a_sentence_counts_as_the_sentence():
    led, built = (Evidence(name, 0, 26, f"{who} led the guild.") for name, who in (("a", "Marta Oleen"), ("b", "Rua")))
    copy = Passage("m#0", "mirror", "", 'He writes: "Marta Oleen led the guild". No more.', 0, 48)
    asked = structs.replace(TWO, evidence=(led, built))
    assert value_searches(asked, [[copy], [passage("a")], [passage("b")]]) == [8, 1, 10]
    # Other words are none, and a sentence whose text is unknown has no copy.
    other = structs.replace(copy, text="Marta Oleen once led the guild.")
    assert value_searches(asked, [[other]]) == [1]
    assert value_searches(structs.replace(TWO, evidence=(Evidence("a", 0, 26, ""),)), [[copy]]) == [1]


def test_a_name_or_a_year_elsewhere_is_no_copy():
    """A proposer's span may be as short as the answer, which is in many passages."""
    elsewhere = Passage("m#0", "mirror", "", "In May 1702 Marta Oleen left the town.", 0, 38)
    for span in ("Marta Oleen", "in May 1702"):
        asked = structs.replace(TWO, evidence=(Evidence("a", 0, len(span), span),))
        assert value_searches(asked, [[elsewhere], [passage("a")]]) == [1, 10]


def test_documents_where_no_sentence_is_known():
    question = structs.replace(TWO, evidence=(), gold_ids=("halm", "guild", "halm"))
    assert value_searches(question, [[OTHER], [HALM_ELSEWHERE], [HALM], [GUILD], [GUILD]]) == [1, 8, 1, 10, 1]
    # Sentences are more exact.
    assert value_searches(structs.replace(TWO, gold_ids=("halm",)), [[HALM_ELSEWHERE]]) == [5]


def test_answers_where_no_evidence_is_known():
    question = Question("q", "Who built it?", ("Venn", "yes"))
    found = Passage("a#0", "a", "", "Venn built it.", 0, 14)
    assert value_searches(question, [[OTHER], [found], [found]]) == [1, 10, 1]
    assert value_searches(structs.replace(question, answers=("No",)), [[found]]) == []
    assert value_searches(structs.replace(question, answers=()), [[found]]) == []


pieces = st.lists(st.tuples(st.sampled_from("abc"), st.integers(0, 3)), min_size=1, max_size=4, unique=True)
results = st.lists(st.lists(st.tuples(st.sampled_from("abcd"), st.integers(0, 3)), max_size=4), max_size=6)


@given(pieces, results)
def test_it_is_the_naive_reading_of_the_rule(wanted, shown):
    """A passage is a document and a number, and so is a sentence: found where both are equal."""
    evidence = tuple(Evidence(doc, 10 * at, 10 * at + 10, "s") for doc, at in wanted)
    searches = [[passage(doc, 10 * at, 10 * at + 10) for doc, at in some] for some in shown]
    values = value_searches(structs.replace(TWO, evidence=evidence), searches)
    seen = set()
    for some, value in zip(shown, values, strict=True):
        left = set(wanted) - seen
        new = left & set(some)
        near = {doc for doc, _ in left} & {doc for doc, _ in some}
        assert value == (10 if new and new == left else 8 if new else 5 if near else 1)
        assert is_good(value) == bool(new)
        seen |= new
    assert values.count(10) <= 1 and sum(map(is_good, values)) <= len(wanted)


@given(pieces, results, st.randoms(use_true_random=False))
def test_the_order_of_evidence_and_of_passages_says_nothing(wanted, shown, draw):
    def values():
        evidence = tuple(Evidence(doc, 10 * at, 10 * at + 10, "s") for doc, at in wanted)
        searches = [[passage(doc, 10 * at, 10 * at + 10) for doc, at in some] for some in shown]
        return value_searches(structs.replace(TWO, evidence=evidence), searches)

    before = values()
    for listed in (wanted, *shown):
        draw.shuffle(listed)
    assert values() == before
