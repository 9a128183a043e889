"""Adapters in folders: which base they mean, and the weights of base and adapter together."""

import json
import shutil

import pytest
import torch

import tiny
from quaere.errors import BadInput, ModelMissing
from quaere.policies.catalogue import CATALOGUE, ModelPath, lasting_name, resolve_model
from quaere.policies.model_folders import base_names, hash_weights, is_adapter, split_base
from quaere.policies.native import weights as weights_module
from quaere.policies.native.bridge import load_model
from quaere.training.adapters import add_adapters
from quaere.training.learner import save_weights
from quaere.training.settings import AdapterSettings

RANK, ALPHA = 4, 8


# peft writes the whole name of every adapted module where there are at most twenty, and else the ends of their names.
SHAPE = {"num_hidden_layers": 3}


def make_base(folder, dtype=torch.float32, **shape):
    tiny.model(**{**SHAPE, **shape}).to(dtype).save_pretrained(folder)
    tiny.tokenizer().save_pretrained(folder)
    return folder


def make_adapter(folder, base, seed=1, dtype="float32", **shape):
    """An adapter that does something; at first peft's do nothing."""
    plain = tiny.model(**{**SHAPE, **shape})
    torch.manual_seed(seed)
    model = add_adapters(plain, ("role",), AdapterSettings(rank=RANK, alpha=ALPHA))
    for name, weight in model.named_parameters():
        if "lora_B" in name:
            torch.nn.init.normal_(weight, std=0.3)
    model.peft_config["role"].base_model_name_or_path = None if base is None else str(base)
    save_weights(model, folder, "role", dtype)
    return folder


def deltas(folder):
    """What the adapter adds to each weight: alpha / rank * B A, by hand."""
    from safetensors.torch import load_file

    tensors = load_file(folder / "adapter_model.safetensors")
    found = {}
    for name, down in tensors.items():
        if name.endswith("lora_A.weight"):
            up = tensors[name.replace("lora_A", "lora_B")]
            inner = name.removeprefix("base_model.model.").replace("lora_A.weight", "weight")
            found[inner] = ALPHA / RANK * (up.float() @ down.float())
    return found


def weights(model):
    return dict(model.named_parameters())


@pytest.fixture(scope="module")
def place(tmp_path_factory):
    root = tmp_path_factory.mktemp("adapters")
    make_base(root / "base")
    make_base(root / "half", torch.bfloat16)
    make_adapter(root / "warm", root / "base")
    make_adapter(root / "solver", root / "warm", seed=2)
    return root


# ------------------------------------------------------------------------------------------------------------- names


def test_a_folder_with_an_adapter_means_its_base_and_the_adapter(place):
    found = resolve_model(str(place / "warm"))
    assert found == ModelPath(str(place / "warm"), str(place / "base"), (str(place / "warm"),))
    assert found.folders == (str(place / "warm"), str(place / "base"))
    assert found.tokenizer == str(place / "base")


def test_an_adapter_on_an_adapter(place):
    found = resolve_model(str(place / "solver"))
    assert (found.path, found.adapters) == (str(place / "base"), (str(place / "warm"), str(place / "solver")))


def test_a_base_that_has_moved_is_named_by_hand(place, tmp_path):
    adapter = make_adapter(tmp_path / "adapter", "/nowhere/at/all")
    with pytest.raises(
        ModelMissing, match="is an adapter, and its base model /nowhere/at/all cannot be found"
    ) as caught:
        resolve_model(str(adapter))
    assert caught.value.hint.startswith(f"--model {adapter}@BASE")
    found = resolve_model(f"{adapter}@{place / 'half'}")
    assert (found.path, found.adapters) == (str(place / "half"), (str(adapter),))
    chain = resolve_model(f"{adapter}@{place / 'warm'}@{place / 'half'}")
    assert (chain.path, chain.adapters) == (str(place / "half"), (str(place / "warm"), str(adapter)))


