"""Packed micro-batches: the same gradients as padded rows of plain transformers, whatever stands next to a sample."""

import math
import random

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from msgspec import structs

import tiny
from quaere.policies.native.attention import VARLEN, Packing, kernel_works
from quaere.policies.native.bridge import decoder_layers, packed_states, use_varlen_attention
from quaere.training import estimate
from quaere.training import learner as learner_module
from quaere.training.adapters import add_adapters
from quaere.training.batches import Sample, split_batch
from quaere.training.learner import Learner
from quaere.training.settings import AdapterSettings, EngineSettings, LearnerSettings

CPU = torch.device("cpu")
FAMILIES = {
    "llama": {},
    "qwen2": {},
    "qwen3": {},
    "mistral": {"sliding_window": 7},
    "gemma2": {"sliding_window": 7, "query_pre_attn_scalar": 8, "final_logit_softcapping": 5.0},
    "gemma3": {"sliding_window": 7, "query_pre_attn_scalar": 8},
    "gpt_oss": tiny.SINKS | {"sliding_window": 7},
    "qwen3_moe": tiny.EXPERTS,
    "gpt2": {"resid_pdrop": 0.0, "embd_pdrop": 0.0, "attn_pdrop": 0.0},
    "untied": {"tie_word_embeddings": False},
}


def make_model(family, **changes):
    model = tiny.model("llama" if family == "untied" else family, **FAMILIES[family], **changes)
    if family == "gemma2":  # some versions of transformers drop its softcap in any attention but this
        model.set_attn_implementation("eager")
    return model


def make_samples(count=6, seed=0, longest=30):
    draw = random.Random(seed)
    samples = []
    for _ in range(count):
        length = draw.randint(4, longest)
        mask = (False, False, *[draw.random() < 0.6 for _ in range(length - 3)], draw.random() < 0.5)
        mask = mask if any(mask) else (*mask[:-1], True)
        samples.append(
            Sample(
                token_ids=tuple(draw.randrange(400) for _ in range(length)),
                loss_mask=mask,
                logprobs=tuple(draw.uniform(-2, 0) for _ in mask),
                advantages=tuple(draw.uniform(-1, 1) for _ in mask),
            )
        )
    return samples


def padded_loss(model, samples):
    """-log pi * A, the mean over tokens that carry loss, of one right-padded batch through transformers alone."""
    width = max(len(sample.token_ids) for sample in samples)

    def pad(name, dtype):
        rows = [getattr(sample, name) for sample in samples]
        return torch.tensor([[*row, *[0] * (width - len(row))] for row in rows], dtype=dtype)

    ids, mask, worth = pad("token_ids", torch.long), pad("loss_mask", torch.bool), pad("advantages", torch.float32)
    attention = torch.tensor([[1] * len(one.token_ids) + [0] * (width - len(one.token_ids)) for one in samples])
    logits = model(input_ids=ids, attention_mask=attention, use_cache=False).logits[:, :-1]
    found = torch.log_softmax(logits.float(), -1).gather(-1, ids[:, 1:, None])[..., 0]
    return -(found * worth[:, 1:])[mask[:, 1:]].sum() / mask.sum()


def padded_gradients(model, samples):
    loss = padded_loss(model.train(), samples)
    loss.backward()
    return float(loss.detach()), {
        name: weight.grad.clone() for name, weight in model.named_parameters() if weight.grad is not None
    }


def packed_gradients(model, samples, *, adapter="", **settings):
    """What a learner hands to its optimizer."""
    options = {"max_grad_norm": math.inf, "micro_tokens": 64, **settings}
    learner = Learner(model, LearnerSettings(**options), adapter=adapter)
    caught = {}

    def catch():
        caught.update({n: w.grad.clone() for n, w in learner.model.named_parameters() if w.grad is not None})

    learner.optimizer.step = catch
    return learner.step(samples)["loss/policy"], caught


def relative_gap(found, expected):
    apart = sum(float((found[name] - gradient).square().sum()) for name, gradient in expected.items())
    return math.sqrt(apart / sum(float(gradient.square().sum()) for gradient in expected.values()))


def assert_same(found, expected, tolerance=1e-5):
    assert found.keys() == expected.keys()
    whole = math.sqrt(sum(float(gradient.square().sum()) for gradient in expected.values()))
    for name, gradient in expected.items():
        # Relative to the weight's own gradient; one that is all rounding (of a key's bias, say) to the whole.
        scale = max(float(gradient.norm()), 1e-3 * whole)
        assert float((found[name] - gradient).norm()) <= tolerance * scale, name


# ----------------------------------------------------------------------------------------------------- the same step


