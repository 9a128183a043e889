"""The commands with a model whose rows cannot be packed, from training to serving: LFM2, convolutions and attention."""

import json

import httpx
import pytest
import torch
from test_drzero_resume import contents, digest

import tiny
import village
from dictating import dictating
from learning_runs import SMALL as LEARNING
from learning_runs import let_write, write_pages
from preloaded import start_command
from quaere.cli.main import main
from quaere.errors import TrainingStopped
from quaere.policies.native.bridge import load_model
from quaere.records import ProposeTask
from quaere.runs.checkpoints import find_checkpoints
from village_runs import SMALL, Told, make_config, run_drzero

TINY = SMALL | {"proposer.steps": 1, "proposer.batch": 4, "proposer.attempts": 2, "generation.batch": 4}
TINY |= {"generation.attempts": 2, "solver.batch": 2, "solver.attempts": 2}


def script(job):
    """Proposals and the first attempt at each question are dictated; the model writes the other attempts itself."""
    is_dictated = isinstance(job.task, ProposeTask) or job.episode_id.endswith("a0")
    return village.dictate(job) if is_dictated else None


@pytest.fixture(scope="module")
def paths(tmp_path_factory):
    root = tmp_path_factory.mktemp("lfm2")
    torch.set_num_threads(1)
    tiny.model("lfm2", vocab_size=len(village.tokenizer())).save_pretrained(root / "model")
    village.tokenizer().save_pretrained(root / "model")
    return village.write_index(root), root / "model"


@pytest.fixture(scope="module")
def evolved(paths, tmp_path_factory):
    """A run with adapters, and what it said."""
    root = tmp_path_factory.mktemp("evolved")
    (root / "tiny.yaml").write_text("\n".join(f"{key}: {json.dumps(value)}" for key, value in TINY.items()))
    where = ["--index", str(paths[0]), "--model", str(paths[1]), "--config", str(root / "tiny.yaml")]
    with dictating(script):
        assert main(["evolve", "drzero", *where, "--set", "adapter.rank=4", "--out", str(root / "run")]) == 0
    return root / "run"


@pytest.fixture(scope="module")
def exported(evolved):
    out = evolved.parent / "solver"
    assert main(["export", "run", "--runs", str(evolved.parent), "--role", "solver", "--merge", "--out", str(out)]) == 0
    return out


def test_an_evolved_adapter_is_merged_into_what_is_exported(paths, evolved, exported):
    last = find_checkpoints(evolved / "checkpoints")[-1].path
    config = json.loads((last / "solver" / "adapter_config.json").read_text())
    assert {name.rpartition(".")[2] for name in config["target_modules"]} >= {"in_proj", "out_proj", "q_proj"}
    base, found = (
        dict(load_model(str(folder), "cpu", "float32").named_parameters()) for folder in (paths[1], exported)
    )
    changed = {name for name in base if not torch.equal(base[name], found[name])}
    assert "model.layers.0.conv.in_proj.weight" in changed
    assert "model.layers.0.conv.conv.weight" not in changed  # convolutions have no adapter


def test_ask_plays_with_an_exported_model_and_says_its_path(paths, exported, tmp_path, capsys):
    where = ["--index", str(paths[0]), "--model", str(exported), "--runs", str(tmp_path)]
    # A model that nobody has taught finds nothing, which has an exit code of its own.
    assert main(["ask", "Who built Halm?", *where, "--max-turns", "2", "--turn-tokens", "8"]) == 3
    said = capsys.readouterr()
    assert "Turn 2" in said.out
    assert "lfm2 has layers of conv: plain path, rows decoded together, " in " ".join(said.err.split())


def test_learn_shows_its_plan(paths, tmp_path, monkeypatch, capsys):
    let_write(monkeypatch)
    (paths[1] / "warmup.json").write_text(json.dumps({"recipe": "search-r1", "style": "brief"}))
    settings = [word for name, value in LEARNING.items() for word in ("--set", f"{name}={json.dumps(value)}")]
    command = ["learn", str(write_pages(tmp_path / "pages")), "--model", str(paths[1]), "--device", "cpu", *settings]
    assert main([*command, "--out", str(tmp_path / "out"), "--dry-run"]) == 0
    assert "reinforcement  search-r1, at most 2 steps of 4 questions x 8 attempts" in capsys.readouterr().out


def test_serve_answers(exported):
    server, stderr = start_command("serve", "--model", exported, "--port", "0", "--dtype", "float32")
    try:
        lines = [stderr.readline()]
        while " at http://" not in lines[-1]:
            lines.append(stderr.readline())
        assert any("plain path" in line for line in lines)
        url = lines[-1].split(" at ")[1].split("/v1")[0]
        body = {"model": "solver", "messages": [{"role": "user", "content": "Who built Halm?"}], "max_tokens": 4}
        reply = httpx.post(f"{url}/v1/chat/completions", json=body, timeout=60, trust_env=False).json()
        assert 1 <= reply["usage"]["completion_tokens"] <= 4
    finally:
        server.kill()
        server.join()
        stderr.close()


class Stopping(Told):
    """Stops the run after its second step."""

    def step(self, report):
        super().step(report)
        if len(self.steps) == 2:
            raise TrainingStopped("the test stops it here")


def test_a_stopped_run_goes_on_to_the_same_bits(paths, tmp_path):
    config = make_config(paths, **TINY)
    with dictating(script):
        run_drzero(tmp_path / "straight", config)
        with pytest.raises(TrainingStopped):
            run_drzero(tmp_path / "stopped", config, Stopping())
        run_drzero(tmp_path / "stopped", config)
    assert digest(tmp_path / "straight") == digest(tmp_path / "stopped")
    assert contents(tmp_path / "straight")[:3] == contents(tmp_path / "stopped")[:3]
