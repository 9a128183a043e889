"""Roles that share one sampler: whose weights it has, and how it is opened."""

from types import SimpleNamespace

import torch

import tiny
from quaere.training.actors import Actors, open_actors
from quaere.training.settings import EngineSettings, RunConfig


def weights(model):
    return torch.cat([weight.detach().flatten() for weight in model.parameters()])


def test_the_sampler_has_the_weights_of_whoever_plays():
    sampling, changes = tiny.model(num_hidden_layers=1), []
    models = {role: tiny.model(num_hidden_layers=1, seed=seed) for seed, role in ((1, "proposer"), (2, "solver"))}
    sampler = SimpleNamespace(
        engine=SimpleNamespace(model=sampling), weights_changed=lambda: changes.append(weights(sampling).clone())
    )
    actors = Actors(SimpleNamespace(sampler=sampler), models, shared=False)
    for role in ("solver", "solver", "proposer", "solver"):  # the second finds them there
        actors.become(role)
        assert torch.equal(weights(sampling), weights(models[role]))
    assert len(changes) == 3 and torch.equal(changes[1], weights(models["proposer"]))
    with torch.no_grad():
        next(models["solver"].parameters()).add_(1)
    actors.weights_changed("solver")
    actors.become("solver")
    assert torch.equal(weights(sampling), weights(models["solver"]))


def test_as_many_episodes_are_sampled_at_once_as_the_engine_has_rows(tmp_path):
    tiny.model(num_hidden_layers=1).save_pretrained(tmp_path)
    tiny.tokenizer().save_pretrained(tmp_path)
    actors = open_actors(RunConfig(model=str(tmp_path), engine=EngineSettings(device="cpu", max_rows=3)), ("solver",))
    assert actors.concurrency == actors.policy.sampler.engine.max_rows == 3
