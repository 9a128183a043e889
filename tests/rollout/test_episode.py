"""One episode: the loop, its limits, and what is recorded when things go wrong."""

import pytest

import tiny
from modern_templates import make_tokenizer
from quaere.chat.protocol import Message
from quaere.chat.renderer import Renderer
from quaere.dialects.evalact import EvaluateSolver
from quaere.dialects.tag_dialects import TagSolver
from quaere.dialects.tool_call import ToolCallProposer, ToolCallSolver
from quaere.errors import SamplingFailed, SearchFailed
from quaere.policies.sampler import ChatReply, SamplingParams
from quaere.records import Answer, Hit, Malformed, Proposal, ProposeTask, Question, Search, SolveTask
from quaere.rollout.episode import Job, Limits, run_episode, run_many
from quaere.rollout.policy import ChatPolicy, TokenPolicy, derive_seed
from scripted import ScriptedSampler

TASK = SolveTask(Question("q1", "Who built the Halm bridge?", ("Orsolya Venn",)))
CALL = '<tool_call>{"name": "search", "arguments": {"query_list": ["Halm bridge"]}}</tool_call>'
TWO = '<tool_call>{"name": "search", "arguments": {"query_list": ["a", "b"]}}</tool_call>'
ANSWER = "<answer>Orsolya Venn</answer>"


async def play(script, template="chatml", searcher=None, protocol=None, task=TASK, limits=None, **options):
    tokenizer = tiny.tokenizer(template)
    sampler = ScriptedSampler(tokenizer, {task.id: script})
    policy = TokenPolicy(sampler, Renderer(tokenizer))
    episode = await run_episode(
        policy, protocol or ToolCallSolver(), searcher or tiny.ListSearcher(), task, limits or Limits(), **options
    )
    assert not sampler.sessions  # whatever happens, the session is closed
    return episode, sampler


def failures(episode):
    return [(turn.failure.boundary, turn.failure.kind) if turn.failure else None for turn in episode.turns]


async def test_search_then_answer():
    heard = []
    episode, _ = await play(["<think>who?</think>" + CALL, ANSWER], on_turn=heard.append, seed=5)
    assert episode.outcome == Answer("Orsolya Venn")
    assert episode.end == "answered"
    assert [turn.action for turn in episode.turns] == [Search(("Halm bridge",)), Answer("Orsolya Venn")]
    assert episode.turns[0].results[0].hits[0].passage.text == "Orsolya Venn built the Halm bridge."
    assert "Orsolya Venn built" in episode.turns[0].reply
    assert tuple(heard) == episode.turns
    assert [segment.origin for segment in episode.segments] == ["prompt", "model", "environment", "model"]
    assert episode.num_searches == 1
    assert failures(episode) == [None, None]
    assert all(turn.sample_s > 0 for turn in episode.turns)


async def test_a_proposal_ends_the_proposers_episode():
    task = ProposeTask("p1", tiny.passage("The Oss rises at Korrin."), 2)
    script = [CALL, "<question>Where?</question><answer>Korrin</answer>"]
    episode, _ = await play(script, protocol=ToolCallProposer(), task=task)
    assert (episode.outcome, episode.seed) == (Proposal("Where?", "Korrin"), 0)


async def test_a_malformed_turn_gets_a_message_and_another_try():
    episode, _ = await play(["dunno", "<tool_call>{</tool_call>", ANSWER])
    assert episode.outcome == Answer("Orsolya Venn")
    assert failures(episode) == [("protocol", "malformed"), ("protocol", "malformed"), None]
    assert "not JSON" in episode.turns[1].reply


async def test_the_last_turn_is_the_last():
    searcher = tiny.ListSearcher()
    episode, _ = await play([CALL] * 3, limits=Limits(max_turns=3), searcher=searcher)
    assert (episode.end, episode.outcome, len(episode.turns)) == ("turn_limit", None, 3)
    assert failures(episode) == [None, None, ("limit", "turns")]
    assert len(searcher.queries) == 2  # the last search could help nobody
    assert episode.segments[-1].origin == "model"


@pytest.mark.parametrize(("ordered", "shown"), [(False, ["d0", "d1"]), (True, ["d4", "d0"])])
async def test_a_page_that_the_query_names_may_be_shown_first(ordered, shown):
    searcher = tiny.ListSearcher([f"Passage {number}." for number in range(6)])
    searcher.hits[4] = Hit(tiny.passage("It was built by Venn.", title="Halm bridge", number=4), -4.0)
    episode, _ = await play([CALL, ANSWER], searcher=searcher, limits=Limits(topk=2, titles_first=ordered))
    assert [hit.passage.doc_id for hit in episode.turns[0].results[0].hits] == shown


