"""The last turn is kept for the answer: who is told that no searches are left, when, and in which words."""

import hashlib

import msgspec
import pytest
from msgspec import structs

import tiny
from evaluating import call, evaluate
from judging import RUBRIC, assess_task, assessment, entry
from quaere.chat.protocol import LAST_SEARCH, NONE_LEFT
from quaere.chat.renderer import Renderer
from quaere.dialects.evalact import EvaluateSolver, cue, format_fault
from quaere.dialects.report.assessment import Assessor
from quaere.dialects.report.report_writer import ReportWriter
from quaere.dialects.tag_dialects import TagSolver
from quaere.dialects.tool_call import ToolCallProposer, ToolCallSolver
from quaere.errors import SearchFailed
from quaere.policies.sampler import ChatReply
from quaere.records import ProposeTask, Question, ReportTask, SolveTask
from quaere.rollout.episode import Limits, run_episode
from quaere.rollout.policy import ChatPolicy, TokenPolicy
from scripted import ScriptedSampler

QUESTION = Question("q1", "Who built the Halm bridge?", ("Orsolya Venn",))
SOLVE, REPORT = SolveTask(QUESTION), ReportTask(QUESTION)
PROPOSE = ProposeTask("p1", tiny.passage("The Oss rises at Korrin."), 2)
CALL = call("search", query_list=["Halm bridge"])
TWO = call("search", query_list=["a", "b"])
TAGGED, ANSWER = "<search>Halm bridge</search>", "<answer>Orsolya Venn</answer>"
PROPOSAL = "<question>Where?</question><answer>Korrin</answer>"
ASSESSMENT = assessment(entry(1), entry(2, (1, 2, 3)))

# Of every dialect with searches of one turn: protocol, task, a search, the last turn.
DIALECTS = {
    "tool-call": (ToolCallSolver(), SOLVE, CALL, ANSWER),
    "eve": (ToolCallSolver(evidence=True), SOLVE, CALL, ANSWER),
    "proposer": (ToolCallProposer(), PROPOSE, CALL, PROPOSAL),
    "eve-proposer": (ToolCallProposer(evidence=True), PROPOSE, CALL, PROPOSAL),
    "search-r1": (TagSolver("search-r1"), SOLVE, TAGGED, ANSWER),
    "evalrar": (TagSolver("evalrar"), SOLVE, TAGGED, ANSWER),
    "autorefine": (TagSolver("autorefine"), SOLVE, TAGGED, ANSWER),
    "report": (ReportWriter(), REPORT, TAGGED, "<answer>Venn built it [1].</answer>"),
    "assessor": (Assessor(RUBRIC, 2), assess_task(), TAGGED, ASSESSMENT),
}
ROOMY = Limits(max_turns=5, turn_tokens=2000, sequence_tokens=40_000, tool_response_tokens=2000)


async def play(protocol, task, script, limits, searcher=None, template="chatml"):
    tokenizer = tiny.tokenizer(template)
    policy = TokenPolicy(ScriptedSampler(tokenizer, {task.id: script}), Renderer(tokenizer))
    return await run_episode(policy, protocol, searcher or tiny.ListSearcher(), task, limits)


def allow(**changes):
    return structs.replace(ROOMY, **changes)


def noted(episode, words=LAST_SEARCH):
    """The turns whose replies hold these words."""
    return [turn.index for turn in episode.turns if words in turn.reply]


def failures(episode):
    return [turn.failure.kind if turn.failure else None for turn in episode.turns]


class BrokenSearcher:
    async def search(self, queries, topk):
        raise SearchFailed("the retriever did not answer within 1 s", kind="timeout")


# ------------------------------------------------------------------------------------------------------------ turns


@pytest.mark.parametrize("name", DIALECTS)
async def test_the_note_comes_once_with_the_last_search_that_leaves_a_turn(name):
    protocol, task, search, last = DIALECTS[name]
    for num_turns in (2, 3, 5):
        limits = allow(max_turns=num_turns)
        episode = await play(protocol, task, [search] * (num_turns - 1) + [last], limits)
        assert (episode.end, episode.num_searches) == ("answered", num_turns - 1)
        assert noted(episode) == [num_turns - 2]
        assert failures(episode) == [None] * num_turns
        *_, reply, answer = episode.segments
        assert (reply.origin, answer.origin) == ("environment", "model") and not any(reply.loss_mask)
        shown = tiny.tokenizer().decode(reply.token_ids)
        # After the passages, and after the tag that closes them.
        assert shown.index("Orsolya Venn built") < shown.index(LAST_SEARCH)
        assert "</" not in shown[: shown.index(LAST_SEARCH)] or protocol.tools == ()
    early = await play(protocol, task, [search, last], ROOMY)
    assert early.end == "answered" and noted(early) == []


