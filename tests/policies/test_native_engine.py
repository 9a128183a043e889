"""The engine against plain transformers, on tiny models of several families."""

import random
from functools import lru_cache

import pytest
import torch
from msgspec import structs

import tiny
from quaere.policies.native.bridge import use_packed_attention
from quaere.policies.native.decoder import _rounded
from quaere.policies.native.engine import Engine, Request
from quaere.policies.native.weights import prepare_products
from quaere.policies.sampler import SamplingParams

FAMILIES = {
    "llama": {},
    "qwen2": {},
    "qwen3": {},
    "mistral": {"sliding_window": 7},
    "gemma2": {"sliding_window": 7, "query_pre_attn_scalar": 8},
    "gemma3": {"sliding_window": 7, "query_pre_attn_scalar": 8},
    "gpt2": {},
    "gpt_oss": tiny.SINKS | {"sliding_window": 7},
    "qwen3_moe": tiny.EXPERTS,
}
TOKENIZER = tiny.tokenizer()


@lru_cache
def packed_model(family):
    return use_packed_attention(tiny.model(family, **FAMILIES[family]))


@lru_cache
def eager_model(family):
    model = tiny.model(family, **FAMILIES[family])
    model.set_attn_implementation("eager")
    return model


def make_engine(family="llama", **options):
    return Engine(packed_model(family), TOKENIZER.decode, **options)


def prompts(count, seed=0, longest=60):
    draw = random.Random(seed)
    return [[draw.randrange(400) for _ in range(draw.randint(1, longest))] for _ in range(count)]


def run(engine, requests, arrive=lambda step: True):
    """Step until all is done; `arrive(step)` says whether the next request may be added before that step."""
    waiting, done, step = list(requests), {}, 0
    while waiting or engine.busy:
        while waiting and arrive(step):
            engine.add(waiting.pop(0))
            if step:
                break
        for request in engine.step():
            done[request.key] = request.sampled()
        step += 1
        assert step < 2000, "the engine does not come to an end"
    return [done[request.key] for request in requests]


def reference_logprobs(family, ids):
    """Plain transformers: one row, one full forward pass, its own attention."""
    with torch.no_grad():
        return torch.log_softmax(eager_model(family)(torch.tensor([ids])).logits[0].float(), -1)


@pytest.mark.parametrize("family", FAMILIES)
def test_ragged_batches_agree_with_a_plain_forward_pass(family):
    engine = make_engine(family, max_rows=5, max_step_tokens=33)
    requests = [
        Request(str(n), prompt, SamplingParams(max_tokens=3 + n % 4, temperature=n % 2, seed=n))
        for n, prompt in enumerate(prompts(8))
    ]
    for request, sampled in zip(requests, run(engine, requests), strict=True):
        prompt = request.tokens[: request.num_prompt]
        rows = reference_logprobs(family, [*prompt, *sampled.token_ids])[len(prompt) - 1 : -1]
        expected = rows.gather(1, torch.tensor(sampled.token_ids)[:, None])[:, 0]
        torch.testing.assert_close(torch.tensor(sampled.logprobs), expected, atol=1e-4, rtol=0)
        if request.params.temperature == 0:
            assert rows.argmax(-1).tolist() == list(sampled.token_ids)


@pytest.mark.parametrize("family", FAMILIES)
def test_scores_agree_with_a_plain_forward_pass(family):
    ids = prompts(1, seed=3, longest=90)[0] + [5] * 30
    expected = reference_logprobs(family, ids)[:-1].gather(1, torch.tensor(ids[1:])[:, None])[:, 0]
    for step_tokens in (7, 2048):
        scores = make_engine(family, max_step_tokens=step_tokens).score_many([ids])[0]
        assert scores[0] == 0
        torch.testing.assert_close(torch.tensor(scores[1:]), expected, atol=1e-4, rtol=0)
    assert make_engine(family).score_many([[7]])[0] == [0.0]


def test_batched_and_one_at_a_time_give_the_same_tokens():
    def requests():
        return [
            Request(
                str(n), prompt, SamplingParams(max_tokens=4, temperature=n % 3 / 2, top_k=n % 4 * 5, top_p=0.9, seed=n)
            )
            for n, prompt in enumerate(prompts(12, seed=1))
        ]

    together = run(make_engine(max_rows=12), requests())
    alone = [run(make_engine(max_rows=1), [request])[0] for request in requests()]
    assert [sampled.token_ids for sampled in together] == [sampled.token_ids for sampled in alone]


