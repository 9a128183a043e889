"""A run as a log of Inspect; where Inspect is installed, it reads the log."""

import json
import math

import pytest

from quaere.cli.main import main
from quaere.errors import BadInput
from quaere.records import Failure, Proposal, ProposeTask, Turn
from quaere.runs import Run, RunState
from quaere.runs.inspect_log import write_inspect_log
from quaere.runs.rows import PLACE
from viewing import add_episodes, make_episode, write_run


@pytest.fixture
def run(tmp_path):
    with Run.open(write_run(tmp_path / "runs/alpha", index="docs-index"), write=True) as run:
        add_episodes(run, step=4)
        add_episodes(run, step=6)
        metrics = {"f1": math.nan, "em": 1.0, PLACE: 1.0}
        run.add_episode(make_episode("odd", "q/2 & ü"), metrics, step=6, phase="validation")
        run.note_end(RunState("done"))
    with Run.open(tmp_path / "runs/alpha") as run:
        yield run


def read(path):
    return json.loads(path.read_text(encoding="utf-8"))


def test_each_episode_is_a_sample_of_its_question(run, tmp_path):
    assert write_inspect_log(run, tmp_path / "log.json") == 7
    log = read(tmp_path / "log.json")
    assert [(one["id"], one["epoch"]) for one in log["samples"]] == [("q1", n) for n in range(1, 7)] + [("q/2 & ü", 1)]
    assert len({one["uuid"] for one in log["samples"]}) == 7
    first = log["samples"][0]
    assert (first["input"], first["target"]) == ("Who built the Halm bridge? ", ["Orsolya Venn"])
    assert first["output"]["completion"] == "Orsolya Venn" and first["metadata"]["step"] == 4
    (choice,) = first["output"]["choices"]
    assert choice["message"] == first["messages"][-1] and choice["message"]["role"] == "assistant"
    assert log["eval"]["dataset"] == {"name": "docs-index", "samples": 2, "sample_ids": ["q1", "q/2 & ü"]}
    assert (log["eval"]["task"], log["eval"]["model"], log["status"]) == ("alpha", "tiny", "success")
    assert (log["version"], log["eval"]["config"]) == (2, {"epochs": 6})


def test_a_search_is_a_call_and_its_passages_the_reply(run, tmp_path):
    write_inspect_log(run, tmp_path / "log.json")
    asked, searched, found, *_ = read(tmp_path / "log.json")["samples"][0]["messages"]
    assert (asked["role"], searched["role"], found["role"]) == ("user", "assistant", "tool")
    (call,) = searched["tool_calls"]
    assert call["arguments"] == {"queries": ["Halm bridge "]} and call["id"] == found["tool_call_id"]
    assert "[d1#0]" in found["content"] and "Orsolya Venn built it." in found["content"]


def test_the_share_of_abstentions_is_over_all_episodes(tmp_path):
    with Run.open(write_run(tmp_path / "runs/beta"), write=True) as run:
        add_episodes(run, step=4)
        run.add_episode(make_episode("refused", "q2"), {"answer/abstained": 1.0}, step=4)
        run.note_end(RunState("done"))
        write_inspect_log(run, tmp_path / "log.json")
    results = read(tmp_path / "log.json")["results"]
    (found,) = (one for one in results["scores"] if one["name"] == "answer/abstained")
    assert found["scored_samples"] == results["total_samples"] > 1
    assert found["metrics"]["mean"]["value"] == pytest.approx(1 / results["total_samples"])


def test_scores_are_the_finite_metrics_and_results_their_means(run, tmp_path):
    write_inspect_log(run, tmp_path / "log.json")
    log = read(tmp_path / "log.json")
    assert log["samples"][-1]["scores"] == {"em": {"value": 1.0, "answer": "Orsolya Venn"}}
    results = {one["name"]: one for one in log["results"]["scores"]}
    assert results["reward/total"]["metrics"]["mean"]["value"] == pytest.approx((1.0 + 0.0 + 0.75) / 3)
    assert (results["reward/total"]["scored_samples"], results["reward/total"]["unscored_samples"]) == (6, 1)
    assert not {"f1", PLACE} & set(results)