async def test_the_note_says_how_to_finish_in_each_dialect():
    finishes = {
        "tool-call": "Now put the answer between <answer> and </answer>.",
        "proposer": "Now put the question between <question> and </question>, then its answer between <answer> and",
        "search-r1": "</information>\n\nThis was the last search. Now put the answer between",
        "autorefine": "</documents>\n\nThis was the last search. Now put the answer between",
        "report": "</observation>\n\nThis was the last search. Now put the report between <answer> and </answer>.",
        "assessor": "Now write the assessment between <assessment> and </assessment>.",
    }
    for name, words in finishes.items():
        protocol, task, search, last = DIALECTS[name]
        episode = await play(protocol, task, [search, last], allow(max_turns=2))
        assert words in episode.turns[0].reply


@pytest.mark.parametrize("name", DIALECTS)
async def test_a_search_on_the_last_turn_ends_the_episode(name):
    protocol, task, search, _ = DIALECTS[name]
    searcher = tiny.ListSearcher()
    episode = await play(protocol, task, [search] * 3, allow(max_turns=3), searcher)
    assert (episode.end, len(searcher.queries)) == ("turn_limit", 2)
    assert failures(episode) == [None, None, "turns"] and noted(episode) == [1]


@pytest.mark.parametrize("name", DIALECTS)
async def test_a_turn_that_cannot_be_read_is_told_how_to_finish_and_not_how_to_search(name):
    protocol, task, search, last = DIALECTS[name]
    episode = await play(protocol, task, [search, "hm", "hm", last], allow(max_turns=4))
    assert episode.end == "answered" and noted(episode) == [] and noted(episode, NONE_LEFT) == [2]
    assert "o search, " in episode.turns[1].reply and "o search, " not in episode.turns[2].reply
    assert ("could not be used" in episode.turns[2].reply) and "To finish, " in episode.turns[2].reply


@pytest.mark.parametrize("name", DIALECTS)
async def test_a_search_that_fails_at_the_end_cannot_be_tried_again(name):
    protocol, task, search, last = DIALECTS[name]
    episode = await play(protocol, task, [search, search, last], allow(max_turns=3), BrokenSearcher())
    assert "try again" in episode.turns[0].reply and "try again" not in episode.turns[1].reply
    assert noted(episode, NONE_LEFT) == [1] and failures(episode) == ["timeout", "timeout", None]


# --------------------------------------------------------------------------------------------------------- searches


@pytest.mark.parametrize("name", DIALECTS)
async def test_the_note_comes_with_the_last_search_allowed_and_later_ones_are_refused(name):
    protocol, task, search, last = DIALECTS[name]
    searcher = tiny.ListSearcher()
    episode = await play(protocol, task, [search] * 3 + [last], allow(max_turns=9, max_searches=2), searcher)
    assert (episode.end, len(searcher.queries)) == ("answered", 2)
    assert noted(episode) == [1] and noted(episode, NONE_LEFT) == [2]
    assert failures(episode) == [None, None, "searches", None]


async def test_searches_are_counted_by_query_and_turns_by_turn():
    """Eight searches in five turns are possible where a turn holds two queries, and never come to pass with one."""
    two = await play(ToolCallSolver(), SOLVE, [TWO] * 4 + [ANSWER], allow(max_searches=8))
    assert (two.num_searches, two.end, noted(two)) == (8, "answered", [3])
    fewer = await play(ToolCallSolver(), SOLVE, [TWO, TWO, ANSWER], allow(max_searches=4))
    assert (fewer.num_searches, fewer.end, noted(fewer)) == (4, "answered", [1])
    one = await play(ToolCallSolver(), SOLVE, [CALL] * 4 + [ANSWER], allow(max_searches=8))
    assert (one.num_searches, one.end, noted(one)) == (4, "answered", [3])


