"""`quaere eval`: a run and its export score the same, results are compared, and bad input gets one clear line."""

import json
import re
from contextlib import redirect_stdout
from functools import cache
from io import StringIO

import pytest
from test_export_command import make_base, make_run, write_adapters, write_models

import tiny
from quaere.cli.main import main
from quaere.dialects import notes
from quaere.disk import discard_folder
from quaere.evaluation.qa.items import read_items
from quaere.evaluation.qa.scores import read_evaluation
from quaere.runs import Run
from quaere.runs.checkpoints import save_checkpoint
from quaere.runs.rows import PLACE

QUESTIONS = [
    {"id": "q1", "question": "Who built the Halm bridge?", "answers": ["Orsolya Venn"], "hops": 1},
    {
        "id": "q2",
        "question": "Where does the Oss rise?",
        "answers": ["Korrin hills", "Korrin"],
        "hops": 2,
        "set": "oss",
    },
    {"id": "q3", "question": "When was it built?", "answers": ["1702"]},
]


@pytest.fixture(scope="module")
def place(tmp_path_factory):
    root = tmp_path_factory.mktemp("eval")
    (root / "docs").mkdir()
    (root / "docs" / "halm.md").write_text("# Halm bridge\n\nOrsolya Venn built the Halm bridge in 1702.\n")
    assert main(["index", str(root / "docs"), "--out", str(root / "index")]) == 0
    (root / "questions.jsonl").write_text("".join(json.dumps(row) + "\n" for row in QUESTIONS))
    make_base(root)
    make_run(root, "lora", write_adapters)
    make_run(root, "full", write_models)
    return root


def evaluate(place, *more):
    where = ["--questions", str(place / "questions.jsonl"), "--index", str(place / "index")]
    return main(["eval", *where, "--runs", str(place / "runs"), "--device", "cpu", *more])


def in_json(place, capsys, *more):
    assert evaluate(place, "--json", *more) == 0
    return json.loads(capsys.readouterr().out)


@cache
def guided(place, name, *more):
    """What a run says when guided, played once for all who compare with it."""
    with redirect_stdout(StringIO()) as said:
        assert evaluate(place, "--json", "--run", name, "--guided", *more) == 0
    return json.loads(said.getvalue())


@pytest.fixture(scope="module")
def results(place, tmp_path_factory):
    """A folder with the results of both runs, only to be read."""
    folder = tmp_path_factory.mktemp("results")
    for name in ("lora", "full"):
        assert evaluate(place, "--run", name, "--name", name, "--out", str(folder / f"{name}.json")) == 0
    return folder


def tokens(found):
    with Run.open(found["run"]) as run:
        return {episode.id: episode.token_ids for episode in run.episodes()}


@pytest.mark.parametrize(("name", "form"), [("lora", "--merge"), ("lora", "--adapter"), ("full", "--merge")])
def test_a_run_and_its_export_are_asked_alike_and_say_the_same(place, tmp_path, capsys, name, form):
    # Guided turns hold words of ours and of the model; all of them must be the same.
    ours = guided(place, name)
    assert main(["export", name, "--runs", str(place / "runs"), form, "--out", str(tmp_path / "out")]) == 0
    capsys.readouterr()
    theirs = in_json(place, capsys, "--model", str(tmp_path / "out"), "--guided")
    assert ours["score"] == theirs["score"]
    assert tokens(ours) == tokens(theirs)
    assert ours["score"]["mean_tokens"] > 0
    assert ours["settings"]["limits"] == theirs["settings"]["limits"]
    assert tokens(guided(place, name, "--checkpoint", "1")) != tokens(ours)


def test_greedy_episodes_repeat_whatever_the_seed(place, capsys):
    first = in_json(place, capsys, "--run", "lora", "--guided", "--deterministic")
    again = in_json(place, capsys, "--run", "lora", "--guided", "--deterministic", "--seed", "5")
    assert tokens(first) == tokens(again)


def test_several_attempts_are_kept_with_the_result_and_continued_alike(place, capsys):
    found = in_json(place, capsys, "--run", "lora", "--attempts", "2")
    assert (found["settings"]["attempts"], found["settings"]["min_confidence"]) == (2, 0.25)
    again = in_json(place, capsys, "--run", "lora", "--attempts", "2", "--resume", found["run"])
    assert again["score"] == found["score"]
    assert evaluate(place, "--run", "lora", "--resume", found["run"]) == 2
    assert "attempts was 2 and is not set" in capsys.readouterr().err


