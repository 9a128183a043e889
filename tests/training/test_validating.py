"""Which questions are held back to validate, and how an answer to one is scored."""

import random
from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec import structs

from quaere.errors import BadInput
from quaere.records import Answer, Episode, Evidence, Question, SolveTask
from quaere.rollout.policy import derive_seed
from quaere.training.given import PracticeConfig, check_config
from quaere.training.settings import ValidationSettings
from quaere.training.solver_phase import count_held_back, hold_back, plan_validation, score_answer


def make_questions(*counts):
    """So many questions of one hop, of two, ..."""
    return [Question(f"h{h}-{n}", "?", ("a",), h) for h, count in enumerate(counts, start=1) for n in range(count)]


@pytest.mark.parametrize(
    ("num_questions", "settings", "expected"),
    [
        (1000, ValidationSettings(), 64),
        (400, ValidationSettings(), 40),  # a tenth
        (80, ValidationSettings(), 8),
        (79, ValidationSettings(), 0),  # 7 would say nothing
        (79, ValidationSettings(share=0.5), 39),
        (0, ValidationSettings(), 0),
        (1000, ValidationSettings(questions=0), 0),
    ],
)
def test_how_many_are_held_back(num_questions, settings, expected):
    assert count_held_back(num_questions, settings) == expected
    assert len(hold_back(make_questions(num_questions), settings, seed=7)[1]) == expected


def test_hops_keep_their_shares_by_largest_remainder():
    """Of 45, 35 and 20 questions 8 in 100 are 3.6, 2.8 and 1.6: 3, 2 and 1, and the two left over go to .8 and a .6."""
    _, held = hold_back(make_questions(45, 35, 20), ValidationSettings(questions=8), seed=7)
    assert Counter(question.hops for question in held) == {1: 4, 2: 3, 3: 1}


@given(
    counts=st.lists(st.integers(0, 60), min_size=1, max_size=4),
    most=st.integers(8, 70),
    share=st.floats(0.05, 0.95),
    seed=st.integers(0, 2**40),
)
def test_every_question_is_on_one_side_and_hops_are_balanced(counts, most, share, seed):
    questions, settings = make_questions(*counts), ValidationSettings(questions=most, share=share)
    train, held = hold_back(questions, settings, seed)
    assert len(held) == count_held_back(len(questions), settings)
    assert sorted(train + held, key=questions.index) == questions
    assert [*filter(train.__contains__, questions)] == train and [*filter(held.__contains__, questions)] == held
    for hops, count in enumerate(counts, start=1):
        exact = count * len(held) / max(1, len(questions))
        assert abs(sum(question.hops == hops for question in held) - exact) < 1
    shuffled = random.Random(seed).sample(questions, len(questions))
    again = hold_back(shuffled, settings, seed)[1]
    assert {question.id for question in again} == {question.id for question in held}


def test_another_seed_holds_back_others_and_one_question_more_moves_few():
    questions = make_questions(400)
    first, other = ({q.id for q in hold_back(questions, ValidationSettings(), seed)[1]} for seed in (0, 1))
    assert len(first) == len(other) == 40 and len(first & other) < 20
    more = {q.id for q in hold_back([*questions, Question("new", "?", ("a",), 1)], ValidationSettings(), 0)[1]}
    assert len(first & more) >= 39


def test_questions_about_one_sentence_are_on_one_side():
    """A fact and its rewording, which ends with the fact: 20 pairs of 200; and nine questions about one sentence."""

    def prove(question, *starts):
        return structs.replace(
            question, evidence=tuple(Evidence("halm", start, start + 9, "said so.") for start in starts)
        )

    facts, reworded = [prove(one, at) for at, one in enumerate(make_questions(200))], []
    for at, fact in enumerate(facts):
        reworded.append(prove(structs.replace(fact, id=f"{fact.id}-reworded", hops=3), at + 1000, at))
    others = [prove(structs.replace(facts[0], id=f"other{number}"), 5000) for number in range(9)]
    questions = [*facts, *reworded, *others]
    train, held = hold_back(questions, ValidationSettings(), 0)
    kept, validated = ({question.evidence[-1].start for question in side} for side in (train, held))
    assert not kept & validated and len(train) + len(held) == 409
    assert 36 <= len(held) <= 40 and Counter(question.hops for question in held)[3] >= 18
    again = hold_back(questions[::-1], ValidationSettings(), 0)[1]
    assert {question.id for question in again} == {question.id for question in held}


