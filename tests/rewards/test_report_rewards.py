"""What reports earn, by hand; how alike conclusions are; what can be checked without a model."""

import math
import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from quaere.records import Passage, Question, Report, Rubric, Scores, Source, Statement, Weight
from quaere.rewards.reports import (
    ReportPay,
    check_report,
    consistency_score,
    diversity_score,
    find_terms,
    length_score,
    mean_scores,
    most_reward,
    report_reward,
    validity_score,
)

pytest.importorskip("sklearn")

RUBRIC = Rubric("factuality", (Weight("coverage", 0.4), Weight("insight", 0.2)))
SCORES = Scores(1, {"factuality": 7.0, "coverage": 5.0, "insight": 10.0}, validity=3.0)


# ------------------------------------------------------------------------------------------------------------- rewards


def test_a_reward_by_hand():
    # 0.7 * (1 + 0.4 * 0.5 + 0.2 * 1.0) = 0.7 * 1.4
    pay = report_reward(SCORES, RUBRIC, num_searches=1, tau=1)
    assert (pay.validity, pay.quality, pay.verified) == (pytest.approx(0.7), pytest.approx(0.4), True)
    assert pay.total == pytest.approx(0.98)
    assert pay.parts["reward/total"] == pay.total and pay.parts["reward/verified"] == 1.0


def test_validity_may_be_a_score_of_its_own():
    assert report_reward(SCORES, RUBRIC, separate=True).total == pytest.approx(0.3 * 1.4)
    assert validity_score(SCORES, RUBRIC, separate=True) == pytest.approx(0.3)
    with pytest.raises(ValueError, match="no validity score"):
        validity_score(Scores(1, {"factuality": 7.0}), RUBRIC, separate=True)


def test_another_scale():
    on_five = Scores(1, {"factuality": 3.5, "coverage": 2.5, "insight": 5.0})
    assert report_reward(on_five, RUBRIC, scale=5.0).total == pytest.approx(0.98)


@pytest.mark.parametrize(("num_searches", "tau", "paid"), [(0, 0, True), (1, 2, False), (2, 2, True), (3, 2, True)])
def test_a_report_that_was_hardly_looked_into_earns_nothing(num_searches, tau, paid):
    pay = report_reward(SCORES, RUBRIC, num_searches=num_searches, tau=tau)
    assert pay.total == (pytest.approx(0.98) if paid else 0.0)
    assert pay.verified == paid and pay.validity == pytest.approx(0.7)


def test_what_is_not_valid_or_was_never_finished_earns_nothing():
    made_up = Scores(1, {"factuality": 0.0, "coverage": 10.0, "insight": 10.0})
    assert report_reward(made_up, RUBRIC).total == 0.0
    assert report_reward(None, RUBRIC, num_searches=5) == ReportPay(0.0, 0.0, verified=False, total=0.0)


def test_the_most_a_rubric_pays():
    best = Scores(1, dict.fromkeys(RUBRIC.dimensions, 10.0))
    assert report_reward(best, RUBRIC).total == pytest.approx(most_reward(RUBRIC)) == pytest.approx(1.6)


@pytest.mark.parametrize("scores", [{"factuality": 11.0}, {"factuality": -1.0}, {"factuality": math.nan}, {}])
def test_scores_off_the_scale_are_refused(scores):
    with pytest.raises(ValueError, match=r"must be from|no score"):
        validity_score(Scores(1, scores), RUBRIC)


def test_passes_are_averaged():
    first, second = (
        Scores(2, {"factuality": 6.0}, "checked", validity=2.0),
        Scores(1, {"factuality": 8.0}, validity=3.0),
    )
    assert mean_scores([first, second], 4) == Scores(4, {"factuality": 7.0}, "checked", "", 2.5)
    assert mean_scores([], 1) is None
    assert mean_scores([first, Scores(1, {"factuality": 8.0})], 1).validity is None


# --------------------------------------------------------------------------------------------------------- consistency


@pytest.mark.parametrize(
    ("conclusions", "expected"),
    [
        (["the oss is short"] * 3, 1.0),
        (["short", "long"], 0.0),
        (["Short!", "short"], 1.0),
        (["", ""], 0.0),
        (["", "short", "short"], 1 / 3),  # of three pairs, one agrees
        ([".", "?"], 0.0),
        (["a a b", "a a b", "c"], 1 / 3),
        (["7", "7"], 1.0),
        ([], None),
        (["alone"], None),
    ],
)
def test_consistency_by_hand(conclusions, expected):
    assert consistency_score(conclusions) == (None if expected is None else pytest.approx(expected))


def test_the_cosine_of_two_conclusions_by_hand():
    # idf with smoothing: a word in both weighs 1, a word in one ln(3/2) + 1.
    rare = math.log(3 / 2) + 1
    assert consistency_score(["oss short", "oss long"]) == pytest.approx(1 / (1 + rare**2))


