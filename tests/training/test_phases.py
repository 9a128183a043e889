"""Drawing, reading, judging and selecting: what recipes are composed of."""

from collections import Counter

import pytest
import torch
from hypothesis import example, given
from hypothesis import strategies as st
from msgspec import structs

import tiny
from quaere.policies.native.device import choose_device
from quaere.records import (
    Answer,
    Candidate,
    Episode,
    Failure,
    Hit,
    Proposal,
    ProposeTask,
    Question,
    Search,
    SearchResult,
    SolveTask,
    Turn,
)
from quaere.training.proposals import (
    best_samples,
    judge_attempts,
    judge_form,
    judge_text,
    make_candidate,
    opens_with_plan,
    propose_jobs,
    read_proposal,
    remember_questions,
)
from quaere.training.rollouts import (
    Drawing,
    count_distinct,
    count_easy,
    count_steps_with_questions,
    draw_by_need,
    draw_hops,
    draw_questions,
    draw_tasks,
    rights,
    several_a_step,
)


class Numbers:
    """Passages that are called by their numbers."""

    def __init__(self, size):
        self.size = size

    def __len__(self):
        return self.size

    def passage(self, number):
        return tiny.passage(f"text {number}", title=f"title {number}")


# ---------------------------------------------------------------------------------------------------------- attempting


def attempt(num_found, answer="Venn", num_empty=0):
    """An attempt with so many queries that found something, and so many that did not."""
    hit = Hit(tiny.passage("Venn built it."), 1.0)
    results = [SearchResult(f"Halm {n}", (hit,)) for n in range(num_found)] + [SearchResult("Oss", ())] * num_empty
    turns = [Turn(n, "", Search((one.query,)), "stop_string", (one,)) for n, one in enumerate(results)]
    task = SolveTask(Question("q", "Who?", ("Venn",)))
    return Episode("e", task, "drzero-solver", "m", 0, (), tuple(turns), Answer(answer), "answered")


def test_which_attempts_count_as_right_by_hand():
    attempts = [attempt(0), attempt(1), attempt(2), attempt(1, num_empty=3), attempt(3, answer="Brod")]
    assert rights(attempts) == [1, 1, 1, 1, 0]
    assert rights(attempts, 1) == [0, 1, 1, 1, 0]
    assert rights(attempts, 2) == [0, 0, 1, 0, 0]
    assert [count_easy(attempts, needed) for needed in range(4)] == [0, 1, 3, 4]


# ------------------------------------------------------------------------------------------------------------- drawing


@given(size=st.integers(1, 60), seed=st.integers(0, 2**40), start=st.integers(0, 500))
def test_every_document_comes_once_before_any_comes_twice(size, seed, start):
    first = start - start % size
    tasks = draw_tasks(Numbers(size), range(first, first + size), (4, 3, 2, 1), seed=seed, name="i0")
    assert len({task.document.text for task in tasks}) == size


@given(ratio=st.lists(st.integers(0, 4), min_size=1, max_size=4).filter(any), seed=st.integers(0, 2**40))
def test_hops_come_in_their_ratio(ratio, seed):
    total = sum(ratio)
    counts = Counter(draw_hops(number, ratio, seed) for number in range(3 * total))
    assert [counts[hops] for hops in range(1, len(ratio) + 1)] == [3 * weight for weight in ratio]


def test_tasks_depend_on_their_numbers_alone():
    together = draw_tasks(Numbers(50), range(10), (4, 3, 2, 1), seed=7, name="i0")
    apart = [draw_tasks(Numbers(50), [number], (4, 3, 2, 1), seed=7, name="i0")[0] for number in range(10)]
    assert together == apart
    assert together != draw_tasks(Numbers(50), range(10), (4, 3, 2, 1), seed=8, name="i0")
    assert draw_tasks(Numbers(50), [0], (1,), seed=7, name="i0", document=False)[0].document is None


# ----------------------------------------------------------------------------------------------- reading and judging