def test_a_question_that_was_kept_in_several_iterations_is_on_one_side():
    """The curriculum of a run with `given_again` has a given question once for each iteration, under other ids."""
    questions = [
        Question(f"i{iteration}-given-{number}", f"Who built bridge {number}?", ("Venn",), 1)
        for iteration in range(3)
        for number in range(100)
    ]
    train, held = hold_back(questions, ValidationSettings(), 0)
    assert len(held) == 30
    assert not {one.text for one in train} & {one.text for one in held}


def test_questions_with_a_sentence_each_are_held_back_as_those_without():
    """And as by earlier versions, which knew no sentences: their runs are resumed with the same."""
    plain = make_questions(50, 30, 20)
    proven = [structs.replace(one, evidence=(Evidence("halm", at, at + 9, "so."),)) for at, one in enumerate(plain)]
    sides = [{one.id for one in hold_back(some, ValidationSettings(), 3)[1]} for some in (plain, proven)]
    assert sides[0] == sides[1] == {one.id for one in hold_back_by_id(plain, 3, {1: 5, 2: 3, 3: 2})}


def hold_back_by_id(questions, seed, counts):
    order = sorted(questions, key=lambda one: derive_seed(seed, "validation", one.id))
    return [one for hops, count in counts.items() for one in [one for one in order if one.hops == hops][:count]]


@pytest.mark.parametrize(
    ("outcome", "expected"),
    [(Answer("the Halm bridge"), (1.0, 1.0)), (Answer("Halm"), (0.0, 2 / 3)), (Answer("Oss"), (0.0, 0.0))],
)
def test_an_answer_is_scored_as_in_evaluation(outcome, expected):
    episode = Episode("e", SolveTask(Question("q", "?", ("Halm bridge",))), "p", "m", 0, (), (), outcome, "answered")
    assert tuple(score_answer(episode).values()) == pytest.approx(expected)


def test_no_answer_scores_nothing_even_where_nothing_is_accepted():
    """ "A" is an article, and normalised to nothing."""
    episode = Episode("e", SolveTask(Question("q", "?", ("A",))), "p", "m", 0, (), (), None, "turn_limit")
    assert score_answer(episode) == {"answer/exact_match": 0.0, "answer/f1": 0.0}


@pytest.mark.parametrize(
    ("settings", "says"),
    [
        (ValidationSettings(questions=7), "validation.questions must be at least 8, or 0 for no validation, not 7"),
        (ValidationSettings(questions=-1), "validation.questions must be at least 0, not -1"),
        (ValidationSettings(every=0), "validation.every must be at least 1, not 0"),
        (ValidationSettings(share=0), "validation.share must be above 0 and below 1, not 0"),
        (ValidationSettings(share=1), "validation.share must be above 0 and below 1, not 1"),
    ],
)
def test_senseless_settings_are_refused(settings, says):
    with pytest.raises(BadInput, match=says):
        check_config(PracticeConfig(validation=settings))
    check_config(PracticeConfig(validation=ValidationSettings(questions=0)))


def test_what_a_dry_run_says():
    assert "at most 64 questions held back, 10% of all or fewer" in plan_validation(1000, ValidationSettings())[1]
    assert plan_validation(80, ValidationSettings())[1].startswith("at most 8 questions held back")
    assert plan_validation(1000, ValidationSettings(questions=0))[1] == "none; the last checkpoint counts"
    said = "none, as validation.share=0.1 of 32 questions is fewer than 8; the last checkpoint counts"
    assert plan_validation(32, ValidationSettings(questions=8))[1] == said
