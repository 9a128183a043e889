"""`quaere serve` as a person types it."""

import os
import signal
import threading
import time
from types import SimpleNamespace

import httpx
import pytest

import tiny
from preloaded import start_command
from quaere.cli.main import main
from quaere.cli.serve import _open_policy
from quaere.errors import BadInput
from quaere.search.index_build import build_index


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """A model in a directory, as `quaere export` leaves one."""
    path = tmp_path_factory.mktemp("model") / "small"
    tiny.model().save_pretrained(path)
    tiny.tokenizer("qwen").save_pretrained(path)
    return path


def test_serve_until_ctrl_c_even_while_it_writes(folder):
    server, stderr = start_command("serve", "--model", folder, "--port", "0", "--dtype", "float32")
    try:
        assert stderr.readline() == f"loading {folder}\n"
        line = stderr.readline()
        assert "serving small at http://127.0.0.1:" in line
        url = line.split(" at ")[1].split("/v1")[0]
        with httpx.Client(base_url=url, timeout=60, trust_env=False) as http:
            assert [model["id"] for model in http.get("/v1/models").json()["data"]] == ["small", "small:list", "hash"]
            body = {"model": "small", "messages": [{"role": "user", "content": "Hello"}], "max_tokens": 4}
            assert http.post("/v1/chat/completions", json=body).json()["usage"]["completion_tokens"] <= 4
        replies = []
        long = {**body, "max_tokens": 600, "n": 4, "temperature": 2, "seed": 1}
        asking = threading.Thread(
            target=lambda: replies.append(
                httpx.post(f"{url}/v1/chat/completions", json=long, timeout=60, trust_env=False)
            )
        )
        asking.start()
        while httpx.get(f"{url}/health", trust_env=False).json()["rows"] == 0 and asking.is_alive():
            time.sleep(0.02)
        os.kill(server.pid, signal.SIGINT)
        server.join(timeout=40)
        assert server.exitcode == 0
        asking.join(timeout=20)
        assert replies[0].status_code == 200  # what was begun was finished
    finally:
        server.kill()
        server.join()
        stderr.close()


def test_serve_with_an_index_answers_from_it(folder, tmp_path):
    (tmp_path / "oss.md").write_text("# The Oss\n\nThe Oss rises in the Korrin hills.\n")
    build_index(tmp_path / "oss.md", tmp_path / "index")
    options = ("--port", "0", "--dtype", "float32", "--max-tokens", "8", "--index", tmp_path / "index")
    server, stderr = start_command("serve", "--model", folder, *options)
    try:
        _, ready, told = (stderr.readline() for _ in range(3))
        assert told == f"small answers from {tmp_path / 'index'}; small:model is the model alone\n"
        url = ready.split(" at ")[1].split("/v1")[0]
        body = {"model": "small", "messages": [{"role": "user", "content": "Where does the Oss rise?"}]}
        reply = httpx.post(f"{url}/v1/chat/completions", json=body, timeout=60, trust_env=False).json()
        # A model that nobody has taught finds nothing, but as an agent does.
        assert reply["choices"][0]["message"]["content"].startswith("not found in these documents (")
    finally:
        server.kill()
        server.join()
        stderr.close()


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ([], "give either --model or --run"),
        (["--model", "a", "--run", "b"], "give either --model or --run"),
        (["--model", "openai:x@http://localhost:1/v1"], "which is a server already"),
        (["--model", "smollm2-135m", "--max-rows", "0"], "--max-rows must be at least 1"),
        (["--model", "smollm2-135m", "--index", "nowhere"], "nowhere does not exist"),
        (["--model", "./nowhere"], "nowhere"),
        (["--model", "smollm2-135m", "--attempts", "8"], "--attempts and --min-confidence need an agent"),
        (["--model", "smollm2-135m", "--min-confidence", "0.5"], "--attempts and --min-confidence need an agent"),
    ],
)
def test_what_cannot_be_served_is_said_in_one_line(given, said, capsys):
    assert main(["serve", *given]) == 2
    assert said in capsys.readouterr().err


def test_a_proposer_s_run_answers_no_question_several_times(monkeypatch):
    monkeypatch.setattr("quaere.cli.options.find_weights", lambda args, run: SimpleNamespace(role="proposer"))
    args = SimpleNamespace(model=None, run_name="r", index="docs-index", attempts=8, min_confidence=None)
    with pytest.raises(BadInput, match="--attempts and --min-confidence need an agent"):
        _open_policy(args)
