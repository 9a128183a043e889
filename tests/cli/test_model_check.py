"""`quaere models check` on tiny models: what it says of a sound one, of one that thinks, and of what is none."""

import json

import pytest

import modern_templates
import tiny
from quaere.cli.main import main


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    root = tmp_path_factory.mktemp("model")
    tiny.model().save_pretrained(root)
    tiny.tokenizer("qwen").save_pretrained(root)
    return root


def check(capsys, model, *more, code=0):
    assert main(["models", "check", str(model), "--json", *more]) == code
    return json.loads(capsys.readouterr().out)


def test_a_model_is_checked_from_its_template_to_an_episode(folder, capsys, monkeypatch):
    monkeypatch.setattr("quaere.cli.models.TURN_TOKENS", 16)
    checks = check(capsys, folder)
    assert [one["name"] for one in checks] == [
        *("model", "template", "tools", "thinking", "joints", "history"),
        *["memory"] * 4,
        "episode",
    ]
    said = {one["name"]: one["detail"] for one in checks}
    assert said["tools"] == "listed by the template; calls: JSON in <tool_call>; results in turns of their own"
    assert "<|im_end|>" in said["joints"]
    assert said["history"] == "episodes are what the template writes"
    assert all("GiB on the" in one["detail"] for one in checks if one["name"] == "memory")
    # A model of random weights follows no protocol: it runs, and the check says what to do.
    episode = checks[-1]
    assert episode["status"] == "warn" and "0 of them followed the protocol" in episode["detail"]
    assert episode["hint"] == f"quaere warmup drzero --model {folder} --out DIR"


def test_a_model_that_thinks_is_described(folder, tmp_path, capsys):
    modern_templates.make_tokenizer(modern_templates.FUNCTIONS).save_pretrained(tmp_path)
    (tmp_path / "config.json").write_text((folder / "config.json").read_text())
    said = {one["name"]: one["detail"] for one in check(capsys, tmp_path, "--no-episode")}
    assert said["thinking"] == "the template opens a thought before each turn ('<think>\\n')"
    assert "calls: <function=...> in <tool_call>" in said["tools"]
    assert said["history"].startswith(
        "an episode keeps its turns, where the template cuts thoughts out of earlier turns and"
    )
    assert "episode" not in said


def test_a_template_without_joints_fails_in_one_line(folder, tmp_path, capsys):
    tiny.tokenizer(tiny.COUNTS_TURNS).save_pretrained(tmp_path)
    (tmp_path / "config.json").write_text((folder / "config.json").read_text())
    checks = check(capsys, tmp_path, code=2)
    failed = [one for one in checks if one["status"] == "fail"]
    assert [one["name"] for one in failed] == ["template"] and "\n" not in failed[0]["detail"]
    assert "episode" not in [one["name"] for one in checks]


def test_what_is_no_model_is_said_in_one_line(tmp_path, capsys):
    (failed,) = check(capsys, tmp_path / "nowhere", code=2)
    assert (failed["name"], failed["status"]) == ("model", "fail")
    assert "there is no model directory at" in failed["detail"]
    assert main(["models", "check", str(tmp_path / "nowhere")]) == 2
    assert "these checks failed: model" in capsys.readouterr().err


def test_a_model_that_the_engine_cannot_run_is_said_once(tmp_path, capsys):
    from transformers import Lfm2Config

    sizes = {"hidden_size": 32, "num_attention_heads": 4, "num_key_value_heads": 2, "vocab_size": 300}
    Lfm2Config(**sizes, layer_types=["conv", "full_attention"], num_hidden_layers=2).save_pretrained(tmp_path)
    tiny.tokenizer("qwen").save_pretrained(tmp_path)
    (failed,) = [one for one in check(capsys, tmp_path, "--no-episode", code=2) if one["status"] == "fail"]
    assert failed["name"] == "engine" and "layers of conv" in failed["detail"]