async def test_searches_are_counted_by_query():
    episode, _ = await play([TWO, TWO, CALL, ANSWER], limits=Limits(max_searches=3))
    assert failures(episode) == [None, ("limit", "searches"), None, None]
    assert "No searches are left" in episode.turns[1].reply
    assert episode.num_searches == 3


async def test_a_turn_that_is_cut_off_is_recorded_as_such():
    episode, _ = await play(["<think>" + "x" * 400, ANSWER], limits=Limits(turn_tokens=30))
    assert failures(episode)[0] == ("limit", "turn_tokens")
    assert episode.turns[0].stop_reason == "length"
    assert len(episode.segments[1].token_ids) == 30


async def test_a_sequence_never_exceeds_its_limit():
    for room in range(330, 420, 7):
        episode, _ = await play([CALL] * 5, limits=Limits(sequence_tokens=room, turn_tokens=60))
        assert len(episode.token_ids) <= room or not episode.turns
        assert episode.end == "sequence_limit"
        assert episode.segments[-1].origin == ("model" if episode.turns else "prompt")


async def test_a_reply_that_does_not_fit_is_kept_for_who_looks_at_the_episode():
    num_opening = len(Renderer(tiny.tokenizer()).opening(ToolCallSolver().opening(TASK), ToolCallSolver().tools))
    episode, _ = await play([CALL], limits=Limits(sequence_tokens=num_opening + 60, turn_tokens=50))
    assert (episode.end, failures(episode)) == ("sequence_limit", [("limit", "sequence_tokens")])
    (turn,) = episode.turns
    assert turn.results[0].hits[0].passage.text == "Orsolya Venn built the Halm bridge."
    assert "Orsolya Venn built" in turn.reply


async def test_an_answer_that_was_complete_before_its_turn_was_cut_off_counts():
    episode, _ = await play([ANSWER + "x" * 400], limits=Limits(turn_tokens=60))
    assert (episode.end, episode.outcome) == ("answered", Answer("Orsolya Venn"))
    assert episode.turns[0].stop_reason == "length"


async def test_an_opening_without_room_ends_at_once():
    episode, sampler = await play([ANSWER], limits=Limits(sequence_tokens=20))
    assert (episode.end, episode.turns, sampler.seen) == ("sequence_limit", (), {})


async def test_tool_responses_are_cut_in_tokens():
    searcher = tiny.ListSearcher(["word " * 900])
    episode, _ = await play([CALL, ANSWER], searcher=searcher, limits=Limits(tool_response_tokens=40))
    reply = episode.segments[2].token_ids
    assert 40 < len(reply) < 80
    assert tiny.tokenizer().decode(reply).endswith("</tool_response><|im_end|>\n<|im_start|>assistant\n")


class BrokenSearcher:
    async def search(self, queries, topk):
        raise SearchFailed("the retriever did not answer within 1 s", kind="timeout")


async def test_a_failed_search_is_not_an_empty_result():
    episode, _ = await play([CALL, ANSWER], searcher=BrokenSearcher())
    assert failures(episode) == [("search", "timeout"), None]
    assert episode.turns[0].results == ()
    assert "could not be carried out" in episode.turns[0].reply
    assert episode.num_searches == 0


async def test_a_failing_policy_ends_the_episode_with_its_cause():
    episode, _ = await play([CALL, SamplingFailed("out of memory")])
    assert (episode.end, episode.outcome) == ("failed", None)
    assert failures(episode) == [None, ("model", "sampling")]
    assert episode.turns[1].failure.message == "out of memory"


async def test_what_is_not_our_error_is_raised_and_the_session_closed():
    tokenizer = tiny.tokenizer()
    sampler = ScriptedSampler(tokenizer, {"q1": [ZeroDivisionError()]})
    with pytest.raises(ZeroDivisionError):
        await run_episode(
            TokenPolicy(sampler, Renderer(tokenizer)), ToolCallSolver(), tiny.ListSearcher(), TASK, Limits()
        )
    assert not sampler.sessions


GIVEN = '<tool_call>{"name": "search", "arguments": {"query_list": ["Who built the Halm bridge?"]}}</tool_call>'


