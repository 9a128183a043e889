"""`quaere warmup` from the command line to a model folder that answers questions."""

import json
import os
import shlex
import signal
import sys
from functools import cache

import pytest
import torch

import tiny
from loopback import serve_chat
from quaere.api import warmup as work
from quaere.api.warmup_settings import WarmupSettings
from quaere.cli import terminal
from quaere.cli import warmup as command
from quaere.cli.main import build_parser
from quaere.cli.main import main as quaere
from quaere.dialects.notes import Notes, find_notes
from quaere.errors import QuaereError
from quaere.policies.catalogue import resolve_model
from quaere.policies.native.bridge import load_model
from quaere.policies.native.weights import round_weights
from quaere.rollout.episode import Limits
from quaere.training.learner import Learner
from quaere.warmup import imitation, lessons
from quaere.warmup.lessons import build_world

LIMITS = ["--topk", "1", "--turn-tokens", "1024", "--tool-response-tokens", "200", "--style", "brief"]
ONE = ["--facts", "1", "--proposer-hops", "1"]
SMALL = ["--episodes", "4", *ONE, "--epochs", "1", "--batch", "2", "--articles", "200", "--device", "cpu"]


def main(*words):
    """The command by itself, so that it can be tried whatever else the program offers."""
    args = build_parser("warmup").parse_args(["warmup", *map(str, words)])
    return args.run(args)


@pytest.fixture(scope="module")
def base(tmp_path_factory):
    folder = tmp_path_factory.mktemp("base")
    tiny.model(scale=1).save_pretrained(folder)
    tiny.tokenizer().save_pretrained(folder)
    return folder


def load(folder):
    from transformers import AutoModelForCausalLM, AutoTokenizer

    return AutoModelForCausalLM.from_pretrained(folder), AutoTokenizer.from_pretrained(folder)


