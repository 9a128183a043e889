"""Questions of the hub: read from a server in its place, and what is said where that fails."""

from __future__ import annotations

import io
import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pyarrow
import pyarrow.parquet
import pytest

from hub_server import COMMIT, HubServer, serve_hub
from quaere.cli.main import main
from quaere.errors import BadInput, ExtraMissing
from quaere.rollout.question_files import HubQuestions, parse_hub, read_questions
from quaere.training.given import find_source, read_source


def lines(*rows: dict[str, object]) -> bytes:
    return b"".join(json.dumps(row).encode() + b"\n" for row in rows)


def parquet(*rows: dict[str, object]) -> bytes:
    written = io.BytesIO()
    pyarrow.parquet.write_table(pyarrow.Table.from_pylist(list(rows)), written)
    return written.getvalue()


TWO_SUBSETS = b"""---
configs:
- config_name: nq
  data_files:
  - split: test
    path: nq/test.jsonl
- config_name: popqa
  data_files:
  - split: test
    path: popqa/test.jsonl
---
"""
EVAL = ["eval", "--model", "openai:m@http://127.0.0.1:9/v1", "--closed-book", "--questions", "hub:acme/qa:train"]
REPOSITORIES = {
    "acme/qa": {
        "train.jsonl": lines(
            {"id": "1", "question": "Who?", "golden_answers": ["Venn"], "data_source": "nq", "hops": 2}
        ),
        "test.jsonl": lines(
            {"id": "1", "question": "Why?", "golden_answers": ["Rain"], "data_source": "nq", "hops": 1}
        ),
    },
    "acme/many": {
        "README.md": TWO_SUBSETS,
        "nq/test.jsonl": lines(
            {"id": "t0", "question": "Who?", "answer": ["Venn"]}, {"id": "t0", "question": "When?", "answer": ["1889"]}
        ),
        "popqa/test.jsonl": lines({"id": 3, "question": "Where?", "possible_answers": '["Halm"]'}),
    },
    "acme/squad": {
        "data/validation-00000-of-00001.parquet": parquet(
            {
                "id": "a",
                "context": "Venn built it.",
                "question": "Who?",
                "answers": {"text": ["Venn"], "answer_start": [0]},
            },
            {"id": "b", "context": "Venn built it.", "question": "Why?", "answers": {"text": [], "answer_start": []}},
        ),
    },
    "acme/open": {"data.jsonl": lines({"question": "What is known of Halm?"})},
    "acme/prose": {"data.jsonl": lines({"title": "Halm", "text": "Halm is a town."})},
    "acme/broken": {"data.jsonl": b'{"question": "Who?"\n{{{{'},
}


@pytest.fixture(scope="module")
def server() -> Iterator[HubServer]:
    with serve_hub(REPOSITORIES) as server:
        yield server


