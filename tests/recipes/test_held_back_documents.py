"""Documents with questions that are held back: the proposer is not shown them, and does not find them."""

import asyncio
import json

import numpy as np
import pytest

import tiny
from quaere.errors import BadInput
from quaere.recipes.drawn_documents import Documents, Shard
from quaere.recipes.registry import find_recipe
from quaere.records import Hit, ProposeTask
from quaere.rewards.answers import contains
from quaere.search.searcher import Without
from quaere.training.proposals import ProposerConfig
from village import BRIDGES, builder
from village_runs import make_config, make_quoting, run_drzero, run_eve


def write_held(path, names):
    """A file of questions about these bridges: one with evidence, the others known by their ids."""
    sentence = f"{builder(0)} built it."
    evidence = {"doc_id": names[0], "start": 0, "end": len(sentence), "text": sentence}
    rows = [{"id": "q0", "question": "Who built it?", "answers": [builder(0)], "evidence": [evidence]}]
    rows += [{"id": f"{name}#0:0-unanswerable", "question": f"Who burned {name}?"} for name in names[1:]]
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return str(path)


def read_documents(run):
    """The documents that the proposer was shown, to begin with and by its searches."""
    episodes = [episode for episode in run.episodes() if isinstance(episode.task, ProposeTask)]
    first = {episode.task.document.doc_id for episode in episodes}
    turns = (turn for episode in episodes for turn in episode.turns)
    return first, {hit.passage.doc_id for turn in turns for result in turn.results for hit in result.hits}


@pytest.mark.parametrize("kind", ["drzero", "eve"])
def test_no_proposal_is_about_a_document_that_is_held_back(kind, paths, tmp_path):
    held = set(BRIDGES[: len(BRIDGES) // 2])
    make, play = (make_config, run_drzero) if kind == "drzero" else (make_quoting, run_eve)
    given = {"proposer.held_back": write_held(tmp_path / "held.jsonl", sorted(held))}
    run, _ = play(tmp_path / "run", make(paths, **given))
    with run:
        first, found = read_documents(run)
        assert len(first) > 3 and not first & held and not found & held
        candidates = {one.document_id for one in run.candidates()}
        assert candidates and not candidates & held


@pytest.mark.parametrize("kind", ["drzero", "eve"])
@pytest.mark.parametrize("what", ["question", "sentence"])
def test_what_a_copy_of_a_document_that_is_held_back_says_is_not_practised(kind, what, paths, tmp_path):
    """The same run twice: then, what one of its questions asks, or what proves it, is held back with another page."""
    make, play = (make_config, run_drzero) if kind == "drzero" else (make_quoting, run_eve)
    path = tmp_path / "held.jsonl"
    config = make(paths, **{"proposer.held_back": write_held(path, BRIDGES[:1]), "iterations": 1})
    run, _ = play(tmp_path / "first", config)
    with run:
        kept = [(one, run.episode(one.episode_id).task.document.text) for one in run.candidates(kept=True)]
    one, shown = next((one, text) for one, text in kept if contains(text, one.answer))
    row = json.loads(path.read_text())
    row["question"] = one.question if what == "question" else "Who?"
    row["evidence"][0]["text"] = shown if what == "sentence" else "It is old."
    path.write_text(json.dumps(row))
    run, _ = play(tmp_path / "second", config)
    with run:
        reasons = {each.id: each.reason for each in run.candidates()}
    assert reasons[one.id] == "duplicate" and "" in reasons.values()


def test_a_given_question_that_is_held_back_is_not_practised(paths, tmp_path):
    """The file of all questions is given, and a part of it, or a sentence of another one, is held back."""
    sentence = f"{builder(0)} built the old bridge in this village."
    span = {"doc_id": BRIDGES[0], "start": 0, "end": len(sentence), "text": sentence}
    rows = [{"id": f"q{n}", "question": f"Who built {BRIDGES[n]}?", "answers": [builder(n)]} for n in range(3)]
    rows[2]["evidence"] = [span]
    other = {"id": "held", "question": "Who was it?", "answers": [builder(0)], "evidence": [span]}
    for name, some in (("given", rows), ("held", [rows[0], other])):
        (tmp_path / f"{name}.jsonl").write_text("".join(json.dumps(row) + "\n" for row in some))
    changes = {"proposer.held_back": str(tmp_path / "held.jsonl"), "generation.given": str(tmp_path / "given.jsonl")}
    changes |= {"iterations": 1, "proposer.steps": 0, "generation.candidates": 0, "generation.attempts": 0}
    run, _ = run_drzero(tmp_path / "run", make_config(paths, **changes))
    with run:
        assert [one.reason for one in run.candidates() if one.given] == ["duplicate", "", "duplicate"]


def test_what_is_held_back_is_left_out_of_a_share_of_the_documents(tmp_path):
    rows = [
        {"id": "q", "question": "Who?", "answers": ["Venn"], "gold_ids": [PASSAGES[place].doc_id for place in (1, 4)]}
    ]
    (tmp_path / "held.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    config = ProposerConfig(held_back=str(tmp_path / "held.jsonl"))
    half = Documents(Shard(PASSAGES.__getitem__, range(6)), config, np.array([True] * 3 + [False] * 3))
    tasks = half.draw(range(8), seed=7, name="i0p", step_seed=3)
    assert {task.document.doc_id for task in tasks} == {PASSAGES[place].doc_id for place in (0, 2)}


PASSAGES = [tiny.passage(f"Bridge {number}.", number=number) for number in range(6)]


class Found:
    """A searcher that finds all passages, in their order."""

    async def search(self, queries, topk):
        return [[Hit(passage, 1.0) for passage in PASSAGES[:topk]] for _ in queries]

    async def close(self):
        self.is_closed = True


def test_a_search_without_documents_has_the_next_ones():
    searcher = Without(found := Found(), {PASSAGES[0].doc_id, PASSAGES[2].doc_id})
    hits = asyncio.run(searcher.search(["a", "b"], 2))
    assert [[hit.passage for hit in one] for one in hits] == [[PASSAGES[1], PASSAGES[3]]] * 2
    asyncio.run(searcher.close())
    assert found.is_closed


def test_what_cannot_be_held_back_is_one_line(paths, tmp_path):
    (tmp_path / "elsewhere.jsonl").write_text('{"id": "q7", "question": "Who?", "answers": ["Venn"]}')
    for name, said in (("nowhere", r"nowhere\.jsonl"), ("elsewhere", "no question names its documents")):
        for recipe, make in (("drzero", make_config), ("eve", make_quoting)):
            with pytest.raises(BadInput, match=said):
                find_recipe(recipe).check(make(paths, **{"proposer.held_back": str(tmp_path / f"{name}.jsonl")}))
    rows = [{"id": f"{passage.doc_id}#0:0", "question": "Who?"} for passage in PASSAGES]
    (tmp_path / "all.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    with pytest.raises(BadInput, match="about all documents"):
        Documents(Shard(PASSAGES.__getitem__, range(6)), ProposerConfig(held_back=str(tmp_path / "all.jsonl")))