# ---------------------------------------------------------------------------------------------------------- evalact

EVALACT, SEARCH = EvaluateSolver(), call("search", query="Halm bridge")


@pytest.mark.parametrize(("num_turns", "num_searches"), [(3, 1), (4, 1), (5, 2), (6, 2), (7, 3)])
async def test_the_last_search_leaves_a_turn_for_its_evaluation_and_one_for_the_answer(num_turns, num_searches):
    script = [SEARCH, evaluate(2)] * num_searches + [ANSWER]
    episode = await play(EVALACT, SOLVE, script, allow(max_turns=num_turns))
    assert format_fault(episode.turns, episode.end) == "" and episode.num_searches == num_searches
    last = 2 * num_searches - 2
    assert noted(episode) == [last]
    assert "This was the last search. Evaluate it, then put the answer" in episode.turns[last].reply
    replies = [turn.reply for turn in episode.turns[1::2]]
    assert replies == [cue(2)] * (num_searches - 1) + [cue(2, final=True)]
    assert "search again" in cue(2) and "search again" not in cue(2, final=True)


async def test_a_search_that_leaves_no_turn_for_its_evaluation_is_refused():
    searcher = tiny.ListSearcher()
    episode = await play(EVALACT, SOLVE, [SEARCH, evaluate(), SEARCH, ANSWER], allow(max_turns=4), searcher)
    assert (episode.end, len(searcher.queries)) == ("answered", 1)
    assert failures(episode) == [None, None, "searches", None]
    assert NONE_LEFT.removesuffix(".") in episode.turns[2].reply


async def test_evaluations_stay_due_when_searches_are_used_up():
    script = [SEARCH, evaluate(), SEARCH, "hm", evaluate(9), ANSWER]
    episode = await play(EVALACT, SOLVE, script, allow(max_turns=20, max_searches=2))
    assert (episode.end, noted(episode)) == ("answered", [2])
    assert "evaluate the last search" in episode.turns[3].reply and NONE_LEFT not in episode.turns[3].reply
    assert episode.turns[4].reply == cue(9, final=True)
    lost = await play(EVALACT, SOLVE, ["hm", "hm", ANSWER], allow(max_turns=3))
    assert noted(lost, NONE_LEFT) == [0, 1] and "o search, " not in lost.turns[0].reply


# ------------------------------------------------------------------------------------------------------------ tokens


@pytest.mark.parametrize("name", DIALECTS)
async def test_no_limit_on_replies_cuts_the_note(name):
    protocol, task, search, last = DIALECTS[name]
    limits = allow(max_turns=2, tool_response_tokens=6)
    episode = await play(protocol, task, [search, last], limits, tiny.ListSearcher(["word " * 900]))
    reply = tiny.tokenizer().decode(episode.segments[2].token_ids)
    assert "word word word" not in reply
    note = episode.turns[0].reply.partition(LAST_SEARCH)[2]
    assert note.endswith(".") and LAST_SEARCH + note in reply


class Obedient(ScriptedSampler):
    """Searches (and evaluates, if it must) until it reads that no searches are left, then does what it was told."""

    def __init__(self, tokenizer, search, last, evaluation=""):
        super().__init__(tokenizer, {})
        self.search, self.last, self.evaluation = search, last, evaluation
        self.told, self.written = False, []

    async def sample(self, session, token_ids, params):
        self.told = self.told or LAST_SEARCH in self._tokenizer.decode(list(token_ids))
        evaluates = self.evaluation and self.written and self.written[-1] == self.search
        self.written.append(self.evaluation if evaluates else self.last if self.told else self.search)
        self._scripts = {session: self.written}
        return await super().sample(session, token_ids, params)