def test_weights_that_training_deletes_while_they_are_loaded_are_those_of_the_next_checkpoint(
    place, capsys, monkeypatch
):
    run = make_run(place, "training", write_models)
    original = notes.load_policy

    def pruned(model, tokenizer, **how):
        if model.name.endswith("@2"):
            discard_folder(run / "checkpoints" / "step-000002")
            save_checkpoint(run / "checkpoints", 3, lambda folder: write_models(folder, 3), {})
        return original(model, tokenizer, **how)

    monkeypatch.setattr(notes, "load_policy", pruned)
    assert evaluate(place, "--json", "--run", "training", "--limit", "1") == 0
    said = capsys.readouterr()
    # Where the line is wrapped depends on the length of the path.
    assert "step-000002/solverwasdeletedwhileitwasbeingread" in "".join(said.err.split())
    assert json.loads(said.out)["settings"]["model"] == "training/solver@3"


def test_a_model_is_asked_as_it_was_trained_unless_told_otherwise(place, capsys):
    trained = in_json(place, capsys, "--run", "full", "--limit", "1")["settings"]
    assert trained["style"] == "brief"
    assert trained["limits"] == {
        "max_turns": 3,
        "turn_tokens": 16,
        "sequence_tokens": 640,
        "tool_response_tokens": 160,
        "max_searches": 4,
        "topk": 2,
        "answer_turn": True,
        "answer_tokens": 64,
        "thought_tokens": 0,
        "titles_first": False,
    }
    asked = ("--style", "full", "--topk", "1", "--max-turns", "2", "--no-answer-turn")
    told = in_json(place, capsys, "--run", "full", "--limit", "1", *asked)
    assert told["settings"]["limits"]["answer_turn"] is False
    assert told["settings"]["style"] == "full"
    assert (told["settings"]["limits"]["topk"], told["settings"]["limits"]["max_turns"]) == (1, 2)
    warmed = in_json(place, capsys, "--model", str(place / "base"), "--limit", "1", "--turn-tokens", "8")
    assert warmed["settings"]["style"] == "brief"


def test_every_episode_is_stored_with_its_scores(place, capsys):
    found = in_json(place, capsys, "--run", "full", "--name", "ours")
    assert found["name"] == "ours"
    assert found["score"]["exact_match"]["num"] == 3
    assert found["score"]["unanswered"] == 1 - found["score"]["answered"]
    assert [group["hops"] for group in found["score"]["by_hops"]] == [0, 1, 2]
    with Run.open(found["run"]) as run:
        assert run.info.kind == "eval"
        assert run.info.settings["model"] == "full/solver@2"
        scores = dict.fromkeys(("answer/exact_match", "answer/f1", "answer/abstained"), 0.0)
        places = {f"q{place + 1}": scores | {PLACE: float(place)} for place in range(3)}  # of its question in the file
        assert {row.id: row.metrics for row in run.index()} == places
        assert run.metrics("answer/exact_match")[0].value == 0.0


def test_results_are_compared_pair_by_pair(place, tmp_path, capsys):
    out = tmp_path / "ours.json"
    assert evaluate(place, "--run", "full", "--name", "ours", "--out", str(out)) == 0
    shown = capsys.readouterr()
    assert "0.0 [0.0, 56.1]" in shown.out
    assert "100.0% of the questions were left unanswered at a limit of turns or tokens" in shown.out
    # An earlier result in which two of the three were right.
    told = json.loads(out.read_text())
    told["name"] = "earlier"
    del told["score"]["unanswered"]  # results of earlier versions do not say
    for row in told["questions"][:2]:
        row["exact_match"] = row["f1"] = 1.0
    (tmp_path / "earlier.json").write_text(json.dumps(told))
    assert read_evaluation(tmp_path / "earlier.json").questions[0].exact_match == 1.0
    assert evaluate(place, "--run", "full", "--name", "ours", "--compare", str(tmp_path / "earlier.json")) == 0
    lines = " ".join(capsys.readouterr().out.split())
    assert "ours - earlier, over 3 shared questions: EM -66.7 [-100.0, +76.8]" in lines
    assert "EM % by group questions earlier ours facts unknown 1 " in lines and "1 fact 1 " in lines
    assert " of 1.50 needed" in lines
    assert evaluate(place, "--run", "full", "--name", "earlier", "--compare", str(tmp_path / "earlier.json")) == 0
    assert f"earlier - {tmp_path / 'earlier.json'}, over 3" in " ".join(capsys.readouterr().out.split())
    for row in told["questions"]:
        row["question"] += " (another wording)"
    (tmp_path / "earlier.json").write_text(json.dumps(told))
    found = in_json(place, capsys, "--run", "full", "--compare", str(tmp_path / "earlier.json"))
    assert found["compare"][0]["difference"] is None


