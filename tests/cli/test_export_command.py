"""`quaere export`: what comes out of a run speaks like what went in, and nothing is overwritten by mistake."""

import json
import os
import stat

import pytest
import torch

import tiny
from exported_runs import adapted_model, make_base, make_run, write_adapters, write_models
from quaere.cli.main import main
from quaere.dialects import notes
from quaere.dialects.notes import Notes, find_notes, find_role, load_role, read_notes
from quaere.disk import discard_folder
from quaere.errors import BadInput
from quaere.policies.catalogue import resolve_model
from quaere.policies.native.bridge import load_model
from quaere.policies.native.weights import copy_rounded
from quaere.recipes.drzero import DrZeroConfig
from quaere.runs import Run
from quaere.runs.checkpoints import save_checkpoint
from quaere.training import exports
from quaere.training.actors import open_actors
from quaere.training.adapters import add_adapters
from quaere.training.config import config_to_yaml
from quaere.training.exports import export_role, export_untrained
from quaere.training.learner import save_weights
from quaere.training.settings import AdapterSettings, RunConfig

IDS = torch.tensor([[5, 9, 200, 31, 77, 8, 120, 3]])


@pytest.fixture(scope="module")
def place(tmp_path_factory):
    root = tmp_path_factory.mktemp("export")
    make_base(root)
    make_run(root, "lora", write_adapters)
    make_run(root, "full", write_models)
    return root


def export(place, name, out, *more):
    return main(["export", name, "--runs", str(place / "runs"), "--out", str(out), *more])


def logits(model):
    with torch.no_grad():
        return model(input_ids=IDS).logits


def load(folder):
    from transformers import AutoModelForCausalLM

    return AutoModelForCausalLM.from_pretrained(folder).eval()


@pytest.mark.parametrize("role", ["solver", "proposer"])
def test_a_merged_export_speaks_like_the_adapter(place, tmp_path, role, capsys):
    assert export(place, "lora", tmp_path / "out", "--merge", "--role", role) == 0
    said = capsys.readouterr().out
    assert f"{role} of lora at step 2: model" in said
    assert (f"--index notes-index --model {tmp_path / 'out'}\n" in said) == (role == "solver")
    adapted = adapted_model(2)
    adapted.set_adapter(role)
    expected = logits(adapted)
    assert (logits(load(tmp_path / "out")) - expected).abs().max() < 1e-5
    assert (logits(tiny.model()) - expected).abs().max() > 0.1  # or nothing was merged


def test_an_adapter_is_exported_as_one_that_finds_its_base(place, tmp_path, capsys, monkeypatch):
    assert export(place, "lora", tmp_path / "out", "--checkpoint", "1") == 0
    assert "LoRA adapter on" in capsys.readouterr().out
    names = sorted(path.name for path in (tmp_path / "out").iterdir())
    assert names == ["adapter_config.json", "adapter_model.safetensors", "quaere.json"]
    config = json.loads((tmp_path / "out" / "adapter_config.json").read_text())
    assert config["base_model_name_or_path"] == str(place / "base")
    adapted = adapted_model(1)
    adapted.set_adapter("solver")
    monkeypatch.chdir(tmp_path)
    assert (logits(load(tmp_path / "out")) - logits(adapted)).abs().max() < 1e-5


def test_a_full_export_equals_its_checkpoint_and_has_the_tokenizer(place, tmp_path):
    from transformers import AutoTokenizer

    assert export(place, "full", tmp_path / "out") == 0
    exported = load(tmp_path / "out")
    for ours, theirs in zip(exported.parameters(), tiny.model(seed=12).parameters(), strict=True):
        assert torch.equal(ours, theirs)
    messages = [{"role": "user", "content": "Who?"}]
    mine, base = (AutoTokenizer.from_pretrained(path) for path in (tmp_path / "out", place / "base"))
    assert mine.apply_chat_template(messages) == base.apply_chat_template(messages)
    # How our engine attends is nobody else's business.
    assert "quaere" not in (tmp_path / "out" / "config.json").read_text()


