"""A village in which it matters what is asked: a proposer that learns, and what its solver gains by that.

Each of 96 bridges was built by one of twelve people and paid for by another. A small model is taught the form of both
roles: as solver it answers who built a bridge, and to who paid for it gives the builder more often than the payer; as
proposer it asks seven times of eight for the builder. So the common question teaches nothing, and difficulty rewards
the rare one. The documents of a third of the bridges are held back, and the exam is on these.

`python tests/asking_well.py DIR` prints each run's `Outcome` for the table of `src/quaere/recipes/drzero.md`: four
arms, six seeds.
"""

import json
import random
import sys
from functools import lru_cache
from pathlib import Path

import torch
from msgspec import Struct

import quaere
from quaere.chat.terminal_text import printable
from quaere.dialects.tool_call import BRIEF_SOLVER_SYSTEM, ToolCallProposer, ToolCallSolver, brief_proposer_system
from quaere.records import ProposeTask, Question, SolveTask
from quaere.search.index import IndexSettings
from quaere.search.index_build import build_index
from village import LIMITS as USUAL
from village import SEARCH, THINK, make_tokenizer, save_taught
from village_runs import make_config, run_drzero

FIRST = "Hal Os Kor Tal Bril Dun Es Fan Gor Hol Ist Jar".split()
LAST = "mer den wick fell moor gate ham ley".split()
BRIDGES = [first + last for first in FIRST for last in LAST]
PEOPLE = "Venn Brod Hask Oleen Marl Tavi Quill Sorn Adair Beck Coyle Drum".split()
_draw = random.Random(5)
DEEDS = {name: dict(zip(("built", "paid for"), _draw.sample(PEOPLE, 2), strict=True)) for name in BRIDGES}
HELD = BRIDGES[64:]
LIMITS = {**USUAL, "max_turns": 2}
ASKED, KNOWN = 0.15, 0.3  # shares of the lessons: proposals that ask who paid, and right answers to that
STEPS, BATCH, CANDIDATES = 60, 16, 64
ARMS = {
    "untrained": {"proposer.steps": 0},
    "trained": {},
    "shuffled": {"proposer.shuffle_advantages": True},
    "untrained, as many proposals in all": {
        "proposer.steps": 0,
        "generation.candidates": CANDIDATES + STEPS * BATCH,
    },
}


@lru_cache
def tokenizer():
    """Whole pieces of the form are single tokens."""
    lines = [*SEARCH.format("|").split("|"), THINK, "<answer>", "</answer>", "?</question>", *BRIDGES, *PEOPLE]
    lines += [f"{before}{deed} " for before in ("<question>Who ", "Who ") for deed in ("built", "paid for")]
    lines += [" built it. ", " paid for it.", "<tool_response>\n", "\n</tool_response>", "[1]\n"]
    lines += ["system\n", "user\n", "assistant\n", "Question:\n", "Document:\n"]
    return make_tokenizer([*lines, BRIEF_SOLVER_SYSTEM, brief_proposer_system(1)], 1600)


