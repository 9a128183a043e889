"""Were the scores right? On episodes whose searches are known to be good or not."""

import pytest
from msgspec import structs

from evaluated import NEVER_MET, NO_ROOM, QUESTION, answer, episode, evaluate, malformed, passage, search
from quaere.dialects.evalact_reward import judge_searches, measure_evaluations
from quaere.records import Evidence, Question

RIGHT = passage("Orsolya Venn built it.", "halm")
WRONG = passage("A road to Halm.", "road")

# Two hops: the bridge was ordered by a guild, and the guild's master was somebody.
FIRST = Evidence("halm", 10, 40, "x" * 30)
SECOND = Evidence("guild", 100, 120, "y" * 20)
HOPS = Question("q2", "Who led the guild that ordered the bridge?", ("Marta Oleen",), 2, (FIRST, SECOND))
HALM = passage("x" * 60, "halm", 0)
GUILD = passage("y" * 60, "guild", 90)


def labels(*turns, question=QUESTION):
    return judge_searches(episode(*turns, question=question))


def test_a_search_is_good_if_a_passage_holds_an_answer():
    assert labels(search(RIGHT), evaluate(9), search(WRONG), evaluate(1)) == {0: True, 2: False}
    assert labels(search(WRONG, RIGHT), evaluate(9)) == {0: True}
    assert labels(search(), evaluate(0)) == {0: False}
    titled = passage("She built bridges.", title="Orsolya Venn")
    assert labels(search(titled), evaluate(9)) == {0: True}


def test_an_answer_astride_two_passages_or_within_a_word_does_not_count():
    assert labels(search(passage("by Orsolya"), passage("Venn and sons"))) == {0: False}
    assert labels(search(passage("by Orsolya Vennings"))) == {0: False}


def test_each_sentence_of_the_evidence_makes_one_search_good_in_any_order():
    assert labels(search(HALM), evaluate(8), search(GUILD), evaluate(8), question=HOPS) == {0: True, 2: True}
    # What was found before is no news.
    assert labels(search(HALM), search(HALM), question=HOPS) == {0: True, 1: False}
    assert labels(search(GUILD), search(HALM), question=HOPS) == {0: True, 1: True}
    # Nothing is left to be found once both are there.
    assert labels(search(HALM, GUILD), search(GUILD), search(WRONG), question=HOPS) == {0: True, 1: False, 2: False}
    assert labels(search(GUILD), search(HALM), search(GUILD), question=HOPS) == {0: True, 1: True, 2: False}
    # Where evidence is known, a passage that merely has the answer proves nothing.
    assert labels(search(passage("by Marta Oleen", "road")), question=HOPS) == {0: False}


def test_searches_that_were_not_evaluated_have_found_what_they_found():
    assert labels(search(HALM), malformed(), search(HALM), evaluate(7), question=HOPS)[2] is False


def test_a_search_that_was_never_met_has_found_nothing():
    assert labels(search(failure=NEVER_MET), search(HALM), evaluate(7), question=HOPS) == {1: True}
    assert labels(search(HALM, failure=NO_ROOM), search(HALM), evaluate(7), question=HOPS) == {1: True}


@pytest.mark.parametrize(
    "partly", [passage("x" * 25, "halm", 10), passage("x" * 29, "halm", 11), passage("x" * 60, "other", 0)]
)
def test_the_passage_must_hold_the_whole_sentence_of_that_document(partly):
    assert labels(search(partly), question=HOPS) == {0: False}
    assert labels(search(passage("x" * 30, "halm", 10)), question=HOPS) == {0: True}


def test_yes_and_no_stand_everywhere_and_tell_nothing():
    said = passage("There is no bridge; yes, none.")
    plain = structs.replace(QUESTION, answers=("no",))
    assert labels(search(said), question=plain) == {}
    assert labels(search(said), question=structs.replace(HOPS, answers=("Yes",))) == {0: False}
    measured = measure_evaluations([episode(search(said), evaluate(4), question=plain)])
    assert measured == {"evaluate/per_search": 1.0, "evaluate/score": 4.0}


def test_metrics_by_hand():
    episodes = [
        episode(search(RIGHT), evaluate(9), search(WRONG), evaluate(2), answer("Orsolya Venn")),
        episode(search(WRONG), evaluate(5), search(RIGHT), evaluate(5), search(WRONG), answer("nobody")),
        episode(search(WRONG), malformed(), evaluate(10), answer("nobody")),
        episode(answer("nobody")),
    ]
    measured = measure_evaluations(episodes)
    assert measured == pytest.approx(
        {
            "evaluate/per_search": 4 / 6,
            "evaluate/score": (9 + 2 + 5 + 5) / 4,
            "evaluate/constant": 1 / 2,
            "evaluate/good": 2 / 4,
            "evaluate/auroc": (1 + 1 + 1 + 0.5) / 4,  # 9 beats 2 and 5; 5 beats 2 and ties with 5
            "evaluate/auroc_turn": 2 / 2,  # first searches: 9 beats 5; second ones: 5 beats 2
            "evaluate/ece": (0.1 + 0.2 + 0.0) / 4,  # 0.9 was good, 0.2 was bad, half of the 0.5 were good
            "evaluate/brier": (0.01 + 0.04 + 0.25 + 0.25) / 4,
        }
    )


def test_what_cannot_be_measured_is_left_out():
    assert measure_evaluations([]) == {}
    assert measure_evaluations([episode(answer("nobody"))]) == {}
    assert measure_evaluations([episode(search(WRONG), answer("nobody"))]) == {"evaluate/per_search": 0.0}
    alone = measure_evaluations([episode(search(RIGHT), evaluate(8), answer("Orsolya Venn"))])
    assert alone == pytest.approx(
        {
            "evaluate/per_search": 1.0,
            "evaluate/score": 8.0,
            "evaluate/good": 1.0,
            "evaluate/ece": 0.2,
            "evaluate/brier": 0.04,
        }
    )


def test_a_text_endpoint_is_measured_too():
    played = structs.replace(episode(search(RIGHT), evaluate(8)), segments=())
    assert measure_evaluations([played])["evaluate/score"] == 8.0
