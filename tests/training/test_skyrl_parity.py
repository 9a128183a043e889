"""One update by a real SkyRL server and by the local learner, from the same adapter: the same weights.

Slow, and only where a server runs: `quaere trainer start skyrl --model MODEL`, then
`QUAERE_TRAINER_URL=URL pytest -m slow tests/training/test_skyrl_parity.py`.
"""

import os
import random

import pytest

from quaere.training.batches import Sample
from quaere.training.settings import LearnerSettings

URL = os.environ.get("QUAERE_TRAINER_URL", "")
pytestmark = [pytest.mark.slow, pytest.mark.skipif(not URL, reason="QUAERE_TRAINER_URL names no trainer")]
RANK = 8
CASES = [("token_mean", "k3", 0.0), ("sequence_mean", "k3", 0.3), ("token_sum", "k2", 0.1), ("token_mean", "k1", 0.1)]


def draw_sample(draw, num_tokens, scale):
    ids = tuple(draw.randrange(3, 400) for _ in range(num_tokens))
    mask = tuple(place >= 5 and place % 7 != 0 for place in range(num_tokens))
    logprobs = tuple(-draw.random() * flag for flag in mask)
    return Sample(ids, mask, logprobs, tuple(scale * draw.gauss(0, 1) * flag for flag in mask))


def tie_shared(model, adapter):
    """Let layers that begin with the same A share it, as in SkyRL's JAX engine: q, k and v; gate and up."""
    import torch

    for block in model.modules():
        seen = []
        for layer in (layer for _, layer in block.named_children() if hasattr(layer, "lora_A")):
            own = layer.lora_A[adapter]
            same = [one for one in seen if one.shape == own.weight.shape and torch.equal(one, own.weight)]
            if same:
                own.weight = same[0]
            else:
                seen.append(own.weight)


def local_learner(base, folder, settings):
    from quaere.policies.native.bridge import load_model
    from quaere.training.adapters import add_adapters
    from quaere.training.learner import Learner, load_weights
    from quaere.training.settings import AdapterSettings

    model = load_model(base, "cpu", "float32", packed=False, as_base=True)
    model = add_adapters(model, ("solver",), AdapterSettings(rank=RANK, alpha=32))
    load_weights(model, folder, "solver")
    tie_shared(model, "solver")
    return Learner(model, settings, adapter="solver")


def test_an_update_of_the_server_is_the_local_one(tmp_path):
    from peft import get_peft_model_state_dict
    from safetensors.torch import load_file

    from quaere.policies.tinker import TinkerSampler, TinkerService
    from quaere.training.remote_actors import RemoteRole
    from quaere.training.tinker_learner import TinkerLearner

    service = TinkerService(URL)
    (base,) = service.models()
    reference = TinkerSampler(service, str, name="base")
    reference.use(service.call(lambda: service.sdk.create_sampling_client(base_model=base)))
    role, draw = RemoteRole(service, base, rank=RANK, seed=3), random.Random(0)
    samples = [draw_sample(draw, *shape) for shape in ((20, 1.0), (35, 0.5), (12, 0.0), (28, 2.0))]
    for number, (how, kl, beta) in enumerate(CASES):
        chosen = {"aggregation": how, "kl": kl, "kl_beta": beta, "max_grad_norm": 0}
        settings = LearnerSettings(learning_rate=1e-2, **chosen)
        role.drop_moments()
        remote, before, after = TinkerLearner(role, settings, reference=reference), tmp_path / "b", tmp_path / "a"
        role.download(before, base)
        local = local_learner(base, before, settings)
        ours, theirs = local.step(samples), remote.step(samples)
        for name in theirs.keys() - {"policy/entropy"}:  # the server's is an estimate
            assert theirs[name] == pytest.approx(ours[name], rel=1e-4, abs=1e-4), (number, name)
        role.download(after, base)
        found = load_file(after / "adapter_model.safetensors")
        mine = get_peft_model_state_dict(local.model, adapter_name="solver", save_embedding_layers=False)
        assert found.keys() == mine.keys()
        assert max(float((found[name] - mine[name]).abs().max()) for name in found) < 1e-4, number
        was = load_file(before / "adapter_model.safetensors")
        assert max(float((found[name] - was[name]).abs().max()) for name in found) > 5e-3, "it did not move"