@given(st.lists(st.text(alphabet="oss 170[],.abcd", max_size=30), min_size=2, max_size=5))
def test_content_is_the_score_of_texts_with_all_else_removed(conclusions):
    def keep(text):
        bare = re.sub(r"\[[0-9, \t]*\]", " ", text)
        return " ".join(re.findall(r"\d+(?:[.,]\d+)*|[a-z]{4,}", bare.lower())).replace(".", "x").replace(",", "y")

    expected = consistency_score([keep(text) for text in conclusions])
    assert consistency_score(conclusions, "content") == pytest.approx(expected)


def test_it_is_the_mean_over_pairs():
    from itertools import combinations

    from sklearn.feature_extraction.text import TfidfVectorizer
    from sklearn.metrics.pairwise import cosine_similarity

    texts = ["the oss is short and cold", "the oss is long", "nobody knows the oss", "cold and short"]
    vectors = TfidfVectorizer(token_pattern=r"(?u)\w+").fit_transform(texts)
    cosines = cosine_similarity(vectors)
    expected = [cosines[a, b] for a, b in combinations(range(len(texts)), 2)]
    assert consistency_score(texts) == pytest.approx(sum(expected) / 6)
    assert diversity_score(texts) == pytest.approx(1 - sum(expected) / 6)


@given(st.lists(st.text(max_size=30), max_size=6), st.randoms(use_true_random=False))
def test_it_lies_between_0_and_1_whatever_is_written_and_the_order_does_not_matter(conclusions, draw):
    score = consistency_score(conclusions)
    if len(conclusions) < 2:
        assert score is None
        return
    assert 0 <= score <= 1
    mixed = draw.sample(conclusions, len(conclusions))
    assert consistency_score(mixed) == pytest.approx(score, abs=1e-9)


# -------------------------------------------------------------------------------------------------------------- checks


def report(text, statements, sources=(), question="Where does the Oss river rise?"):
    made = tuple(Statement(said, 0, len(said), tuple(cited)) for said, cited in statements)
    shown = tuple(
        Source(number, Passage(f"d{number}#0", f"d{number}", "", said, 0, len(said))) for number, said in sources
    )
    return Report(Question("q", question), text, made, shown)


def test_checks_by_hand():
    made = report(
        "The Oss river rises at Korrin. " * 10,
        [("The river rises at Korrin [1].", [1]), ("It freezes [1, 9].", [1, 9]), ("Nobody knows.", [])],
        [(1, "The Oss: a river that rises at Korrin.")],
    )
    checks = check_report(made)
    assert checks.resolved == pytest.approx(2 / 3)
    assert checks.cited == pytest.approx(2 / 3)
    assert checks.overlap == pytest.approx((3 / 3 + 0 / 1) / 2)  # river, rises, korrin; freezes
    assert checks.coverage == pytest.approx(1 / 4)  # where, does, river, rise: only "river" stands there
    assert checks.length == 1.0
    assert checks.grounded == pytest.approx(2 / 3)
    assert checks.total == pytest.approx((4 / 3 + 0.5 + 0.25 + 1) / 5)


def test_overlap_is_the_mean_over_statements_that_cite_and_no_words_are_none_of_it():
    said = [("The river rises [1].", [1]), ("The river freezes [1].", [1]), ("So it is [1].", [1])]
    checks = check_report(report("x", said, [(1, "a river that rises")], question="Is it so?"))
    assert checks.overlap == pytest.approx((2 / 2 + 1 / 2 + 0) / 3)
    assert checks.coverage == 1.0  # there is no longer word to cover


def test_coverage_counts_longer_words_of_the_question():
    assert find_terms("Where does the Oss river rise, 7?") == {"where", "does", "river", "rise", "7"}


def test_a_citation_alone_counts_as_no_cited_statement():
    checks = check_report(report("[1].", [("[1].", [1])], [(1, "The Oss rises at Korrin.")]))
    assert (checks.cited, checks.grounded, checks.overlap) == (0.0, 0.0, 0.0)


def test_an_empty_report_has_nothing():
    checks = check_report(report("", []))
    assert set(checks.parts.values()) == {0.0} and checks.total == 0


def test_a_citation_that_leads_nowhere_grounds_nothing():
    checks = check_report(report("It rises [7].", [("It rises [7].", [7])]))
    assert (checks.resolved, checks.cited, checks.grounded, checks.overlap) == (0, 1, 0, 0)


@pytest.mark.parametrize(("num", "expected"), [(0, 0), (30, 0.5), (60, 1), (800, 1), (1200, 0.5), (1600, 0), (9000, 0)])
def test_length(num, expected):
    assert length_score(num) == pytest.approx(expected)
