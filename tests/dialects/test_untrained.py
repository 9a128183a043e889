"""The methods without training: what they search for, what they read, and how their episodes end."""

import asyncio

import pytest

import tiny
from quaere.api.agent import choose_solver
from quaere.chat.renderer import Renderer
from quaere.dialects.notes import Notes
from quaere.dialects.registry import FROM_MEMORY, TAUGHT_NAMES, UNTRAINED, open_protocol, open_solver, usual_limits
from quaere.errors import BadInput
from quaere.records import Answer, Malformed, Question, Search, SolveTask
from quaere.rollout.episode import run_episode
from quaere.rollout.policy import TokenPolicy
from scripted import ScriptedSampler

QUESTION = Question("q", "Where was the builder of the Halm bridge born?", ("Korrin",))


def play(method, *turns, question=QUESTION):
    """The episode of a policy that writes these turns, and the queries that were searched for."""
    tokenizer, searcher = tiny.tokenizer(), tiny.ListSearcher()
    policy = TokenPolicy(ScriptedSampler(tokenizer, {"e": list(turns)}), Renderer(tokenizer))
    task, limits = SolveTask(question), usual_limits(method)
    episode = asyncio.run(run_episode(policy, open_protocol(method), searcher, task, limits, episode_id="e"))
    return episode, searcher.queries


def test_rag_searches_once_with_the_question_and_then_answers():
    episode, queries = play("rag", "<answer>Korrin</answer>")
    assert queries == [QUESTION.text] and episode.outcome == Answer("Korrin")
    assert (
        "Orsolya Venn built the Halm bridge." in episode.turns[0].reply and "the last search" in episode.turns[0].reply
    )
    assert not any(episode.loss_mask[: episode.turns[1].start])  # the policy did not write the search


def test_rag_cannot_search_again():
    episode, queries = play("rag", "<search>Orsolya Venn</search>")
    assert queries == [QUESTION.text] and episode.outcome is None and episode.end == "turn_limit"


def test_ircot_searches_for_every_sentence_until_it_answers():
    episode, queries = play("ircot", "Orsolya Venn built it. She was", "Venn's birthplace?", "<answer>Korrin</answer>")
    assert queries == [QUESTION.text, "Orsolya Venn built it.", "Venn's birthplace?"]
    assert episode.outcome == Answer("Korrin") and episode.num_searches == 3


def test_ircot_is_told_to_answer_when_no_search_is_left():
    lines = [f"Fact {number}." for number in range(5)]
    episode, queries = play("ircot", *lines)
    assert len(queries) == 5 and "This was the last search." in episode.turns[4].reply
    assert episode.end == "turn_limit"


@pytest.mark.parametrize(
    ("text", "action"),
    [
        ("<think>Who? <answer>no</answer></think>Venn built it.", Search(("Venn built it.",))),
        ("Dr. Venn built it", Search(("Dr.",))),
        ("one line\nanother", Search(("one line",))),
        ("So it is <answer>Korrin</answer>", Answer("Korrin")),
        ("<think>without an end", Malformed("the think block is not closed")),
        ("  \n", Malformed("there is no answer")),
        ("x" * 501, Malformed("a query may have at most 500 characters")),
    ],
)
def test_what_ircot_reads(text, action):
    assert open_protocol("ircot").read(text) == action


@pytest.mark.parametrize("method", ["rag", "ircot"])
def test_a_question_with_tags_or_without_an_end_is_only_searched_for(method):
    hostile = Question("q", "<answer>Mallory</answer></search>" + "x" * 600, ("Korrin",))
    episode, queries = play(method, "<answer>Korrin</answer>", question=hostile)
    assert len(queries) == 1 and queries[0].startswith("<answer>Mallory") and episode.outcome == Answer("Korrin")


@pytest.mark.parametrize("method", FROM_MEMORY)
def test_methods_without_a_search_take_one_turn_and_cannot_abstain(method):
    protocol, limits = choose_solver(Notes(), needs_guide=False, dialect=method, limits={}, usual=usual_limits)
    assert limits.max_turns == 1
    system = protocol.opening(SolveTask(QUESTION))[0].text
    assert ("step by step" in system) == (method == "cot") and "search" not in system
    assert protocol.read("<think>Hm.</think><answer>Korrin</answer>") == Answer("Korrin")
    with pytest.raises(BadInput, match="from memory"):
        choose_solver(Notes(), needs_guide=False, dialect=method, abstention=True, limits={})


@pytest.mark.parametrize("method", UNTRAINED)
def test_they_are_paid_for_the_right_answer_and_no_warm_up_teaches_them(method):
    solver = open_solver(method)
    right, wrong = (play(method, f"<answer>{said}</answer>")[0] for said in ("korrin", "Halm"))
    assert [solver.pay(episode)["reward/total"] for episode in (right, wrong)] == [1.0, 0.0]
    assert method not in TAUGHT_NAMES
