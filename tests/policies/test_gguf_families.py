"""GGUF files of other families than SmolLM2's, written by the tests: the same logits, the same ids."""

import itertools
import math
from types import SimpleNamespace

import numpy
import pytest
import torch
from gguf import GGUFReader, GGUFWriter, TokenType
from tokenizers.pre_tokenizers import ByteLevel
from transformers import AutoModelForCausalLM

import tiny
from quaere.errors import ModelMissing
from quaere.policies.catalogue import lasting_name, resolve_model
from quaere.policies.gguf import convert_gguf, find_merges, read_tokenizer
from quaere.policies.gguf_families import FAMILIES as STORED
from quaere.policies.gguf_file import Fields
from quaere.policies.gguf_settings import read_gemma

BYTES = sorted(ByteLevel.alphabet())
LLAMA3 = {
    "rope_type": "llama3",
    "rope_theta": 500000.0,
    "factor": 8.0,
    "low_freq_factor": 1.0,
    "high_freq_factor": 4.0,
    "original_max_position_embeddings": 8192,
}
FAMILIES = {
    "llama": ("llama", {"rope_parameters": {"rope_type": "default", "rope_theta": 5000.0}}),
    "llama 3.1": ("llama", {"rope_parameters": LLAMA3, "head_dim": 16}),
    "qwen2": ("qwen2", {"rope_parameters": {"rope_type": "default", "rope_theta": 1e6}}),
    "qwen3": ("qwen3", {"head_dim": 16, "rope_parameters": {"rope_type": "default", "rope_theta": 1e6}}),
    "gemma3": (
        "gemma3",
        {
            "num_hidden_layers": 7,
            "head_dim": 16,
            "query_pre_attn_scalar": 16,
            "sliding_window": 4,
            "rope_parameters": {
                "full_attention": {"rope_type": "linear", "rope_theta": 1e6, "factor": 8.0},
                "sliding_attention": {"rope_type": "default", "rope_theta": 10_000.0},
            },
        },
    ),
    "lfm2": ("lfm2", {"num_hidden_layers": 3, "layer_types": ["conv", "full_attention", "conv"], "conv_L_cache": 4}),
}


def make_model(name):
    family, changes = FAMILIES[name]
    model = tiny.model(family, **changes)
    for parameter in model.parameters():
        parameter.data = parameter.data.to(torch.bfloat16).float()
        if parameter.dim() == 1:  # norms and biases that are all alike would hide a mistake
            parameter.data += torch.randn_like(parameter).mul_(8).round_().div_(64)
    return model


def write_settings(writer, model, architecture, heads=None):
    config = model.config
    writer.add_context_length(config.max_position_embeddings)
    writer.add_embedding_length(config.hidden_size)
    writer.add_block_count(config.num_hidden_layers)
    writer.add_head_count(config.num_attention_heads)
    if architecture == "lfm2":
        writer.add_feed_forward_length(model.model.layers[0].feed_forward.w1.out_features)
        own = [config.num_key_value_heads if kind == "full_attention" else 0 for kind in config.layer_types]
        writer.add_head_count_kv(own if heads is None else heads)
        writer.add_layer_norm_rms_eps(config.norm_eps)
        writer.add_shortconv_l_cache(config.conv_L_cache)
    else:
        writer.add_feed_forward_length(config.intermediate_size)
        writer.add_head_count_kv(config.num_key_value_heads)
        writer.add_layer_norm_rms_eps(config.rms_norm_eps)
    if architecture not in ("qwen2", "lfm2"):
        writer.add_key_length(config.head_dim)
        writer.add_value_length(config.head_dim)
    rope = config.rope_parameters
    if architecture == "gemma3":
        writer.add_sliding_window(config.sliding_window)
        rope = rope["full_attention"]
        writer.add_string("gemma3.rope.scaling.type", "linear")
        writer.add_float32("gemma3.rope.scaling.factor", rope["factor"])
    writer.add_rope_freq_base(rope["rope_theta"])