@pytest.fixture(scope="module")
def _soon_told():
    """A taught model is tried with few tokens: one that was hardly taught writes to its limits."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(WarmupSettings, "limits_of", lambda self, dialect: Limits(max_turns=2, turn_tokens=8))
        yield


ADAPTED = ["--lora-rank", "4", "--learning-rate", "1e-2", "--roles", "solver", *SMALL, *LIMITS]
ADAPTED += ["--episodes", "2", "--batch", "1"]


@pytest.fixture(scope="module")
def _one_world(tmp_path_factory):
    """Lessons in the same world, which is built once."""
    home = tmp_path_factory.mktemp("world")

    @cache
    def build_once(seed, num_articles, family):
        return build_world(seed, num_articles, home / f"{seed}-{num_articles}-{family}", family)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(
            lessons, "build_world", lambda seed, num_articles, folder, family: build_once(seed, num_articles, family)
        )
        yield


@pytest.fixture(scope="module")
def merged(base, _soon_told, _one_world, tmp_path_factory):
    """What an adapter was taught, merged, in float32."""
    pytest.importorskip("peft")
    out = tmp_path_factory.mktemp("merged") / "warm"
    main("drzero", "--model", base, "--out", out, "--dtype", "float32", *ADAPTED)
    return out


@pytest.mark.usefixtures("_soon_told")
def test_from_a_model_to_a_model_that_asks(base, tmp_path, capsys):
    out = tmp_path / "warm"
    main("drzero", "--model", base, "--out", out, "--learning-rate", "3e-3", *SMALL, *LIMITS)
    streams = capsys.readouterr()
    assert "step 2/2 · loss" in streams.err and "4 episodes kept" in streams.err
    assert f"--model {out}" in streams.out
    manifest = json.loads((out / "warmup.json").read_text())
    assert manifest["data"] == "oracle" and manifest["recipe"] == "drzero" and manifest["base_model"] == str(base)
    assert (manifest["world_family"], manifest["world_seed"]) == ("warmup", 1)
    assert (manifest["num_episodes"], manifest["num_held_out"], manifest["num_steps"]) == (4, 1, 2)
    assert manifest["roles"] == ["solver", "proposer"] and manifest["style"] == "brief"
    assert manifest["also"] == [] and manifest["evidence"] is False
    assert manifest["fact_ratio"] == manifest["hop_ratio"] == [1] and "--hops" not in streams.err
    assert manifest["loss_after"] < manifest["loss_before"]
    assert [path.name for path in tmp_path.iterdir()] == ["warm"]  # neither world nor index is left behind
    model, tokenizer = load(out)
    assert model.dtype == torch.float32 and tokenizer.chat_template == tiny.CHATML
    before, _ = load(base)
    assert any((model.state_dict()[name] != weight).any() for name, weight in before.state_dict().items())
    docs = tmp_path / "docs"
    docs.mkdir()
    (docs / "halm.md").write_text("Orsolya Venn built the Halm bridge.")
    assert quaere(["index", str(docs), "--out", str(tmp_path / "index")]) == 0
    asked = ["ask", "Who?", "--index", str(tmp_path / "index"), "--model", str(out), "--runs", str(tmp_path / "runs")]
    assert quaere([*asked, "--max-turns", "2", "--turn-tokens", "4"]) in (0, 3)  # it may find no answer


@pytest.fixture
def press(monkeypatch):
    """Press Ctrl-C so many times when the first step was taken, and show what was said until then."""
    step = command._Display.step

    def press(times):
        def step_and_press(display, taken):
            step(display, taken)
            if taken.step == 1:
                for _ in range(times):
                    os.kill(os.getpid(), signal.SIGINT)

        monkeypatch.setattr(terminal, "ONE_PRESS_S", 0)
        monkeypatch.setattr(command._Display, "step", step_and_press)

    return press


@pytest.mark.usefixtures("_soon_told", "_one_world")
def test_ctrl_c_keeps_what_was_taught(base, tmp_path, press, capfd):
    press(1)
    out, other = tmp_path / "warm", tmp_path / "other"
    args = ["--learning-rate", "3e-3", *SMALL, *LIMITS, "--also", "eve"]
    with pytest.raises(KeyboardInterrupt):
        main("drzero", "--model", base, "--out", out, *args)
    streams = capfd.readouterr()
    assert "stopping after the step under way, whose model is then saved" in streams.err
    assert "step 1/2" in streams.err and "step 2/2" not in streams.err
    manifest = json.loads((out / "warmup.json").read_text())
    assert manifest["stopped"] and manifest["num_steps"] == 1 and manifest["loss_after"] < manifest["loss_before"]
    assert manifest["learnt"] == {}  # what it can do is not tried out either
    more = streams.out.splitlines()[-1]
    assert more.startswith("stopped after 1 step, and saved as it is; teach it more with: quaere warmup drzero")
    words = shlex.split(more.partition("with: quaere warmup ")[2].replace("OTHER", str(other)))
    press(0)
    main(*words, *args)
    assert not json.loads((other / "warmup.json").read_text())["stopped"]


@pytest.mark.usefixtures("_soon_told", "_one_world")
def test_two_ctrl_c_write_nothing(base, tmp_path, press, capfd):
    press(2)
    with pytest.raises(KeyboardInterrupt):
        main("drzero", "--model", base, "--out", tmp_path / "warm", *SMALL, *LIMITS)
    assert "press Ctrl-C again to stop now (no model is written)" in capfd.readouterr().err
    assert not list(tmp_path.iterdir())


@pytest.mark.usefixtures("_soon_told", "_one_world")
def test_ctrl_c_before_the_first_step_has_nothing_to_keep(base, tmp_path, monkeypatch, capfd):
    monkeypatch.setattr(imitation, "stop_requested", lambda: True)
    monkeypatch.setattr(Learner, "score", None)  # the loss before is not measured to its end
    with pytest.raises(KeyboardInterrupt):
        main("drzero", "--model", base, "--out", tmp_path / "warm", *SMALL, *LIMITS)
    assert capfd.readouterr().err.splitlines()[-1] == "stopped before step 1: no model is written"
    assert not list(tmp_path.iterdir())


@pytest.mark.usefixtures("_soon_told", "_one_world")
def test_what_is_done_before_the_first_step_is_said(base, tmp_path, monkeypatch, capsys):
    told = []
    monkeypatch.setattr(command._Display, "progress", lambda display, *amounts: told.append(amounts))
    main("drzero", "--model", base, "--out", tmp_path / "warm", *SMALL, *LIMITS)
    before = capsys.readouterr().err.partition("step 1/2 ·")[0]
    said = ("making lessons: 4 episodes in a world of 200 articles", "4 episodes kept", f"teaching {base} on cpu")
    places = [before.index(line) for line in (*said, "the loss of 1 held-out episodes, then step 1 of 2")]
    assert places == sorted(places)
    parts = [amounts for amounts in told if amounts[0].startswith("step 1")]
    assert parts[0][1] == 0 and parts[0][2] == len(parts)  # of the first step, and of no other


@pytest.mark.usefixtures("_soon_told", "_one_world")
def test_one_start_for_two_recipes(base, tmp_path, capsys):
    out = tmp_path / "warm"
    main("eve", "--also", "drzero", "--model", base, "--out", out, "--learning-rate", "3e-3", *SMALL, *LIMITS)
    assert "4 episodes kept" in capsys.readouterr().err
    manifest = json.loads((out / "warmup.json").read_text())
    assert (manifest["recipe"], manifest["also"], manifest["evidence"]) == ("eve", ["drzero"], True)
    assert manifest["loss_after"] < manifest["loss_before"]
    notes = find_notes(str(out))
    assert notes.evidence and notes.taught == ("eve", "drzero") and notes.style == "brief"


@pytest.mark.usefixtures("_soon_told", "_one_world")
def test_one_start_for_solvers_that_evaluate(base, tmp_path, capsys):
    out = tmp_path / "warm"
    also = ["--also", "evalrar", "--also", "search-r1"]
    main("evalact", *also, "--model", base, "--out", out, "--learning-rate", "3e-3", *SMALL, *LIMITS)
    said = capsys.readouterr().err
    assert "4 episodes kept" in said and "held-out tasks of evalact solver: " in said
    assert said.count("solver: none") == 2  # one task was held out, and it was of one dialect
    assert [path.name for path in tmp_path.iterdir()] == ["warm"]
    manifest = json.loads((out / "warmup.json").read_text())
    assert (manifest["recipe"], manifest["also"]) == ("evalact", ["evalrar", "search-r1"])
    assert list(manifest["learnt"]) == ["evalact solver", "evalrar solver", "search-r1 solver"]
    assert sum(one["num"] for one in manifest["learnt"].values()) == manifest["num_held_out"] == 1
    assert manifest["roles"] == ["solver"]
    assert manifest["loss_after"] < manifest["loss_before"]


def test_lora_is_merged_and_the_result_is_a_plain_model(base, merged, tmp_path, capsys):
    out = tmp_path / "warm"
    main("drzero", "--model", base, "--out", out, "--dtype", "bfloat16", "--json", *ADAPTED)
    events = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert [event["event"] for event in events][-2:] == ["step", "done"]
    assert events[-1]["lora_rank"] == 4 and events[-1]["loss_after"] < events[-1]["loss_before"]
    model, _ = load(out)
    assert model.dtype == torch.bfloat16
    before, _ = load(base)
    assert set(model.state_dict()) == set(before.state_dict())
    unlearned = round_weights(before, torch.bfloat16).state_dict()
    changed = {name for name, weight in unlearned.items() if (model.state_dict()[name] != weight).any()}
    assert changed and all("proj" in name for name in changed)
    # The same lessons, kept in float32, are the same model before it was rounded.
    exact = round_weights(load(merged)[0], torch.bfloat16)
    assert all(torch.equal(*pair) for pair in zip(model.parameters(), exact.parameters(), strict=True))


def test_an_adapter_is_written_alone_and_means_the_merged_model(base, merged, tmp_path):
    adapter, upon = tmp_path / "adapter", tmp_path / "upon"
    main("drzero", "--model", base, "--out", adapter, "--adapter", "--dtype", "float32", *ADAPTED)
    assert sorted(path.name for path in adapter.iterdir()) == [
        "adapter_config.json",
        "adapter_model.safetensors",
        "warmup.json",
    ]
    manifests = [json.loads((folder / "warmup.json").read_text()) for folder in (merged, adapter)]
    assert manifests[0] == manifests[1] and manifests[1]["base_model"] == str(base)
    written = json.loads((adapter / "adapter_config.json").read_text())
    assert written["lora_alpha"] == 2 * written["r"] > 0
    found = resolve_model(str(adapter))
    assert (found.path, found.adapters) == (str(base), (str(adapter),))
    models = [load_model(resolve_model(str(folder)), "cpu", "float32") for folder in (merged, adapter)]
    for ours, theirs in zip(*(model.parameters() for model in models), strict=True):
        assert torch.equal(ours, theirs)
    assert find_notes(str(adapter)) == find_notes(str(merged)) != Notes()
    # Once more on top of the adapter, in half the bytes.
    main("drzero", "--model", adapter, "--out", upon, "--adapter", "--dtype", "bfloat16", *ADAPTED)
    sizes = [(folder / "adapter_model.safetensors").stat().st_size for folder in (upon, adapter)]
    assert sizes[0] < 0.6 * sizes[1]
    assert resolve_model(str(upon)).adapters == (str(adapter), str(upon))
    assert json.loads((upon / "warmup.json").read_text())["loss_before"] == pytest.approx(manifests[1]["loss_after"])


def test_hops_are_still_read_as_the_ratios_of_both_roles(monkeypatch, tmp_path, capsys):
    seen = []
    monkeypatch.setattr(work, "_warm_up", lambda settings, display: seen.append(settings) or sys.exit(0))
    for words in (["--hops", "4,3"], ["--facts", "1", "--proposer-hops", "0,0,1"], []):
        with pytest.raises(SystemExit):
            main("drzero", "--model", "m", "--out", tmp_path / "warm", *words)
    ratios = [(settings.facts, settings.proposer_hops) for settings in seen]
    assert ratios == [((4, 3), (4, 3)), ((1,), (0, 0, 1)), ((4, 3, 2, 1), (4, 3, 2, 1))]
    (notice,) = capsys.readouterr().err.splitlines()
    assert notice.startswith("--hops 4,3 is read as --facts 4,3 for a solver and --proposer-hops 4,3 for a proposer")


def test_the_command_has_the_defaults_of_the_settings(monkeypatch, tmp_path):
    seen = []
    monkeypatch.setattr(work, "_warm_up", lambda settings, display: seen.append(settings) or sys.exit(0))
    with pytest.raises(SystemExit):
        main("drzero", "--model", "m", "--out", tmp_path / "warm")
    assert seen == [WarmupSettings(recipe="drzero", model="m", out=tmp_path / "warm")]


@pytest.mark.usefixtures("_one_world")
def test_bad_input_is_said_before_any_work(base, tmp_path):
    out = ["--out", tmp_path / "warm"]
    full = tmp_path / "full"
    full.mkdir()
    (full / "notes.txt").write_text("mine")

    def bad(match, *words, model=base, recipe="drzero"):
        with pytest.raises(QuaereError, match=match):
            main(recipe, "--model", model, *words)

    bad("so it is not replaced", "--out", full, "--force")
    bad("roles must be some of", *out, "--roles", "judge")
    bad("--hops must be a list", *out, "--hops", "4:3")
    bad("weights for 1 to 4 facts", *out, "--hops", "1,1,1,1,1")
    bad("--facts must be a list", *out, "--facts", "")
    bad("--proposer-hops must be a list", *out, "--proposer-hops", "4,x")
    bad("weights for 1 to 5 hops", *out, "--proposer-hops", "1,1,1,1,1,1")
    bad("--hops sets --facts and --proposer-hops", *out, "--hops", "1", "--facts", "1")
    bad("at least 1 episode", *out, "--episodes", "0")
    bad("each at most once, not drzero, drzero", *out, "--also", "drzero")
    bad("at least 1 episode of each dialect", *out, "--also", "eve", "--episodes", "1")
    bad("--batch must be at least 1", *out, "--batch", "0")
    bad("--learning-rate must be above 0", *out, "--learning-rate", "0")
    bad("--lora-rank must be 0 or more", *out, "--lora-rank", "-1")
    bad("--adapter needs --lora-rank", *out, "--adapter")
    bad("unknown model no/such", *out, model="no/such")
    bad("needs 5 turns for 4 facts", *out, "--max-turns", "3")
    for words in (["--roles", "proposer"], ["--roles", "solver,proposer"]):
        bad("evalact has no proposer to teach", *out, *words, recipe="evalact")
    bad("search-r1 has no proposer to teach", *out, "--also", "search-r1", "--roles", "proposer")
    bad("a solver of evalact needs 9 turns for 4 facts", *out, "--max-turns", "8", recipe="evalact")
    bad("--max-turns must be at least 1", *out, "--max-turns", "0")
    bad("unknown model no/such", *out, recipe="evalact", model="no/such")  # twelve turns are enough for four facts
    bad("200 to 100000 articles", *out, "--articles", "5")
    bad("--teacher must be an endpoint", *out, "--teacher", "smollm2-135m")
    bad("127.0.0.1:9", *out, "--teacher", "openai:m@http://127.0.0.1:9/v1", "--episodes", "2", "--hops", "1")
    assert [path.name for path in tmp_path.iterdir()] == ["full"]


def test_a_teacher_whose_episodes_are_all_dropped_is_said_in_one_line(base, tmp_path):
    with serve_chat(lambda body: "I do not know.") as url:
        words = ["--teacher", f"openai:m@{url}", "--roles", "solver", *SMALL, *LIMITS]
        with pytest.raises(QuaereError, match=r"only 0 of 4 episodes can be learned from.*protocol: malformed"):
            main("drzero", "--model", base, "--out", tmp_path / "warm", *words)
    assert not (tmp_path / "warm").exists()


def test_help_is_light():
    import subprocess

    code = "import sys, quaere.cli.warmup; print(*sys.modules)"
    loaded = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout.split()
    assert {name.split(".")[0] for name in loaded} & {"torch", "transformers", "bm25s", "numpy", "rich"} == set()