def draw_lessons(draw, passages):
    """A lesson for each role about a quarter of the bridges."""
    lessons = []
    for name in draw.sample(BRIDGES, len(BRIDGES) // 4):
        who = DEEDS[name]
        deed = draw.choice(list(who))
        answer = who[deed] if draw.random() < KNOWN else who["built"]
        task = SolveTask(Question(f"s{name}", f"Who {deed} {name}?", (answer,), 1))
        turns = [THINK + SEARCH.format(name), f"{THINK}<answer>{answer}</answer>"]
        lessons.append((ToolCallSolver(style="brief"), task, turns))
        deed = "paid for" if draw.random() < ASKED else "built"
        asks = f"{THINK}<question>Who {deed} {name}?</question><answer>{who[deed]}</answer>"
        lessons.append((ToolCallProposer(style="brief"), ProposeTask(f"p{name}", passages[name], 1), [asks]))
    return lessons


def list_exam():
    """Both questions on each bridge that is held back."""
    return [
        Question(f"{deed}-{name}", f"Who {deed} {name}?", (DEEDS[name][deed],), gold_ids=(name,))
        for name in HELD
        for deed in DEEDS[name]
    ]


def build(folder):
    """The index, the taught model and the file of the exam: returns their paths."""
    rows = [
        {"id": name, "title": name, "text": f"{who['built']} built it. {who['paid for']} paid for it."}
        for name, who in DEEDS.items()
    ]
    (folder / "corpus.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    build_index(folder / "corpus.jsonl", folder / "index", IndexSettings())
    asked = [
        {"id": one.id, "question": one.text, "answers": list(one.answers), "gold_ids": list(one.gold_ids)}
        for one in list_exam()
    ]
    (folder / "exam.jsonl").write_text("".join(json.dumps(row) + "\n" for row in asked), encoding="utf-8")
    model = save_taught(folder / "model", tokenizer(), folder / "index", draw_lessons, LIMITS, 900)
    return folder / "index", model, folder / "exam.jsonl"


class Outcome(Struct):
    """What a run came to: shares of the candidates that ask who paid, and rightly; kept ones of these; EM by deed."""

    asked: float
    kept: int
    exam: dict[str, float]


def ask_exam(model, index):
    """Exact match of a model, or of a run's solver, by deed."""
    with quaere.Agent(
        model, index, min_overlap=0.0, device="cpu", dialect="tool-call", style="brief", **LIMITS
    ) as agent:
        scores = quaere.evaluate(agent, list_exam(), progress=False).questions
    found = {deed: [one.exact_match for one in scores if one.id.startswith(deed)] for deed in DEEDS[HELD[0]]}
    return {deed: sum(rights) / len(rights) for deed, rights in found.items()}


def practise(paths, folder, seed, arm, **changes):
    """One iteration of Dr. Zero: the proposer's phase, its questions, and the solver's phase on those."""
    index, model, exam = paths
    settings = {
        "seed": seed,
        "proposer.held_back": str(exam),
        "proposer.hop_ratio": (1,),
        "proposer.steps": STEPS,
        "proposer.batch": BATCH,
        "proposer.attempts": 4,
        "proposer.limits": LIMITS,
        "proposer.learner.learning_rate": 5e-4,
        "generation.candidates": CANDIDATES,
        "generation.batch": 64,
        "generation.attempts": 4,
        "solver.steps": 60,
        "solver.batch": 8,
        "solver.attempts": 6,
        "solver.max_draws": 0,
        "solver.limits": LIMITS,
        "validation.questions": 0,
        "checkpoints.every": 100,
        "engine.mode": "fast",
        "engine.max_rows": 128,
    }
    config = make_config((index, model), **{**settings, **ARMS[arm], **changes})
    run_drzero(folder, config)[0].close()
    with quaere.Run.open(folder) as run:
        candidates = run.candidates()
        useful = [one for one in candidates if asks_who_paid(one)]
        kept = sum(one.kept for one in useful)
    exam = ask_exam(quaere.Run.open(folder), index) if config.solver.steps else {}
    return Outcome(len(useful) / len(candidates), kept, exam)


def asks_who_paid(candidate):
    """True if a candidate asks who paid for a bridge, and has the right answer."""
    payers = {f"Who paid for {name}?": who["paid for"] for name, who in DEEDS.items()}
    return payers.get(candidate.question) == candidate.answer


def main():
    torch.set_num_threads(1)
    folder = Path(sys.argv[1])
    folder.mkdir(parents=True)
    paths = build(folder)
    print("start", ask_exam(paths[1], paths[0]), flush=True)
    for arm in ARMS:
        for seed in range(6):
            found = practise(paths, folder / f"{arm.replace(' ', '-')}-{seed}", seed, arm)
            print(printable(f"{arm}, seed {seed}: {found}"), flush=True)


if __name__ == "__main__":
    main()
