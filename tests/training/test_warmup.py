"""The oracle's episodes: really played, right, well formed, varied, and the same for the same seed."""

import asyncio
import json
import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

import tiny
from quaere.chat.protocol import LAST_SEARCH, STOP
from quaere.chat.renderer import Renderer
from quaere.errors import BadInput
from quaere.records import Answer, Proposal, Search
from quaere.rewards.answers import contains, exact_match_score
from quaere.rollout.episode import Limits
from quaere.search.index_build import build_index
from quaere.training.proposals import opens_with_plan, read_proposal
from quaere.warmup.lessons import Lessons, LessonSettings, Portion, build_world, plan_lessons, share_out
from quaere.warmup.oracle import play_oracle
from quaere.warmup.phrases import forms_for
from quaere.warmup.scripted_episodes import find_fault
from quaere.worlds import generate_world, write_world

# The tiny tokenizer takes three times as many tokens as a real one.
LIMITS = Limits(turn_tokens=1024, sequence_tokens=40_000, tool_response_tokens=6000)


@pytest.fixture(scope="module")
def place(tmp_path_factory):
    """A world, its index and a renderer."""
    return *build_world(1, 300, tmp_path_factory.mktemp("warmup")), Renderer(tiny.tokenizer())


def play(place, **changes):
    settings = {"num_episodes": 40, "limits": LIMITS, "seed": 5} | changes
    return asyncio.run(play_oracle(*place, LessonSettings(**settings)))


@pytest.fixture(scope="module", params=["full", "brief"])
def played(place, request):
    return play(place, num_episodes=40, style=request.param)


def by_role(played, kind):
    return [episode for episode in played.episodes if isinstance(episode.outcome, kind)]


def hops_of(episode):
    return episode.task.question.hops if isinstance(episode.outcome, Answer) else episode.task.hops


def test_there_are_as_many_as_asked_for_in_the_ratio(played):
    for kind in (Answer, Proposal):
        hops = [hops_of(episode) for episode in by_role(played, kind)]
        assert [hops.count(number) for number in (1, 2, 3, 4)] == [8, 6, 4, 2]
    assert len({episode.id for episode in played.episodes}) == 40
    assert len({read_question(episode) for episode in played.episodes}) == 40


def read_question(episode):
    return episode.outcome.question if isinstance(episode.outcome, Proposal) else episode.task.question.text


def test_every_turn_is_as_a_policy_would_end_it(played):
    for episode in played.episodes:
        assert episode.end == "answered"
        for turn in episode.turns:
            assert turn.failure is None
            assert turn.stop_reason == "stop_string"
            assert opens_with_plan(turn.text)
            assert turn.text.endswith(STOP)
            assert sum(turn.text.count(stop) for stop in STOP) == 1


def test_a_solver_is_right_and_can_see_why(place, played):
    _, _, renderer = place
    for episode in by_role(played, Answer):
        question = episode.task.question
        assert exact_match_score(episode.outcome.text, question.answers) == 1.0
        replies = [segment for segment in episode.segments if segment.origin == "environment"]
        seen = "\n".join(renderer.decode(segment.token_ids) for segment in replies)
        for evidence in question.evidence:
            assert evidence.text in seen
        assert contains(seen, episode.outcome.text)
        assert question.hops <= episode.num_searches <= 4


def reads_like(thought, forms):
    """True if a thought is written in one of the forms; a name or a question may be anything."""

    def pattern(piece):
        if piece.startswith("["):
            return f"(?:{'|'.join(map(pattern_of, piece[1:-1].split('|')))})"
        return ".+" if piece.startswith("{") else re.escape(piece)

    def pattern_of(form):
        return "".join(map(pattern, re.split(r"(\[[^\]]*\]|\{\w+\})", form)))

    return any(re.fullmatch(pattern_of(form), thought, re.IGNORECASE) for form in forms)


def test_a_solver_thinks_of_a_first_step_only_if_there_are_several(place, played):
    forms = forms_for(place[0].family.name)
    for episode in by_role(played, Answer):
        thought = re.search(r"<think>(.*?)</think>", episode.turns[0].text, re.DOTALL)[1].strip()
        is_only = hops_of(episode) == 1
        assert reads_like(thought, forms["only_hop"]) == is_only != reads_like(thought, forms["first_hop"]), thought


def test_a_proposer_earns_full_marks(played):
    for episode in by_role(played, Proposal):
        score = read_proposal(episode).score
        assert score.valid
        assert (score.think, score.tool, score.answer, score.total) == (1.0, 1.0, 1.0, 1.0)
        assert episode.num_searches == episode.task.hops - 1


def test_a_document_to_start_from_names_no_form_of_the_answer(place):
    world, index, _ = place
    lessons = Lessons(world, index)
    for hops in (2, 3, 4):
        for _ in range(80):
            lesson = lessons.draw("proposer", hops=hops)
            text = lesson.task.document.titled_text
            assert not any(contains(text, answer) for answer in lesson.gold.answers)