def episode(question="Who built it?", answer="Orsolya Venn", *, hops=2, failed=False, plan="<think>Look.</think>"):
    """A proposer's episode of one search and one ending."""
    hit = Hit(tiny.passage("Orsolya Venn built the bridge.", title="Halm"), 1.0)
    failure = Failure("search", "unreachable", "no answer") if failed else None
    results = () if failed else (SearchResult("Halm", (hit,)),)
    turns = (
        Turn(0, f"{plan}<tool_call>...</tool_call>", Search(("Halm",)), "stop_string", results, failure=failure),
        Turn(1, "<question>..</question><answer>..</answer>", Proposal(question, answer), "stop_string"),
    )
    task = ProposeTask("p0", tiny.passage("The road leads to Halm.", title="Road"), hops)
    outcome = Proposal(question, answer) if question or answer else None
    return Episode("p0", task, "drzero-proposer", "m", 0, (), turns, outcome, "answered" if outcome else "turn_limit")


def test_a_proposal_is_scored_by_what_was_really_found():
    proposed = read_proposal(episode())
    assert (proposed.score.think, proposed.score.tool, proposed.score.answer) == (0.5, 1.0, 1.0)
    assert proposed.score.total == (1 + 0.5 + 1 + 1) / 4
    assert proposed.question.answers == ("Orsolya Venn",) and proposed.question.hops == 2
    assert (proposed.question.facts, proposed.question.searches) == (1, 1)
    unfounded = read_proposal(episode(answer="Marta Oleen"))
    assert unfounded.score.answer == 0.0 and unfounded.question is not None
    three = read_proposal(episode(hops=3))
    assert three.score.tool == pytest.approx(2 / 3)
    assert (three.question.facts, three.question.searches) == (2, 2)


def test_a_plan_stands_at_the_beginning_and_says_something():
    assert opens_with_plan("\n <think>I look.</think><answer>x</answer>")
    assert not opens_with_plan("<think> </think><answer>x</answer>")
    assert not opens_with_plan("<answer>x</answer><think>late</think>")


def test_after_a_failed_search_nothing_counts():
    proposed = read_proposal(episode(failed=True))
    assert proposed.episode.search_failed
    assert proposed.question is None
    assert judge_form(proposed, set()) == "unfinished"


def test_a_given_question_without_words_makes_no_proposal_a_duplicate():
    seen = set()
    assert judge_text("The?", seen, 0, leaked=False) == ""  # it has nothing but an article and punctuation
    assert judge_form(read_proposal(episode()), seen) == ""


def test_each_reason_to_drop_a_question():
    seen = set()
    good = read_proposal(episode())
    assert judge_form(good, seen) == ""
    assert judge_form(read_proposal(episode("WHO built it")), seen) == "duplicate"
    leak = read_proposal(episode("Did Orsolya Venn build it?"))
    assert leak.score.leaked and judge_form(leak, seen) == "leaked answer"
    assert judge_form(read_proposal(episode("", "")), seen) == "invalid"
    comparison = read_proposal(episode("Was it built by Orsolya Venn or Marta Oleen?"))
    assert judge_form(comparison, seen) == ""
    assert [judge_attempts(right, 3) for right in (0, 1, 2, 3)] == ["never solved", "", "", "always solved"]
    assert judge_attempts(0, 0) == "spoiled"


def test_the_year_of_a_date_is_accepted_where_it_is_asked_for():
    for question, answers in (
        ("In which year was it built?", ("4 May 1702", "1702")),
        ("When was it built?", ("4 May 1702",)),
    ):
        proposed = read_proposal(episode(question, "4 May 1702"))
        candidate = make_candidate(proposed, step=1, iteration=0, reason="")
        assert proposed.question.answers == candidate.answers == candidate.to_question().answers == answers


def test_a_candidate_names_the_document_it_was_written_about():
    written = episode()
    alone = structs.replace(written, task=structs.replace(written.task, document=None))
    for one, document in ((written, "d0"), (alone, "")):
        candidate = make_candidate(read_proposal(one), step=3, iteration=1, reason="duplicate")
        assert (candidate.document_id, candidate.hops, candidate.reason) == (document, 2, "duplicate")
        assert (candidate.step, candidate.iteration, candidate.num_attempts) == (3, 1, 0)


def test_a_question_is_kept_by_the_rules_it_was_scored_by():
    """`invalid_rule` and `containment` decide about a leaked answer, in the reward and in the curriculum alike."""
    leak = episode("Did Orsolya Venn build it?")
    assert judge_form(read_proposal(leak, invalid_rule="text"), set()) == "leaked answer"
    assert judge_form(read_proposal(leak, invalid_rule="algorithm"), set()) == ""
    inside = episode("Who built it in 1950?", answer="95")
    assert judge_form(read_proposal(inside, containment="words"), set()) == ""
    assert judge_form(read_proposal(inside, containment="characters"), set()) == "leaked answer"