@pytest.mark.parametrize("name", ["tool-call", "search-r1", "report", "proposer", "evalact"])
async def test_wherever_the_sequence_ends_there_is_room_for_the_answer(name):
    """Passages of any length, sequences of any length: who answers when told to is never cut off by the sequence."""
    evaluation = evaluate(2) if name == "evalact" else ""
    protocol, task, search, last = (EVALACT, SOLVE, SEARCH, ANSWER) if evaluation else DIALECTS[name]
    tokenizer = tiny.tokenizer()
    renderer = Renderer(tokenizer)
    # Of an evaluation, its cue and the answer each takes as many, joints included.
    longest = max((last, evaluation, cue(2) + "joint " * 8 if evaluation else ""), key=len)
    kept = len(tokenizer.encode(longest, add_special_tokens=False))
    num_opening = len(renderer.opening(protocol.opening(task), protocol.tools))
    counts = set()
    for room in range(700 if evaluation else 260, 2000, 211):
        searcher = tiny.ListSearcher(["Halm " * (5 + room % 97)])
        limits = allow(max_turns=60, max_searches=60, sequence_tokens=num_opening + room, answer_tokens=kept)
        policy = TokenPolicy(Obedient(tokenizer, search, last, evaluation), renderer)
        episode = await run_episode(policy, protocol, searcher, task, limits)
        assert episode.end == "answered", room
        assert len(noted(episode)) == 1 and len(episode.token_ids) <= limits.sequence_tokens
        counts.add(episode.num_searches)
    assert max(counts) > 2  # the room is used


async def test_passages_are_cut_to_what_leaves_an_answer():
    searcher = tiny.ListSearcher(["Halm " * 900])
    opening = Renderer(tiny.tokenizer()).opening(TagSolver("search-r1").opening(SOLVE))
    limits = allow(sequence_tokens=len(opening) + 400, answer_tokens=50)
    episode = await play(TagSolver("search-r1"), SOLVE, [TAGGED, ANSWER], limits, searcher)
    assert (episode.end, noted(episode)) == ("answered", [0])
    before_answer = sum(len(segment.token_ids) for segment in episode.segments[:-1])
    assert limits.sequence_tokens - before_answer == 50
    (hit,) = episode.turns[0].results[0].hits
    assert 0 < len(hit.passage.text) < 900 * 5  # nothing can be quoted that was not shown
    unkept = structs.replace(limits, answer_turn=False)
    assert (await play(TagSolver("search-r1"), SOLVE, [TAGGED, ANSWER], unkept, searcher)).end == "sequence_limit"


@pytest.mark.parametrize(
    ("protocol", "search", "last_turns", "num_kept"),
    [
        (TagSolver("search-r1"), TAGGED, [ANSWER], 50),
        # Two searches to evaluate: for each an evaluation and its cue, as long as the answer.
        (EVALACT, SEARCH, [evaluate(2), ANSWER], 50 + 2 * 2 * 50),
    ],
    ids=["search-r1", "evalact"],
)
async def test_the_note_comes_if_another_search_and_the_answer_lack_one_token(protocol, search, last_turns, num_kept):
    async def played(**changes):
        return await play(protocol, SOLVE, [search, *last_turns], allow(answer_tokens=50, **changes))

    def lengths(episode):
        return [len(segment.token_ids) for segment in episode.segments[:3]]

    num_opening, num_turn, num_reply = lengths(await played(max_turns=9))
    num_final = lengths(await played(max_turns=1 + len(last_turns)))[2]
    enough = num_opening + num_turn + num_reply + (num_turn + num_final) + num_kept
    assert noted(await played(max_turns=9, sequence_tokens=enough)) == []
    assert noted(await played(max_turns=9, sequence_tokens=enough - 1)) == [0]


async def test_an_answer_is_never_thought_longer_than_a_turn():
    """Reports keep a thousand tokens; where a turn has fewer, they are all that is kept."""
    searcher = tiny.ListSearcher(["Halm " * 900])
    opening = Renderer(tiny.tokenizer()).opening(TagSolver("search-r1").opening(SOLVE))
    limits = allow(sequence_tokens=len(opening) + 400, turn_tokens=60, answer_tokens=1024)
    episode = await play(TagSolver("search-r1"), SOLVE, [TAGGED, ANSWER], limits, searcher)
    before_answer = sum(len(segment.token_ids) for segment in episode.segments[:-1])
    assert limits.sequence_tokens - before_answer == 60


# ------------------------------------------------------------------------------------------------- guided, endpoints