@pytest.mark.parametrize("family", FAMILIES)
def test_loss_and_gradients_are_those_of_a_padded_step(family):
    samples = make_samples()
    loss, expected = padded_gradients(make_model(family), samples)
    for checkpointing in (False, True):
        found_loss, found = packed_gradients(make_model(family), samples, gradient_checkpointing=checkpointing)
        assert found_loss == pytest.approx(loss, rel=1e-5)
        assert_same(found, expected)


@pytest.mark.parametrize("family", ["llama", "qwen2", "gemma2"])
def test_an_adapter_gets_the_gradients_of_a_padded_step(family):
    samples = make_samples()

    def adapted():
        torch.manual_seed(0)
        model = add_adapters(make_model(family), ("proposer", "solver"), AdapterSettings(rank=4))
        for name, weight in model.named_parameters():
            if "lora_B" in name:  # zero at first, which would hide the gradient of its partner
                torch.nn.init.normal_(weight, std=0.1)
        model.set_adapter("solver")
        return model

    loss, expected = padded_gradients(adapted(), samples)
    for checkpointing in (False, True):
        found_loss, found = packed_gradients(adapted(), samples, adapter="solver", gradient_checkpointing=checkpointing)
        assert all("lora" in name and "solver" in name for name in found)
        assert found_loss == pytest.approx(loss, rel=1e-5)
        assert_same(found, expected)


@pytest.mark.parametrize(
    "family",  # plain attention, attention of its own with a window and soft caps, and no rotary embedding
    [pytest.param(name, marks=() if name in ("llama", "gemma2", "gpt2") else pytest.mark.slow) for name in FAMILIES],
)
def test_under_autocast_it_is_still_the_padded_step(family, monkeypatch):
    samples = make_samples(3)  # without bfloat16 in the processor each takes long
    model = make_model(family).train()
    with torch.autocast("cpu", dtype=torch.bfloat16):
        loss = padded_loss(model, samples)
    loss.backward()
    expected = {name: weight.grad for name, weight in model.named_parameters()}
    monkeypatch.setattr(Learner, "_autocast", lambda self: torch.autocast("cpu", dtype=torch.bfloat16))
    found_loss, found = packed_gradients(make_model(family), samples)
    assert found_loss == pytest.approx(loss.item(), rel=1e-2)
    assert relative_gap(found, expected) < 1e-2


@pytest.mark.parametrize("aggregation", ["token_mean", "sequence_mean", "token_sum"])
@pytest.mark.parametrize("kl_beta", [pytest.param(0.0, marks=pytest.mark.slow), 0.5])  # the loss with a term more
def test_how_a_batch_is_split_changes_nothing(aggregation, kl_beta):
    samples = make_samples(5)

    def gradients(micro_tokens, order):
        given = [samples[row] for row in order]
        options = {"aggregation": aggregation, "kl_beta": kl_beta}
        return packed_gradients(make_model("qwen3"), given, micro_tokens=micro_tokens, **options)

    loss, expected = gradients(10_000, range(5))
    for micro_tokens, order in ((1, range(5)), (40, reversed(range(5)))):
        other, found = gradients(micro_tokens, list(order))
        assert other == pytest.approx(loss, rel=1e-5, abs=1e-7)
        assert_same(found, expected)


@pytest.mark.slow
@pytest.mark.parametrize("checkpointing", [False, True])
@pytest.mark.parametrize("rank", [0, 4])
def test_compiled_layers_change_no_gradient(rank, checkpointing):
    def gradients(compiled):
        torch.manual_seed(0)
        model = make_model("llama")
        model = add_adapters(model, ("solver",), AdapterSettings(rank=rank)) if rank else model
        options = {"adapter": "solver" if rank else "", "gradient_checkpointing": checkpointing}
        return packed_gradients(model, make_samples(), compiled=compiled, **options)

    (loss, plain), (found_loss, found) = gradients(False), gradients(True)
    assert found_loss == pytest.approx(loss, rel=1e-5)
    assert_same(found, plain)


def test_a_step_repeats_bit_for_bit():
    def weights():
        learner = Learner(make_model("llama"), LearnerSettings(learning_rate=1e-2, micro_tokens=50, kl_beta=0.1))
        metrics = [learner.step(make_samples(seed=seed)) for seed in range(2)]
        return metrics, list(learner.model.parameters())

    (first, mine), (second, theirs) = weights(), weights()
    assert first == second
    assert all(torch.equal(a, b) for a, b in zip(mine, theirs, strict=True))


