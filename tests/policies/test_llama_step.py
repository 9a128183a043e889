"""The quick forward pass of Llama-shaped models: the same logits as the models' own code, and when it is used."""

import pytest
import torch
from engines import finish, play, prompt

import tiny
from quaere.policies.catalogue import resolve_model
from quaere.policies.native.bridge import load_model, read_llama, use_packed_attention
from quaere.policies.native.engine import Engine, Request
from quaere.policies.native.weights import use_int8
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


def sample(engine, lengths, new=5):
    requests = [request(str(length), length, new, seed=length) for length in lengths]
    for each in requests:
        engine.add(each)
    finish(engine)
    return requests


@pytest.mark.parametrize("name", list(MODELS))
def test_tokens_and_log_probs_are_those_of_the_models_own_code(name):
    quick = Engine(make(name), TOKENIZER.decode, max_rows=4, max_step_tokens=16, quick=True)
    plain = Engine(make(name), TOKENIZER.decode, max_rows=4, max_step_tokens=16)
    assert read_llama(quick.model) is not None
    for lengths in ([30], [20, 33, 7]):  # one row is computed in another way than several
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
@pytest.mark.parametrize("name", ["llama", "qwen2", "qwen3"])
def test_log_probs_in_int8_are_close(name, sizes):
    family, changes = MODELS[name]
    models = [use_packed_attention(tiny.model(family, **sizes, **changes)) for _ in range(2)]
    quick = Engine(use_int8(models[0]), TOKENIZER.decode, max_rows=2, quick=True)
    plain = Engine(models[1], TOKENIZER.decode)
    for row in [*sample(quick, [25]), *sample(quick, [20, 33])]:
        whole = plain.score_many([row.tokens])[0][row.num_prompt :]
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


@pytest.mark.slow
@pytest.mark.model
def test_the_real_model_writes_the_same_text():
    """As the tiny ones do above, token by token."""
    path = resolve_model("smollm2-135m").path
    from transformers import AutoTokenizer

    tokenizer = AutoTokenizer.from_pretrained(path)
    question = tokenizer.apply_chat_template(
        [{"role": "user", "content": "What is the capital of France?"}], add_generation_prompt=True, tokenize=False
    )
    ids, answer = tokenizer.encode(question), tokenizer.encode("The capital of France is Paris.")
    model = load_model(path, "cpu", "float32")
    (scores,) = Engine(model, tokenizer.decode, max_rows=1).score_many([ids + answer], [len(ids)])
    for prepare, atol in ((lambda model: model, 1e-3), (use_int8, 0.2)):
        engine = Engine(prepare(model), tokenizer.decode, max_rows=1, quick=True)
        row = Request("a", ids, SamplingParams(max_tokens=len(answer), temperature=0))
        engine.add(row)
        finish(engine)
        assert row.new_tokens == answer
        assert row.logprobs == pytest.approx(scores[len(ids) :], abs=atol)
