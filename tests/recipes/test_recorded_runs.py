"""Training, evaluation and `ask` from a record: the same episodes and weights as where it was recorded."""

import json

from test_drzero_resume import contents, digest

from quaere.cli.main import main
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