def test_bfloat16_rounds_the_sum_and_says_so(place, tmp_path):
    assert export(place, "lora", tmp_path / "out", "--merge", "--dtype", "bfloat16") == 0
    exported = load(tmp_path / "out")
    exact = load_role(find_role(place / "runs" / "lora", "solver"))
    assert {weight.dtype for weight in exported.parameters()} == {torch.bfloat16}
    # Each is one of its two neighbours, and one that is such a number already stays itself.
    for (name, ours), theirs in zip(exported.named_parameters(), exact.parameters(), strict=True):
        down = (theirs.view(torch.int32) & -0x10000).view(torch.float32)
        up = ((theirs.view(torch.int32) + 0xFFFF) & -0x10000).view(torch.float32)
        assert torch.all((ours.float() == down) | (ours.float() == up)), name
    base = dict(tiny.model().named_parameters())["model.embed_tokens.weight"]
    rounded = torch.empty_like(base, dtype=torch.bfloat16)
    copy_rounded(rounded, base, "model.embed_tokens.weight")
    assert torch.equal(exported.model.embed_tokens.weight, rounded)


def test_an_export_says_where_it_comes_from(place, tmp_path):
    assert export(place, "lora", tmp_path / "out", "--merge") == 0
    told = json.loads((tmp_path / "out" / "quaere.json").read_text())
    assert (told["run"], told["recipe"], told["role"], told["step"]) == ("lora", "drzero", "solver", 2)
    assert (told["style"], told["base"]) == ("brief", str(place / "base"))
    assert told["warmup"] == {"style": "brief", "teacher": "oracle"}
    notes = read_notes(tmp_path / "out")
    assert (notes.style, notes.limits.max_turns, notes.limits.topk) == ("brief", 3, 2)
    assert read_notes(place / "base").style == "brief"


@pytest.mark.parametrize("form", ["--merge", "--adapter"])
def test_an_export_of_an_export_keeps_its_origin(place, tmp_path, form):
    """A run that starts from an export, and an export as it is, prompted in another way."""
    assert export(place, "lora", tmp_path / "first", form) == 0
    (tmp_path / "base").symlink_to(tmp_path / "first")  # the model that the config of `make_run` names
    make_run(tmp_path, "second", write_adapters)
    assert export(tmp_path, "second", tmp_path / "upon") == 0
    export_untrained(str(tmp_path / "first"), Notes(style="full", recipe="search-r1"), tmp_path / "again")
    first, upon, again = (
        json.loads((tmp_path / name / "quaere.json").read_text()) for name in ("first", "upon", "again")
    )
    assert first["warmup"] == upon["warmup"] == again["warmup"]
    assert again["style"] == "full" and first["style"] == "brief"
    assert all(again[name] == first[name] for name in ("run", "role", "step", "base", "recipe"))
    # One that no run has trained has no such origin.
    export_untrained(str(place / "base"), Notes(recipe="search-r1"), tmp_path / "plain")
    assert not {"run", "recipe"} & json.loads((tmp_path / "plain" / "quaere.json").read_text()).keys()


def test_an_adapter_in_half_the_bytes(place, tmp_path):
    from safetensors.torch import load_file

    assert export(place, "lora", tmp_path / "exact") == 0
    assert export(place, "lora", tmp_path / "half", "--adapter", "--dtype", "bfloat16") == 0
    exact, half = (load_file(tmp_path / name / "adapter_model.safetensors") for name in ("exact", "half"))
    stored = load_file(find_role(place / "runs" / "lora", "solver").folder / "adapter_model.safetensors")
    assert exact.keys() == half.keys() == stored.keys() and exact
    for name, tensor in half.items():
        assert torch.equal(exact[name], stored[name]) and exact[name].dtype == torch.float32
        assert tensor.dtype == torch.bfloat16 and torch.equal(tensor, exact[name].bfloat16())


