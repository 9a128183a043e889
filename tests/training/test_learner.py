"""One gradient step: against plain autograd, under masks, splits and adapters, and when numbers go wrong."""

import copy
import math
import random

import pytest
import torch
from msgspec import structs

import tiny
from quaere.errors import TrainingStopped
from quaere.objectives.policy_gradient import aggregate
from quaere.policies.native.bridge import use_packed_attention, use_varlen_attention
from quaere.policies.native.engine import Engine
from quaere.policies.native.weights import copy_rounded
from quaere.training.actors import copy_weights
from quaere.training.adapters import add_adapters
from quaere.training.batches import Sample, packed_logprobs, split_batch
from quaere.training.learner import Learner
from quaere.training.settings import AdapterSettings, LearnerSettings


def make_samples(count=6, seed=0, longest=30):
    draw = random.Random(seed)
    samples = []
    for _ in range(count):
        length = draw.randint(4, longest)
        mask = (False, False, *[draw.random() < 0.6 for _ in range(length - 3)], True)
        samples.append(
            Sample(
                token_ids=tuple(draw.randrange(400) for _ in range(length)),
                loss_mask=mask,
                logprobs=tuple(-1.0 if flag else 0.0 for flag in mask),
                advantages=tuple(draw.uniform(-1, 1) if flag else 0.0 for flag in mask),
            )
        )
    return samples


def plain_gradients(model, samples):
    """-log pi * A, mean over all model tokens, sample by sample with transformers' own logits."""
    total = sum(sum(sample.loss_mask) for sample in samples)
    loss = 0.0
    for sample in samples:
        logprobs = torch.log_softmax(model(torch.tensor([sample.token_ids])).logits[0].float(), -1)
        for place, (token, flag, advantage) in enumerate(
            zip(sample.token_ids, sample.loss_mask, sample.advantages, strict=True)
        ):
            if flag:
                loss = loss - logprobs[place - 1, token] * advantage / total
    loss.backward()
    return float(loss.detach()), {name: weight.grad.clone() for name, weight in model.named_parameters()}


def make_learner(model, settings, lora_rank=0, **rest):
    if not lora_rank:
        return Learner(model, settings, **rest)
    adapted = add_adapters(model, ("proposer", "solver"), AdapterSettings(rank=lora_rank))
    return Learner(adapted, settings, adapter="solver", **rest)


def learner_gradients(model, samples, monkeypatch, reference=None, **settings):
    """The gradients a learner would apply, caught before the optimizer's step."""
    chosen = LearnerSettings(**{"max_grad_norm": math.inf, **settings})
    learner = Learner(model, chosen, reference=reference)
    caught = {}

    def catch():
        for name, weight in learner.model.named_parameters():
            caught[name] = None if weight.grad is None else weight.grad.clone()

    monkeypatch.setattr(learner.optimizer, "step", catch)
    return learner.step(samples), caught


@pytest.mark.parametrize("family", ["llama", "qwen3", "gemma2"])
@pytest.mark.parametrize("micro_tokens", [1, 64, 10_000])
def test_gradients_equal_plain_autograd_however_the_batch_is_split(family, micro_tokens, monkeypatch):
    samples = make_samples()
    loss, expected = plain_gradients(tiny.model(family), samples)
    metrics, found = learner_gradients(tiny.model(family), samples, monkeypatch, micro_tokens=micro_tokens)
    assert metrics["loss/policy"] == pytest.approx(loss, abs=1e-5)
    assert metrics["batch/model_tokens"] == sum(sum(sample.loss_mask) for sample in samples)
    for name, gradient in expected.items():
        torch.testing.assert_close(found[name], gradient, atol=1e-5, rtol=1e-4)


def test_the_gradient_is_that_of_the_clipped_loss_to_the_bit(monkeypatch):
    def clipped_loss(logprobs, advantages, mask, **how):
        ratio = (logprobs - logprobs.detach()).exp()  # one update per batch: the old policy is the new one
        return aggregate(-torch.minimum(ratio * advantages, ratio.clamp(0.8, 1.2) * advantages), mask, **how)

    samples = make_samples()
    _, plain = learner_gradients(tiny.model(), samples, monkeypatch)
    monkeypatch.setattr("quaere.training.learner.policy_gradient_loss", clipped_loss)
    _, clipped = learner_gradients(tiny.model(), samples, monkeypatch)
    assert all(torch.equal(clipped[name], plain[name]) for name in plain)


def test_gradient_checkpointing_changes_no_gradient(monkeypatch):
    samples = make_samples()
    _, plain = learner_gradients(tiny.model(), samples, monkeypatch)
    _, checked = learner_gradients(tiny.model(), samples, monkeypatch, gradient_checkpointing=True)
    for name in plain:
        torch.testing.assert_close(checked[name], plain[name], atol=1e-6, rtol=1e-4)


