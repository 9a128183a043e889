"""GGUF files of models with state spaces and linear attention, written as llama.cpp's converter does."""

import numpy
import pytest
import torch
from gguf import MODEL_ARCH, MODEL_ARCH_NAMES, GGUFReader, GGUFWriter, TokenType, get_tensor_name_map
from tokenizers.pre_tokenizers import ByteLevel
from transformers import AutoModelForCausalLM

import tiny
from quaere.errors import ModelMissing
from quaere.policies.gguf import convert_gguf, read_tokenizer

BYTES = sorted(ByteLevel.alphabet())
MIXED = {"attention.head_count": 6, "attention.head_count_kv": [0, 2]}
HEADS = {"attention.head_count": 6, "attention.head_count_kv": 2, "attention.key_length": 8}
STATES = {"ssm.conv_kernel": 4, "ssm.state_size": 8, "ssm.inner_size": 96, "ssm.time_step_rank": 12}
STATES |= {"ssm.group_count": 2}
SCALES = {"attention.scale": 0.25, "embedding_scale": 2.0, "residual_scale": 0.75, "logit_scale": 1.5}
GRANITE = MIXED | STATES | SCALES | {"rope.scaling.finetuned": False, "expert_shared_feed_forward_length": 40}
LINEAR = HEADS | {"ssm.conv_kernel": 4, "ssm.state_size": 8, "ssm.group_count": 2, "ssm.time_step_rank": 6}
LINEAR |= {"ssm.inner_size": 48, "rope.dimension_count": 2, "rope.dimension_sections": [11, 11, 10, 0]}
GROUPS = {"n_groups": 2}
_FEW = {"shared_intermediate_size": 40, "mamba_n_groups": 2, "attention_multiplier": 0.25, "embedding_multiplier": 2.0}
_FEW |= {"residual_multiplier": 0.75, "logits_scaling": 1.5}
LINEAR_LAYERS = {"linear_num_value_heads": 6, "num_hidden_layers": 3}
TWO_AND_ONE = ["linear_attention", "linear_attention", "full_attention"]

# By case: llama.cpp's name of the architecture, the family in `tiny`, changes of its config, and the file's fields.
CASES = {
    "qwen3.5": (
        MODEL_ARCH.QWEN35,
        "qwen3_5",
        LINEAR_LAYERS | {"layer_types": TWO_AND_ONE},
        LINEAR | {"full_attention_interval": 3},
    ),
    "qwen3.5, layers by name": (
        MODEL_ARCH.QWEN35,
        "qwen3_5",
        LINEAR_LAYERS | {"layer_types": TWO_AND_ONE[::-1]},
        LINEAR | {"attention.recurrent_layers": [False, True, True]},
    ),
    "granite": (
        MODEL_ARCH.GRANITE_HYBRID,
        "granite_hybrid",
        _FEW,
        GRANITE | {"expert_count": 4, "expert_used_count": 2},
    ),
    "granite without experts": (MODEL_ARCH.GRANITE_HYBRID, "granite_hybrid", _FEW | {"num_local_experts": 0}, GRANITE),
    "nemotron": (
        MODEL_ARCH.NEMOTRON_H,
        "nemotron_h",
        GROUPS,
        STATES | HEADS | {"attention.head_count_kv": [0, 2, 0], "feed_forward_length": [0, 0, 96]},
    ),
    "falcon": (
        MODEL_ARCH.FALCON_H1,
        "falcon_h1",
        {"mamba_n_groups": 2, "mamba_rms_norm": True, "mamba_norm_before_gate": False},
        STATES | HEADS,
    ),
    "falcon without norm": (MODEL_ARCH.FALCON_H1, "falcon_h1", {"mamba_n_groups": 2}, STATES | HEADS),
    "mamba 2": (
        MODEL_ARCH.MAMBA2,
        "mamba2",
        GROUPS,
        STATES | {"attention.head_count": 0, "feed_forward_length": 0},
    ),
}


def make_model(case):
    _, family, changes, _ = CASES[case]
    model = tiny.model(family, **changes)
    for number, parameter in enumerate(model.parameters()):
        if parameter.dim() == 1:  # norms and decays that are all alike would hide a mistake
            torch.manual_seed(number)
            parameter.data += torch.randn_like(parameter).div_(8)
        parameter.data = parameter.data.to(torch.bfloat16).float()
    return model


