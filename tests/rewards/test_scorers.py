"""Do FlashRAG, Search-R1 and SQuAD give the same exact match and F1? Replays what benchmarks/record_peers.py recorded.

Every difference is explained by one of three rules, and each rule is applied here to the cases that it is about.
"""

import gzip
import json
import re
import string
from collections import Counter
from pathlib import Path

import pytest

from quaere.rewards.answers import exact_match_score, f1_score, normalise_answer

BENCHMARKS = Path(__file__).parents[2] / "benchmarks"
RECORD = json.loads(gzip.decompress((Path(__file__).parent / "fixtures/scorers.json.gz").read_bytes()))
SCORES = RECORD["scores"]
NUM_NASTY = 500


@pytest.fixture(scope="module")
def cases():
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(str(BENCHMARKS))
        import answer_cases
    found = answer_cases.draw_cases()
    assert answer_cases.hash_cases(found) == RECORD["cases"], "the cases are not those that were recorded"
    assert len(found) >= answer_cases.NUM_RANDOM + NUM_NASTY
    return found


def squad_words(text):
    """SQuAD v1.1's rules, written naively: lower case, no ASCII punctuation, no articles."""
    kept = "".join(character for character in text.lower() if character not in string.punctuation)
    return re.sub(r"\b(a|an|the)\b", " ", kept).split()


def squad_f1(answer, other):
    mine, theirs = squad_words(answer), squad_words(other)
    shared = sum((Counter(mine) & Counter(theirs)).values())
    if not shared:
        return 0.0
    precision, recall = shared / len(mine), shared / len(theirs)
    return 2 * precision * recall / (precision + recall)


def squad_em(answer, other):
    return float(squad_words(answer) == squad_words(other))


def is_blank(answer):
    """The first rule: nothing is left of the answer, and ours matches nothing with it."""
    return not normalise_answer(answer)


def is_closed(*texts):
    """The second rule, HotpotQA's: yes, no and noanswer give no partial credit."""
    return any(normalise_answer(text) in ("yes", "no", "noanswer") for text in texts)


@pytest.mark.parametrize("peer", SCORES)
def test_exact_match_differs_for_answers_of_articles_and_punctuation_alone(cases, peer):
    theirs = dict(zip(cases, SCORES[peer]["em"], strict=True))
    ours = {case: exact_match_score(*case) for case in cases}
    differing = {case for case in cases if ours[case] != theirs[case]}
    assert differing == {case for case in cases if is_blank(case[0]) and any(map(is_blank, case[1]))}
    assert all(theirs[case] == 1 for case in differing)
    assert sum(theirs.values()) > 1_000  # the cases have matches at all


def test_squads_exact_match_is_the_recorded_one(cases):
    naive = [max(squad_em(answer, other) for other in accepted) for answer, accepted in cases]
    assert naive == SCORES["torchmetrics"]["em"] == SCORES["flashrag-dev"]["em"] == SCORES["verl"]["em"]


def test_f1_is_flashrags(cases):
    for (answer, accepted), theirs in zip(cases, SCORES["flashrag-dev"]["f1"], strict=True):
        assert abs(f1_score(answer, accepted) - theirs) < 1e-9, (answer, accepted)


def test_f1_is_squads_but_for_closed_answers(cases):
    num_differing = 0
    for answer, accepted in cases:
        naive = max(squad_f1(answer, other) for other in accepted)
        kept = [other for other in accepted if not is_closed(answer, other) or squad_em(answer, other)]
        ours = f1_score(answer, accepted)
        assert abs(ours - max((squad_f1(answer, other) for other in kept), default=0.0)) < 1e-9, (answer, accepted)
        num_differing += abs(naive - ours) > 1e-9
    assert num_differing > 100


def test_squads_f1_is_torchmetrics_but_for_two_blank_answers(cases):
    for (answer, accepted), theirs in zip(cases, SCORES["torchmetrics"]["f1"], strict=True):
        # The third rule, of SQuAD 2.0: an empty answer is right where the accepted one is empty.
        naive = max(float(is_blank(other)) if is_blank(answer) else squad_f1(answer, other) for other in accepted)
        assert abs(naive - theirs) < 1e-5, (answer, accepted)


@pytest.mark.parametrize(
    ("answer", "accepted", "ours", "theirs"),
    [("", "The The", 0, 1), ("The The", "The The", 0, 1), ("x-y", "xy", 1, 1), ("the’s end", "’s end", 1, 1)],
)
def test_exact_match_by_hand(answer, accepted, ours, theirs):
    assert (exact_match_score(answer, [accepted]), squad_em(answer, accepted)) == (ours, theirs)