def test_a_proposer_starts_from_its_document_and_leaves_it(place, played):
    world, index, _ = place
    golds = {
        gold.text: gold for hops in (1, 2, 3) for gold in world.questions(250, (hops,))
    }  # as the lessons draw them, in the same order
    passages = {passage.id: passage for passage in index.passages()}
    for episode in by_role(played, Proposal):
        document, gold = episode.task.document, golds[episode.outcome.question]
        assert passages[document.id] == document
        start = gold.chain[0].mention.removeprefix("the ")
        assert start.lower() in document.titled_text.lower() and start.lower() in gold.text.lower()
        if episode.task.hops == 1:
            assert gold.gold_ids == (document.doc_id,)
            continue
        assert document.doc_id not in gold.gold_ids
        assert not contains(document.titled_text, episode.outcome.answer)
        found = [{hit.passage.doc_id for result in turn.results for hit in result.hits} for turn in episode.turns[:-1]]
        assert all(doc_id in ids for doc_id, ids in zip(gold.gold_ids, found, strict=True))


def test_loss_lies_on_the_written_turns_and_nowhere_else(place, played):
    _, _, renderer = place
    for episode in played.episodes:
        origins = [segment.origin for segment in episode.segments]
        assert origins == ["prompt", *["model", "environment"] * (len(episode.turns) - 1), "model"]
        for segment in episode.segments:
            assert set(segment.loss_mask) == {segment.origin == "model"}
        written = [segment for segment in episode.segments if segment.origin == "model"]
        assert [renderer.decode(segment.token_ids) for segment in written] == [turn.text for turn in episode.turns]


def thoughts(episodes):
    return [re.search("<think>(.*)</think>", turn.text)[1] for episode in episodes for turn in episode.turns]