def test_files_that_end_in_numbers_are_seeds_of_an_arm(results, tmp_path, capsys):
    """Two seeds of `warm`, of which one is right everywhere, against one file of `base`."""
    told = json.loads((results / "full.json").read_text())
    for name, right in (("base-0", 0.0), ("warm-0", 0.0), ("warm-1", 1.0)):
        for row in told["questions"]:
            row["exact_match"] = row["f1"] = right
        (tmp_path / f"{name}.json").write_text(json.dumps(told | {"name": name}))
    files = [str(tmp_path / f"{name}.json") for name in ("base-0", "warm-0", "warm-1")]
    capsys.readouterr()
    assert main(["eval", "--compare", *files, "--seeds", "independent"]) == 0
    said = " ".join(capsys.readouterr().out.split())
    assert "warm - base, 2 and 1 seeds, over 3 questions and seeds: EM +50.0 [-56.1, +100.0] (" in said
    assert "t over seeds [-585.3, +685.3]" in said  # 12.706 * 50 around the mean
    assert "warm-1 - base-0" not in said
    assert main(["eval", "--compare", *files, "--seeds", "independent", "--json"]) == 0
    (arm,) = json.loads(capsys.readouterr().out)["arms"]
    assert (arm["name"], arm["other"], arm["num_seeds"]) == ("warm", "base", [2, 1])
    assert arm["exact_match"]["mean"] == 0.5 and arm["exact_match"]["by_seed"]["num"] == 2
    assert main(["eval", "--compare", *files, "--seeds", "paired"]) == 2
    assert "warm has 2 files and base has 1" in capsys.readouterr().err
    assert main(["eval", "--compare", files[0], "--seeds", "paired"]) == 2
    assert "--seeds compares files, without a model" in capsys.readouterr().err


