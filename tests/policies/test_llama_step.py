"""The quick forward pass of Llama-shaped models: the same logits as the models' own code, and when it is used."""

import pytest
import torch
from engines import finish, play, prompt

import tiny
from quaere.policies.catalogue import resolve_model
from quaere.policies.native.bridge import load_model, read_llama, use_packed_attention
from quaere.policies.native.cpu_matmul import use_int8
from quaere.policies.native.engine import Engine, Request
from quaere.policies.sampler import SamplingParams

TOKENIZER = tiny.tokenizer()

MODELS = {
    "llama": ("llama", {}),
    "llama with biases": ("llama", {"attention_bias": True, "mlp_bias": True}),
    "llama without sharing": ("llama", {"num_key_value_heads": 6, "tie_word_embeddings": False}),
    "llama 3's angles": (
        "llama",
        {
            "rope_parameters": {
                "rope_type": "llama3",
                "rope_theta": 10000.0,
                "factor": 8.0,
                "low_freq_factor": 1.0,
                "high_freq_factor": 4.0,
                "original_max_position_embeddings": 16,
            }
        },
    ),
    "yarn": ("qwen2", {"rope_parameters": {"rope_type": "yarn", "rope_theta": 10000.0, "factor": 4.0}}),
    "dynamic": (
        "llama",
        {
            "max_position_embeddings": 32,
            "rope_parameters": {"rope_type": "dynamic", "rope_theta": 10000.0, "factor": 2.0},
        },
    ),
    "qwen2": ("qwen2", {}),
    "qwen2 with windows": (
        "qwen2",
        {"use_sliding_window": True, "sliding_window": 8, "max_window_layers": 1},
    ),
    "qwen3": ("qwen3", {}),
    "mistral with a window": ("mistral", {"sliding_window": 8}),
}


def make(name, seed=0, scale=4.0):
    family, changes = MODELS[name]
    made = tiny.model(family, seed=seed, scale=scale, **changes)
    with torch.no_grad():  # norms of ones and biases of zeros would hide a mistake
        for weight in made.parameters():
            if weight.dim() == 1:
                weight.add_(0.3 * torch.rand(weight.shape, generator=torch.Generator().manual_seed(seed)))
    return use_packed_attention(made)


def request(key, length, new, seed=None):
    return Request(key, prompt(length, length), SamplingParams(max_tokens=new, seed=seed or 0, temperature=1.0))


def sample(engine, lengths, new=12):
    requests = [request(str(length), length, new, seed=length) for length in lengths]
    for each in requests:
        engine.add(each)
    finish(engine)
    return requests


@pytest.mark.parametrize("lengths", [[20], [20, 33, 7]], ids=["one row", "three rows"])
@pytest.mark.parametrize("name", list(MODELS))
def test_tokens_and_log_probs_are_those_of_the_models_own_code(name, lengths):
    quick = Engine(make(name), TOKENIZER.decode, max_rows=4, max_step_tokens=16, quick=True)
    plain = Engine(make(name), TOKENIZER.decode, max_rows=4, max_step_tokens=16)
    assert read_llama(quick.model) is not None
    for ours, theirs in zip(sample(quick, lengths), sample(plain, lengths), strict=True):
        assert ours.tokens == theirs.tokens
        assert ours.logprobs == pytest.approx(theirs.logprobs, abs=1e-4)


def test_sessions_go_on_where_they_were():
    sessions = {"a": prompt(1), "b": prompt(2), "c": prompt(1)}
    quick = Engine(make("llama"), TOKENIZER.decode, max_rows=2, quick=True)
    assert play(quick, sessions) == play(Engine(make("llama"), TOKENIZER.decode, max_rows=2), sessions)
    assert quick.counts.kept > 0


@pytest.mark.parametrize("in_int8", [False, True])
def test_new_weights_are_used(in_int8):
    def engine(seed):
        model = make("qwen3", seed)
        return Engine(use_int8(model) if in_int8 else model, TOKENIZER.decode, max_rows=2, quick=True)

    changed, fresh = engine(1), engine(2)
    sample(changed, [20])
    with torch.no_grad():
        for old, new in zip(changed.model.parameters(), fresh.model.parameters(), strict=True):
            old.copy_(new)
    changed.forget()
    (ours,), (theirs,) = sample(changed, [20]), sample(fresh, [20])
    assert ours.sampled() == theirs.sampled()


@pytest.mark.parametrize("sizes", [{}, {"hidden_size": 96, "head_dim": 16}], ids=["bytes and halves", "halves"])
@pytest.mark.parametrize("lengths", [[20], [20, 33]], ids=["one row", "two rows"])
@pytest.mark.parametrize("name", ["llama", "qwen2", "qwen3"])
def test_log_probs_in_int8_are_close(name, lengths, sizes):
    family, changes = MODELS[name]
    models = [use_packed_attention(tiny.model(family, **sizes, **changes)) for _ in range(2)]
    quick = Engine(use_int8(models[0]), TOKENIZER.decode, max_rows=2, quick=True)
    for row in sample(quick, lengths):
        whole = Engine(models[1], TOKENIZER.decode).score(row.tokens)[row.num_prompt :]
        gaps = [abs(ours - theirs) for ours, theirs in zip(row.logprobs, whole, strict=True)]
        assert 0 < max(gaps) < 0.2


@pytest.mark.parametrize("family", ["gemma2", "gemma3", "gpt2"])
def test_other_families_run_their_own_code(family):
    model = use_packed_attention(tiny.model(family))
    assert read_llama(model) is None
    (ours,) = sample(Engine(model, TOKENIZER.decode, quick=True), [20])
    (theirs,) = sample(Engine(use_packed_attention(tiny.model(family)), TOKENIZER.decode), [20])
    assert ours.sampled() == theirs.sampled()


def test_what_it_cannot_compute_is_left_to_the_model():
    assert read_llama(tiny.model("llama", hidden_act="gelu")) is None
    assert read_llama(tiny.model("llama").bfloat16()) is None


@pytest.mark.model
def test_the_real_model_writes_the_same_text():
    path = resolve_model("smollm2-135m").path
    from transformers import AutoTokenizer

    tokenizer = AutoTokenizer.from_pretrained(path)
    question = tokenizer.apply_chat_template(
        [{"role": "user", "content": "What is the capital of France?"}], add_generation_prompt=True, tokenize=False
    )
    ids = tokenizer.encode(question)
    rows, models = {}, {dtype: load_model(path, "cpu", dtype) for dtype in ("float32", "int8")}
    for dtype, model in models.items():
        engine = Engine(model, tokenizer.decode, max_rows=1, quick=True)
        rows[dtype] = Request(dtype, ids, SamplingParams(max_tokens=7, temperature=0))
        engine.add(rows[dtype])
        finish(engine)
    plain = Engine(models["float32"], tokenizer.decode, max_rows=1)
    for dtype, atol in (("float32", 1e-3), ("int8", 0.2)):
        assert tokenizer.decode(rows[dtype].new_tokens) == "The capital of France is Paris."
        scores = plain.score(rows[dtype].tokens)[len(ids) :]
        assert rows[dtype].logprobs == pytest.approx(scores, abs=atol)
