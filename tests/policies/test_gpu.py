"""The native engine on a CUDA device: `pytest -m gpu tests/policies/test_gpu.py`."""

import asyncio
import random

import pytest
import torch

import tiny
from quaere.policies.native.bridge import use_packed_attention
from quaere.policies.native.engine import Engine, Request
from quaere.policies.native.sampler import NativeSampler
from quaere.policies.sampler import SamplingParams

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="there is no CUDA device"),
]


def make_engine(family="llama", dtype=torch.float32, max_rows=16):
    model = tiny.model(family).to("cuda", dtype)
    return Engine(use_packed_attention(model), tiny.tokenizer().decode, max_rows=max_rows, max_step_tokens=100)


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


def test_sequences_scored_together_score_as_they_do_alone():
    engine = make_engine()
    sequences = [request.tokens for request in requests(24, temperature=1.0)]
    for together, tokens in zip(engine.score_many(sequences), sequences, strict=True):
        assert together == pytest.approx(engine.score(tokens), abs=1e-3)


def test_batched_and_one_at_a_time_give_the_same_tokens():
    together = run(make_engine(), requests(24, temperature=0.7))
    alone = run(make_engine(max_rows=1), requests(24, temperature=0.7))
    assert [request.new_tokens for request in together] == [request.new_tokens for request in alone]


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