def make_half_base(root):
    """A base that is stored in bfloat16, as most are, and a warm-up's adapter on it."""
    tiny.model().bfloat16().save_pretrained(root / "half")
    tiny.tokenizer().save_pretrained(root / "half")
    model = adapted_model(3)
    model.peft_config["solver"].base_model_name_or_path = str(root / "half")
    save_weights(model, root / "warm", "solver")
    (root / "warm" / "warmup.json").write_text('{"style": "brief", "recipe": "drzero", "teacher": "oracle"}')
    return root / "warm"


def test_a_run_on_an_adapter_is_one_on_the_merged_model(tmp_path):
    warm = make_half_base(tmp_path)
    load_model(resolve_model(str(warm)), "cpu", "bfloat16").save_pretrained(tmp_path / "merged")
    tiny.tokenizer().save_pretrained(tmp_path / "merged")
    settings = AdapterSettings(rank=4, alpha=8)
    configs = (RunConfig(model=str(tmp_path / name), adapter=settings) for name in ("warm", "merged"))
    ours, theirs = (open_actors(config, ("solver",)) for config in configs)
    for mine, other in zip(*(actors.models["solver"].parameters() for actors in (ours, theirs)), strict=True):
        assert torch.equal(mine, other)


def test_an_adapter_trained_on_an_adapter_is_exported_and_found_again(tmp_path, capsys):
    warm = make_half_base(tmp_path)
    (tmp_path / "base").symlink_to(warm)  # the model that the config of `make_run` names
    run = make_run(tmp_path, "upon", write_adapters)
    assert export(tmp_path, "upon", tmp_path / "out") == 0
    assert f"--model {tmp_path / 'out'}" in capsys.readouterr().out
    told = json.loads((tmp_path / "out" / "quaere.json").read_text())
    assert told["warmup"]["teacher"] == "oracle"  # disclosed, though the base of the base was taught nothing
    notes = find_notes(str(tmp_path / "out"))
    assert (notes.style, notes.limits.max_turns) == ("brief", 3)
    role, found = load_role(find_role(run, "solver")), resolve_model(str(tmp_path / "out"))
    assert (found.path, found.adapters) == (str(tmp_path / "half"), (str(warm), str(tmp_path / "out")))
    for ours, theirs in zip(load_model(found, "cpu", "float32").parameters(), role.parameters(), strict=True):
        assert torch.equal(ours, theirs)


def test_an_adapter_without_notes_is_asked_as_its_base_was(tmp_path):
    warm = make_half_base(tmp_path)
    assert find_notes(str(warm)).taught == ("drzero",)
    (tmp_path / "half" / "warmup.json").write_text('{"style": "full", "recipe": "eve"}')
    assert find_notes(str(warm)).style == "brief"
    (warm / "warmup.json").unlink()
    assert find_notes(str(warm)).style == "full"
    assert find_notes(f"{warm}@{tmp_path / 'half'}").taught == ("eve",)


@pytest.mark.parametrize("rank", [0, 4])
def test_what_a_recipe_saves_is_found_and_exported(place, tmp_path, rank):
    config = DrZeroConfig(model=str(place / "base"), index="i", prompts="brief", adapter=AdapterSettings(rank=rank))
    with Run.create(tmp_path / "run", "evolve", {"recipe": "drzero"}, config=config_to_yaml(config)):
        pass
    actors = open_actors(config, ("proposer", "solver"))
    save_checkpoint(tmp_path / "run" / "checkpoints", 3, actors.save, {})
    weights = find_role(tmp_path / "run", "solver")
    assert (weights.is_adapter, weights.notes.style, weights.notes.limits) == (
        bool(rank),
        "brief",
        config.solver.limits,
    )
    export_role(weights, tmp_path / "out", merge=True)
    # Nothing has been learned yet, so it is the base.
    assert (logits(load(tmp_path / "out")) - logits(load(place / "base"))).abs().max() < 1e-5
    assert (tmp_path / "out" / "tokenizer.json").is_file()


def test_the_latest_checkpoint_is_taken_unless_another_is_named(place):
    latest, first = find_role(place / "runs" / "full", "solver"), find_role(place / "runs" / "full", "solver", 1)
    assert (latest.step, first.step, latest.is_adapter) == (2, 1, False)
    assert latest.name == "full/solver@2"
    assert (logits(tiny.model(seed=11)) - logits(load(first.folder))).abs().max() < 1e-5


