"""The learner on a CUDA device: `pytest -m gpu tests/training/test_learner_gpu.py`."""

import contextlib
import math

import pytest
import torch

import tiny
from quaere.policies.native.attention import kernel_works
from quaere.policies.native.bridge import decoder_layers
from quaere.training import estimate
from quaere.training.adapters import add_adapters
from quaere.training.batches import Sample, split_batch
from quaere.training.learner import Learner
from quaere.training.settings import AdapterSettings, LearnerSettings

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="there is no CUDA device"),
]

FAMILIES = {
    "llama": {},
    "qwen2": {},
    "qwen3": {},
    "mistral": {"sliding_window": 20},
    "gemma2": {"sliding_window": 20, "query_pre_attn_scalar": 8},
    "gemma3": {"sliding_window": 20, "query_pre_attn_scalar": 8},
    "gpt2": {"resid_pdrop": 0.0, "embd_pdrop": 0.0, "attn_pdrop": 0.0},
}


def make_model(family="llama"):
    model = tiny.model(family, **FAMILIES[family])
    if family == "gemma2":
        model.set_attn_implementation("eager")
    return model.to("cuda")


def make_samples(count=12, seed=0):
    draw = torch.Generator().manual_seed(seed)
    samples = []
    for _ in range(count):
        length = int(torch.randint(5, 200, (), generator=draw))
        mask = (False, *(torch.rand(length - 1, generator=draw) < 0.5).tolist()[:-1], True)
        ids = torch.randint(400, (length,), generator=draw).tolist()
        worth = torch.randn(length, generator=draw).tolist()
        samples.append(Sample(tuple(ids), mask, (-1.0,) * length, tuple(worth)))
    return samples


def plain_gradients(model, samples, autocast):
    """Sample by sample through transformers alone: what a padded batch computes, without the padding."""
    total = sum(sum(sample.loss_mask) for sample in samples)
    loss = 0.0
    for sample in samples:
        ids = torch.tensor([sample.token_ids], device="cuda")
        with autocast():
            logits = model.train()(ids, use_cache=False).logits[0, :-1]
        found = torch.log_softmax(logits.float(), -1).gather(-1, ids[0, 1:, None])[:, 0]
        worth = torch.tensor(sample.advantages, device="cuda")[1:]
        part = -(found * worth)[torch.tensor(sample.loss_mask[1:], device="cuda")].sum() / total
        part.backward()
        loss += float(part.detach())
    return loss, {name: weight.grad for name, weight in model.named_parameters()}


def packed_gradients(model, samples, **settings):
    options = {"max_grad_norm": math.inf, "micro_tokens": 700, **settings}
    learner = Learner(model, LearnerSettings(**options))
    caught = {}
    learner.optimizer.step = lambda: caught.update({n: w.grad.clone() for n, w in learner.model.named_parameters()})
    return learner.step(samples)["loss/policy"], caught


def relative_gap(found, expected):
    apart = sum(float((found[name] - gradient).square().sum()) for name, gradient in expected.items())
    return math.sqrt(apart / sum(float(gradient.square().sum()) for gradient in expected.values()))


@pytest.mark.parametrize("shape", [(9, 3, 64), (16, 2, 128), (8, 4, 256), (6, 2, 8)])
def test_the_kernel_for_many_sequences_is_used(shape):
    assert kernel_works(torch.device("cuda", 0), torch.bfloat16, *shape)


@pytest.mark.parametrize("family", FAMILIES)
def test_bfloat16_gradients_are_those_of_a_plain_step(family):
    samples = make_samples()
    loss, expected = plain_gradients(make_model(family), samples, lambda: torch.autocast("cuda", torch.bfloat16))
    _, exact = plain_gradients(make_model(family), samples, contextlib.nullcontext)
    # Two steps that round differently are apart by as much as each is off: some families are off by more than 1e-2.
    rounding = relative_gap(expected, exact)
    for checkpointing in (False, True):
        found_loss, found = packed_gradients(make_model(family), samples, gradient_checkpointing=checkpointing)
        assert found_loss == pytest.approx(loss, rel=1e-2)
        assert relative_gap(found, expected) < max(1e-2, 1.5 * rounding)
        assert relative_gap(found, exact) < max(1e-2, 1.2 * rounding)


@pytest.mark.parametrize("family", FAMILIES)
def test_float32_gradients_are_those_of_a_plain_step(family, monkeypatch):
    monkeypatch.setattr(Learner, "_autocast", lambda self: contextlib.nullcontext())
    samples = make_samples()
    loss, expected = plain_gradients(make_model(family), samples, contextlib.nullcontext)
    found_loss, found = packed_gradients(make_model(family), samples)
    assert found_loss == pytest.approx(loss, rel=1e-5)
    assert relative_gap(found, expected) < 1e-5


def test_compiled_layers_change_no_gradient():
    samples = make_samples()
    loss, plain = packed_gradients(make_model(), samples)
    found_loss, found = packed_gradients(make_model(), samples, compiled=True)
    assert found_loss == pytest.approx(loss, rel=1e-2)
    assert relative_gap(found, plain) < 1e-2


@pytest.mark.parametrize("rank", [0, 4])
@pytest.mark.parametrize("kl_beta", [0.0, 0.1])
def test_a_micro_batch_never_waits_for_the_device(rank, kl_beta):
    model = make_model()
    model = add_adapters(model, ("solver",), AdapterSettings(rank=rank)) if rank else model
    learner = Learner(model, LearnerSettings(kl_beta=kl_beta), adapter="solver" if rank else "")
    learner.step(make_samples())  # whatever is asked once has been asked
    batches = list(split_batch(make_samples(), 700, learner.device))
    torch.cuda.set_sync_debug_mode("error")
    try:
        for batch in batches:
            learner._add_gradients(batch, 100, learner.settings)
    finally:
        torch.cuda.set_sync_debug_mode("default")


@pytest.mark.parametrize(("before", "after"), [(True, True), (True, False), (False, True)])
def test_moments_rest_on_the_host_and_resume_exactly(tmp_path, before, after):
    def learner(offload):
        return Learner(
            make_model(), LearnerSettings(learning_rate=1e-2, offload_optimizer=offload, micro_tokens=10_000)
        )

    def pull(one, seed):  # gradients of its own making: those of attention are not the same twice on a GPU
        draw = torch.Generator(device="cuda").manual_seed(seed)
        for weight in one.parameters:
            weight.grad = torch.randn(weight.shape, generator=draw, device="cuda")
        one.optimizer.step()

    whole, first, second = learner(False), learner(before), learner(after)
    for seed in range(4):
        pull(whole, seed)
    for seed in range(2):
        pull(first, seed)
    first.save(tmp_path)
    second.load(tmp_path)
    for seed in range(2, 4):
        pull(second, seed)
    for mine, theirs in zip(second.model.parameters(), whole.model.parameters(), strict=True):
        assert torch.equal(mine, theirs)
    moments = [value for state in second.optimizer.state.values() for value in state.values() if value.dim()]
    assert moments and all(value.is_cuda != after for value in moments)


@pytest.mark.parametrize(("free", "expected"), [(1, True), (math.inf, False)])
def test_auto_checkpoints_where_memory_would_not_do(monkeypatch, free, expected):
    monkeypatch.setattr(estimate, "_free_bytes", lambda: free)
    learner = Learner(make_model(), LearnerSettings(gradient_checkpointing="auto"))
    learner.step(make_samples())
    assert all(layer.gradient_checkpointing is expected for layer in decoder_layers(learner.model))
