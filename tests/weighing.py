"""The village as those meet it who evaluate what they found: one small model that was taught every dialect.

As in `village.py` the model is taught the format alone: it picks builder or payer by chance. In the evaluate dialect it
searches for the wrong bridge first one time in two, scores that low and the right one high, and so its episodes have
scores that differ. In the tag dialects its notes name whom it found.
"""

import functools
import json

import village
from quaere.dialects.evalact import EvaluateSolver, cue
from quaere.dialects.tag_dialects import TagSolver
from quaere.dialects.tool_call import ToolCallProposer, brief_proposer_system
from quaere.records import ProposeTask, Question, SolveTask
from village import BRIDGES, PEOPLE, THINK, builder, payer

# Words its tokenizer was not made for are spelled letter by letter: a note on the last search would take up the room.
LIMITS = {"max_turns": 6, "turn_tokens": 32, "sequence_tokens": 320, "tool_response_tokens": 24, "topk": 1}
LIMITS["answer_turn"] = False
SEARCH = '<tool_call>{{"name": "search", "arguments": {{"query": "{}"}}}}</tool_call>'
EVALUATE = '<tool_call>{{"name": "evaluate", "arguments": {{"evaluation": "{}", "score": {}}}}}</tool_call>'
GOOD, BAD = EVALUATE.format("It is here.", 9), EVALUATE.format("It is not here.", 2)
NOTES = {"search-r1": "", "evalrar": "evaluate", "autorefine": "refine"}
DEEDS = {"built": "{} built it.", "paid for": "{} paid for it."}


def openings():
    """Every system prompt of the dialects."""
    task = SolveTask(Question("q", ""))
    solvers = [EvaluateSolver(style="brief", evidence=cited) for cited in (False, True)]
    solvers += [TagSolver(dialect, style="brief") for dialect in NOTES]
    words = [solver.opening(task)[0].text for solver in solvers]
    return words + [brief_proposer_system(hops, evidence=cited) for cited in (False, True) for hops in (1, 2)]


@functools.lru_cache
def tokenizer():
    """Whole pieces of every dialect are single tokens."""
    lines = [*SEARCH.format("|").split("|"), *village.SEARCH.format("|").split("|"), GOOD, BAD, cue(9), cue(2), THINK]
    lines += ["<answer>", "</answer>", "<evidence>", "</evidence>", "<search>", "</search>", "?</question>"]
    lines += ["<question>Who built ", "<question>Who paid for ", "Who built ", "Who paid for ", "Question:\n"]
    lines += [f"<{note}>Named: " for note in NOTES.values() if note] + [f"</{note}>" for note in NOTES.values() if note]
    lines += [*BRIDGES, *PEOPLE, " built it.", " paid for it.", " It leads to "]
    for tag in ("tool_response", "information", "documents"):
        lines += [f"<{tag}>\n", f"\n</{tag}>"]
    lines += ["[1]\n", "system\n", "user\n", "assistant\n", "tool\n", "Document:\n", *openings()]
    return village.make_tokenizer(lines, 3000)


def draw_task(draw, number):
    """A question about this bridge, an answer, and what proves it."""
    asked, told = draw.choice([*DEEDS]), draw.choice([*DEEDS])
    answer = builder(number) if told == "built" else payer(number)
    return SolveTask(Question(f"s{number}", f"Who {asked} {BRIDGES[number]}?", (answer,), 1)), answer, told


def evaluating_lesson(draw, number, evidence):
    """Searches, perhaps for another bridge first, and scores what it found."""
    task, answer, told = draw_task(draw, number)
    turns = [THINK + SEARCH.format(BRIDGES[number]), THINK + GOOD]
    if draw.random() < 0.5:
        other = draw.choice([name for name in BRIDGES if name != BRIDGES[number]])
        turns = [THINK + SEARCH.format(other), THINK + BAD, *turns]
    quoted = f"<evidence>{DEEDS[told].format(answer)}</evidence>" if evidence else ""
    return EvaluateSolver(style="brief", evidence=evidence), task, [*turns, f"{THINK}{quoted}<answer>{answer}</answer>"]


def tagged_lesson(draw, number, dialect):
    """Searches, notes down one of the two people, and answers with one of them."""
    task, answer, _ = draw_task(draw, number)
    note = NOTES[dialect]
    noted = f"<{note}>Named: {draw.choice([builder(number), payer(number)])}</{note}>" if note else ""
    turns = [f"{THINK}<search>{BRIDGES[number]}</search>", f"{noted}{THINK}<answer>{answer}</answer>"]
    return TagSolver(dialect, style="brief"), task, turns


def cited_proposer_lesson(draw, number, passages):
    """Asks about the document's bridge and quotes the sentence with the answer."""
    _, answer, told = draw_task(draw, number)
    asked = draw.choice([*DEEDS])
    quoted = f"<evidence>{DEEDS[told].format(answer)}</evidence>"
    ending = f"{THINK}<question>Who {asked} {BRIDGES[number]}?</question>{quoted}<answer>{answer}</answer>"
    task = ProposeTask(f"p{number}", passages[BRIDGES[number]], 1)
    return ToolCallProposer(style="brief", evidence=True), task, [ending]


def draw_lessons(draw, passages):
    """A lesson in every dialect about a quarter of the bridges."""
    lessons = []
    for number in draw.sample(range(len(BRIDGES)), len(BRIDGES) // 4):
        lessons += [evaluating_lesson(draw, number, evidence) for evidence in (False, False, True)]
        lessons += [tagged_lesson(draw, number, dialect) for dialect in NOTES]
        lessons += [village.proposer_lesson(draw, number, passages), cited_proposer_lesson(draw, number, passages)]
    return lessons


def write_questions(path):
    """Two questions about every bridge."""
    rows = [
        {"id": f"{deed[0]}{number}", "question": f"Who {deed} {name}?", "answers": [who(number)], "hops": 1}
        for number, name in enumerate(BRIDGES)
        for deed, who in (("built", builder), ("paid for", payer))
    ]
    path.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    return path


def build(folder, num_rounds=20, num_times=4):
    """The index, a model that knows the format of every dialect, and questions: returns their paths."""
    index = village.write_index(folder)
    model = village.save_taught(folder / "model", tokenizer(), index, draw_lessons, LIMITS, num_rounds, num_times)
    return index, model, write_questions(folder / "questions.jsonl")