def test_what_stands_on_masked_tokens_is_ignored(monkeypatch):
    samples = make_samples()
    spoiled = [
        Sample(
            sample.token_ids,
            sample.loss_mask,
            tuple(value if flag else 99.0 for value, flag in zip(sample.logprobs, sample.loss_mask, strict=True)),
            tuple(value if flag else 99.0 for value, flag in zip(sample.advantages, sample.loss_mask, strict=True)),
        )
        for sample in samples
    ]
    _, clean = learner_gradients(tiny.model(), samples, monkeypatch)
    _, dirty = learner_gradients(tiny.model(), spoiled, monkeypatch)
    for name in clean:
        assert torch.equal(clean[name], dirty[name])


def test_logprobs_agree_with_a_plain_forward_pass():
    plain = tiny.model("gemma2")
    samples = make_samples(3)
    (batch,) = split_batch(samples, 10_000, torch.device("cpu"))
    with torch.no_grad():
        found = packed_logprobs(use_varlen_attention(tiny.model("gemma2")), batch)
    logprobs, entropy = (batch.grid(values) for values in found)
    for number, row in enumerate(batch.rows):
        sample = samples[row]
        rows = torch.log_softmax(plain(torch.tensor([sample.token_ids])).logits[0].detach(), -1)
        places = [place for place, flag in enumerate(sample.loss_mask) if flag]
        for column, place in enumerate(places):
            expected = rows[place - 1]
            assert logprobs[number, column] == pytest.approx(float(expected[sample.token_ids[place]]), abs=1e-4)
            assert entropy[number, column] == pytest.approx(float(-(expected.exp() * expected).sum()), abs=1e-4)
        assert not logprobs[number, len(places) :].any()
        assert not entropy[number, len(places) :].any()
    first = structs.replace(samples[0], loss_mask=(True,) * len(samples[0].token_ids))
    with pytest.raises(ValueError, match="first token"):
        list(split_batch([first], 10_000, torch.device("cpu")))


def test_a_step_raises_what_was_good_and_lowers_what_was_bad():
    learner = Learner(tiny.model(), LearnerSettings(learning_rate=3e-3, weight_decay=0.0))
    good, bad = make_samples(2, seed=4)
    worth = [
        Sample(one.token_ids, one.loss_mask, one.logprobs, tuple(value if flag else 0.0 for flag in one.loss_mask))
        for one, value in ((good, 1.0), (bad, -1.0))
    ]
    before = [sum(row) for row in learner.score(worth)]
    for _ in range(3):
        learner.step(worth)
    after = [sum(row) for row in learner.score(worth)]
    assert after[0] > before[0]
    assert after[1] < before[1]


def test_the_sampler_and_learner_mismatch_is_measured():
    model = tiny.model()
    learner = Learner(copy.deepcopy(model), LearnerSettings())
    (sample,) = make_samples(1)
    (scores,) = learner.score([sample])
    exact = iter(scores)
    honest = Sample(
        sample.token_ids,
        sample.loss_mask,
        tuple(next(exact) if flag else 0.0 for flag in sample.loss_mask),
        sample.advantages,
    )
    assert learner.step([honest])["mismatch/max"] < 1e-6
    lying = Sample(sample.token_ids, sample.loss_mask, tuple(-50.0 for _ in sample.loss_mask), sample.advantages)
    assert learner.step([lying])["mismatch/max"] > 10


@pytest.mark.parametrize("what", ["advantage", "log-prob", "weights"])
def test_what_is_not_finite_stops_the_step_before_any_weight_moves(what):
    learner = Learner(tiny.model(), LearnerSettings(learning_rate=1.0))
    samples = make_samples(2)
    first = samples[0]
    poisoned = tuple(math.nan if flag else 0.0 for flag in first.loss_mask)
    if what == "advantage":
        samples[0] = Sample(first.token_ids, first.loss_mask, first.logprobs, poisoned)
    elif what == "log-prob":
        samples[0] = Sample(first.token_ids, first.loss_mask, poisoned, first.advantages)
    else:
        with torch.no_grad():
            next(learner.model.parameters())[first.token_ids[0]] = math.nan
    before = {name: weight.clone() for name, weight in learner.model.named_parameters()}
    with pytest.raises(TrainingStopped, match="not finite"):
        learner.step(samples)
    assert learner.num_steps == 0
    for name, weight in learner.model.named_parameters():
        assert torch.equal(weight.nan_to_num(7), before[name].nan_to_num(7))