def test_requests_join_and_leave_in_mid_decode():
    engine = make_engine(max_rows=3)
    steps = []
    engine.observe = steps.append
    lengths = [12, 4, 9, 6, 5, 8]
    requests = [Request(f"r{n}", [1, 2, 3, n], SamplingParams(max_tokens=length)) for n, length in enumerate(lengths)]
    sampled = run(engine, requests, arrive=lambda step: step % 3 == 0)
    assert [len(one.token_ids) for one in sampled] == lengths
    present = [{key for key, _ in step} for step in steps]
    joined_late = [n for n in range(1, len(steps)) if present[n] - present[n - 1] and present[n] & present[n - 1]]
    left_early = [n for n in range(1, len(steps)) if present[n - 1] - present[n] and present[n] & present[n - 1]]
    assert joined_late
    assert left_early
    # A prompt joined in a step in which another row decoded one token.
    assert any({1, 4} <= {length for _, length in step} for step in steps)
    assert max(map(len, present)) == 3


def test_a_long_prompt_does_not_stall_the_rows_that_decode():
    engine = make_engine(max_rows=2, max_step_tokens=16)
    steps = []
    engine.observe = steps.append
    short = Request("short", [1, 2], SamplingParams(max_tokens=30))
    long = Request("long", [3] * 100, SamplingParams(max_tokens=2))
    run(engine, [short, long])
    chunks = [dict(step) for step in steps if dict(step).get("long", 0) > 1]
    assert len(chunks) >= 6
    assert all(sum(step.values()) <= 16 for step in chunks)
    assert all(step.get("short") for step in chunks[1:])


def test_slots_stay_dense_whoever_leaves():
    engine = make_engine(max_rows=5)
    draw = random.Random(5)
    requests = [Request(str(n), [n, 7], SamplingParams(max_tokens=draw.randint(1, 7), seed=n)) for n in range(12)]
    expected = [
        run(make_engine(max_rows=1), [Request(request.key, [int(request.key), 7], request.params)])[0].token_ids
        for request in requests
    ]
    assert [sampled.token_ids for sampled in run(engine, requests)] == expected
    assert not engine.rows


def test_a_cancelled_request_leaves_and_the_others_go_on():
    engine = make_engine(max_rows=3)
    kept, dropped, queued = (Request(name, [1, 2, 3], SamplingParams(max_tokens=10)) for name in "abc")
    for request in (dropped, kept):
        engine.add(request)
    engine.step()
    dropped.cancelled = queued.cancelled = True
    engine.add(queued)
    done = []
    while engine.busy:
        done += engine.step()
    assert [request.key for request in done] == ["a"]


def test_stop_token_ends_the_turn_and_is_kept():
    free = run(make_engine(), [Request("x", [1, 2, 3], SamplingParams(max_tokens=8, temperature=0))])[0]
    stop = free.token_ids[3]
    sampled = run(
        make_engine(), [Request("x", [1, 2, 3], SamplingParams(max_tokens=8, temperature=0, stop_token_ids=(stop,)))]
    )[0]
    assert sampled.stop_reason == "end_of_turn"
    assert sampled.token_ids == free.token_ids[: free.token_ids.index(stop) + 1]


@pytest.mark.parametrize("lookahead", [0, 1])
def test_a_row_that_has_stopped_takes_no_token_from_those_behind_it(lookahead):
    """A GPU launches a step before it reads the last: the row that stopped has then drawn one token too many."""

    def play(stop=()):
        engine = make_engine()
        engine.lookahead = lookahead
        asked = [SamplingParams(max_tokens=8, seed=number) for number in range(3)]
        asked[0] = structs.replace(asked[0], stop_token_ids=stop)
        found = run(engine, [Request(f"r{number}", prompts(3)[number], one) for number, one in enumerate(asked)])
        return [(one.token_ids, one.stop_reason) for one in found]

    free = play()
    stopped, *others = play(free[0][0][2:3])
    assert stopped == (free[0][0][: len(stopped[0])], "end_of_turn") and len(stopped[0]) <= 3
    assert others == free[1:]


class Spelling:
    """A decoder whose tokens spell what the test wants."""

    def __init__(self, pieces):
        self.pieces = pieces

    def __call__(self, ids):
        return b"".join(self.pieces[token] for token in ids).decode("utf-8", "replace")