@pytest.mark.parametrize(("file", "field"), [("warmup.json", "base_model"), ("quaere.json", "base")])
def test_the_name_a_person_typed_stands_in_for_a_path_of_another_machine(place, tmp_path, file, field):
    adapter = make_adapter(tmp_path / "adapter", "/home/somebody/cache/base")
    (adapter / file).write_text(json.dumps({field: str(place / "base")}))
    assert base_names(adapter) == ["/home/somebody/cache/base", str(place / "base")]
    assert resolve_model(str(adapter)).path == str(place / "base")


def test_what_does_not_name_a_base_is_refused(tmp_path):
    nameless = make_adapter(tmp_path / "nameless", None)
    with pytest.raises(ModelMissing, match="is an adapter, and it does not name its base model"):
        resolve_model(str(nameless))
    first, second = tmp_path / "first", tmp_path / "second"
    make_adapter(first, second)
    make_adapter(second, first)
    with pytest.raises(ModelMissing, match="cannot be found"):
        resolve_model(str(first))
    (first / "adapter_config.json").write_text('{"peft_type": "PROMPT_TUNING"}')
    with pytest.raises(ModelMissing, match="of type PROMPT_TUNING; only type LORA"):
        resolve_model(str(first))
    (first / "adapter_config.json").write_text("[")
    with pytest.raises(ModelMissing, match=r"adapter_config\.json cannot be read"):
        resolve_model(str(first))
    (second / "adapter_model.safetensors").unlink()
    assert not is_adapter(second)
    with pytest.raises(ModelMissing, match=r"has no config\.json"):
        resolve_model(str(second))


def test_only_behind_an_adapter_does_a_sign_name_a_base(place, tmp_path):
    assert split_base("openai:m@http://localhost/v1") == ("openai:m@http://localhost/v1", "")
    assert split_base(f"{place / 'base'}@x") == (f"{place / 'base'}@x", "")
    adapter = make_adapter(tmp_path / "me@work" / "adapter", place / "base")
    assert split_base(str(adapter)) == (str(adapter), "")
    assert split_base(f"{adapter}@acme/x") == (str(adapter), "acme/x")
    assert resolve_model(str(adapter)).path == str(place / "base")


def test_names_that_last(place, monkeypatch):
    monkeypatch.chdir(place)
    monkeypatch.setattr("quaere.policies.catalogue.find_pulled", lambda entry: f"/cache/{entry.name}")
    name = next(entry.name for entry in CATALOGUE.values() if not entry.adapters)
    assert lasting_name("base") == str(place / "base")
    assert lasting_name("warm") == str(place / "warm")  # not its base: the adapter belongs to it
    assert lasting_name(f"warm@{name}") == f"{place / 'warm'}@/cache/{name}"
    assert lasting_name("acme/tiny") == "acme/tiny"
    assert lasting_name(name) == f"/cache/{name}"


# ----------------------------------------------------------------------------------------------------------- weights


def test_the_adapter_is_added_in_float32(place):
    base = weights(load_model(str(place / "base"), "cpu", "float32"))
    found = weights(load_model(resolve_model(str(place / "warm")), "cpu", "float32"))
    added = deltas(place / "warm")
    assert set(found) == set(base) and added
    for name, weight in found.items():
        expected = base[name] + added[name] if name in added else base[name]
        assert torch.allclose(weight, expected, rtol=1e-6, atol=1e-7)
        assert weight.requires_grad and (name not in added or not torch.equal(weight, base[name]))


def test_only_the_sum_is_rounded(place):
    exact = weights(load_model(resolve_model(str(place / "warm")), "cpu", "float32"))
    found = weights(load_model(resolve_model(str(place / "warm")), "cpu", "bfloat16"))
    for name, weight in found.items():
        assert weight.dtype == torch.bfloat16
        # One of the two neighbours, whichever way it was rounded.
        assert ((weight.float() - exact[name]).abs() <= exact[name].abs() * 2**-7 + 1e-30).all()