def sample(number, question="Who built it?", answer="Orsolya Venn", **changes):
    return read_proposal(structs.replace(episode(question, answer, **changes), id=f"p{number}"))


def test_the_best_of_several_samples_by_hand():
    """In turn: answer not in any source, the first good one, an equal, one that leaks, one whose search failed."""
    row = [
        sample(0, answer="Marta Oleen"),
        sample(1),
        sample(2),
        sample(3, "Is it Orsolya Venn?"),
        sample(4, failed=True),
    ]
    assert row[3].score.total == row[1].score.total > row[0].score.total
    assert [item.episode.id for item in best_samples(row, 5, 50)] == ["p1"]
    assert [item.episode.id for item in best_samples(row[2:] + row[:2], 5, 50)] == ["p2"]
    assert [item.episode.id for item in best_samples([row[3], row[0]], 2, 50)] == ["p0"]  # a leak would be dropped
    assert [item.episode.id for item in best_samples([row[4], row[3]], 2, 50)] == ["p3"]
    assert best_samples(row, 1, 50) == row
    assert [item.episode.id for item in best_samples([*row[:2], *row[3:]], 2, 50)] == ["p1", "p3"]


def test_a_question_of_too_many_words_is_not_kept():
    long = sample(0, "Who built it " + "again " * 48)
    assert len(long.written.question.split()) == 51
    assert judge_form(long, set(), 50) == "invalid" and judge_form(long, set(), 51) == "" == judge_form(long, set(), 0)
    assert best_samples([long, sample(1, answer="Marta Oleen")], 2, 50)[0].episode.id == "p1"
    assert best_samples([long, sample(1, answer="Marta Oleen")], 2, 0)[0].episode.id == "p0"


QUESTIONS = st.lists(
    st.tuples(
        st.sampled_from(["Who?", "who", "When?", "Is it Orsolya Venn?", ""]),
        st.booleans(),  # did a search of the proposer fail?
        st.sampled_from([(0, 0), (0, 2), (1, 2), (2, 2)]),  # attempts that were right, and that were not spoiled
    ),
    max_size=12,
)


@example(written=[("Who?", False, (0, 0)), ("who", False, (1, 2))], cut=1)
@given(written=QUESTIONS, cut=st.integers(0, 12))
def test_a_resumed_generation_drops_the_same_duplicates(written, cut):
    """What was seen is recovered from the stored candidates, wherever the run was cut."""

    def judge(part, seen):
        candidates = []
        for text, bad, (num_right, num_attempts) in part:
            proposed = read_proposal(episode(text, "Orsolya Venn" if text else "", failed=bad))
            reason, tries = judge_form(proposed, seen), {}
            if not reason:
                reason = judge_attempts(num_right, num_attempts)
                tries = {"num_right": num_right, "num_attempts": num_attempts}
            candidates.append(make_candidate(structs.replace(proposed, **tries), step=1, iteration=0, reason=reason))
        return candidates

    straight = judge(written, set())
    before = judge(written[:cut], set())
    assert before + judge(written[cut:], remember_questions(before)) == straight


def test_questions_of_one_task_stand_together():
    tasks = draw_tasks(Numbers(5), range(2), (1,), seed=0, name="i0")
    assert [job.episode_id for job in propose_jobs(None, tasks, 1)] == ["i0-000000", "i0-000001"]
    assert [job.task.id for job in propose_jobs(None, tasks, 2)] == ["i0-000000"] * 2 + ["i0-000001"] * 2


# ----------------------------------------------------------------------------------------------------------- selecting


def candidates(num):
    return [Candidate(f"c{n}", 1, 0, f"c{n}", "d", 1, f"question {n}", "a") for n in range(num)]


def questions_of(num):
    return [candidate.to_question() for candidate in candidates(num)]


