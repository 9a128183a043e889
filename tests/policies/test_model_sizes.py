"""Sizes in a config.json are bounded before a model is built from them."""

import json

import pytest
import transformers
from transformers import GPT2Config

import tiny
from quaere.errors import BadInput, ModelMissing
from quaere.policies import model_folders
from quaere.policies.model_folders import check_config, check_weights
from quaere.policies.native.bridge import load_model
from quaere.training.estimate import _read_config


@pytest.fixture(scope="module")
def sound(tmp_path_factory):
    folder = tmp_path_factory.mktemp("sound")
    tiny.model().save_pretrained(folder)
    return folder


def changed(sound, tmp_path, **fields):
    config = json.loads((sound / "config.json").read_text())
    for file in sound.iterdir():
        (tmp_path / file.name).symlink_to(file)
    (tmp_path / "config.json").unlink()
    (tmp_path / "config.json").write_text(json.dumps({**config, **fields}))
    return tmp_path


@pytest.mark.parametrize(
    ("fields", "reason"),
    [
        ({"num_hidden_layers": 10_000_000}, "num_hidden_layers: 10,000,000, which is not between 1 and 1,000"),
        ({"num_hidden_layers": -1}, "num_hidden_layers: -1,"),
        ({"num_hidden_layers": 0}, "num_hidden_layers: 0,"),
        ({"n_layer": 1001}, "n_layer: 1,001"),
        ({"hidden_size": 1 << 25}, "hidden_size"),
        ({"vocab_size": 10**300}, "vocab_size: a number of 997 bits"),
        ({"num_key_value_heads": -3}, "num_key_value_heads: -3"),
        ({"num_experts": 10**6}, "num_experts"),
        ({"text_config": {"num_hidden_layers": 10_000_000}}, "num_hidden_layers"),
    ],
)
def test_a_number_out_of_bounds_is_refused_before_transformers_reads_the_config(
    fields, reason, sound, tmp_path, monkeypatch
):
    folder = changed(sound, tmp_path, **fields)
    monkeypatch.setattr(transformers.AutoConfig, "from_pretrained", lambda *_, **__: pytest.fail("the config was read"))
    for read in (lambda: load_model(str(folder), "cpu", "float32"), lambda: _read_config(folder)):
        with pytest.raises(BadInput, match=reason) as caught:
            read()
        assert "\n" not in str(caught.value)


def test_a_model_larger_than_its_files_is_not_allocated(sound, tmp_path, monkeypatch):
    folder = changed(sound, tmp_path, intermediate_size=8_000_000)
    monkeypatch.setattr(
        transformers.AutoModelForCausalLM, "from_pretrained", lambda *_, **__: pytest.fail("it was loaded")
    )
    with pytest.raises(BadInput, match=r"a model of [\d,]+ parameters, and its weights have [\d,]+ bytes"):
        load_model(str(folder), "cpu", "float32")


def test_layers_are_counted_under_the_name_of_the_family(tmp_path):
    with pytest.raises(BadInput, match="no number of layers between 1 and 1,000"):
        check_weights(GPT2Config(n_layer=1001), tmp_path)


def test_a_sound_folder_passes_and_its_size_is_compared_with_the_files(sound, monkeypatch):
    check_config(sound)
    config = _read_config(sound)
    check_weights(config, sound)
    monkeypatch.setattr(model_folders, "SPARE_NUMBERS", 0)
    check_weights(config, sound)
    monkeypatch.setattr(model_folders, "PARAMETERS_PER_BYTE", 0.2)  # the weights are stored in float32
    with pytest.raises(BadInput, match="parameters"):
        check_weights(config, sound)


@pytest.mark.parametrize(
    "content", ["[1, 2]", "{", '{"a":' * 100_000, '{"num_hidden_layers": null, "hidden_size": true}']
)
def test_what_is_no_size_is_left_to_transformers(content, tmp_path):
    (tmp_path / "config.json").write_text(content)
    check_config(tmp_path)
    with pytest.raises(ModelMissing):
        load_model(str(tmp_path), "cpu", "float32")