def write_model(path, name, model=None, **changes):
    """Write a model of this family as llama.cpp's converter does."""
    architecture, model = FAMILIES[name][0], model or make_model(name)
    config = model.config
    writer = GGUFWriter(path, arch=architecture)
    write_settings(writer, model, architecture, changes.get("heads"))
    num_extra = config.vocab_size - len(BYTES) - 1
    tokens = [*BYTES, *(f"<extra {number}>" for number in range(num_extra)), "!!"]
    writer.add_tokenizer_model("gpt2")
    writer.add_tokenizer_pre(changes.get("pre", "qwen2"))
    writer.add_token_list(tokens)
    writer.add_token_types([TokenType.CONTROL if token.startswith("<extra") else TokenType.NORMAL for token in tokens])
    writer.add_token_merges(["! !"])
    writer.add_eos_token_id(len(BYTES))
    names = {
        STORED[architecture].rename(theirs): theirs for theirs in their_names(architecture, config.num_hidden_layers)
    }
    for ours, tensor in model.state_dict().items():
        if ours == "lm_head.weight":
            continue  # tied
        array, theirs = tensor.numpy(), names[ours]
        if architecture == "llama" and ("attn_q." in theirs or "attn_k." in theirs):
            heads = config.num_attention_heads if "attn_q." in theirs else config.num_key_value_heads
            array = tiny.interleave_halves(array, heads)
        if architecture == "gemma3" and theirs.endswith("norm.weight"):
            array = array + 1
        if theirs.endswith("shortconv.conv.weight"):
            array = array.squeeze(1)
        writer.add_tensor(theirs, array)
    if name == "llama 3.1":
        writer.add_tensor("rope_freqs.weight", changes.get("factors", llama3_factors(config.head_dim)))
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return path


def their_names(architecture, num_layers):
    if architecture == "lfm2":
        parts = ["attn_norm", "attn_q", "attn_k", "attn_v", "attn_output", "attn_q_norm", "attn_k_norm"]
        parts += ["ffn_norm", "ffn_gate", "ffn_up", "ffn_down"]
        parts += [f"shortconv.{part}" for part in ("conv", "in_proj", "out_proj")]
        layers = [f"blk.{layer}.{part}.weight" for layer in range(num_layers) for part in parts]
        return ["token_embd.weight", "token_embd_norm.weight", *layers]
    parts = ["attn_norm", "attn_q", "attn_k", "attn_v", "attn_output", "ffn_norm", "ffn_gate", "ffn_up", "ffn_down"]
    parts += ["attn_q_norm", "attn_k_norm"] if architecture in ("qwen3", "gemma3") else []
    parts += ["post_attention_norm", "post_ffw_norm"] if architecture == "gemma3" else []
    names = ["token_embd.weight", "output_norm.weight"]
    names += [f"blk.{layer}.{part}.weight" for layer in range(num_layers) for part in parts]
    if architecture == "qwen2":
        names += [f"blk.{layer}.attn_{part}.bias" for layer in range(num_layers) for part in "qkv"]
    return names