@pytest.mark.parametrize(
    ("pieces", "stop", "length"),
    [
        ([b"<ans", b"wer", b">\n and more", b"x"], "<answer>", 3),  # ends inside a token
        ([b"a", b"</answer>", b"b", b"c"], "</answer>", 2),  # a token of its own
        ([b"\xe6\xbc", b"\xa2\xe5", b"\xad\x97!", b"x"], "漢字", 3),  # characters cut by tokens
        ([b"a", b"b", b"c", b"d"], "zz", 4),  # never
    ],
)
def test_stop_strings(pieces, stop, length):
    params = SamplingParams(max_tokens=4, temperature=9.0, seed=3)
    free = run(make_engine(), [Request("x", [1, 2], params)])[0].token_ids
    assert len(set(free)) == 4
    engine = Engine(make_engine().model, Spelling(dict(zip(free, pieces, strict=True))))
    sampled = run(engine, [Request("x", [1, 2], structs.replace(params, stop=(stop,)))])[0]
    assert sampled.token_ids == free[:length]
    assert sampled.stop_reason == ("length" if length == 4 and stop == "zz" else "stop_string")


@pytest.mark.parametrize(("stop", "length"), [(("</b>", "</c>"), 2), (("</c>", "</b>"), 2), (("</c>", "</d>"), 3)])
def test_any_of_several_stop_strings_ends_the_turn(stop, length):
    params = SamplingParams(max_tokens=4, temperature=9.0, seed=3)
    free = run(make_engine(), [Request("x", [1, 2], params)])[0].token_ids
    engine = Engine(make_engine().model, Spelling(dict(zip(free, [b"a", b"</b>", b"</c>", b"d"], strict=True))))
    sampled = run(engine, [Request("x", [1, 2], structs.replace(params, stop=stop))])[0]
    assert (sampled.token_ids, sampled.stop_reason) == (free[:length], "stop_string")


def test_a_stop_string_may_end_in_a_space_that_the_tokenizer_drops_from_a_lone_token():
    params = SamplingParams(max_tokens=4, temperature=9.0, seed=3)
    free = run(make_engine(), [Request("x", [1, 2], params)])[0].token_ids
    spelling = Spelling(dict(zip(free, [b" so", b" it", b" is", b" here"], strict=True)))
    engine = Engine(make_engine().model, lambda ids: spelling(ids).lstrip())
    sampled = run(engine, [Request("x", [1, 2], structs.replace(params, stop=("it ",)))])[0]
    assert sampled.token_ids == free[:3]


def test_max_tokens_is_a_length_stop():
    assert run(make_engine(), [Request("x", [1], SamplingParams(max_tokens=3))])[0].stop_reason == "length"


@pytest.mark.parametrize("rows", [1, 4, 31, 48, 49])
@pytest.mark.parametrize("bias", [False, True])
def test_products_the_other_way_round_come_to_the_same(rows, bias):
    torch.manual_seed(0)
    layer = torch.nn.Sequential(torch.nn.Linear(24, 40, bias=bias))
    states = torch.randn(1, rows, 24)
    expected = layer(states)
    prepare_products(layer)
    torch.testing.assert_close(layer(states), expected)
    with torch.no_grad():
        layer[0].weight.zero_()  # new weights in place are seen
    torch.testing.assert_close(layer(states), torch.zeros(1, rows, 40) + (layer[0].bias if bias else 0))


def test_a_gpu_captures_steps_of_few_sizes():
    asked = [1, 2, 3, 5, 8, 9, 16, 17, 24, 25, 32, 33, 48, 49, 64, 65, 97]
    assert [_rounded(size) for size in asked] == [1, 2, 4, 8, 8, 12, 16, 24, 24, 32, 32, 48, 48, 64, 64, 96, 128]


@pytest.mark.parametrize("patience", [0, 16])
def test_contexts_that_fill_whole_steps_do_not_wait(patience):
    engine = make_engine(max_rows=16, max_step_tokens=64)
    engine.patience = patience
    for number in range(16):
        engine.add(Request(str(number), [number] * 30, SamplingParams(max_tokens=10)))
    num_steps = 0
    while engine.busy:
        engine.step()
        num_steps += 1
    # 480 tokens of context take 8 steps and a little more, as rows that write take part of the room; then 10 to write.
    assert num_steps <= 21


def test_a_short_context_waits_for_others_no_longer_than_patience():
    engine = make_engine(max_rows=16)
    engine.patience = 6
    for number in range(10):
        engine.add(Request(str(number), [number] * 30, SamplingParams(max_tokens=20)))
    engine.step()
    engine.add(Request("late", [5, 6, 7], SamplingParams(max_tokens=1)))
    waited = next(number for number in range(1, 20) if "late" in [request.key for request in engine.step()])
    assert 2 <= waited <= 7
