"""Starting a trainer: with a stand-in for `uv`, which installs nothing and serves what SkyRL's server would answer."""

import json
import os
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest

from quaere.errors import BadInput
from quaere.serving import trainer_server
from quaere.serving.trainer_server import (
    TrainerOptions,
    list_trainers,
    prepare_environment,
    start_trainer,
    stop_trainer,
)

# Notes what it is asked to do and by which environment; as a server it behaves as $BEHAVES says.
UV = f"""#!{sys.executable} -S
import json, os, sys
words = sys.argv[1:]
with open(os.environ["NOTES"], "a") as notes:
    notes.write(json.dumps([words, dict(os.environ)]) + "\\n")
behaves = os.environ["BEHAVES"]
if behaves == "refuses":
    sys.exit("error: no such package\\n  because it is not there")
if words[0] == "venv":
    os.makedirs(words[-1])
if words[0] == "run":
    print("loading", flush=True)
    if behaves == "breaks":
        print("out of memory\\n", flush=True)
        sys.exit(1)
    import socket
    server = socket.create_server(("127.0.0.1", int(words[words.index("--port") + 1])))
    if behaves == "serves":
        print("Starting background engine", flush=True)
    while True:
        client = server.accept()[0]
        client.recv(4096)
        client.sendall(b"HTTP/1.1 404 Not Found\\r\\ncontent-length: 0\\r\\n\\r\\n")
        client.close()
"""


@pytest.fixture
def model(tmp_path):
    folder = tmp_path / "qwen"
    folder.mkdir()
    (folder / "config.json").write_text('{"model_type": "qwen3", "dtype": "bfloat16"}')
    return str(folder)


@pytest.fixture
def uv(tmp_path, monkeypatch):
    """Sets how the stand-in behaves; what it was asked is read with `asked`."""
    command = tmp_path / "bin" / "uv"
    command.parent.mkdir()
    command.write_text(UV)
    command.chmod(0o755)
    monkeypatch.setenv("PATH", str(command.parent), prepend=os.pathsep)
    monkeypatch.setenv("NOTES", str(tmp_path / "notes.jsonl"))
    monkeypatch.setenv("QUAERE_TRAINERS", str(tmp_path / "home"))
    monkeypatch.setenv("PYTHONPATH", "/ours")
    monkeypatch.delenv("UV_TORCH_BACKEND", raising=False)
    monkeypatch.setattr(trainer_server, "_LOOK_S", 0.02)
    return lambda behaves: monkeypatch.setenv("BEHAVES", behaves)


def asked(tmp_path):
    return [json.loads(line) for line in (tmp_path / "notes.jsonl").read_text().splitlines()]


def test_a_server_is_started_once_and_again_at_its_port(uv, model, tmp_path):
    uv("serves")
    told = []
    trainer = start_trainer(model, TrainerOptions(backend_config={"max_lora_adapters": 3}), told.append)
    try:
        assert trainer.state == "running"
        assert list_trainers() == [trainer]
        assert os.getpgid(trainer.pid) == trainer.pid  # a group of its own: it outlives the command
        with pytest.raises(BadInput, match=f"runs already, on {trainer.url}"):
            start_trainer(model, TrainerOptions(), told.append)
    finally:
        assert stop_trainer(trainer)
    assert not stop_trainer(trainer)  # it has ended already, and is forgotten
    assert trainer.log.read_text().splitlines() == ["loading", "Starting background engine"]
    assert [line.split()[0] for line in told] == ["installing", "starting"]

    (_, _), (installed, _), (words, variables) = asked(tmp_path)
    assert installed[:2] == ["pip", "install"] and "skyrl[tinker,jax]==0.4.0" in installed
    options = dict(zip(words[3::2], words[4::2], strict=True))
    folder = Path(trainer.folder)
    assert (options["-m"], options["--base-model"], options["--backend"]) == ("skyrl.tinker.api", model, "jax")
    assert options["--host"] == "127.0.0.1" and trainer.url.endswith(options["--port"])
    assert int(options["--port"]) >= 1024  # any free one, of those that every user may take
    assert options["--checkpoints-base"] == str(folder / "checkpoints")
    assert json.loads(options["--backend-config"]) == {
        "max_lora_adapters": 3,
        "max_lora_rank": 32,
        "train_micro_batch_size": 8,
        "sample_max_num_sequences": 32,
    }
    assert variables["VIRTUAL_ENV"] == str(tmp_path / "home" / "env-jax-cpu")
    assert variables["JAX_COMPILATION_CACHE_DIR"] == str(tmp_path / "home" / "jax-cache")
    assert variables["JAX_PLATFORMS"] == "cpu"
    assert "PYTHONPATH" not in variables

    again = start_trainer(model, TrainerOptions(), told.append)
    assert stop_trainer(again)
    assert (again.url, again.folder) == (trainer.url, trainer.folder)
    assert len(asked(tmp_path)) == 4  # nothing was installed a second time