def test_a_batch_without_model_tokens_is_refused():
    sample = Sample((1, 2, 3), (False,) * 3, (0.0,) * 3, (0.0,) * 3)
    with pytest.raises(TrainingStopped, match="no token"):
        Learner(tiny.model(), LearnerSettings()).step([sample])


def test_the_rate_warms_up_and_stays():
    learner = Learner(tiny.model(), LearnerSettings(learning_rate=1.0, max_grad_norm=1e-9), warmup_steps=4)
    rates = [learner.step(make_samples(1))["learner/rate"] for _ in range(6)]
    assert rates == [0.25, 0.5, 0.75, 1, 1, 1]


@pytest.mark.parametrize("aggregation", ["token_mean", "sequence_mean", "token_sum"])
def test_samples_worth_nothing_are_counted_and_not_computed(monkeypatch, aggregation):
    samples = make_samples(6)
    for row in (1, 4):
        samples[row] = structs.replace(samples[row], advantages=(0.0,) * len(samples[row].token_ids))
    _, lean = learner_gradients(tiny.model(), samples, monkeypatch, aggregation=aggregation)
    monkeypatch.setattr("quaere.training.batches._with_gradient", lambda samples: samples)
    _, full = learner_gradients(tiny.model(), samples, monkeypatch, aggregation=aggregation)
    assert lean.keys() == full.keys()
    for name, gradient in lean.items():
        torch.testing.assert_close(gradient, full[name], rtol=1e-4, atol=1e-7)


def test_the_gradient_is_clipped_to_its_norm(monkeypatch):
    samples = make_samples()
    free, _ = learner_gradients(tiny.model(), samples, monkeypatch)
    metrics, caught = learner_gradients(tiny.model(), samples, monkeypatch, max_grad_norm=0.01)
    assert metrics["gradient/norm"] == pytest.approx(free["gradient/norm"])
    assert math.sqrt(sum(float(grad.square().sum()) for grad in caught.values())) == pytest.approx(0.01, rel=1e-3)


def flat(sample):
    return structs.replace(sample, advantages=(0.0,) * len(sample.token_ids))


# A batch of one sample with an advantage (3 tokens) and one without (2 tokens); by what each KL term is divided.
SHARES = {"token_mean": (1 / 5, 1 / 5), "sequence_mean": (1 / (3 * 2), 1 / (2 * 2)), "token_sum": (1 / 2, 1 / 2)}


@pytest.mark.parametrize("how", SHARES)
@pytest.mark.parametrize("kl_flat", [False, True])
def test_the_kl_term_by_hand(how, kl_flat):
    masks = [(False, True, True, True), (False, False, True, True)]
    samples = [Sample((5, 6, 7, 8), mask, (0.0,) * 4, tuple(map(float, mask))) for mask in masks]
    samples[1] = flat(samples[1])
    settings = LearnerSettings(kl_beta=0.5, kl="k2", kl_flat=kl_flat, aggregation=how)
    learner = Learner(tiny.model(), settings, reference=tiny.model(seed=1))
    ours, theirs = learner.score(samples), learner.score_reference(samples)
    terms = [sum((b - a) ** 2 / 2 for a, b in zip(*pair, strict=True)) for pair in zip(ours, theirs, strict=True)]
    assert [len(values) for values in ours] == [3, 2] and min(terms) > 1e-3
    expected = terms[0] * SHARES[how][0] + (terms[1] * SHARES[how][1] if kl_flat else 0.0)
    metrics = learner.step(samples)
    assert metrics["loss/kl"] == pytest.approx(expected, rel=1e-3)
    assert metrics["batch/model_tokens"] == (5 if kl_flat else 3)


@pytest.mark.parametrize("aggregation", ["token_mean", "sequence_mean", "token_sum"])
def test_flat_samples_leave_the_pull_of_the_others_as_it_is(monkeypatch, aggregation):
    """Beside flat samples a sample's gradient, KL included, shrinks with the count of the batch and not otherwise."""
    samples = make_samples(4)
    batch = [*samples, *map(flat, make_samples(3, seed=5))]
    options = {"kl_beta": 0.3, "aggregation": aggregation, "reference": tiny.model(seed=1)}
    _, alone = learner_gradients(tiny.model(), samples, monkeypatch, **options)
    _, beside = learner_gradients(tiny.model(), batch, monkeypatch, **options)
    _, held = learner_gradients(tiny.model(), batch, monkeypatch, kl_flat=True, **options)
    tokens = [sum(sum(one.loss_mask) for one in some) for some in (samples, batch)]
    share = tokens[0] / tokens[1] if aggregation == "token_mean" else len(samples) / len(batch)
    for name, gradient in alone.items():
        torch.testing.assert_close(beside[name], gradient * share, rtol=1e-3, atol=1e-6)
    assert any(not torch.allclose(held[name], beside[name], rtol=1e-2, atol=1e-5) for name in held)