def test_what_lies_under_an_adapter_has_the_dtype_its_base_is_stored_in(place, tmp_path):
    warm = make_adapter(tmp_path / "warm", place / "half")
    top = make_adapter(tmp_path / "top", warm, seed=2)
    under = load_model(resolve_model(str(warm)), "cpu", "float32", as_base=True)
    rounded = load_model(resolve_model(str(warm)), "cpu", "bfloat16")
    for ours, theirs in zip(under.parameters(), rounded.parameters(), strict=True):
        assert ours.dtype == torch.float32 and torch.equal(ours, theirs.float())
    found, below, added = weights(load_model(resolve_model(str(top)), "cpu", "float32")), weights(under), deltas(top)
    for name, weight in found.items():
        expected = below[name] + added[name] if name in added else below[name]
        assert torch.allclose(weight, expected, rtol=1e-6, atol=1e-7)


def test_rotary_frequencies_are_those_of_a_model_that_was_loaded_in_bfloat16(place):
    found = dict(load_model(resolve_model(str(place / "warm")), "cpu", "bfloat16").named_buffers())
    plain = dict(load_model(str(place / "base"), "cpu", "bfloat16").named_buffers())
    assert found.keys() == plain.keys() and found
    assert all(torch.equal(found[name], plain[name]) and found[name].dtype == plain[name].dtype for name in found)


def test_tensors_in_bfloat16_are_added_as_they_are(place, tmp_path):
    small = make_adapter(tmp_path / "small", place / "base", dtype="bfloat16")
    size, whole = ((one / "adapter_model.safetensors").stat().st_size for one in (small, place / "warm"))
    assert size < 0.6 * whole
    base = weights(load_model(str(place / "base"), "cpu", "float32"))
    found, added = weights(load_model(resolve_model(str(small)), "cpu", "float32")), deltas(small)
    assert all(torch.allclose(found[name], base[name] + added[name], rtol=1e-6, atol=1e-7) for name in added)


@pytest.mark.parametrize(
    ("had", "has"),
    [
        ({"hidden_size": 96}, {}),
        ({"num_hidden_layers": 4}, {}),  # peft would leave out a layer of the adapter without a word,
        ({}, {"num_hidden_layers": 4}),  # or a layer of the model
    ],
)
def test_an_adapter_of_another_model_is_refused(tmp_path, had, has):
    adapter = make_adapter(tmp_path / "adapter", make_base(tmp_path / "base", **has), **had)
    with pytest.raises(BadInput, match=f"the adapter in {adapter} does not fit its base model"):
        load_model(resolve_model(str(adapter)), "cpu", "float32")


def test_a_matrix_that_would_have_to_be_stretched_is_refused(place, tmp_path):
    """One row of B would be added to every row of the weight."""
    from safetensors.torch import load_file, save_file

    adapter = shutil.copytree(place / "warm", tmp_path / "adapter")
    tensors = load_file(adapter / "adapter_model.safetensors")
    short = {name: tensor[:1].contiguous() if "lora_B" in name else tensor for name, tensor in tensors.items()}
    save_file(short, adapter / "adapter_model.safetensors")
    with pytest.raises(BadInput, match="does not fit its base model"):
        load_model(resolve_model(str(adapter)), "cpu", "float32")


@pytest.mark.parametrize("num_layers", [2, 3])  # with two, peft names every module
def test_merging_equals_pefts(tmp_path, monkeypatch, num_layers):
    from peft import PeftModel

    base = make_base(tmp_path / "base", num_hidden_layers=num_layers)
    adapter = make_adapter(tmp_path / "adapter", base, num_hidden_layers=num_layers)
    targets = json.loads((adapter / "adapter_config.json").read_text())["target_modules"]
    assert len(targets) == (14 if num_layers == 2 else 7)
    model = load_model(str(base), "cpu", "float32")
    expected = weights(PeftModel.from_pretrained(model, str(adapter)).merge_and_unload())
    monkeypatch.setattr(weights_module, "_merge_by_peft", None)
    found = weights(load_model(resolve_model(str(adapter)), "cpu", "float32"))
    assert all(torch.equal(found[name], expected[name]) for name in expected)