def test_a_samples_log_probs_do_not_depend_on_its_neighbours():
    samples = make_samples(8, longest=60)
    learner = Learner(make_model("mistral"), LearnerSettings())
    together = learner.score(samples)
    for sample, scores in zip(samples, together, strict=True):
        assert scores == pytest.approx(learner.score([sample])[0], abs=1e-5)
    silent = Sample((1, 2, 3), (False,) * 3, (0.0,) * 3, (0.0,) * 3)
    assert learner.score([silent, samples[0]]) == [[], pytest.approx(together[0], abs=1e-5)]


# ----------------------------------------------------------------------------------------------------- the attention


@pytest.mark.parametrize("family", FAMILIES)
def test_who_calls_the_model_without_a_packing_sees_no_difference(family):
    plain, switched = make_model(family), use_varlen_attention(make_model(family))
    ids = torch.arange(2, 42).view(2, 20)
    for attention in (None, torch.tensor([[1] * 20, [0] * 6 + [1] * 14]), torch.tensor([[1] * 20, [1] * 14 + [0] * 6])):
        real = torch.ones_like(ids, dtype=torch.bool) if attention is None else attention.bool()
        with torch.no_grad():
            expected, found = (model(input_ids=ids, attention_mask=attention).logits for model in (plain, switched))
        torch.testing.assert_close(found[real], expected[real], atol=1e-4, rtol=1e-4)
    options = {"max_new_tokens": 12, "do_sample": False, "pad_token_id": 0}
    assert torch.equal(plain.generate(ids[:1], **options), switched.generate(ids[:1], **options))


def test_no_mask_of_tokens_by_tokens_is_made():
    from transformers.masking_utils import AttentionMaskInterface, sdpa_mask

    def refuse(*args, **options):
        raise AssertionError("a mask was asked for")

    model = use_varlen_attention(make_model("gemma3"))
    AttentionMaskInterface.register(VARLEN, refuse)
    try:
        assert packed_states(model, torch.arange(30), Packing((10, 20), CPU)).shape == (30, 48)
    finally:
        AttentionMaskInterface.register(VARLEN, sdpa_mask)


def test_other_attention_is_refused():
    with pytest.raises(ValueError, match="use_varlen_attention"):
        packed_states(make_model("llama"), torch.arange(4), Packing((4,), CPU))


def test_the_kernel_is_not_for_cpus():
    assert not kernel_works(CPU, torch.bfloat16, 6, 2, 8)
    assert not kernel_works(torch.device("cuda"), torch.float32, 6, 2, 8)


def test_layers_are_found_under_an_adapter_too():
    model = make_model("llama")
    assert len(decoder_layers(model)) == 2
    assert len(decoder_layers(add_adapters(model, ("solver",), AdapterSettings(rank=2)))) == 2


# ------------------------------------------------------------------------------------------------------ the batching


def of_length(length):
    """A sample that asks for so many tokens to be read."""
    return Sample((7,) * (length + 1), (*[False] * length, True), (0.0,) * (length + 1), (1.0,) * (length + 1))


def test_the_longest_come_first_and_gaps_are_filled():
    samples = [of_length(length) for length in (3, 8, 5, 2, 8, 40)]
    batches = list(split_batch(samples, 10, CPU))
    assert [batch.rows for batch in batches] == [(5,), (1, 3), (4,), (2, 0)]
    assert [batch.packing.lengths for batch in batches] == [[40], [8, 2], [8], [5, 3]]


def test_what_a_micro_batch_holds():
    first = Sample((5, 6, 7, 8), (False, True, False, False), (0.0, -0.5, 9.0, 9.0), (9.0, 2.0, 9.0, 9.0))
    second = Sample((1, 2, 3), (False, True, True), (0.0, -1.0, -2.0), (0.0, 3.0, 4.0))
    (batch,) = split_batch([first, second], 100, CPU)
    assert batch.rows == (1, 0)
    assert batch.token_ids_T.tolist() == [1, 2, 5]  # nothing after the last token that predicts
    assert batch.packing.bounds.tolist() == [0, 2, 3]
    assert batch.packing.positions_T.tolist() == [0, 1, 0]
    assert batch.before_N.tolist() == [0, 1, 2]
    assert batch.targets_N.tolist() == [2, 3, 6]
    assert batch.logprobs_N.tolist() == [-1.0, -2.0, -0.5]
    assert batch.mask_BW.tolist() == [[True, True], [True, False]]
    assert batch.advantages_BW.tolist() == [[3.0, 4.0], [2.0, 0.0]]
    assert batch.grid(torch.tensor([1.0, 2.0, 3.0])).tolist() == [[1.0, 2.0], [3.0, 0.0]]