def test_only_an_export_is_ever_replaced(place, tmp_path, capsys):
    out = tmp_path / "out"
    assert export(place, "full", out, "--checkpoint", "1") == 0
    assert export(place, "full", out) == 2
    assert "is an export of quaere already" in capsys.readouterr().err
    assert json.loads((out / "quaere.json").read_text())["step"] == 1
    assert export(place, "full", out, "--force") == 0
    assert json.loads((out / "quaere.json").read_text())["step"] == 2
    diary = tmp_path / "diary"
    diary.mkdir()
    (diary / "monday.txt").write_text("rain")
    assert export(place, "full", diary, "--force") == 2
    assert "is not an export" in capsys.readouterr().err
    assert (diary / "monday.txt").read_text() == "rain"
    assert sorted(path.name for path in tmp_path.iterdir()) == ["diary", "out"]


def test_a_failed_export_leaves_nothing(place, tmp_path, monkeypatch):
    def fail(*args):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("quaere.training.exports.copy_tokenizer", fail)
    with pytest.raises(BadInput, match="No space left"):
        export_role(find_role(place / "runs" / "full", "solver"), tmp_path / "out")
    assert list(tmp_path.iterdir()) == []


def refused(place, capsys, tmp_path, name, *more):
    assert export(place, name, tmp_path / "never", *more) == 2
    lines = capsys.readouterr().err.splitlines()
    assert lines[0].startswith("quaere: ")
    assert len(lines) <= 2
    assert not (tmp_path / "never").exists()
    return lines[0]


def test_refusals(place, tmp_path, capsys):
    def say(*argv):
        return refused(place, capsys, tmp_path, *argv)

    assert "no run nothing" in say("nothing")
    assert "no checkpoint of step 9; it has 1, 2" in say("lora", "--checkpoint", "9")
    assert "has no role proposer; its roles are solver" in say("full", "--role", "proposer")
    assert "--dtype needs --merge or --adapter" in say("lora", "--dtype", "bfloat16")
    assert "full trained all weights and has no adapter" in say("full", "--adapter")
    with Run.create(place / "runs" / "asked", "ask"):
        pass
    assert "has no config.yaml: it is of kind ask" in say("asked")
    (place / "runs" / "asked" / "config.yaml").write_text("model: [")
    assert "config.yaml" in say("asked")
    (place / "runs" / "asked" / "config.yaml").write_text("model: ''\n")
    assert "has no `model`" in say("asked")
    (place / "runs" / "asked" / "config.yaml").write_text("model: x\n")
    assert "no complete checkpoint" in say("asked")


def test_a_damaged_checkpoint_is_refused(place, tmp_path, capsys):
    run = make_run(place, "damaged", write_models, steps=(1,))
    file = run / "checkpoints" / "step-000001" / "solver" / "model.safetensors"
    content = bytearray(file.read_bytes())
    content[-1] ^= 1
    file.write_bytes(content)
    assert "damaged" in refused(place, capsys, tmp_path, "damaged")


def test_a_damaged_last_checkpoint_is_passed_over_unless_it_was_named(place, tmp_path, capsys):
    run = make_run(place, "half damaged", write_models)
    file = run / "checkpoints" / "step-000002" / "solver" / "model.safetensors"
    file.write_bytes(file.read_bytes()[:-1] + b"\xff")
    assert export(place, "half damaged", tmp_path / "out") == 0
    (line,) = capsys.readouterr().err.splitlines()
    assert line.startswith(f"quaere: passed over: checkpoint {run / 'checkpoints' / 'step-000002'} is damaged: ")
    assert json.loads((tmp_path / "out" / "quaere.json").read_text())["step"] == 1
    assert "is damaged" in refused(place, capsys, tmp_path / "named", "half damaged", "--checkpoint", "2")
    file.with_name("config.json").unlink()  # what can be seen without reading the weights is passed over as well
    assert export(place, "half damaged", tmp_path / "again") == 0
    assert "passed over" in capsys.readouterr().err