@pytest.mark.parametrize(
    ("behaves", "said"),
    [
        ("breaks", "the server ended while it started: out of memory"),
        ("waits", "the server was not ready after 0 s"),
        ("refuses", "uv failed: error: no such package because it is not there"),
    ],
)
def test_a_server_that_does_not_come_up_is_said_in_one_line(uv, model, behaves, said):
    uv(behaves)
    with pytest.raises(BadInput, match=said):
        start_trainer(model, TrainerOptions(timeout_s=0.4 if behaves == "waits" else 60.0), lambda line: None)
    assert not any(one.is_running for one in list_trainers())


def test_what_is_installed_follows_the_gpus(uv, tmp_path):
    uv("serves")
    left = tmp_path / "home" / "env-jax-cpu" / "half-installed"  # by an earlier attempt that was interrupted
    left.mkdir(parents=True)
    for gpus, name in ((0, "env-jax-cpu"), (2, "env-jax-gpu")):
        assert prepare_environment(tmp_path / "home", "jax", gpus, lambda line: None).name == name
    installed = [words for words, _ in asked(tmp_path) if words[0] == "pip"]
    assert ["skyrl[tinker,jax]==0.4.0" in installed[0], "skyrl[tinker,jax,gpu]==0.4.0" in installed[1]] == [True, True]
    assert not left.exists()


@pytest.mark.parametrize(
    ("backend", "gpus", "spread"),
    [
        ("jax", 1, {}),
        ("jax", 2, {"tensor_parallel_size": 2}),
        ("fsdp", 1, {"trainer.placement.policy_num_gpus_per_node": 1, "generator.inference_engine.num_engines": 1}),
        ("fsdp", 4, {"trainer.placement.policy_num_gpus_per_node": 4, "generator.inference_engine.num_engines": 4}),
    ],
)
def test_an_engine_is_spread_over_all_gpus(backend, gpus, spread):
    config = trainer_server._usual_config(TrainerOptions(backend=backend, gpus=gpus))
    if backend == "jax":  # these have nothing to do with the number of GPUs
        spread |= {"max_lora_adapters": 16, "max_lora_rank": 32}
        spread |= {"train_micro_batch_size": 8, "sample_max_num_sequences": 32}
    assert config == spread


@pytest.mark.parametrize("lacks", ["room", "ps"])
def test_a_server_that_cannot_be_recorded_is_ended(uv, model, monkeypatch, lacks, tmp_path):
    """Nobody would find it again: it would keep its memory until the machine is switched off."""
    started = []

    def start(command, **options):
        started.append(subprocess.Popen(command, **options))
        return started[-1]

    def refuse(path, content):
        raise BadInput(f"cannot write {path}: No space left on device")

    uv("serves")
    prepare_environment(Path(os.environ["QUAERE_TRAINERS"]), "jax", 0, print)
    monkeypatch.setattr(trainer_server, "subprocess", SimpleNamespace(**vars(subprocess) | {"Popen": start}))
    if lacks == "room":
        monkeypatch.setattr(trainer_server, "write_file", refuse)
    else:
        monkeypatch.setenv("PATH", str(tmp_path / "bin"))
    with pytest.raises(BadInput, match="No space left" if lacks == "room" else "ps, which is not installed"):
        start_trainer(model, TrainerOptions(), lambda line: None)
    try:
        assert len(started) == 1 and list_trainers() == []
        started[0].wait(30)
    finally:
        started[0].kill()
