"""A learner that goes on from its checkpoint as if it had never stopped."""

import pytest
import torch
from test_learner import make_learner, make_samples

import tiny
from quaere.errors import BadInput, TrainingStopped
from quaere.runs.checkpoints import save_checkpoint, verify_checkpoint
from quaere.training.learner import Learner
from quaere.training.settings import LearnerSettings


@pytest.mark.parametrize(("lora_rank", "family"), [(0, "llama"), (0, "qwen3"), (4, "llama")])
def test_a_learner_goes_on_bit_for_bit(tmp_path, lora_rank, family):
    settings = LearnerSettings(learning_rate=1e-2)

    def fresh():
        torch.manual_seed(1)
        return make_learner(tiny.model(family), settings, lora_rank, warmup_steps=5)

    batches = [make_samples(4, seed=step) for step in range(6)]
    straight = fresh()
    expected = [straight.step(batch) for batch in batches]
    first = fresh()
    for batch in batches[:3]:
        first.step(batch)
    saved = save_checkpoint(tmp_path, 3, first.save, {})
    verify_checkpoint(saved)
    second = fresh()
    second.load(saved.path)
    assert [second.step(batch) for batch in batches[3:]] == expected[3:]
    for mine, theirs in zip(second.model.parameters(), straight.model.parameters(), strict=True):
        assert torch.equal(mine, theirs)


@pytest.mark.parametrize("num", [36, pytest.param(100, marks=pytest.mark.slow)])
def test_the_losses_of_a_hundred_steps_are_those_of_a_run_that_was_never_stopped(tmp_path, num):
    """Gone on with at five places, each time by a model and an optimizer that know nothing but the checkpoint."""
    batches = [make_samples(2, seed=step, longest=12) for step in range(num)]

    def fresh():
        model = tiny.model(num_hidden_layers=1)
        return make_learner(model, LearnerSettings(learning_rate=1e-2), warmup_steps=30)

    straight = fresh()
    expected = [straight.step(batch) for batch in batches]
    found, learner = [], fresh()
    for step, batch in enumerate(batches):
        if step in (1, 17, 30, num - 3, num - 1):
            saved = save_checkpoint(tmp_path, step, learner.save, {}, keep=1)
            learner = fresh()
            learner.load(saved.path)
        found.append(learner.step(batch))
    assert found == expected
    assert len({metrics["loss/policy"] for metrics in found}) > 0.9 * num  # each is a loss of its own


def test_full_weights_are_loadable_by_transformers_as_they_are(tmp_path):
    from transformers import AutoModelForCausalLM

    learner = Learner(tiny.model(), LearnerSettings(learning_rate=1e-2))
    learner.step(make_samples(3))
    saved = save_checkpoint(tmp_path, 1, learner.save, {})
    loaded = AutoModelForCausalLM.from_pretrained(saved.path)
    for mine, theirs in zip(learner.model.parameters(), loaded.parameters(), strict=True):
        assert torch.equal(mine, theirs)


@pytest.mark.parametrize("value", [float("nan"), float("inf")])
@pytest.mark.parametrize("lora_rank", [0, 4])
def test_a_weight_that_is_not_finite_is_not_saved(tmp_path, lora_rank, value):
    """Not even in an embedding row that no sample uses: neither losses nor gradients show it."""
    model = tiny.model(tie_word_embeddings=False)  # else every logit would show it
    learner = make_learner(model, LearnerSettings(learning_rate=1e-3), lora_rank)
    save_checkpoint(tmp_path, 1, learner.save, {})
    samples = make_samples(4)
    unused = max(set(range(len(tiny.tokenizer()))) - {token for sample in samples for token in sample.token_ids})
    with torch.no_grad():
        if lora_rank:
            learner.parameters[-1][0, 0] = value
        else:
            learner.model.get_input_embeddings().weight[unused, 3] = value
    if not lora_rank:
        with pytest.raises(TrainingStopped, match="a weight that no sample used is not finite; no weight was changed"):
            learner.step(samples)
    with pytest.raises(TrainingStopped, match="contains a value that is not finite: it is not saved"):
        save_checkpoint(tmp_path, 2, learner.save, {})
    assert [path.name for path in tmp_path.iterdir()] == ["step-000001"]


def test_a_moment_that_is_not_finite_is_not_saved(tmp_path):
    learner = make_learner(tiny.model(), LearnerSettings(learning_rate=1e-3), 0)
    learner.step(make_samples(4))
    learner.optimizer.state_dict()["state"][0]["exp_avg"][0, 0] = float("nan")
    with pytest.raises(TrainingStopped, match="exp_avg contains a value that is not finite"):
        learner.save_optimizer(tmp_path / "optimizer.safetensors")


def test_weights_of_another_model_are_refused(tmp_path):
    saved = save_checkpoint(tmp_path, 1, Learner(tiny.model(), LearnerSettings()).save, {})
    other = Learner(tiny.model(num_hidden_layers=4), LearnerSettings())
    with pytest.raises(BadInput, match="has no weights for"):
        other.load(saved.path)
