"""The native engine on a CUDA device: `pytest -m gpu tests/policies/test_gpu.py`."""

import asyncio
import random

import pytest
import torch

import tiny
from quaere.policies.native.bridge import merge_products, use_packed_attention
from quaere.policies.native.engine import Engine, Request
from quaere.policies.native.kv_cache import KVStorage
from quaere.policies.native.sampler import NativeSampler
from quaere.policies.native.weights import copy_rounded
from quaere.policies.sampler import SamplingParams
from quaere.training.actors import copy_weights

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="there is no CUDA device"),
]


def make_engine(family="llama", dtype=torch.float32, max_rows=16, max_step_tokens=100, seed=0):
    model = use_packed_attention(tiny.model(family, seed=seed).to("cuda", dtype))
    return Engine(model, tiny.tokenizer().decode, max_rows=max_rows, max_step_tokens=max_step_tokens)


def requests(count, temperature):
    draw = random.Random(0)
    return [
        Request(
            str(n),
            [draw.randrange(400) for _ in range(draw.randint(1, 80))],
            SamplingParams(max_tokens=4 + n % 9, temperature=temperature, top_p=0.95, seed=n),
        )
        for n in range(count)
    ]


def run(engine, wanted):
    for request in wanted:
        engine.add(request)
    done = {}
    while engine.busy:
        for request in engine.step():
            done[request.key] = request
    return [done[request.key] for request in wanted]


@pytest.mark.parametrize("family", ["llama", "qwen2", "qwen3", "gemma2", "gemma3", "mistral"])
@pytest.mark.parametrize(("dtype", "tolerance"), [(torch.float32, 1e-3), (torch.bfloat16, 0.15)])
def test_log_probs_agree_with_plain_transformers(family, dtype, tolerance):
    plain = tiny.model(family).to("cuda", dtype)
    for request in run(make_engine(family, dtype), requests(24, temperature=1.0)):
        with torch.no_grad():
            logits = plain(torch.tensor([request.tokens], device="cuda")).logits[0].float()
        rows = torch.log_softmax(logits, -1)[request.num_prompt - 1 : -1]
        expected = rows.gather(1, torch.tensor(request.new_tokens, device="cuda")[:, None])[:, 0].cpu()
        assert (torch.tensor(request.logprobs) - expected).abs().max() < tolerance


@pytest.mark.parametrize("family", ["llama", "qwen2", "qwen3", "gemma2", "gemma3"])
@pytest.mark.parametrize(("dtype", "tolerance"), [(torch.float32, 1e-3), (torch.bfloat16, 0.15)])
def test_thousands_of_tokens_in_one_pass(family, dtype, tolerance):
    draw = random.Random(1)
    tokens = [draw.randrange(400) for _ in range(3000)]
    with torch.no_grad():
        logits = tiny.model(family).to("cuda", dtype)(torch.tensor([tokens], device="cuda")).logits[0].float()
    rows = torch.log_softmax(logits, -1)[:-1]
    expected = rows.gather(1, torch.tensor(tokens[1:], device="cuda")[:, None])[:, 0].cpu()
    found = torch.tensor(make_engine(family, dtype, max_step_tokens=4096).score_many([tokens])[0][1:])
    assert (found - expected).abs().max() < tolerance


@pytest.mark.parametrize("family", ["llama", "qwen2", "qwen3", "gemma2"])
def test_new_weights_reach_steps_that_were_captured(family):
    engine = make_engine(family)
    before = run(engine, requests(24, temperature=0.7))
    copy_weights(tiny.model(family, seed=1), engine.model)
    engine.forget()
    after = run(engine, requests(24, temperature=0.7))
    expected = run(make_engine(family, seed=1), requests(24, temperature=0.7))
    assert [request.new_tokens for request in after] == [request.new_tokens for request in expected]
    assert [request.new_tokens for request in after] != [request.new_tokens for request in before]


def test_weights_are_rounded_as_on_a_cpu():
    torch.manual_seed(0)
    source = torch.randn(3000, 777) * torch.exp(3 * torch.randn(3000, 777))
    source[5, 7], source[9, 9] = float("nan"), float("inf")
    here, there, from_here = (
        torch.empty(source.shape, dtype=torch.bfloat16, device=d) for d in ("cpu", "cuda", "cuda")
    )
    copy_rounded(here, source, "some.weight")
    copy_rounded(there, source.cuda(), "some.weight", chunk=1 << 16)
    copy_rounded(from_here, source, "some.weight")
    assert torch.equal(there.cpu().view(torch.int16), here.view(torch.int16))
    assert torch.equal(from_here.cpu().view(torch.int16), here.view(torch.int16))


def test_a_second_engine_over_a_model_moves_none_of_its_weights():
    engine = make_engine()
    places = [weight.data_ptr() for weight in engine.model.parameters()]
    Engine(engine.model, tiny.tokenizer().decode, max_rows=2)
    assert [weight.data_ptr() for weight in engine.model.parameters()] == places


def test_merged_weights_are_held_once():
    model = tiny.model("qwen2", hidden_size=256, intermediate_size=1024, head_dim=64).to("cuda", torch.bfloat16)
    before = torch.cuda.memory_allocated()
    assert merge_products(model) == 6
    assert torch.cuda.memory_allocated() <= before
    for layer in model.model.layers:
        storages = [part.weight.untyped_storage().data_ptr() for part in (layer.mlp.gate_proj, layer.mlp.up_proj)]
        assert len(set(storages)) == 1


def test_sequences_scored_together_score_as_they_do_alone():
    engine = make_engine()
    sequences = [request.tokens for request in requests(24, temperature=1.0)]
    for together, tokens in zip(engine.score_many(sequences), sequences, strict=True):
        assert together == pytest.approx(engine.score_many([tokens])[0], abs=1e-3)


def test_batched_and_one_at_a_time_give_the_same_tokens():
    together = run(make_engine(), requests(24, temperature=0.7))
    alone = run(make_engine(max_rows=1), requests(24, temperature=0.7))
    assert [request.new_tokens for request in together] == [request.new_tokens for request in alone]


def test_a_cache_that_grows_gives_its_old_memory_back():
    storage, like = KVStorage(), torch.zeros((1, 2, 1, 64), device="cuda", dtype=torch.bfloat16)
    torch.cuda.empty_cache()
    for capacity in range(512, 8193, 512):  # 32 MiB a tensor at the end
        storage.reserve(16, capacity, {})
        for layer in range(8):
            storage.memory(layer, like, like)
    del like
    assert torch.cuda.memory_reserved() - torch.cuda.memory_allocated() < 64 * 2**20


async def test_in_deterministic_mode_latency_changes_no_bit():
    async def play(seed):
        draw = random.Random(seed)
        sampler = NativeSampler(make_engine(dtype=torch.bfloat16), name="tiny", mode="deterministic")

        async def session(number):
            context, heard = [number, 3, 5], []
            for turn in range(3):
                await asyncio.sleep(draw.uniform(0, 0.02) if seed else 0)
                params = SamplingParams(max_tokens=3 + (number + turn) % 4, seed=100 * number + turn)
                heard.append(await sampler.sample(str(number), context, params))
                context += [*heard[-1].token_ids, 9]
            sampler.close(str(number))
            return heard

        for number in range(8):
            sampler.open(str(number))
        heard = await asyncio.gather(*map(session, range(8)))
        await sampler.stop()
        return heard

    assert await play(0) == await play(1) == await play(2)
