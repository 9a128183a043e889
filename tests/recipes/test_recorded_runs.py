"""Training, evaluation and `ask` from a record: the same episodes and weights as where it was recorded."""

import asyncio
import json

from test_drzero_resume import contents, digest

from quaere.cli.main import main
from quaere.search.index import open_index
from quaere.search.index_build import build_index
from quaere.search.searcher import open_searcher
from quaere.training.run_setup import Opened
from village_runs import make_config, run_drzero


def test_a_run_from_a_record_has_the_same_episodes_and_weights(paths, tmp_path):
    record = tmp_path / "study.warc.gz"
    few = ["proposer.steps=1", "solver.steps=1"]
    places = {"straight": "", "recorded": f"record:{record}@{paths[0]}", "replayed": f"replay:{record}"}
    for name, place in places.items():
        run_drzero(tmp_path / name, make_config(paths, *few, search_url=place))[0].close()
    straight, recorded, replayed = (contents(tmp_path / name)[:3] for name in places)
    assert straight == recorded == replayed
    assert sum(episode.num_searches for episode in replayed[0]) > 4
    assert digest(tmp_path / "straight") == digest(tmp_path / "recorded") == digest(tmp_path / "replayed")


def test_documents_are_read_only_where_the_record_is_of_the_runs_own_index(paths, tmp_path):
    record, index = tmp_path / "study.warc.gz", open_index(paths[0])
    (tmp_path / "other.txt").write_text("The Oss rises at Korrin.")
    other = build_index(tmp_path / "other.txt", tmp_path / "other")

    async def is_read(place, index):
        searcher = open_searcher(place)
        await searcher.search(["bridge"], 1)
        await searcher.close()
        return Opened(index, searcher, None).read_document is not None

    for place in (str(paths[0]), f"record:{record}@{paths[0]}", f"replay:{record}"):
        assert asyncio.run(is_read(place, index)) and not asyncio.run(is_read(place, other))


def test_the_place_to_search_is_a_setting_and_an_option(paths, tmp_path, capsys):
    where = ["evolve", "drzero", "--index", str(paths[0]), "--model", str(paths[1]), "--preset", "demo"]
    assert main([*where, "--search", "web:searxng@http://127.0.0.1:9", "--print-config"]) == 0
    assert "search_url: web:searxng@http://127.0.0.1:9" in capsys.readouterr().out
    for place, said in (("replay:nowhere", "there is no record nowhere"), ("web:x", "there is no web search 'x'")):
        assert main([*where, "--search", place, "--out", str(tmp_path / "run")]) == 2
        assert said in capsys.readouterr().err and not (tmp_path / "run").exists()
    assert main(["evolve", "drzero", "--index", "web:ddgs", "--model", str(paths[1])]) == 2
    assert "reads its documents from an index directory" in capsys.readouterr().err


def test_answers_from_a_record_are_the_same_with_ask_and_eval(paths, tmp_path, capsys):
    index, model = map(str, paths)
    record = tmp_path / "study.warc.gz"
    rows = [{"id": f"q{number}", "question": f"Who built bridge {number}?", "answers": ["x"]} for number in range(3)]
    (tmp_path / "questions.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    how = ["--questions", str(tmp_path / "questions.jsonl"), "--model", model, "--guided", "--device", "cpu", "--json"]
    for command, more in (("ask", []), ("eval", ["--deterministic"])):
        played = []
        for place in (index, f"record:{record}@{index}", f"replay:{record}"):
            runs = tmp_path / f"{command}-{len(played)}"
            assert main([command, *how, *more, "--search", place, "--runs", str(runs)]) == 0
            (folder,) = runs.iterdir()
            played.append(contents(folder)[0])
        assert played[0] == played[1] == played[2] and sum(one.num_searches for one in played[0]) == 3
    capsys.readouterr()
    # Another question searches for what is not in the record.
    where = ["--search", f"replay:{record}", "--runs", str(tmp_path / "runs")]
    assert main(["ask", "Who built the moon?", *how[2:], *where]) == 2
    assert "has no search for 'Who built the moon?'" in capsys.readouterr().err