async def test_a_guided_episode_searches_with_the_question_and_opens_the_answer_and_neither_carries_loss():
    tokenizer = tiny.tokenizer()
    episode, _ = await play(
        ["hm", "Orsolya Venn</answer>"], protocol=ToolCallSolver(guided=True), limits=Limits(max_turns=3)
    )
    assert episode.outcome == Answer("Orsolya Venn")
    first = episode.turns[0]
    assert (first.text, first.action, first.num_tokens) == (GIVEN, Search((TASK.question.text,)), 0)
    assert "Orsolya Venn built" in first.reply and episode.num_searches == 1
    texts = [(segment.origin, tokenizer.decode(segment.token_ids)) for segment in episode.segments]
    assert texts[1] == ("environment", GIVEN)
    assert [text for origin, text in texts if origin == "model"] == ["hm", "Orsolya Venn</answer>"]
    assert texts[-2] == ("environment", "<answer>")
    assert sum(episode.loss_mask) == sum(turn.num_tokens for turn in episode.turns)


async def test_a_guided_episode_of_one_turn_has_only_the_answer():
    episode, _ = await play(["Venn</answer>"], protocol=ToolCallSolver(guided=True), limits=Limits(max_turns=1))
    assert [turn.text for turn in episode.turns] == ["<answer>Venn</answer>"]


async def test_the_question_of_a_guided_search_brings_no_control_token():
    task = SolveTask(Question("q1", 'Who said "<|im_end|></tool_call>"?'))
    tokenizer = tiny.tokenizer()
    episode, _ = await play(
        ["Venn</answer>"], protocol=ToolCallSolver(guided=True), task=task, limits=Limits(max_turns=2)
    )
    assert episode.turns[0].action == Search((task.question.text,))
    given = episode.segments[1]
    assert given.origin == "environment" and tokenizer.convert_tokens_to_ids("<|im_end|>") not in given.token_ids


async def test_an_endpoint_is_given_the_search_as_its_own_message():
    endpoint = TextEndpoint(["<answer>Venn</answer>"])
    searcher = tiny.ListSearcher()
    episode = await run_episode(ChatPolicy(endpoint), ToolCallSolver(guided=True), searcher, TASK, Limits(max_turns=2))
    assert episode.outcome == Answer("Venn")
    (heard,) = endpoint.heard
    assert heard[-2] == {"role": "assistant", "content": GIVEN}
    assert "Orsolya Venn built" in heard[-1]["content"]


class TextEndpoint:
    name = "endpoint"

    def __init__(self, replies):
        self.replies = list(replies)
        self.heard = []

    async def reply(self, messages, params):
        self.heard.append([dict(message) for message in messages])
        return ChatReply(self.replies.pop(0), "end_of_turn", 5)

    async def stop(self):
        self.heard.append("stop")


async def test_an_endpoint_is_told_of_tools_and_released():
    full, brief = TextEndpoint([ANSWER]), TextEndpoint([ANSWER])
    for endpoint, protocol in ((full, ToolCallSolver()), (brief, ToolCallSolver(style="brief"))):
        policy = ChatPolicy(endpoint)
        assert not policy.lockstep, "its episodes do not wait for each other"
        await run_episode(policy, protocol, tiny.ListSearcher(), TASK, Limits())
        await policy.stop()
        assert endpoint.heard[1:] == ["stop"]
    assert "Tools you can call" in full.heard[0][0]["content"]
    assert not any("Tools you can call" in message["content"] for message in brief.heard[0])


async def test_a_text_endpoint_plays_the_same_episode_without_tokens():
    endpoint = TextEndpoint([CALL, "hm", ANSWER])
    episode = await run_episode(ChatPolicy(endpoint), ToolCallSolver(), tiny.ListSearcher(), TASK, Limits())
    assert episode.outcome == Answer("Orsolya Venn")
    assert episode.segments == ()
    assert isinstance(episode.turns[1].action, Malformed)
    assert [message["role"] for message in endpoint.heard[-1]] == [
        "system",
        "user",
        "assistant",
        "user",
        "assistant",
        "user",
    ]
    marked = await run_episode(
        ChatPolicy(TextEndpoint(["hm " + CALL, ANSWER])),
        EvaluateSolver(),
        tiny.ListSearcher(),
        TASK,
        Limits(max_turns=2),
    )
    assert [turn.acts_at for turn in marked.turns] == [0, 0], "where there are no tokens"
    assert '"search"' in endpoint.heard[0][0]["content"]
    assert "<tool_response>" in endpoint.heard[1][3]["content"]


# ---------------------------------------------------------------------------------------- what a sampler is asked for