def write_model(path, case, model, has_head=True, **fields):
    architecture, _, _, own = CASES[case]
    names = get_tensor_name_map(architecture, model.config.num_hidden_layers)
    writer = GGUFWriter(path, arch=MODEL_ARCH_NAMES[architecture])
    sizes = {"context_length": 4096, "embedding_length": 48, "block_count": model.config.num_hidden_layers}
    sizes |= {"feed_forward_length": 96, "attention.layer_norm_rms_epsilon": epsilon_of(model)}
    for name, value in {**sizes, **own, **fields}.items():
        write_field(writer, f"{MODEL_ARCH_NAMES[architecture]}.{name}", value)
    num_extra = model.config.vocab_size - len(BYTES) - 1
    tokens = [*BYTES, *(f"<extra {number}>" for number in range(num_extra)), "!!"]
    writer.add_tokenizer_model("gpt2")
    writer.add_tokenizer_pre("qwen35")
    writer.add_token_list(tokens)
    writer.add_token_types([TokenType.CONTROL if token.startswith("<extra") else TokenType.NORMAL for token in tokens])
    writer.add_token_merges(["! !"])
    writer.add_eos_token_id(len(BYTES))
    for ours, tensor in model.state_dict().items():
        if ours != "lm_head.weight" or (case == "nemotron" and has_head):  # the others' is the embedding
            for theirs, array in stored(case, ours, tensor.numpy(), names):
                writer.add_tensor(theirs, numpy.ascontiguousarray(array))
    if fields.get("nextn_predict_layers"):
        writer.add_tensor(f"blk.{fields['block_count'] - 1}.nextn.eh_proj.weight", numpy.ones((2, 2), numpy.float32))
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return path


def epsilon_of(model):
    return getattr(model.config, "rms_norm_eps", None) or model.config.layer_norm_epsilon


def write_field(writer, name, value):
    if isinstance(value, list):
        writer.add_array(name, value)
    else:
        {bool: writer.add_bool, int: writer.add_uint32, float: writer.add_float32}[type(value)](name, value)


def stored(case, ours, array, names):
    """llama.cpp's names and arrays of a tensor, by the library's own table of names."""
    known = ours.replace("dt_bias", "dt_proj.bias").replace("router.weight", "router.layer.weight")
    if case == "nemotron":
        known = known.replace("model.layers.", "backbone.layers.")
    layer = f"blk.{ours.partition('layers.')[2].partition('.')[0]}"
    if "gate_up_proj" in ours or "input_linear" in ours:
        halves = numpy.split(array, 2, axis=-2)
        end = "_exps" if "gate_up_proj" in ours else "_shexp" if case == "granite" else ""
        return [(f"{layer}.ffn_{kind}{end}.weight", half) for kind, half in zip(("gate", "up"), halves, strict=True)]
    if "experts.down_proj" in ours:
        return [(f"{layer}.ffn_down_exps.weight", array)]
    if "output_linear" in ours and case != "granite":
        return [(f"{layer}.ffn_down.weight", array)]
    theirs = names.get_name(known, (".weight", ".bias"))
    if "A_log" in ours:
        array = -numpy.exp(array)
    if case.startswith("qwen"):
        if ours.endswith("norm.weight") and "linear_attn" not in ours:
            array = array + 1
        return [(theirs, tile(ours, array.squeeze()))]
    if ours.endswith(("A_log", ".D")):
        array = array[:, None]
    if theirs.endswith("ssm_norm.weight"):
        array = array.reshape(2, -1)
    if not case.startswith("falcon") and ours.endswith(("q_proj.weight", "k_proj.weight")):
        array = tiny.interleave_halves(array, 6 if "q_proj" in ours else 2)
    return [(theirs, array.squeeze(1) if "conv1d.weight" in ours else array)]


def tile(ours, array):
    """Value heads in llama.cpp's order: the first of each of the two key heads, then the second, then the third."""
    order = [0, 3, 1, 4, 2, 5]
    if "linear_attn" not in ours or "linear_attn.norm" in ours:
        return array
    if "out_proj" in ours:
        return tile("linear_attn.in_proj_z", array.T).T
    start = 32 if "in_proj_qkv" in ours or "conv1d" in ours else 0  # two key heads of eight queries and keys
    heads = array[start:].reshape(6, -1, *array.shape[1:])[order]
    return numpy.concatenate([array[:start], heads.reshape(-1, *array.shape[1:])])