@pytest.mark.parametrize("form", ["--merge", "--adapter"])
def test_what_is_exported_can_be_read_by_whom_the_umask_lets(place, tmp_path, form):
    before = os.umask(0o022)
    try:
        assert export(place, "lora", tmp_path / "out", form) == 0
    finally:
        os.umask(before)
    modes = {path.name: stat.S_IMODE(path.stat().st_mode) for path in [tmp_path / "out", *(tmp_path / "out").iterdir()]}
    assert modes.pop("out") == 0o755
    assert set(modes.values()) == {0o644}


def test_weights_that_are_not_finite_are_not_exported(place, tmp_path, capsys):
    """A run of before they were refused may have saved them."""

    def write(folder, step):
        model = tiny.model()
        with torch.no_grad():
            model.get_input_embeddings().weight[7, 3] = torch.nan
        model.save_pretrained(folder / "solver")

    make_run(place, "nan", write, steps=(1,))
    assert "contains a value that is not finite" in refused(place, capsys, tmp_path, "nan")


def test_an_adapter_of_another_model_is_refused(place, tmp_path, capsys):
    def write(folder, step):
        model = add_adapters(tiny.model(hidden_size=96), ("solver",), AdapterSettings(rank=4))
        save_weights(model, folder / "solver", "solver")

    make_run(place, "misfit", write, steps=(1,))
    assert "does not fit" in refused(place, capsys, tmp_path, "misfit", "--merge")


@pytest.mark.parametrize("write", [write_adapters, write_models])
@pytest.mark.parametrize(("module", "moment"), [(notes, "verify_checkpoint"), (exports, "refuse_taken")])
def test_of_a_checkpoint_that_is_pruned_while_it_is_read_the_next_is_exported(
    place, tmp_path, capsys, monkeypatch, write, module, moment
):
    """By the run, which is still being trained: before its hashes are checked, or after."""
    run = make_run(place, f"{write.__name__}-{moment}", write, steps=(1, 2))
    original = getattr(module, moment)

    def pruned(*args, **options):
        if (run / "checkpoints" / "step-000002").exists():
            discard_folder(run / "checkpoints" / "step-000002")
            save_checkpoint(run / "checkpoints", 3, lambda folder: write(folder, 3), {})
        return original(*args, **options)

    monkeypatch.setattr(module, moment, pruned)
    assert export(place, run.name, tmp_path / "out", "--merge") == 0
    said = capsys.readouterr()
    assert "was deleted while it was being read: the run is still being trained; loading another checkpoint" in said.err
    assert "at step 3" in said.out and read_notes(tmp_path / "out").style == "brief"


def test_a_run_that_prunes_whatever_is_read_is_not_followed_for_ever(place, tmp_path, capsys, monkeypatch):
    run = make_run(place, "fast", write_models, steps=(1,))
    steps = iter(range(2, 100))

    def pruned(checkpoint):
        discard_folder(checkpoint.path)
        save_checkpoint(run / "checkpoints", next(steps), lambda folder: write_models(folder, 1), {})
        raise FileNotFoundError

    monkeypatch.setattr(notes, "verify_checkpoint", pruned)
    assert export(place, "fast", tmp_path / "never") == 2
    *told, line, hint = capsys.readouterr().err.splitlines()
    assert len(told) == 4 and all("loading another checkpoint" in one for one in told)
    assert (
        line.startswith("quaere: ")
        and "step-000005 was deleted while it was being read" in line
        and "try again" in hint
    )


def test_a_named_checkpoint_that_is_pruned_is_said_in_one_line(place, tmp_path, capsys, monkeypatch):
    run = make_run(place, "named", write_models)
    original = notes.verify_checkpoint

    def pruned(checkpoint):
        discard_folder(checkpoint.path)
        return original(checkpoint)

    monkeypatch.setattr(notes, "verify_checkpoint", pruned)
    assert export(place, run.name, tmp_path / "never", "--checkpoint", "2") == 2
    assert "has no checkpoint of step 2; it has 1" in capsys.readouterr().err