class RecordingSampler(ScriptedSampler):
    """Keeps, per session, what each turn was asked for: the length of its context and the parameters."""

    def __init__(self, *arguments, **options):
        super().__init__(*arguments, **options)
        self.asked = {}

    async def sample(self, session, token_ids, params):
        self.asked.setdefault(session, []).append((len(token_ids), params))
        return await super().sample(session, token_ids, params)


async def test_every_turn_is_asked_for_within_its_room_with_a_seed_of_its_own():
    tokenizer, protocol = tiny.tokenizer(), ToolCallSolver()
    params = SamplingParams(temperature=0.7, top_p=0.9, top_k=5, max_tokens=99_999, seed=1, stop=("never",))

    async def asked(sequence_tokens):
        sampler = RecordingSampler(tokenizer, {"q1": [CALL, CALL, ANSWER + "x" * 200]})
        limits = Limits(turn_tokens=60, sequence_tokens=sequence_tokens, answer_turn=False)
        policy = TokenPolicy(sampler, Renderer(tokenizer))
        episode = await run_episode(policy, protocol, tiny.ListSearcher(), TASK, limits, seed=11, params=params)
        return episode, sampler.asked["q1"]

    _, roomy = await asked(3000)
    assert [params.max_tokens for _, params in roomy] == [60, 60, 60]
    # Twenty tokens for the last turn, and more than sixty for those before.
    episode, turns = await asked(roomy[-1][0] + 20)
    assert [params.max_tokens for _, params in turns] == [60, 60, 20]
    assert [params.seed for _, params in turns] == [derive_seed(11, turn) for turn in range(3)]
    assert {(one.temperature, one.top_p, one.top_k, one.stop) for _, one in turns} == {(0.7, 0.9, 5, protocol.stop)}
    assert episode.seed == 11 and len(episode.token_ids) == roomy[-1][0] + 20


async def test_episodes_that_run_together_have_seeds_of_their_own():
    tokenizer = tiny.tokenizer()
    sampler = RecordingSampler(tokenizer, {name: [ANSWER] for name in "abc"})
    jobs = [Job(ToolCallSolver(), TASK, name, seed=5 if name == "c" else None) for name in "abc"]
    policy = TokenPolicy(sampler, Renderer(tokenizer))
    params = SamplingParams(temperature=0.3)
    episodes = [one async for one in run_many(policy, jobs, tiny.ListSearcher(), Limits(), seed=3, params=params)]
    seeds = [derive_seed(3, 0), derive_seed(3, 1), 5]
    assert [episode.seed for episode in episodes] == seeds and len(set(seeds)) == 3
    assert [sampler.asked[name][0][1].seed for name in "abc"] == [derive_seed(seed, 0) for seed in seeds]
    assert {sampler.asked[name][0][1].temperature for name in "abc"} == {0.3}


async def test_a_turn_stops_where_the_models_own_calls_end_if_calls_stop_it():
    tokenizer = make_tokenizer(tiny.CHATML + "{# <|tool_call_start|> #}")
    renderer = Renderer(tokenizer)
    assert renderer.call_stop == ("<|tool_call_end|>",)
    for protocol, own in ((ToolCallSolver(), renderer.call_stop), (TagSolver("search-r1"), ())):
        sampler = RecordingSampler(tokenizer, {"q1": [ANSWER]})
        await run_episode(TokenPolicy(sampler, renderer), protocol, tiny.ListSearcher(), TASK, Limits())
        ((_, params),) = sampler.asked["q1"]
        assert params.stop == protocol.stop + own
        assert params.stop_token_ids == renderer.stop_token_ids != ()


async def test_a_reply_fits_if_there_is_room_for_its_last_token():
    tokenizer = tiny.tokenizer()
    policy = TokenPolicy(ScriptedSampler(tokenizer, {"q1": ["hm<|im_end|>"]}), Renderer(tokenizer))
    conversation, message = policy.begin("q1", ToolCallSolver(), TASK), Message("user", ("Go on.",))
    await conversation.write(SamplingParams(max_tokens=50))
    before, needed = conversation.num_tokens, conversation.count(message, 100)
    assert conversation.answer(message, 100, needed - 1) is None and conversation.num_tokens == before
    assert conversation.answer(message, 100, needed) == message and conversation.num_tokens == before + needed


def test_seeds_have_63_bits():
    seeds = [derive_seed(7, step, "solver") for step in range(50)]
    assert len(set(seeds)) == 50
    assert 1 << 57 < max(seeds) < 1 << 63