@given(num=st.integers(1, 30), batch=st.integers(1, 40), seed=st.integers(0, 2**40))
def test_a_round_takes_every_question_once(num, batch, seed):
    size = min(batch, num)
    places = [
        question.id for step in range(3 * num) for question in draw_questions(questions_of(num), step, batch, seed)
    ]
    if num % size == 0:  # otherwise a batch spans two rounds and may meet a question twice
        assert Counter(places[:num]) == Counter(f"c{n}" for n in range(num))
    assert set(places) == {f"c{n}" for n in range(num)}


def test_a_step_takes_its_share_of_questions_that_need_several_searches():
    questions = [Question(f"q{n}", f"question {n}", ("a",), searches=1 + (n % 4 == 0)) for n in range(2800)]
    drawing = Drawing(batch=60, num_steps=26, max_draws=3, several_share=1 / 3)
    for step in range(26):
        drawn = draw_by_need(questions, step, drawing, seed=5)
        assert Counter(question.searches for question in drawn) == {1: 40, 2: 20}
    assert draw_by_need(questions, 3, structs.replace(drawing, several_share=0.0), seed=5) == draw_questions(
        questions, 3, 60, seed=5
    )


def test_questions_that_need_several_searches_are_spread_over_all_steps_where_they_are_few():
    drawing = Drawing(batch=60, num_steps=26, max_draws=3, several_share=1 / 3)
    assert several_a_step(900, 2000, drawing) == 20
    assert several_a_step(52, 2000, drawing) == 6  # 26 steps of 6 are all 3 draws of 52
    assert several_a_step(2000, 52, drawing) == 54  # the others are few
    assert several_a_step(3, 4, drawing) == 3  # fewer questions than a batch: all of them
    few = [Question(f"q{n}", f"question {n}", ("a",), searches=1 + (n < 13)) for n in range(2000)]
    drawn = [sum(q.searches > 1 for q in draw_by_need(few, step, drawing, seed=5)) for step in range(26)]
    assert sum(drawn) == 39 and set(drawn) == {1, 2}


@given(st.integers(1, 40), st.integers(1, 40), st.integers(1, 20), st.integers(1, 3), st.integers(0, 5))
def test_no_share_makes_a_question_be_drawn_too_often(num_several, num_others, batch, most, seed):
    num = num_several + num_others
    questions = [Question(f"q{n}", f"{n}", ("a",), searches=1 + (n < num_several)) for n in range(num)]
    num_steps = count_steps_with_questions(10**6, num, batch, most)
    drawing = Drawing(batch, num_steps, most, 0.5)
    drawn = Counter(q.id for step in range(num_steps) for q in draw_by_need(questions, step, drawing, seed))
    assert max(drawn.values()) <= most


@given(st.integers(0, 9), st.integers(1, 12), st.integers(1, 15), st.integers(1, 9), st.sampled_from([0, 0.1, 0.5, 1]))
def test_draws_are_counted_without_drawing(num_several, num_others, batch, num_steps, share):
    """Also where questions that need several searches, being few, come again before all others have come once."""
    num = num_several + num_others
    questions = [Question(f"q{n}", f"{n}", ("a",), searches=1 + (n < num_several)) for n in range(num)]
    drawing = Drawing(batch, num_steps, several_share=share)
    drawn = {q.id for step in range(num_steps) for q in draw_by_need(questions, step, drawing, seed=5)}
    assert count_distinct(questions, num_steps, drawing) == len(drawn)


@given(st.integers(1, 12), st.integers(1, 15), st.integers(1, 3), st.integers(0, 5))
def test_whole_batches_last_as_long_as_no_question_is_drawn_too_often(num, batch, most, seed):
    questions = questions_of(num)
    num_steps = count_steps_with_questions(10**6, num, batch, most)
    drawn = Counter(
        question.id for step in range(num_steps) for question in draw_questions(questions, step, batch, seed)
    )
    assert num_steps >= 1 and max(drawn.values()) <= most
    assert (num_steps + 1) * min(batch, num) > most * num  # one more would not be whole
    assert count_steps_with_questions(2, num, batch, most) == min(2, num_steps)


def test_unused_gpus_are_spoken_of(monkeypatch):
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 4)
    said = []
    assert choose_device("auto", said.append) == "cuda"
    assert len(said) == 1 and "4 GPUs" in said[0] and "only one of them" in said[0]
    assert choose_device("cpu", said.append) == "cpu" and len(said) == 1
