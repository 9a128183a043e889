"""S5: 10,000 fuzzed turns per reader are all read, accept paths included, and what is accepted can be stored.

A reader is what a dialect reads a turn with; there are 18. Turns are random pieces of every dialect, sound turns with
something cut out, doubled or put in, and any ids at all. An accepted turn has bounds: no empty query, no endless text,
no score that is not a number. Another 10,000 turns are played, in whole episodes of five dialects. The suite reads and
plays a tenth of them, the slow tests all.
"""

import math
import random

import pytest
from msgspec import json as mjson

import tiny
from every_dialect import ANSWER, ASSESSMENT, DIALECTS, ONE, QUOTED, REPORT, RUBRIC, SCORED, SEARCH, TAGGED
from quaere.chat.markup import MAX_QUERIES, MAX_QUERY_CHARS
from quaere.chat.renderer import Renderer
from quaere.dialects.evalact import MAX_EVALUATION_CHARS
from quaere.dialects.report.report_writer import MAX_REPORT_CHARS
from quaere.records import (
    Action,
    Answer,
    Assessment,
    Evaluate,
    Malformed,
    Proposal,
    Rubric,
    Search,
    SearchResult,
    Turn,
)
from quaere.rollout.episode import Job, Limits, run_many
from quaere.rollout.policy import TokenPolicy
from scripted import ScriptedSampler

NAMES = (
    *("think", "answer", "question", "evidence", "tool_call", "tool_response", "search", "evaluate", "refine"),
    *("rubric", "assessment", "report", "score", "reason", "verdict", "information", "documents", "observation"),
)
TAGS = [mark.format(name) for name in NAMES for mark in ("<{}>", "</{}>", "<{}", '<{} id="1">', "<{}/>")]
JSON = ['{"name": "search", "arguments": {"query": "', '"score": ', '"]}}', "{", "[", '"', "\\u0000", "\\ud800"]
JSON += [
    "1e999",
    "NaN",
    "-Infinity",
    "true",
    "null",
    "[" * 200,
    '{"a":' * 80,
    "10.5",
    "-1",
    "1" * 40,
    '"evaluation": "',
]
WHOLES = [ANSWER, SEARCH, ONE, SCORED, QUOTED, TAGGED, REPORT, RUBRIC, ASSESSMENT, "<verdict>supported</verdict>"]
WHOLES += ["<question>What is known of Halm?</question>", "<think>so</think>", "<refine>Venn.</refine>"]
WORDS = ["Venn", " ", "\n", "é", "漢", "\x00", "🌉", "[1]", "[2, 3]", ": 0.3\n", "factuality\n", "- ", "&lt;"]
WORDS.append("x" * 5000)
KINDS = {
    "proposer": {Search, Proposal},
    "citing proposer": {Search, Proposal},
    "evalact": {Search, Evaluate, Answer},
    "rubric": {Rubric},
    "assessment": {Search, Assessment},
    "open question": {Proposal},
    **{name: {Answer} for name in ("closed book", "judge", "verdict", "one line")},
}


def draw_turn(dice, sound):
    """A turn: pieces at random, or one of the dialect's own with up to three changes."""
    if dice.random() < 0.4:
        return "".join(dice.choice(dice.choice([TAGS, TAGS, JSON, WORDS, WHOLES])) for _ in range(dice.randint(0, 25)))
    text = dice.choice(["", "", "<think>so</think>", "well "]) + dice.choice(sound)
    for _ in range(dice.randint(0, 3)):
        start = dice.randint(0, len(text))
        end = min(len(text), start + dice.randint(0, 12))
        new = dice.choice(["", text[start:end] * 2, dice.choice(dice.choice([TAGS, JSON, WORDS]))])
        text = text[:start] + new + text[end:]
    return text


def check(action):
    """Whatever was accepted is bounded, and comes back from the store as it went."""
    assert mjson.decode(mjson.encode(action), type=Action) == action
    match action:
        case Search(queries=queries):
            assert 1 <= len(queries) <= MAX_QUERIES
            assert all(query.strip() and len(query) <= MAX_QUERY_CHARS for query in queries)
        case Evaluate(text=text, score=score):
            assert text.strip() and len(text) <= MAX_EVALUATION_CHARS and 0 <= score <= 10
        case Answer(text=text, span=span):
            assert text.strip() and len(text) <= MAX_REPORT_CHARS and len(span) <= MAX_REPORT_CHARS
        case Rubric(primary=primary, weights=weights):
            assert primary == "factuality" and all(0.1 <= weight.weight <= 0.5 for weight in weights)
        case Assessment(reports=reports):
            assert reports and {item.number for item in reports} <= {1, 2}
            assert all(math.isfinite(score) and 0 <= score <= 10 for item in reports for score in item.scores.values())
        case Malformed(reason=reason):
            assert reason and "\n" not in reason


@pytest.mark.parametrize("count", [1000, pytest.param(10_000, marks=pytest.mark.slow)])
@pytest.mark.parametrize("name", DIALECTS)
def test_every_turn_is_read_and_what_is_accepted_is_bounded(name, count):
    dice = random.Random(name)
    protocol, _ = DIALECTS[name].open("e", "A document.")
    searched = Turn(0, SEARCH, Search(("Halm",)), "stop_string", results=(SearchResult("Halm", ()),))
    sound = [protocol.prefix(0, False) + turn for turn in DIALECTS[name].turns]
    sound += [protocol.prefix(9, True) + turn for turn in DIALECTS[name].turns]
    seen = {}
    for _ in range(count):
        action = protocol.read(draw_turn(dice, sound), [searched] if dice.random() < 0.5 else [])
        check(action)
        seen[type(action)] = seen.get(type(action), 0) + 1
    expected = {Malformed, *KINDS.get(name, {Search, Answer})}
    assert set(seen) == expected
    assert min(seen.values()) > count / 100, seen


@pytest.mark.parametrize("count", [50, pytest.param(500, marks=pytest.mark.slow)])
@pytest.mark.parametrize("name", ["tool-call solver", "citing proposer", "evalact", "report writer", "assessment"])
async def test_played_turns_crash_nothing(name, count):
    """Episodes of four turns, one in three of them any ids at all."""
    tokenizer, dice = tiny.tokenizer("qwen"), random.Random(name)
    sound, jobs, scripts = DIALECTS[name].turns, [], {}
    for number in range(count):
        episode_id = f"e{number}"
        scripts[episode_id] = [
            [dice.randrange(len(tokenizer)) for _ in range(dice.randint(0, 60))]
            if dice.random() < 0.3
            else draw_turn(dice, sound)
            for _ in range(4)
        ]
        jobs.append(Job(*DIALECTS[name].open(episode_id, "Who?"), episode_id))
    policy = TokenPolicy(ScriptedSampler(tokenizer, scripts), Renderer(tokenizer))
    limits = Limits(max_turns=4, sequence_tokens=8192, turn_tokens=200, tool_response_tokens=100)
    ends = set()
    async for episode in run_many(policy, jobs, tiny.ListSearcher(), limits):
        mjson.encode(episode)
        ends.add(episode.end)
    assert {"answered", "turn_limit"} <= ends <= {"answered", "turn_limit", "sequence_limit"}


def test_there_are_ten_thousand_turns_for_each_of_eighteen_readers():
    assert len(DIALECTS) == 18 and 5 * 500 * 4 == 10_000
