"""Words, turns and whole episodes of the evaluate dialect, as its tests need them."""

import json

import tiny
from quaere.chat.renderer import Renderer
from quaere.dialects.evalact import EvaluateSolver, format_fault
from quaere.records import Evaluate, Failure, Malformed, Question, Search, SearchResult, SolveTask, Turn
from quaere.rollout.episode import Limits, run_episode
from quaere.rollout.policy import TokenPolicy
from scripted import ScriptedSampler

TASK = SolveTask(Question("q1", "Who built the Halm bridge?", ("Orsolya Venn",)))
LIMITS = Limits(max_turns=60, turn_tokens=400, sequence_tokens=1 << 20, max_searches=20)
UNEVALUATED = "the last search is not evaluated yet"
NO_SEARCH = "no search waits for an evaluation"
BAD_SCORE = "the score must be a number from 0 to 10"
OUTSIDE = "there is text outside of the thought and the action"


def call(name, **arguments):
    return f"<tool_call>{json.dumps({'name': name, 'arguments': arguments})}</tool_call>"


def evaluate(score=7, text="Passage 1 names her."):
    return call("evaluate", evaluation=text, score=score)


SEARCH = call("search", query="Halm bridge")
ANSWER = "<think>So it is her.</think><answer>Orsolya Venn</answer>"
SEARCHED = Turn(0, SEARCH, Search(("Halm bridge",)), "stop_string", results=(SearchResult("Halm bridge", ()),))
FAILED = Turn(0, SEARCH, Search(("Halm bridge",)), "stop_string", failure=Failure("search", "timeout", "x"))
EVALUATED = Turn(1, evaluate(), Evaluate("Passage 1 names her.", 7.0), "stop_string")
UNREAD = Turn(2, "hm", Malformed("there is neither a tool call nor an answer"), "end_of_turn")


async def play(script, searcher=None, protocol=None, limits=LIMITS, template="qwen"):
    tokenizer = tiny.tokenizer(template)
    policy = TokenPolicy(ScriptedSampler(tokenizer, {TASK.id: script}), Renderer(tokenizer))
    return await run_episode(policy, protocol or EvaluateSolver(), searcher or tiny.ListSearcher(), TASK, limits)


def fault(episode, **options):
    return format_fault(episode.turns, episode.end, **options)
