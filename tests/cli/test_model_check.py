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
        *("engine", "episode"),
    ]
    said = {one["name"]: one["detail"] for one in checks}
    assert said["tools"] == "listed by the template; calls: JSON in <tool_call>; results in turns of their own"
    assert "<|im_end|>" in said["joints"]
    assert said["history"] == "episodes are what the template writes"
    assert all("GiB on the" in one["detail"] for one in checks if one["name"] == "memory")
    assert said["engine"].startswith("packed; beside transformers log-probs differ by ")
    assert said["engine"].endswith("; 12 of 12 greedy tokens are the same")
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


def test_a_model_of_other_layers_is_compared_with_transformers_and_plays(tmp_path, capsys, monkeypatch):
    monkeypatch.setattr("quaere.cli.models.TURN_TOKENS", 16)
    tiny.model("lfm2").save_pretrained(tmp_path)
    tiny.tokenizer("qwen").save_pretrained(tmp_path)
    said = {one["name"]: (one["status"], one["detail"]) for one in check(capsys, tmp_path)}
    assert (
        said["engine"][0] == "ok" and "lfm2 has layers of conv: plain path, rows decoded together" in said["engine"][1]
    )
    assert said["episode"][0] == "warn" and "0 of them followed the protocol" in said["episode"][1]


@pytest.mark.parametrize(("gap", "status"), [(0.005, "warn"), (0.5, "fail")])
def test_an_engine_that_differs_from_transformers_is_said(folder, capsys, monkeypatch, gap, status):
    from quaere.training import engine_check

    found = engine_check.Agreement("packed", gap, 12, 0.0)
    monkeypatch.setattr(engine_check, "compare_with_transformers", lambda model, token_ids: found)
    monkeypatch.setattr("quaere.cli.models.TURN_TOKENS", 16)
    checks = check(capsys, folder, code=2 if status == "fail" else 0)
    assert next(one["status"] for one in checks if one["name"] == "engine") == status


def test_a_model_that_the_engine_cannot_run_is_said_once(tmp_path, capsys, monkeypatch):
    monkeypatch.setattr("quaere.policies.native.bridge._CACHES", ())
    tiny.model("lfm2").config.save_pretrained(tmp_path)
    tiny.tokenizer("qwen").save_pretrained(tmp_path)
    (failed,) = [one for one in check(capsys, tmp_path, "--no-episode", code=2) if one["status"] == "fail"]
    assert failed["name"] == "engine" and "layers of conv, and its forward pass takes no cache" in failed["detail"]