@pytest.mark.parametrize("case", CASES)
def test_a_converted_model_has_the_weights_of_the_one_that_was_written(case, tmp_path):
    model = make_model(case)
    convert_gguf(write_model(tmp_path / "tiny.gguf", case, model), tmp_path / "out")
    converted = AutoModelForCausalLM.from_pretrained(tmp_path / "out", dtype=torch.float32).eval()
    assert type(converted) is type(model)
    ours, theirs = converted.state_dict(), model.state_dict()
    assert ours.keys() == theirs.keys()
    for name, weight in theirs.items():
        torch.testing.assert_close(ours[name], weight, rtol=0, atol=0, msg=name)
    ids = torch.tensor([[3, 70, 80, 90, 100, 110, 5, 9, 44, 12, 61, 7]])
    with torch.no_grad():
        torch.testing.assert_close(converted(ids).logits, model.eval()(ids).logits, rtol=1e-5, atol=1e-5)


def test_layers_that_predict_several_tokens_are_left_out(tmp_path):
    model = make_model("qwen3.5")
    write_model(tmp_path / "tiny.gguf", "qwen3.5", model, block_count=4, nextn_predict_layers=1)
    convert_gguf(tmp_path / "tiny.gguf", tmp_path / "out")
    assert AutoModelForCausalLM.from_pretrained(tmp_path / "out").config.num_hidden_layers == 3


@pytest.mark.parametrize(
    ("case", "fields", "said"),
    [
        ("mamba 2", {"ssm.time_step_rank": 0}, r"has 0 as mamba2\.ssm\.time_step_rank"),
        ("mamba 2", {"embedding_length": [48]}, r"a list as mamba2\.embedding_length, not one number"),
        ("mamba 2", {"ssm.group_count": 3}, r"do not fit its own architecture: .*conv1d\.bias"),
        ("granite", {"attention.head_count_kv": [0, 0]}, "numbers of key and value heads do not fit granitehybrid"),
        ("nemotron", {"feed_forward_length": 96}, r"one number per layer as nemotron_h\.feed_forward_length"),
        ("qwen3.5", {"full_attention_interval": 0}, r"has 0 as qwen35\.full_attention_interval"),
        ("qwen3.5", {"ssm.group_count": 4}, r"tensor blk\.0\.ssm_dt\.bias does not fit its own architecture"),
        ("nemotron", {"has_head": False}, r"do not fit its own architecture: lm_head\.weight"),
    ],
)
def test_fields_that_do_not_fit_are_refused(case, fields, said, tmp_path):
    file = write_model(tmp_path / "tiny.gguf", case, make_model(case), **fields)
    with pytest.raises(ModelMissing, match=said):
        convert_gguf(file, tmp_path / "out")


def test_combining_marks_belong_to_words_in_qwen_3_5(tmp_path):
    from transformers.models.qwen3_5.tokenization_qwen3_5 import Qwen3_5Tokenizer

    merges = ["Ġ a", "à ¤", "à¤ ¨", "à ¥", "à¥ į", "à¤¨ à¥į", "1 2"]
    tokens = [*BYTES, *(merge.replace(" ", "") for merge in merges)]
    writer = GGUFWriter(tmp_path / "t.gguf", arch="qwen35")
    writer.add_tokenizer_model("gpt2")
    writer.add_tokenizer_pre("qwen35")
    writer.add_token_list(tokens)
    writer.add_token_types([TokenType.NORMAL] * len(tokens))
    writer.add_token_merges(merges)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.close()
    made = read_tokenizer(GGUFReader(tmp_path / "t.gguf"), max_length=64)
    pairs = [tuple(merge.split()) for merge in merges]
    own = Qwen3_5Tokenizer(vocab={token: number for number, token in enumerate(tokens)}, merges=pairs)
    for text in ("न् a", "e\u0301 12", " न्!", "I'LL  a\n\nन्"):
        assert made.convert_ids_to_tokens(made.encode(text)) == own.convert_ids_to_tokens(own.encode(text)), text
    assert "à¤¨à¥į" in made.convert_ids_to_tokens(made.encode("न्"))
