"""Records of trainers: which process is theirs, and that no other is ever ended."""

import json
import os
import socket
import subprocess
import sys

import msgspec
import pytest

from quaere.cli.main import main
from quaere.errors import BadInput
from quaere.serving.trainer_server import (
    Trainer,
    _began,
    _usual_port,
    check_environment,
    list_trainers,
    prepare_environment,
    prepare_model,
    requirements,
    stop_trainer,
)

WAITS = [sys.executable, "-c", "import subprocess, sys; subprocess.run([sys.executable, '-c', 'input()'])"]


@pytest.fixture
def home(tmp_path, monkeypatch):
    monkeypatch.setenv("QUAERE_TRAINERS", str(tmp_path))
    return tmp_path


@pytest.fixture
def process():
    """A process with a child, in a group of its own, as a server has."""
    read, write = os.pipe()
    started = subprocess.Popen(WAITS, stdin=read, start_new_session=True)
    yield started
    os.close(write)
    os.close(read)
    started.kill()
    started.wait()


def record(home, process, began=None, name="skyrl-jax-m-1"):
    folder = home / name
    folder.mkdir()
    began = _began(process.pid) if began is None else began
    trainer = Trainer(process.pid, began, "http://127.0.0.1:9", "m", "jax", str(folder))
    (folder / "trainer.json").write_bytes(msgspec.json.encode(trainer))
    return trainer


def test_a_server_is_listed_and_ended_with_its_children(home, process, capsys):
    trainer = record(home, process)
    assert list_trainers() == [trainer]
    assert trainer.state == "silent"  # it is alive and nothing answers at its URL
    assert main(["trainer", "status", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)[0]["state"] == "silent"
    assert main(["trainer", "stop"]) == 0
    assert "stopped" in capsys.readouterr().out
    assert process.wait(timeout=30) is not None
    with pytest.raises(ProcessLookupError):
        os.killpg(process.pid, 0)
    assert list_trainers() == []


def test_another_process_with_the_same_id_is_left_alone(home, process):
    trainer = record(home, process, began="Thu Jan  1 00:00:00 1970")
    assert trainer.state == "ended"
    assert not stop_trainer(trainer)
    assert process.poll() is None
    assert list_trainers() == []


def test_several_servers_are_told_apart_by_their_port(home, process, capsys):
    record(home, process)
    record(home, process, name="skyrl-jax-m-2")
    assert main(["trainer", "stop"]) == 2
    assert "several trainers were started" in capsys.readouterr().err
    assert main(["trainer", "stop", "--port", "10"]) == 2
    assert "there is no such trainer" in capsys.readouterr().err
    assert process.poll() is None


def test_a_server_that_is_started_again_has_its_port(tmp_path):
    with socket.socket() as other:
        other.bind(("127.0.0.1", 0))
        taken = other.getsockname()[1]
        (tmp_path / "port.txt").write_text(str(taken))
        other.listen()
        assert _usual_port(tmp_path) != taken
    assert _usual_port(tmp_path) == taken
    (tmp_path / "port.txt").write_text("no port")
    assert _usual_port(tmp_path) > 0


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["--backend", "fsdp"], "--backend fsdp needs GPUs"),
        (["--backend-config", "{"], "--backend-config is not JSON"),
        (["--backend-config", "[1]"], "must be a JSON object"),
        (["--port", "70000"], "--port must be at least 0 and below 65536, not 70000"),
    ],
)
def test_what_cannot_be_started_is_refused_in_one_line(home, words, said, capsys):
    assert main(["trainer", "start", "skyrl", "--model", "m", *words]) == 2
    assert said in capsys.readouterr().err


def test_requirements_follow_the_backend_and_the_machine():
    assert requirements(0, "aarch64") == ["skyrl[tinker,jax]==0.4.0", "aiohttp", "torch<2.9"]
    assert requirements(2, "x86_64") == ["skyrl[tinker,jax,gpu]==0.4.0", "aiohttp"]


@pytest.mark.parametrize("backend", ["fsdp", "megatron"])
def test_engines_that_pypi_does_not_have_run_in_a_clones_environment(backend, tmp_path):
    with pytest.raises(BadInput, match="needs wheels that are not on PyPI") as caught:
        prepare_environment(tmp_path, backend, 8, print)
    assert f"uv sync --extra tinker --extra {backend}" in caught.value.hint
    assert not list(tmp_path.iterdir())


def test_an_environment_must_have_skyrl(tmp_path):
    with pytest.raises(BadInput, match="is not an environment with SkyRL in it"):
        check_environment(tmp_path)
    python = tmp_path / "bin" / "python"
    python.parent.mkdir()
    python.write_text(f'#!/bin/sh\nPYTHONPATH={tmp_path}/lib exec {sys.executable} "$@"\n')
    python.chmod(0o755)
    with pytest.raises(BadInput, match="is not an environment with SkyRL in it"):
        check_environment(tmp_path)
    (tmp_path / "lib" / "skyrl" / "tinker").mkdir(parents=True)
    assert check_environment(tmp_path) == tmp_path.resolve()


def test_a_family_that_the_engine_does_not_know_is_refused(tmp_path):
    import tiny

    model = tmp_path / "model"
    tiny.model("gemma2").save_pretrained(model)
    tiny.tokenizer().save_pretrained(model)
    with pytest.raises(BadInput, match="does not know the family gemma2"):
        prepare_model(str(model), tmp_path / "models", backend="jax", num_gpus=0, report=print)


def test_a_model_without_a_dtype_gets_a_copy_with_one(tmp_path):
    import tiny
    from quaere.policies.native.bridge import load_model

    model = tmp_path / "model"
    tiny.model("qwen3").save_pretrained(model)
    tiny.tokenizer().save_pretrained(model)
    described = json.loads((model / "config.json").read_text())
    served = prepare_model(str(model), tmp_path / "models", backend="jax", num_gpus=0, report=print)
    assert served == model  # it has one, and is served as it is
    described.pop("dtype")
    (model / "config.json").write_text(json.dumps(described))
    told = []
    served = prepare_model(str(model), tmp_path / "models", backend="jax", num_gpus=0, report=told.append)
    assert told == [f"writing {model} for the trainer to {served}"]
    assert served.parent == tmp_path / "models"
    assert json.loads((served / "config.json").read_text())["dtype"] == "float32"
    assert (served / "tokenizer.json").is_file()
    ours, theirs = (load_model(str(path), "cpu", "float32", packed=False) for path in (model, served))
    for name, weight in ours.named_parameters():
        assert (weight == dict(theirs.named_parameters())[name]).all()