def test_a_part_of_a_run_is_written(run, tmp_path):
    assert write_inspect_log(run, tmp_path / "step.json", step=4) == 3
    assert write_inspect_log(run, tmp_path / "phase.json", phase="validation") == 1
    (sample,) = read(tmp_path / "phase.json")["samples"]
    assert sample["id"] == "q/2 & ü"  # with its own messages; the run's first episode has one more
    assert [message["role"] for message in sample["messages"]] == ["user", "assistant", "tool", "assistant"]
    with pytest.raises(BadInput, match="no such episodes"):
        write_inspect_log(run, tmp_path / "none.json", step=5)
    assert not (tmp_path / "none.json").exists()


def test_inspect_reads_it(run, tmp_path):
    inspect_log = pytest.importorskip("inspect_ai.log", reason="Inspect is not installed: pip install inspect-ai")
    with Run.open(run.path, write=True) as writer:  # a proposer's episode, a search that failed, one without turns
        failed = Turn(
            0, "x", make_episode("x").turns[0].action, "failed", failure=Failure("search", "down", "no reply")
        )
        episode = make_episode("p")
        fields = {name: getattr(episode, name) for name in ("protocol", "model", "seed", "segments", "end")}
        task, outcome = ProposeTask("d", None, hops=2), Proposal("Who?", "Venn", "")
        writer.add_episode(type(episode)("p", task, turns=(failed,), outcome=outcome, **fields), step=7)
        writer.add_episode(type(episode)("p2", task, turns=(), outcome=None, **fields), step=7)
    with Run.open(run.path) as again:
        write_inspect_log(again, tmp_path / "log.json")
    log = inspect_log.read_eval_log(str(tmp_path / "log.json"))
    assert log.eval.task == "alpha" and log.results.total_samples == len(log.samples) == 9
    sample = inspect_log.read_eval_log_sample(str(tmp_path / "log.json"), id="q1", epoch=3)
    assert sample.scores["reward/total"].value == 0.75 and sample.output.completion == "Orsolya Venn"
    assert [message.role for message in sample.messages] == ["user", "assistant", "tool", "assistant"]
    broken = log.samples[-2].messages[-1]
    assert broken.role == "tool" and broken.error.message == "no reply"
    headers = inspect_log.read_eval_log(str(tmp_path / "log.json"), header_only=True)
    assert headers.eval.eval_id == log.eval.eval_id and headers.status == "success"


# ------------------------------------------------------------------------------------------------------------- command


def test_the_command_writes_a_log(run, tmp_path, capsys):
    out = tmp_path / "logs/alpha.json"
    main(["runs", "export", str(run.path), "--to", "inspect", "--out", str(out), "--json"])
    said = capsys.readouterr()
    assert json.loads(said.out) == {"to": "inspect", "path": str(out), "num_episodes": 7}
    assert "inspect view" in said.err and len(read(out)["samples"]) == 7
    assert main(["runs", "export", str(run.path), "--to", "inspect", "--out", str(out)]) == 2
    assert "--force" in capsys.readouterr().err
    assert not main(["runs", "export", str(run.path), "--to", "inspect", "--out", str(out), "--force", "--step", "4"])
    assert len(read(out)["samples"]) == 3


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (["--to", "inspect"], "--out"),
        (["--to", "inspect", "--out", "x.eval"], "ends with .json"),
        (["--to", "trackio", "--step", "3"], "--step belongs to --to inspect"),
    ],
)
def test_what_does_not_fit_is_said(run, capsys, options, said):
    assert main(["runs", "export", str(run.path), *options]) == 2
    assert said in capsys.readouterr().err