@pytest.fixture
def hub(server: HubServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> HubServer:
    """A server in the hub's place, and empty caches."""
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_CACHE", str(tmp_path / "hub"))
    monkeypatch.setattr("datasets.config.HF_DATASETS_CACHE", tmp_path / "datasets")
    point_at(monkeypatch, server.url)
    return server


def point_at(monkeypatch: pytest.MonkeyPatch, url: str) -> None:
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_OFFLINE", False)  # that hub, and only it, may be asked
    monkeypatch.setattr("datasets.config.HF_HUB_OFFLINE", False)
    monkeypatch.setattr("huggingface_hub.constants.ENDPOINT", url)
    monkeypatch.setattr("datasets.config.HF_ENDPOINT", url)
    template = url + "/{repo_id}/resolve/{revision}/{filename}"
    monkeypatch.setattr("huggingface_hub.constants.HUGGINGFACE_CO_URL_TEMPLATE", template)


def test_a_source_names_a_data_set_and_the_parts_of_it() -> None:
    full = parse_hub("hub:hotpotqa/hotpot_qa/distractor@refs/convert/parquet:validation")
    assert full == HubQuestions("hotpotqa/hotpot_qa", "distractor", "refs/convert/parquet", "validation")
    assert str(full) == "hub:hotpotqa/hotpot_qa/distractor@refs/convert/parquet:validation"
    assert parse_hub("hub:acme/qa:train") == HubQuestions("acme/qa", split="train")
    for wrong in (
        "hub:",
        "hub:qa",
        "hub:acme/../x",
        "hub:acme/qa@",
        "hub:acme/qa:",
        "hub:a/b/c/d",
        "hub:acme/qa train",
    ):
        with pytest.raises(BadInput, match=r"names no data set of the hub"):
            parse_hub(wrong)


def test_questions_are_read_with_their_ids_sets_and_counts(hub: HubServer) -> None:
    (question,) = read_questions("hub:acme/qa@v1:train")
    assert (question.id, question.text, question.answers) == ("1", "Who?", ("Venn",))
    assert (question.set, question.facts, question.searches) == ("nq", 2, 2)
    with pytest.raises(BadInput, match="no question of 5 facts"):
        read_questions("hub:acme/qa:train", facts=(5,))


def test_parquet_and_subsets_are_read_and_rows_whose_answers_are_missing_left_out(hub: HubServer) -> None:
    asked = [(question.id, question.answers) for question in read_questions("hub:acme/squad", to_score=True)]
    assert asked == [("a", ("Venn",)), ("b", ())]  # the documents do not answer the second, as SQuAD 2.0 has it
    assert [question.id for question in read_source("hub:acme/squad")] == ["a"]  # to train on
    assert [(q.id, q.answers) for q in read_questions("hub:acme/many/popqa:test")] == [("3", ("Halm",))]
    asked = read_questions("hub:acme/many/nq")
    assert [(q.id, q.text) for q in asked] == [("t0", "Who?"), ("t0-2", "When?")]  # ids are unique here
    assert read_questions("hub:acme/many/nq", limit=1) == asked[:1]


@pytest.mark.parametrize(
    ("source", "said", "hint"),
    [
        ("hub:acme/many", "has the subsets nq, popqa: name one", "hub:acme/many/nq"),
        ("hub:acme/many/trivia", "has no subset trivia, only nq, popqa", "hub:acme/many/nq"),
        ("hub:acme/qa@v1", "has the splits train, test: name one", "hub:acme/qa@v1:train"),
        ("hub:acme/qa:dev", "has no split dev, only train, test", "hub:acme/qa:train"),
        ("hub:acme/prose", "has no column of questions, only title, text", "the column must be called question"),
        ("hub:acme/none", "is not on the hub", "hub:OWNER/NAME"),
        ("hub:acme/qa@v9", "is on the hub without that revision", "hub:OWNER/NAME"),
        ("hub:acme/broken", "cannot be read: ", "or a JSONL file"),
    ],
)
def test_what_does_not_fit_is_one_line_that_says_what_to_type(
    source: str, said: str, hint: str, hub: HubServer
) -> None:
    with pytest.raises(BadInput) as caught:
        read_questions(source)
    assert said in caught.value.args[0] and "\n" not in caught.value.args[0]
    assert hint in (caught.value.hint or "")


def test_a_folder_of_that_name_is_not_read_in_the_hubs_place(
    hub: HubServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "acme" / "qa").mkdir(parents=True)
    (tmp_path / "acme" / "qa" / "train.jsonl").write_bytes(lines({"question": "Mine?", "answers": ["Yes"]}))
    assert [question.text for question in read_questions("hub:acme/qa:train")] == ["Who?"]


def test_recipes_take_them_and_ask_for_answers(hub: HubServer, tmp_path: Path) -> None:
    assert find_source("hub:acme/qa:train", tmp_path) == "hub:acme/qa:train"
    assert [question.text for question in read_source("hub:acme/qa:train")] == ["Who?"]
    assert read_source("hub:acme/open", answered=False)[0].text == "What is known of Halm?"
    with pytest.raises(BadInput, match="cannot be trained on") as caught:
        read_source("hub:acme/open")
    assert "a column called golden_answers" in (caught.value.hint or "")


def test_without_a_network_the_hub_is_one_line_and_what_was_downloaded_is_used(
    hub: HubServer, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    before = read_questions("hub:acme/qa:train")
    point_at(monkeypatch, "http://127.0.0.1:9")
    with pytest.raises(BadInput, match="hub:acme/qa:train is not reachable on the hub") as caught:
        read_questions("hub:acme/qa:train")
    assert "HF_HUB_OFFLINE=1" in (caught.value.hint or "")
    capsys.readouterr()
    assert main(EVAL) == 2
    assert capsys.readouterr().err.splitlines()[0] == "quaere: hub:acme/qa:train is not reachable on the hub"
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_OFFLINE", True)
    monkeypatch.setattr("datasets.config.HF_HUB_OFFLINE", True)
    assert read_questions("hub:acme/qa:train") == before == read_questions(f"hub:acme/qa@{COMMIT}:train")
    with pytest.raises(BadInput, match="the cache of datasets has another revision than"):
        read_questions("hub:acme/qa@v0:train")
    with pytest.raises(BadInput, match="hub:acme/many/nq cannot be read"):
        read_questions("hub:acme/many/nq")


def test_without_the_package_the_extra_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "datasets", None)
    with pytest.raises(ExtraMissing, match="need the package datasets") as caught:
        read_questions("hub:acme/qa")
    assert "[hub]" in (caught.value.hint or "")


def test_a_command_reads_them_from_the_endpoint_of_the_environment(server: HubServer, tmp_path: Path) -> None:
    """In a process of its own: HF_ENDPOINT is all that points it at the server. Nobody answers the question."""
    offline = {name: value for name, value in os.environ.items() if name != "HF_HUB_OFFLINE"}
    env = {**offline, "HF_ENDPOINT": server.url, "HF_HOME": str(tmp_path / "hf")}
    command = [sys.executable, "-m", "quaere", *EVAL]
    done = subprocess.run(command, env=env, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert done.returncode == 2 and "127.0.0.1:9/v1" in done.stderr.splitlines()[-1], done.stderr