def test_an_adapter_of_another_form_is_merged_by_peft(place, tmp_path):
    """Here the layers it changes are listed; the others are left as they are."""
    from peft import LoraConfig, get_peft_model

    config = LoraConfig(r=2, target_modules=["q_proj"], layers_to_transform=[1], init_lora_weights=False)
    model = load_model(str(place / "base"), "cpu", "float32", packed=False)
    get_peft_model(model, config).save_pretrained(tmp_path / "some")
    base = weights(load_model(str(place / "base"), "cpu", "float32"))
    found = weights(load_model(resolve_model(f"{tmp_path / 'some'}@{place / 'base'}"), "cpu", "float32"))
    assert [name for name in base if not torch.equal(base[name], found[name])] == [
        "model.layers.1.self_attn.q_proj.weight"
    ]


def test_a_damaged_adapter_is_refused(place, tmp_path):
    adapter = make_adapter(tmp_path / "adapter", place / "base")
    (adapter / "adapter_model.safetensors").write_bytes(b"\x08\0\0\0\0\0\0\0nonsense")
    with pytest.raises(BadInput, match="does not fit"):
        load_model(resolve_model(str(adapter)), "cpu", "float32")


@pytest.mark.parametrize(
    ("fields", "reason"),
    [
        ({"rank_pattern": {".*": 10_000_000}}, "rank 10,000,000"),
        ({"r": 10_000_000}, "rank 10,000,000"),
        ({"layer_replication": [[0, 3]] * 1000}, "repeats 3,000 layers"),
    ],
)
def test_sizes_are_refused_before_peft_allocates_them(place, tmp_path, monkeypatch, fields, reason):
    adapter = shutil.copytree(place / "warm", tmp_path / "adapter")
    config = json.loads((adapter / "adapter_config.json").read_text())
    (adapter / "adapter_config.json").write_text(json.dumps({**config, **fields}))
    monkeypatch.setattr(weights_module, "_merge_by_peft", lambda *_: pytest.fail("peft was called"))
    with pytest.raises(BadInput, match=reason):
        load_model(resolve_model(str(adapter)), "cpu", "float32")


def test_a_product_of_another_shape_is_not_computed(place, tmp_path):
    """A column times a row of a few megabytes would be a matrix of a few terabytes, which is not allocated."""
    from safetensors.torch import load_file, save_file

    adapter = shutil.copytree(place / "warm", tmp_path / "adapter")
    tensors = load_file(adapter / "adapter_model.safetensors")
    first = min(name for name in tensors if "lora_A" in name)
    tensors[first] = torch.zeros(1, 1_000_000)
    tensors[first.replace("lora_A", "lora_B")] = torch.zeros(1_000_000, 1)
    save_file(tensors, adapter / "adapter_model.safetensors")
    with pytest.raises(BadInput, match="does not fit its base model") as caught:
        load_model(resolve_model(str(adapter)), "cpu", "float32")
    assert "has another shape" in str(caught.value.__cause__)


def test_a_hash_of_weights_is_that_of_their_bytes_and_order_alone(tmp_path):
    for name, content in {"one": b"abc", "copy": b"abc", "other": b"abd", "none": None}.items():
        (tmp_path / name).mkdir()
        (tmp_path / name / "config.json").write_text(name)
        if content:
            (tmp_path / name / "model.safetensors").write_bytes(content)
    one, copy, other, none = (tmp_path / name for name in ("one", "copy", "other", "none"))
    assert hash_weights([one]) == hash_weights([copy]) == hash_weights([none, one]) != hash_weights([other])
    assert hash_weights([one, other]) != hash_weights([other, one]) and hash_weights([none]) == ""