def test_stored_results_are_compared_without_a_model(results, tmp_path, capsys):
    stored = [str(results / "lora.json"), str(results / "full.json")]
    capsys.readouterr()
    assert main(["eval", "--compare", *stored]) == 0
    assert "full - lora, over 3 shared questions: EM" in capsys.readouterr().out
    assert main(["eval", "--compare", *stored, "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert (found["name"], found["compare"][0]["name"], found["run"]) == ("full", "lora", None)
    told = json.loads((results / "full.json").read_text())
    (tmp_path / "last.json").write_text(json.dumps({**told, "name": "last"}))
    assert main(["eval", "--compare", *stored, str(tmp_path / "last.json"), "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert (found["name"], [other["name"] for other in found["compare"]]) == ("last", ["lora", "full"])
    assert main(["eval", "--compare", stored[0]]) == 2
    assert "--model or --run" in capsys.readouterr().err


def test_results_of_every_question_go_beside_the_result_and_compare_like_it(results, capsys):
    assert sorted(path.name for path in results.iterdir()) == [
        "full.items.jsonl.gz",
        "full.json",
        "lora.items.jsonl.gz",
        "lora.json",
    ]
    items = read_items(results / "full.items.jsonl.gz")
    assert [(item.id, item.set, item.facts) for item in items] == [("q1", "", 1), ("q2", "oss", 2), ("q3", "", 0)]
    assert items == list(read_evaluation(results / "full.json").items)
    capsys.readouterr()
    told = []
    for names in (
        ("lora.json", "full.json"),
        ("lora.items.jsonl.gz", "full.json"),
        ("lora.json", "full.items.jsonl.gz"),
    ):
        assert main(["eval", "--json", "--compare", *(str(results / name) for name in names)]) == 0
        found = json.loads(capsys.readouterr().out)
        told.append((found["name"], found["score"], found["compare"]))
    assert told[0] == told[1] == told[2]
    assert main(["eval", "--compare", *(str(results / f"{name}.items.jsonl.gz") for name in ("lora", "full"))]) == 0
    assert "full - lora, over 3 shared questions: EM" in capsys.readouterr().out


def test_results_of_every_question_alone(place, tmp_path):
    assert evaluate(place, "--run", "full", "--limit", "2", "--items", str(tmp_path / "ours.jsonl")) == 0
    assert [item.id for item in read_items(tmp_path / "ours.jsonl")] == ["q1", "q2"]
    assert [path.name for path in tmp_path.iterdir()] == ["ours.jsonl"]


def test_closed_book_needs_no_index_and_takes_one_turn(place, capsys):
    where = ["--questions", str(place / "questions.jsonl"), "--runs", str(place / "runs")]
    argv = ["eval", *where, "--model", str(place / "base"), "--closed-book", "--guided", "--turn-tokens", "8", "--json"]
    assert main(argv) == 0
    found = json.loads(capsys.readouterr().out)
    assert found["name"].endswith("(closed book)")
    assert found["settings"]["protocol"] == "closed-book-guided"
    assert (found["score"]["mean_turns"], found["score"]["mean_searches"]) == (1.0, 0.0)


def test_a_search_that_failed_is_told(place, capsys, monkeypatch):
    from quaere.errors import SearchFailed
    from quaere.search.searcher import LocalSearcher

    async def fail(self, queries, topk):
        raise SearchFailed("the engine is broken", kind="broken")

    # The tiny model cannot write a call that can be read, so its turns are read as one.
    from quaere.dialects.tool_call import ToolCallSolver
    from quaere.records import Search

    monkeypatch.setattr(LocalSearcher, "search", fail)
    monkeypatch.setattr(ToolCallSolver, "read", lambda self, text, earlier=(): Search(("Halm",)))
    assert evaluate(place, "--run", "full") == 0
    said = capsys.readouterr().out
    assert "search failed in 3 episodes; each counts as wrong" in said
    run = re.search(r"quaere runs show (\S+)", said)[1]
    assert f"the same command with --resume {run} asks these questions again" in " ".join(said.split())


def refused(capsys, argv):
    assert main(argv) == 2
    lines = [line for line in capsys.readouterr().err.splitlines() if not line.startswith(("loading", "1 of 1"))]
    assert lines[0].startswith("quaere: ")
    assert len(lines) <= 2
    return lines[0]


def test_refusals(place, tmp_path, capsys):
    where = ["eval", "--questions", str(place / "questions.jsonl"), "--runs", str(place / "runs")]
    index, model = ["--index", str(place / "index")], ["--model", str(place / "base")]
    assert "give either --model or --run" in refused(capsys, [*where, *index])
    assert "give either --model or --run" in refused(capsys, [*where, *index, *model, "--run", "full"])
    assert "--checkpoint needs --run" in refused(capsys, [*where, *index, *model, "--checkpoint", "1"])
    assert "give --index, or --closed-book" in refused(capsys, [*where, *model])
    assert "--topk must be at least 1" in refused(capsys, [*where, *index, *model, "--topk", "0"])
    turns = "--max-turns must be at least 2 for tool-call (search, answer), not 1"
    assert turns in refused(capsys, [*where, *index, *model, "--max-turns", "1"])
    evalact = ["--solver-dialect", "evalact", "--max-turns", "2"]
    assert "--max-turns must be at least 3 for evalact" in refused(capsys, [*where, *index, *model, *evalact])
    asked = ["ask", "Who?", *index, *model, "--max-turns", "1"]
    assert turns in refused(capsys, asked)
    (tmp_path / "bare.jsonl").write_text('{"question": "Who?", "anwsers": ["Venn"]}\n')
    bare = ["eval", "--questions", str(tmp_path / "bare.jsonl"), *index, "--model", "none"]
    assert "the question q1 has no field `answers` to score with" in refused(capsys, bare)
    assert "no run none" in refused(capsys, [*where, *index, "--run", "none"])
    assert "no checkpoint of step 7" in refused(capsys, [*where, *index, "--run", "full", "--checkpoint", "7"])
    assert "cannot be read" in refused(capsys, [*where, *index, *model, "--compare", str(tmp_path / "none.json")])
    assert "cannot be written" in refused(capsys, [*where, *index, *model, "--out", str(tmp_path / "a" / "b.json")])
    assert "--items" in refused(capsys, [*where, *index, *model, "--items", str(tmp_path / "a" / "b.jsonl")])
    assert "must end in .jsonl or .jsonl.gz" in refused(capsys, [*where, *index, *model, "--items", "items.csv"])
    assert "one JSON object, not JSON Lines" in refused(capsys, [*where, *index, *model, "--out", "scores.jsonl"])
    assert "is not an index" in refused(capsys, [*where, "--index", str(tmp_path), *model])
    adapter = str(place / "runs" / "lora" / "checkpoints" / "step-000002" / "solver")
    assert "is an adapter, and it does not name its base model" in refused(capsys, [*where, *index, "--model", adapter])
    hidden = [*where, *model, "--closed-book", "--hide-answers"]
    assert "--hide-answers leaves out passages, and --closed-book shows none" in refused(capsys, hidden)
    searching = [*where, *model, "--closed-book", "--solver-dialect", "ircot"]
    assert "ircot searches, but a closed book has no documents" in refused(capsys, searching)
    endpoint = ["--model", "openai:m@http://127.0.0.1:9/v1", "--limit", "1"]
    assert "127.0.0.1:9" in refused(capsys, [*where, *index, *endpoint, "--json"])
    assert not list(tmp_path.glob("*.json"))


def test_a_folder_without_word_of_its_training_is_asked_in_full(place, tmp_path, capsys):
    tiny.model(max_position_embeddings=8192).save_pretrained(tmp_path)
    tiny.tokenizer().save_pretrained(tmp_path)
    found = in_json(place, capsys, "--model", str(tmp_path), "--limit", "1", "--turn-tokens", "8", "--max-turns", "2")
    assert found["settings"]["style"] == "full"
    assert found["settings"]["limits"]["sequence_tokens"] == 3072
