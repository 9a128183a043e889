"""Scripted episodes in every dialect, sound and broken, and whether their ids are what the sampler saw and sampled."""

import random

import tiny
from quaere.dialects.closed_book import ClosedBook
from quaere.dialects.evalact import EvaluateSolver
from quaere.dialects.report.report_writer import ReportWriter
from quaere.dialects.tag_dialects import TagSolver
from quaere.dialects.tool_call import ToolCallProposer, ToolCallSolver
from quaere.records import ProposeTask, Question, ReportTask, SolveTask
from quaere.rollout.episode import Job

CALL = '<tool_call>{{"name": "search", "arguments": {{"query_list": ["{}"]}}}}</tool_call>'
ONE = '<tool_call>{{"name": "search", "arguments": {{"query": "{}"}}}}</tool_call>'
SCORED = '<tool_call>{"name": "evaluate", "arguments": {"evaluation": "It is here.", "score": 9}}</tool_call>'
SOLVERS = (
    ToolCallSolver(),
    ToolCallSolver(guided=True),
    ToolCallSolver(evidence=True),
    TagSolver("search-r1"),
    TagSolver("evalrar"),
    TagSolver("autorefine"),
    EvaluateSolver(),
    ClosedBook(span="It was </s> her."),
)


def assert_exact(episode, seen):
    """`seen` is what the sampler was given and gave back, turn by turn."""
    ids = episode.token_ids
    sampled = [segment for segment in episode.segments if segment.origin == "model"]
    assert [segment.token_ids for segment in sampled] == [given for _, given in seen]
    assert all(all(segment.loss_mask) and len(segment.logprobs) == len(segment.token_ids) for segment in sampled)
    others = [segment for segment in episode.segments if segment.origin != "model"]
    assert not any(any(segment.loss_mask) or segment.logprobs for segment in others)
    for context, given in seen:
        assert ids[: len(context)] == context
        assert ids[len(context) : len(context) + len(given)] == given
    if seen:
        assert ids == seen[-1][0] + seen[-1][1] + ids[len(seen[-1][0]) + len(seen[-1][1]) :]
    assert len(episode.loss_mask) == len(ids)
    assert sum(episode.loss_mask) == sum(len(given) for _, given in seen)


def random_turn(draw, vocabulary, name):
    """A turn as a policy might write it: sound, broken, or any ids at all, control tokens included."""
    return draw.choice(
        [
            CALL.format(f"query {name}"),
            f"<think>a thought {name}</think>" + CALL.format("Halm") + draw.choice(["", "<|im_end|>", " trailing"]),
            f"<answer>{name}</answer>" + draw.choice(["", "<|im_end|>", "\n"]),
            f"<question>Who {name}?</question><answer>{name}</answer>",
            f"<evaluate>so {name}</evaluate><search>{name}</search>",
            ONE.format(name),
            SCORED,
            f"<evidence>so {name}</evidence><answer>{name} [1].</answer>",
            "no action at all <|im_end|>",
            "<tool_call>{</tool_call>",
            tuple(draw.randrange(vocabulary) for _ in range(draw.randint(1, 40))),
        ]
    )


NUM_KINDS = len(SOLVERS) + 2


def jobs_and_scripts(count, tokenizer, seed):
    """Of ten episodes eight solve, one proposes and one writes a report; every question and document is hostile."""
    draw = random.Random(seed)
    jobs, scripts = [], {}
    for number in range(count):
        name, kind = f"e{number}", number % NUM_KINDS
        question = Question(name, f"Who is {name}? <s> </information>")
        if kind < len(SOLVERS):
            protocol, task = SOLVERS[kind], SolveTask(question)
        elif kind == len(SOLVERS):
            protocol, task = ToolCallProposer(), ProposeTask(name, tiny.passage(f"About {name} </s>"), 1 + number % 4)
        else:
            protocol, task = ReportWriter(), ReportTask(question)
        jobs.append(Job(protocol, task, name))
        scripts[name] = [random_turn(draw, len(tokenizer), name) for _ in range(4)]
    return jobs, scripts
