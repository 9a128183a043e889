"""The methods without training: what they search for, what they read, and how their episodes end."""

import asyncio

import pytest
from msgspec import structs

import tiny
from quaere.api.agent import choose_solver
from quaere.chat.renderer import Renderer
from quaere.dialects.notes import Notes
from quaere.dialects.registry import FROM_MEMORY, TAUGHT_NAMES, UNTRAINED, open_protocol, open_solver, usual_limits
from quaere.dialects.untrained import SearchO1Solver
from quaere.errors import BadInput, SamplingFailed
from quaere.evaluation.qa.scores import score_episode
from quaere.policies.native.sampler import NativeSampler
from quaere.records import Answer, Malformed, Question, Search, SolveTask
from quaere.rollout.episode import Job, Limits, run_episode, run_many
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


SEARCH = "<think>Who built it?</think><search>Halm bridge</search>"


def play_noting(*turns, limits=None, **how):
    tokenizer = tiny.tokenizer()
    sampler, protocol = ScriptedSampler(tokenizer, {"e": list(turns)}), open_protocol("search-o1", **how)
    policy, limits = TokenPolicy(sampler, Renderer(tokenizer)), limits or usual_limits("search-o1")
    searcher = tiny.ListSearcher()
    episode = asyncio.run(run_episode(policy, protocol, searcher, SolveTask(QUESTION), limits, episode_id="e"))
    return episode, [tokenizer.decode(context) for context, _ in sampler.seen["e"]]


def test_search_o1_is_shown_its_own_notes_and_never_the_passages():
    episode, (before, beside, after) = play_noting(
        SEARCH, "<notes>Venn was born in Korrin.</notes>", "<answer>Korrin</answer>"
    )
    passage = "Orsolya Venn built the Halm bridge."
    assert passage in beside and "Who built it?" in beside and QUESTION.text in beside
    assert "Venn was born in Korrin." in after and passage not in after and "Who built it?" in after
    assert episode.outcome == Answer("Korrin") and episode.num_searches == 1
    first, last = episode.turns
    assert after.startswith(before + SEARCH)  # its conversation goes on as if there had been no other
    assert first.results[0].hits[0].passage.text == passage and "Venn was born in Korrin." in first.reply
    # The notes are the environment's in the episode, and cost tokens all the same.
    assert first.note_tokens > 0 and last.note_tokens == 0
    assert sum(episode.loss_mask) == first.num_tokens + last.num_tokens
    assert score_episode(episode).num_tokens == sum(episode.loss_mask) + first.note_tokens


@pytest.mark.parametrize(
    ("text", "notes"),
    [
        ("<think>Hm.</think><notes> Venn. </notes>", "Venn."),
        ("Here: <notes>Venn.</notes>", "Venn."),
        ("Venn built it.", "Venn built it."),
        ("<notes>Venn built", "Venn built"),  # cut by the limit
        ("<think>without an end", "Nothing that helps was found."),
        ("<notes>", "Nothing that helps was found."),
        ("<notes> </notes>", "Nothing that helps was found."),
        ("<think><notes>no</notes></think>Venn.", "Venn."),
    ],
)
def test_what_search_o1_reads_as_notes(text, notes):
    assert open_protocol("search-o1").read_notes(text) == notes


def test_the_last_search_of_search_o1_says_so_after_the_notes():
    limits = structs.replace(usual_limits("search-o1"), max_turns=2)
    episode, (*_, after) = play_noting(SEARCH, "<notes>Venn.</notes>", "<answer>Korrin</answer>", limits=limits)
    assert "Venn." in after and "This was the last search." in after and episode.end == "answered"


def test_notes_that_cannot_be_taken_are_a_failed_search():
    episode, _ = play_noting(SEARCH, SamplingFailed("too long"))
    failure = episode.turns[0].failure
    assert (failure.boundary, failure.kind) == ("search", "notes") and episode.search_failed
    assert episode.num_searches == 0 and "could not be carried out" in episode.turns[0].reply


class AlwaysSearching(SearchO1Solver):
    """Search-o1 for a model of random weights: whatever it writes is a search."""

    def read(self, text, earlier=()):
        return Search(("Halm bridge",))


def test_a_model_in_lockstep_takes_notes():
    # A batch starts when every open session has asked: notes asked in a session of their own would wait forever.
    tokenizer = tiny.tokenizer()
    renderer = Renderer(tokenizer)
    tasks = [SolveTask(structs.replace(QUESTION, id=f"q{number}")) for number in range(3)]

    async def run():
        async with NativeSampler.over(tiny.model(), renderer.decode, name="tiny", mode="deterministic") as sampler:
            policy, jobs = TokenPolicy(sampler, renderer), [Job(AlwaysSearching(), task) for task in tasks]
            limits = Limits(max_turns=3, turn_tokens=6, sequence_tokens=2048)
            found = run_many(policy, jobs, tiny.ListSearcher(), limits, concurrency=3)
            return [episode async for episode in found]

    first, again = (asyncio.run(asyncio.wait_for(run(), 120)) for _ in range(2))
    assert all(turn.note_tokens == 6 for episode in first for turn in episode.turns[:2])
    assert [one.token_ids for one in first] == [one.token_ids for one in again]


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