def test_flat_samples_alone_are_measured_and_move_nothing():
    learner = Learner(tiny.model(), LearnerSettings(kl_beta=0.5, weight_decay=0.0), reference=tiny.model(seed=1))
    before = [weight.detach().clone() for weight in learner.model.parameters()]
    metrics = learner.step([flat(sample) for sample in make_samples(2)])
    assert "loss/kl" not in metrics and metrics["gradient/norm"] == 0 and metrics["policy/entropy"] > 0
    assert all(torch.equal(a, b) for a, b in zip(before, learner.model.parameters(), strict=True))


def test_a_warm_up_has_a_least_length_and_ends_with_its_phase():
    longer = LearnerSettings(warmup_ratio=0.1, min_warmup_steps=5)
    assert [longer.warmup_steps(num) for num in (0, 3, 5, 20, 51, 80)] == [0, 3, 5, 5, 6, 8]


@pytest.mark.parametrize("lora_rank", [0, 4])
def test_kl_holds_a_policy_to_where_it_began(lora_rank):
    def distance(beta):
        torch.manual_seed(0)
        settings = LearnerSettings(learning_rate=1e-2, kl_beta=beta, weight_decay=0.0)
        learner = make_learner(tiny.model(), settings, lora_rank)
        samples = make_samples(4)
        before = learner.score(samples)
        metrics = [learner.step(samples) for _ in range(8)]
        if beta:
            assert metrics[0]["loss/kl"] == pytest.approx(0, abs=1e-6)
            assert metrics[-1]["loss/kl"] > 0
        after = learner.score(samples)
        return sum(abs(a - b) for old, new in zip(before, after, strict=True) for a, b in zip(old, new, strict=True))

    assert distance(10.0) < 0.7 * distance(0.0)


def test_an_adapter_alone_learns_and_reaches_the_sampling_copy():
    torch.manual_seed(0)
    base = tiny.model("qwen2")
    learner = make_learner(copy.deepcopy(base), LearnerSettings(learning_rate=1e-2, weight_decay=0.0), lora_rank=4)
    assert all("lora" in name for name, weight in learner.model.named_parameters() if weight.requires_grad)
    samples = make_samples(3)
    for _ in range(4):
        learner.step(samples)
    copied = use_packed_attention(copy.deepcopy(base))
    addresses = [weight.data_ptr() for weight in copied.parameters()]
    engine = Engine(copied, tiny.tokenizer().decode)
    stale = engine.score_many([samples[0].token_ids])[0]
    copy_weights(learner.model, copied, learner.adapter)
    assert [weight.data_ptr() for weight in copied.parameters()] == addresses
    fresh = engine.score_many([samples[0].token_ids])[0]
    wanted = [score for score, flag in zip(fresh, samples[0].loss_mask, strict=True) if flag]
    assert wanted == pytest.approx(learner.score(samples)[0], abs=1e-4)
    assert max(abs(a - b) for a, b in zip(stale, fresh, strict=True)) > 0.01


def test_full_weights_reach_a_bfloat16_copy():
    learner = Learner(tiny.model(), LearnerSettings(learning_rate=1e-2))
    learner.step(make_samples(3))
    copied = tiny.model().to(torch.bfloat16)
    copy_weights(learner.model, copied)
    for (name, mine), theirs in zip(learner.model.named_parameters(), copied.parameters(), strict=True):
        wanted = torch.empty_like(theirs)
        copy_rounded(wanted, mine.detach(), name)
        assert torch.equal(wanted, theirs)


def test_two_roles_share_a_base_and_nothing_else():
    torch.manual_seed(0)
    shared = add_adapters(tiny.model(), ("proposer", "solver"), AdapterSettings(rank=4))
    settings = LearnerSettings(learning_rate=1e-2, weight_decay=0.0)
    proposer, solver = (Learner(shared, settings, adapter=name) for name in ("proposer", "solver"))
    samples = make_samples(3)
    at_first = solver.score(samples)
    for _ in range(3):
        proposer.step(samples)
    assert solver.score(samples) == at_first
    assert proposer.score(samples) != at_first
    after_proposer = proposer.score(samples)
    solver.step(samples)
    assert proposer.score(samples) == after_proposer
    assert solver.score(samples) != at_first


def test_scores_are_those_without_dropout_also_between_updates():
    """GPT-2 drops a tenth of its activations while it is trained."""
    learner = Learner(tiny.model("gpt2"), LearnerSettings(learning_rate=1e-4))
    samples = make_samples(2)
    learner.step(samples)
    learner.model.train()
    first, again = (learner.score(samples) for _ in range(2))
    learner.model.eval()
    assert first == again == learner.score(samples)