async def test_a_guided_policy_is_told_by_how_its_turn_is_opened():
    protocol, script = ToolCallSolver(guided=True), ["Orsolya Venn</answer>"]
    limits = allow(max_turns=2)
    kept = await play(protocol, SOLVE, script, limits)
    unkept = await play(protocol, SOLVE, script, structs.replace(limits, answer_turn=False))
    assert kept.segments == unkept.segments and kept.end == "answered"
    spent = await play(protocol, SOLVE, script, allow(max_turns=9, max_searches=1))
    assert spent.segments == unkept.segments  # no searches are left, so the second of nine turns is for the answer


class Endpoint:
    name = "endpoint"

    def __init__(self, replies):
        self.replies, self.heard = list(replies), []

    async def reply(self, messages, params):
        self.heard.append(messages[-1]["content"])
        return ChatReply(self.replies.pop(0), "end_of_turn", 5)


async def test_a_text_endpoint_is_told_as_well():
    endpoint = Endpoint([CALL, CALL, ANSWER])
    episode = await run_episode(ChatPolicy(endpoint), ToolCallSolver(), tiny.ListSearcher(), SOLVE, allow(max_turns=3))
    assert episode.end == "answered"
    assert [LAST_SEARCH in heard for heard in endpoint.heard] == [False, False, True]
    assert endpoint.heard[-1].index(LAST_SEARCH) < endpoint.heard[-1].index("</tool_response>")


# ----------------------------------------------------------------------------------------------------- as it was before

# SHA-256 of the end, and of origin and text of every segment after the prompt, from before a turn was kept; that of
# "guided" is from when its first search became the question's.
BEFORE = {
    "tool-call": "d2d171e03c8b893b",
    "eve": "ca74c55dd62f4c40",
    "proposer": "105ca852bfb42f0d",
    "eve-proposer": "1dc63003b350ada9",
    "search-r1": "baec6a817db183a0",
    "evalrar": "baec6a817db183a0",
    "autorefine": "edb2e05b74fa46ba",
    "report": "6c0d0f04c3af6bdd",
    "assessor": "08cfcc55b6788cc4",
    "evalact": "79523f46bd5d9584",
    "guided": "1fbf27ddd69648c6",
}


def golden_scripts():
    """Episodes that meet every limit and every reply: three searches of two allowed, a turn that cannot be read."""
    for name, (protocol, task, search, last) in DIALECTS.items():
        yield name, protocol, task, [search, "hm", search, search, last]
    yield "evalact", EVALACT, SOLVE, [SEARCH, evaluate(2), SEARCH, evaluate(9), SEARCH]
    yield (
        "guided",
        ToolCallSolver(guided=True),
        SOLVE,
        ["hm", CALL, CALL, "Venn</answer>"],
    )


async def digest(protocol, task, script, limits):
    episode = await play(protocol, task, script, limits, template="qwen")
    tokenizer = tiny.tokenizer("qwen")
    pieces = [(segment.origin, tokenizer.decode(segment.token_ids)) for segment in episode.segments[1:]]
    return hashlib.sha256(msgspec.json.encode([episode.end, pieces])).hexdigest()[:16]


async def test_without_it_every_token_is_as_before():
    limits = allow(max_searches=2, answer_turn=False)
    found = {name: await digest(*case, limits) for name, *case in golden_scripts()}
    assert found == BEFORE


@pytest.mark.parametrize("name", DIALECTS)
async def test_with_it_the_note_is_all_that_is_added(name):
    protocol, task, search, last = DIALECTS[name]
    script = [search] * 2 + [last]
    kept, unkept = [
        await play(protocol, task, script, allow(max_turns=3, answer_turn=answer_turn)) for answer_turn in (True, False)
    ]
    *before, reply, answer = kept.segments
    *before_too, plain, answer_too = unkept.segments
    assert before == before_too and answer == answer_too
    note = kept.turns[1].reply.removeprefix(unkept.turns[1].reply)
    shown, plainly = (tiny.tokenizer().decode(segment.token_ids) for segment in (reply, plain))
    assert note.startswith(f"\n\n{LAST_SEARCH}") and shown.replace(note, "") == plainly


def test_limits_written_before_have_the_defaults():
    assert msgspec.json.decode(b'{"max_turns": 3, "topk": 1}', type=Limits) == Limits(max_turns=3, topk=1)
    assert (Limits().answer_turn, Limits().answer_tokens, Limits().sequence_tokens) == (True, 64, 3072)