def test_words_are_short_and_varied(place):
    episodes = play(place, num_episodes=60, style="brief").episodes
    written = thoughts(episodes)
    lengths = sorted(len(thought.split()) for thought in written)
    assert lengths[0] >= 4 and lengths[-1] <= 30
    assert lengths[len(lengths) // 20] >= 5 and lengths[len(lengths) * 9 // 10] <= 16
    assert all(thought[-1] in ".?" and not re.search(r"[{}\[\]|]|^[a-z]|  ", thought) for thought in written)
    # Without names and numbers, what is left is the form.
    forms = {re.sub(r"(the )?[A-Z][\w']+( (of the|of|the|and|in|at|[A-Z][\w']+))*|\d+", "_", text) for text in written}
    assert len(forms) > 0.4 * len(written)
    assert len(set(written)) > 0.95 * len(written)
    queries = [
        turn.action.queries[0] for episode in episodes for turn in episode.turns if isinstance(turn.action, Search)
    ]
    assert len(set(queries)) > 0.9 * len(queries)
    first_words = {query.split()[0] for query in queries}
    assert len(first_words) > 25


def test_who_makes_the_last_search_is_told_so_and_answers(place):
    """Three facts in four turns: every search is needed, and only the third is answered with the note."""
    limits = Limits(max_turns=4, turn_tokens=1024, sequence_tokens=40_000, tool_response_tokens=6000)
    played = play(place, roles=("solver",), num_episodes=4, fact_ratio=(0, 0, 1), limits=limits, style="brief")
    for episode in played.episodes:
        assert [LAST_SEARCH in turn.reply for turn in episode.turns] == [False, False, True, False]
        assert episode.end == "answered"


def test_the_seed_decides(place):
    ratios = {"fact_ratio": (1, 1), "hop_ratio": (1, 1)}

    def texts(seed):
        return [
            turn.text
            for episode in play(place, seed=seed, num_episodes=8, style="brief", **ratios).episodes
            for turn in episode.turns
        ]

    assert texts(1) == texts(1) != texts(2)


def test_a_solver_searches_again_with_other_words(place):
    episodes = play(place, roles=("solver",), num_episodes=40, fact_ratio=(1, 1), style="brief").episodes
    again = [episode for episode in episodes if episode.num_searches > episode.task.question.hops]
    assert again
    for episode in again:
        queries = [turn.action.queries[0] for turn in episode.turns[:-1]]
        assert len(set(queries)) == len(queries)


def test_what_is_cut_off_is_not_found(place):
    """With so little room only part of a passage can be read; those episodes that are kept still show every fact."""
    _, _, renderer = place
    limits = Limits(turn_tokens=1024, sequence_tokens=40_000, tool_response_tokens=250)
    played = play(place, roles=("solver",), num_episodes=6, fact_ratio=(1,), limits=limits)
    assert played.dropped["a fact was not found"] > 0
    num_played = int(played.episodes[-1].id.removeprefix("solver-1-w1-q")) + 1  # questions are numbered as they come
    assert num_played == played.dropped.total() + 6
    for episode in played.episodes:
        seen = renderer.decode(episode.token_ids)
        assert all(evidence.text in seen for evidence in episode.task.question.evidence)


def test_the_option_that_episodes_lacked_is_named_and_no_fewer_facts_than_one(place):
    """A larger limit of another kind would not help."""
    limits = Limits(turn_tokens=8, sequence_tokens=40_000, tool_response_tokens=6000)
    for facts, fewer in (((1,), ""), ((0, 1), ", or fewer facts such as --facts 1")):
        with pytest.raises(BadInput, match=r"\(most frequent reason: limit: turn_tokens\)") as caught:
            play(place, roles=("solver",), num_episodes=2, fact_ratio=facts, limits=limits)
        assert caught.value.hint == f"a larger --turn-tokens{fewer}"


def test_the_evaluation_family_is_refused(place, tmp_path):
    _, index, renderer = place
    world = generate_world(1, 200, "evaluation")
    with pytest.raises(BadInput, match="for evaluation only"):
        play((world, index, renderer))
    write_world(world, tmp_path / "world", 0)
    own = build_index(tmp_path / "world" / "corpus.jsonl", tmp_path / "index")
    with pytest.raises(BadInput, match="for evaluation only"):
        Lessons(world, own)


def test_limits_without_room_are_refused(place):
    with pytest.raises(BadInput, match="needs 3 turns for 2 facts"):
        play(place, fact_ratio=(1, 1), hop_ratio=(1, 1), limits=Limits(max_turns=2))
    with pytest.raises(BadInput, match="needs 3 turns for 3 hops"):
        play(place, roles=("proposer",), hop_ratio=(1, 1, 1), limits=Limits(max_turns=2))
    with pytest.raises(BadInput, match=r"only 0 of 2 solver episodes of 1 fact .*reason: a fact was not found"):
        play(place, roles=("solver",), num_episodes=2, fact_ratio=(1,), limits=Limits(tool_response_tokens=4))
    with pytest.raises(BadInput, match="needs 3 searches for 3 facts, and 2 are allowed"):
        play(place, roles=("solver",), fact_ratio=(0, 0, 1), limits=Limits(max_searches=2))


@pytest.mark.parametrize(
    ("roles", "num", "ratio"),
    [((), 4, (1,)), (("judge",), 4, (1,)), (("solver", "solver"), 4, (1,)), (("solver",), 0, (1,))]
    + [(("solver",), 4, ratio) for ratio in ((), (0, 0), (1, -1), (1, 1, 1, 1, 1))],
)
def test_plans_that_make_no_sense_are_refused(roles, num, ratio):
    with pytest.raises(BadInput):
        plan_lessons(roles, num, ratio)


def test_each_role_has_a_ratio_of_its_own(place):
    plan = plan_lessons(None, 10, (0, 1, 1), hop_ratio=(1, 0, 0, 0, 4))
    assert plan == [
        Portion("drzero", "solver", 2, 3),
        Portion("drzero", "solver", 3, 2),
        Portion("drzero", "proposer", 1, 1, hops=1),
        Portion("drzero", "proposer", 4, 4, hops=5),
    ]
    assert [part.searches for part in plan] == [2, 3, 0, 4]
    assert plan[0].name == "solver episodes of 2 facts" and plan[2].name == "proposer episodes of 1 hop"
    with pytest.raises(BadInput, match="weights for 1 to 5 hops"):
        plan_lessons(None, 10, (1,), hop_ratio=(0, 0, 0, 0, 0, 1))
    played = play(place, num_episodes=6, fact_ratio=(1,), hop_ratio=(0, 0, 0, 1, 1), style="brief")
    solved, proposed = by_role(played, Answer), by_role(played, Proposal)
    assert [episode.task.question.facts for episode in solved] == [1, 1, 1]
    assert [(episode.task.hops, episode.num_searches) for episode in proposed] == [(4, 3), (4, 3), (5, 4)]


@given(st.integers(0, 500), st.lists(st.integers(0, 9), min_size=1, max_size=4).filter(any))
def test_shares_add_up_and_are_fair(num, ratio):
    counts = share_out(num, ratio)
    assert sum(counts) == num
    assert all(abs(count - num * weight / sum(ratio)) < 1 for count, weight in zip(counts, ratio, strict=True))


def test_calls_are_json(played):
    for episode in played.episodes:
        for turn in episode.turns[:-1]:
            call = json.loads(re.search("<tool_call>(.*)</tool_call>", turn.text)[1])
            assert call == {"name": "search", "arguments": {"query_list": list(turn.action.queries)}}


def test_a_fault_is_named(played):
    from msgspec import structs

    episode = by_role(played, Answer)[0]
    assert find_fault(episode, "solver") == ""
    assert find_fault(structs.replace(episode, outcome=Answer("Nobody")), "solver") == "wrong answer"
    assert find_fault(structs.replace(episode, end="turn_limit"), "solver") == "turn_limit"
    proposal = by_role(played, Proposal)[-1]
    assert find_fault(proposal, "proposer") == ""
    unseen = structs.replace(proposal, outcome=Proposal(proposal.outcome.question, "Zyx Quorr"))
    assert find_fault(unseen, "proposer") == "the answer was not found"
    leaked = structs.replace(proposal, outcome=Proposal(f"Is it {proposal.outcome.answer}?", proposal.outcome.answer))
    assert find_fault(leaked, "proposer") == "the question is not valid"
    lazy = structs.replace(proposal, turns=proposal.turns[-1:])
    assert find_fault(lazy, "proposer") == "too few searches"