def llama3_factors(head_dim):
    """How much slower each pair of a head turns, as Llama 3.1's converter writes it."""
    factors = []
    for number in range(head_dim // 2):
        wave = 2 * math.pi * LLAMA3["rope_theta"] ** (2 * number / head_dim)
        smooth = min(1.0, max(0.0, (8192 / wave - 1) / 3))
        factors.append(1 / ((1 - smooth) / 8 + smooth))
    return numpy.array(factors, dtype=numpy.float32)


@pytest.mark.parametrize("name", FAMILIES)
def test_a_converted_model_has_the_logits_of_the_one_that_was_written(name, tmp_path):
    model = make_model(name)
    convert_gguf(write_model(tmp_path / "tiny.gguf", name, model), tmp_path / "out")
    converted = AutoModelForCausalLM.from_pretrained(tmp_path / "out", dtype=torch.float32).eval()
    assert type(converted) is type(model)
    ids = torch.tensor([[3, 70, 80, 90, 100, 110, 5, 9, 44, 12, 61, 7]])
    with torch.no_grad():
        torch.testing.assert_close(converted(ids).logits, model(ids).logits, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("heads", [2, [2], [0, 2, 0, 2]])
def test_heads_that_do_not_say_which_layers_are_convolutions_are_refused(heads, tmp_path):
    with pytest.raises(ModelMissing, match=r"not have one number per layer as lfm2\.attention\.head_count_kv"):
        convert_gguf(write_model(tmp_path / "tiny.gguf", "lfm2", heads=heads), tmp_path / "out")


def test_the_scaling_of_llama_3_is_found_by_its_factors(tmp_path):
    convert_gguf(write_model(tmp_path / "tiny.gguf", "llama 3.1"), tmp_path / "out")
    config = AutoModelForCausalLM.from_pretrained(tmp_path / "out").config
    assert {key: config.rope_parameters[key] for key in LLAMA3} == LLAMA3
    other = numpy.linspace(1, 8, 8, dtype=numpy.float32)
    with pytest.raises(ModelMissing, match="scales its rotary embedding in a way that is not Llama 3's"):
        convert_gguf(write_model(tmp_path / "other.gguf", "llama 3.1", factors=other), tmp_path / "out2")


@pytest.mark.parametrize(
    ("num_layers", "hidden_size", "num_heads", "head_dim", "scalar"),
    [(48, 3840, 16, 256, 256), (62, 5376, 32, 128, 168)],  # as published: Gemma 3 of 12 B and of 27 B parameters
)
def test_only_the_largest_gemma_scales_scores_by_another_size_than_the_heads(
    num_layers, hidden_size, num_heads, head_dim, scalar
):
    said = {"block_count": num_layers, "embedding_length": hidden_size, "attention.head_count": num_heads}
    said |= {"attention.key_length": head_dim, "feed_forward_length": 1, "attention.layer_norm_rms_epsilon": 1e-6}
    kept = {f"gemma3.{name}": SimpleNamespace(contents=lambda value=value: value) for name, value in said.items()}
    assert read_gemma(Fields(SimpleNamespace(fields=kept, tensors=[]), "gemma3"))["query_pre_attn_scalar"] == scalar


def test_a_tensor_of_another_family_is_named():
    with pytest.raises(ModelMissing, match=r"not part of a Qwen3 model: blk\.0\.attn_q\.bias"):
        STORED["qwen3"].rename("blk.0.attn_q.bias")
    assert STORED["gemma3"].rename("blk.1.ffn_norm.weight") == "model.layers.1.pre_feedforward_layernorm.weight"


# -------------------------------------------------------------------------------------------------- as a model


def test_a_gguf_file_is_a_model_that_is_converted_once(tmp_path, monkeypatch):
    monkeypatch.setenv("QUAERE_CACHE", str(tmp_path / "cache"))
    file = write_model(tmp_path / "tiny.Q8.gguf", "qwen3")
    said = []
    found = resolve_model(str(file), report=said.append)
    assert [line.split()[0] for line in said] == ["converting", "tiny.Q8.gguf"]
    assert found.path.startswith(str(tmp_path / "cache" / "models" / "tiny.Q8-"))
    assert resolve_model(str(file), report=said.append) == found and len(said) == 2
    monkeypatch.chdir(tmp_path)
    assert resolve_model("tiny.Q8.gguf").path == found.path
    assert lasting_name("tiny.Q8.gguf") == str(file)
    assert AutoModelForCausalLM.from_pretrained(found.path).config.model_type == "qwen3"
    # Another file of the same name is another model.
    write_model(file, "qwen2")
    assert resolve_model(str(file)).path != found.path


def test_a_gguf_file_that_cannot_be_converted_leaves_nothing_behind(tmp_path, monkeypatch):
    monkeypatch.setenv("QUAERE_CACHE", str(tmp_path / "cache"))
    (tmp_path / "bad.gguf").write_bytes(b"GGUF" + bytes(100))
    with pytest.raises(ModelMissing, match=r"bad\.gguf is not a readable GGUF file"):
        resolve_model(str(tmp_path / "bad.gguf"))
    with pytest.raises(ModelMissing, match=r"cannot read the GGUF file .*nowhere\.gguf: No such file"):
        resolve_model(str(tmp_path / "nowhere.gguf"))
    assert [path.name for path in (tmp_path / "cache" / "models").iterdir() if path.is_dir()] == []


# ----------------------------------------------------------------------------------------------------- tokenizers


def write_tokenizer(path, kind, tokens, types, *, rule=None, merges=None, scores=None, **named):
    writer = GGUFWriter(path, arch="llama")
    writer.add_tokenizer_model(kind)
    if rule:
        writer.add_tokenizer_pre(rule)
    writer.add_token_list(tokens)
    writer.add_token_types(types)
    if merges is not None:
        writer.add_token_merges(merges)
    if scores is not None:
        writer.add_token_scores(scores)
    for name, value in named.items():
        getattr(writer, f"add_{name}")(value)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.close()
    return GGUFReader(path)


TEXTS = ["the heron's 12345 Bridge!", " a  b\n\n c", "wörld 日本 \U0001f600", "", "e\u0301 I'LL"]


@pytest.mark.parametrize(
    ("rule", "numbers", "word"),
    [
        ("llama-bpe", ["123", "45"], ["zoo"]),
        ("lfm2", ["123", "45"], ["zoo"]),
        ("falcon-h1", ["123", "45"], ["zoo"]),
        ("pixtral", ["123", "45"], ["zoo"]),
        ("dbrx", ["123", "45"], ["z", "o", "o"]),
        ("qwen2", ["1", "2", "3", "4", "5"], ["z", "o", "o"]),
        ("qwen35", ["1", "2", "3", "4", "5"], ["z", "o", "o"]),
    ],
)
def test_numbers_are_cut_as_the_rule_says_and_text_survives(rule, numbers, word, tmp_path):
    merges = [("1", "2"), ("12", "3"), ("4", "5"), ("h", "e"), ("t", "he"), ("Ġ", "a")]
    tokens = [*BYTES, *("".join(pair) for pair in merges), "zoo", "<|end|>", "<tool_call>"]
    types = [TokenType.NORMAL] * (len(tokens) - 2) + [TokenType.CONTROL, TokenType.USER_DEFINED]
    reader = write_tokenizer(
        tmp_path / "t.gguf", "gpt2", tokens, types, rule=rule, merges=[" ".join(pair) for pair in merges]
    )
    made = read_tokenizer(reader, max_length=128)
    assert made.convert_ids_to_tokens(made.encode("12345")) == numbers
    assert made.convert_ids_to_tokens(made.encode("zoo")) == word  # no merges lead to it; only Llama 3 takes it whole
    assert made.convert_ids_to_tokens(made.encode("the a")) == ["the", "Ġa"]
    for text in TEXTS[:4]:
        assert made.decode(made.encode(text)) == text
    assert made.decode(made.encode(TEXTS[4])) == ("é I'LL" if rule.startswith("qwen") else TEXTS[4])
    assert made.convert_ids_to_tokens(made.encode("a<tool_call><|end|>")) == ["a", "<tool_call>", "<|end|>"]
    assert made.all_special_tokens == [] and "<|end|>" in made.get_added_vocab()


def test_a_text_begins_with_the_token_that_the_file_says(tmp_path):
    tokens = [*BYTES, "<|begin|>", "!!"]
    types = [TokenType.NORMAL] * len(BYTES) + [TokenType.CONTROL, TokenType.NORMAL]
    for begins in (True, False):
        reader = write_tokenizer(
            tmp_path / f"{begins}.gguf",
            "gpt2",
            tokens,
            types,
            rule="llama-bpe",
            merges=["! !"],
            bos_token_id=len(BYTES),
            add_bos_token=begins,
        )
        made = read_tokenizer(reader, max_length=128)
        assert made.encode("a") == [*([len(BYTES)] if begins else []), tokens.index("a")]
        assert made.encode("a", add_special_tokens=False) == [tokens.index("a")]


PIECES = ["▁", *"abcdehilnorstuw.", "he", "▁t", "▁the", "er", "▁b", "ri", "dge", "ge", "▁bri", "▁bridge", "in", "▁▁"]
SCORES = {piece: -float(rank) for rank, piece in enumerate([*PIECES[17:], *PIECES[:17], "d", "g"])}


def merge_by_score(text):
    """SentencePiece's rule: of all neighbours, those that make the best piece are merged, the leftmost first."""
    parts = list(text.replace(" ", "▁"))
    while True:
        pairs = [
            (-SCORES[left + right], place)
            for place, (left, right) in enumerate(itertools.pairwise(parts))
            if left + right in SCORES
        ]
        if not pairs:
            return parts
        place = min(pairs)[1]
        parts[place : place + 2] = [parts[place] + parts[place + 1]]


@pytest.mark.parametrize("prefix", [True, False])
def test_sentence_pieces_are_merged_by_their_scores(prefix, tmp_path):
    byte_pieces = [f"<0x{byte:02X}>" for byte in range(256)]
    tokens = ["<unk>", "<s>", "</s>", *byte_pieces, *SCORES]
    types = [TokenType.UNKNOWN, TokenType.CONTROL, TokenType.CONTROL]
    types += [TokenType.BYTE] * 256 + [TokenType.NORMAL] * len(SCORES)
    reader = write_tokenizer(
        tmp_path / "t.gguf",
        "llama",
        tokens,
        types,
        scores=[0.0] * 259 + list(SCORES.values()),
        add_space_prefix=prefix,
        bos_token_id=1,
        eos_token_id=2,
        unk_token_id=0,
    )
    made = read_tokenizer(reader, max_length=128)
    for text in ["the bridge", "there  in the bin.", "  the heron", "bridges.. the thethe"]:
        wanted = merge_by_score(" " + text if prefix else text)
        assert made.convert_ids_to_tokens(made.encode(text, add_special_tokens=False)) == wanted, text
    for text in ["the 日本 \U0001f600", "x\ny", "  the"]:
        assert made.decode(made.encode(text, add_special_tokens=False)) == text
    assert made.convert_ids_to_tokens(made.encode("é", add_special_tokens=False))[-2:] == ["<0xC3>", "<0xA9>"]
    assert made.encode("a")[0] == 1  # such files begin a text with <s> unless they say otherwise


def test_merges_come_from_scores():
    assert find_merges({"a": -3.0, "b": -4.0, "ab": -1.0, "aab": -2.0}) == [("a", "b"), ("a", "ab")]
    # Of two ways to make a piece, that of the better parts: -4 - 1 against -2 - 4.
    scores = {"a": -4.0, "b": -5.0, "ab": -2.0, "ba": -1.0, "aba": 0.0}
    assert find_merges(scores)[:2] == [("a", "ba"), ("ab", "a")]