@given(st.lists(st.integers(1, 30), max_size=30), st.integers(1, 60))
def test_every_sample_is_in_one_micro_batch_that_keeps_its_budget(lengths, budget):
    batches = list(split_batch([of_length(length) for length in lengths], budget, CPU))
    assert sorted(row for batch in batches for row in batch.rows) == list(range(len(lengths)))
    for batch in batches:
        assert len(batch.token_ids_T) == sum(batch.packing.lengths) == sum(lengths[row] for row in batch.rows)
        assert len(batch.token_ids_T) <= budget or len(batch.rows) == 1
    half_empty = [batch for batch in batches if 2 * len(batch.token_ids_T) <= budget]
    assert len(half_empty) <= 1


# ---------------------------------------------------------------------------------------- checkpointing and offloading


def test_on_a_cpu_auto_does_not_checkpoint():
    learner = Learner(make_model("llama"), LearnerSettings(gradient_checkpointing="auto"))
    learner.step(make_samples())
    assert not any(layer.gradient_checkpointing for layer in decoder_layers(learner.model))
    asked = Learner(make_model("llama"), LearnerSettings(gradient_checkpointing=True))
    assert all(layer.gradient_checkpointing for layer in decoder_layers(asked.model))


def test_auto_checkpoints_from_the_first_step_on_that_needs_it(monkeypatch):
    asked = []
    monkeypatch.setattr(learner_module, "needs_checkpointing", lambda *given, **how: asked.append(how) or True)
    learner = Learner(make_model("llama"), LearnerSettings(gradient_checkpointing="auto"))
    learner._checkpointing = "auto"  # as on a GPU
    assert not any(layer.gradient_checkpointing for layer in decoder_layers(learner.model))
    for _ in range(2):
        learner.step(make_samples())
        assert all(layer.gradient_checkpointing for layer in decoder_layers(learner.model))
    assert len(asked) == 1


@pytest.mark.parametrize("rank", [0, 4])
def test_auto_checkpoints_where_memory_would_not_do(monkeypatch, rank):
    counted = estimate._count_parameters(make_model("llama").config, AdapterSettings(rank=rank))
    monkeypatch.setattr(estimate, "_count_parameters", lambda config, adapter: counted)  # the same each time

    def activations(device, checkpointing, free):
        monkeypatch.setattr(estimate, "_free_bytes", lambda: free)
        return estimate.estimate_run(
            make_model("llama").config,
            adapter=AdapterSettings(rank=rank),
            engine=EngineSettings(),
            learner=LearnerSettings(gradient_checkpointing=checkpointing),
            sequence_tokens=512,
            device=device,
        ).memory.activations

    for device in ("cpu", "cuda"):
        off, on = (activations(device, flag, math.inf) for flag in (False, True))
        assert on < off
        assert activations(device, "auto", math.inf) == off
        assert activations(device, "auto", 1) == (on if device == "cuda" else off)


def test_moments_elsewhere_are_not_counted():
    def moments(device, **settings):
        return estimate.estimate_run(
            make_model("llama").config,
            adapter=AdapterSettings(),
            engine=EngineSettings(),
            learner=LearnerSettings(**settings),
            sequence_tokens=512,
            device=device,
        ).memory.moments

    assert moments("cuda") == moments("cpu") == moments("cpu", offload_optimizer=True) > 0
    assert moments("cuda", offload_optimizer=True) == 0


def test_an_offloaded_optimizer_takes_the_same_steps_and_resumes_exactly(tmp_path):
    def learner(offload):
        return Learner(make_model("qwen2"), LearnerSettings(learning_rate=1e-2, offload_optimizer=offload))

    whole = learner(False)
    batches = [make_samples(seed=seed) for seed in range(4)]
    expected = [whole.step(batch) for batch in batches]
    for before in (False, True):
        first = learner(before)
        assert [first.step(batch) for batch in batches[:2]] == expected[:2]
        first.save(tmp_path / str(before))
        for after in (False, True):
            second = learner(after)
            second.load(tmp_path / str(before))
            assert [second.step(batch) for batch in batches[2:]] == expected[2:]
            for mine, theirs in zip(second.model.parameters(), whole.model.parameters(), strict=True):
                assert torch.equal(mine, theirs)


def test_samples_whose_worth_lies_elsewhere_pull_at_nothing():
    (sample,) = make_samples(1)
    beside = structs.replace(sample, advantages=tuple(0.0 if flag else 1.0 for flag in sample.loss_mask))
    assert Learner(make_model("llama"), LearnerSettings()).step([beside])["gradient/norm"] == 0
