from functools import cache
from types import SimpleNamespace

import pytest
import torch
from msgspec import structs

import tiny
from quaere.errors import ModelMissing
from quaere.policies.native.attention import Packing
from quaere.policies.native.bridge import packed_states, use_packed_attention, use_varlen_attention
from quaere.policies.native.engine import Engine, Request
from quaere.policies.sampler import SamplingParams
from quaere.training import estimate as estimate_module
from quaere.training.adapters import add_adapters
from quaere.training.estimate import RunEstimate, estimate_run, needs_checkpointing
from quaere.training.learner import Learner, trainable_weights
from quaere.training.settings import AdapterSettings, EngineSettings, LearnerSettings

FAMILIES = ["llama", "qwen2", "qwen3", "mistral", "gemma2", "gemma3", "gpt2"]


@pytest.fixture(autouse=True, scope="module")
def _counted_once():
    """The parameters of one config with the same adapters are counted once for all tests."""
    count, configs = estimate_module._count_parameters, {}

    @cache
    def count_once(name, adapter):
        return count(configs[name], adapter)

    def counted(config, adapter):
        name = f"{type(config)} {config.to_json_string(use_diff=False)}"
        configs[name] = config
        return count_once(name, adapter)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(estimate_module, "_count_parameters", counted)
        yield


def estimate(model, *, rank=0, device="cpu", max_rows=4, num_tokens=512, num_roles=2, learner=None, **engine):
    return estimate_run(
        getattr(model, "config", model),
        adapter=AdapterSettings(rank=rank),
        engine=EngineSettings(max_rows=max_rows, **engine),
        learner=learner or LearnerSettings(),
        sequence_tokens=num_tokens,
        device=device,
        num_roles=num_roles,
    )


def num_bytes(weights):
    return sum(weight.numel() * weight.element_size() for weight in weights)


# --------------------------------------------------------------------------------------------- what is counted exactly


@pytest.mark.parametrize("family", [*FAMILIES, *tiny.PLAIN])
def test_parameters_and_weights_are_those_of_the_real_model(family):
    model = tiny.model(family)
    found = estimate(model)
    assert found.num_parameters == found.num_trainable == sum(weight.numel() for weight in model.parameters())
    assert found.memory.weights == 2 * num_bytes(model.parameters())
    assert estimate(model, num_roles=1).memory.weights == num_bytes(model.parameters())
    assert found.memory.adapters == 0


def test_an_untied_output_is_counted_too():
    model = tiny.model("llama", tie_word_embeddings=False)
    assert estimate(model).num_parameters == sum(weight.numel() for weight in model.parameters())
    assert estimate(model).num_parameters == estimate(tiny.model("llama")).num_parameters + 440 * 48


@pytest.mark.parametrize("family", [*FAMILIES, *tiny.PLAIN])
def test_adapters_are_those_peft_makes(family):
    model = tiny.model(family)
    base = list(model.parameters())
    found = estimate(model, rank=5)
    adapted = add_adapters(model, ("proposer", "solver"), AdapterSettings(rank=5))
    one = trainable_weights(adapted, "solver")
    assert found.num_trainable == sum(weight.numel() for weight in one)
    assert found.num_parameters == sum(weight.numel() for weight in base)
    assert found.memory.weights == num_bytes(base)
    assert found.memory.weights + found.memory.adapters == num_bytes(adapted.parameters())


def test_adapters_over_a_bfloat16_base_stay_float32():
    model = tiny.model("llama").bfloat16()
    found = estimate(model, rank=4, device="cuda")
    adapted = add_adapters(model, ("proposer", "solver"), AdapterSettings(rank=4))
    assert found.memory.weights + found.memory.adapters == num_bytes(adapted.parameters())


@pytest.mark.parametrize("rank", [0, 4])
def test_gradients_and_moments_are_what_the_optimizer_holds(rank):
    model = tiny.model("llama")
    found = estimate(model, rank=rank).memory
    if rank:
        model = add_adapters(model, ("solver",), AdapterSettings(rank=rank))
    learner = Learner(model, LearnerSettings(), adapter="solver" if rank else "")
    for weight in learner.parameters:
        weight.grad = torch.ones_like(weight)
    assert found.gradients == num_bytes(weight.grad for weight in learner.parameters)
    learner.optimizer.step()
    moments = [value for state in learner.optimizer.state.values() for value in state.values() if value.dim()]
    assert found.moments == num_bytes(moments)


def test_what_is_sampled_and_not_learned_from_takes_keys_and_values_and_each_objective_its_moments():
    config = tiny.model("llama").config
    shared = {"adapter": AdapterSettings(rank=4), "engine": EngineSettings(max_rows=4), "learner": LearnerSettings()}

    def memory(tokens, **rest):
        return estimate_run(config, **shared, sequence_tokens=tokens, device="cpu", **rest).memory

    short, long, both = memory(512), memory(2048), memory(512, sampled_tokens=2048, num_moments=2)
    assert both.kv_cache == long.kv_cache > short.kv_cache
    assert both.activations == short.activations
    assert both.moments == 2 * short.moments


@pytest.mark.parametrize("family", FAMILIES)
@pytest.mark.parametrize(("max_rows", "num_tokens"), [(4, 512), (5, 500), (6, 513)])
def test_keys_and_values_are_what_the_engine_reserves(family, max_rows, num_tokens):
    model = tiny.model(family)
    engine = Engine(use_packed_attention(tiny.model(family)), tiny.tokenizer().decode, max_rows=max_rows)
    engine.add(Request("x", [1] * 20, SamplingParams(max_tokens=num_tokens - 20)))
    engine.step()
    held = [tensor for layer in engine.storage.layers.values() for tensor in layer]
    assert len(held) == 2 * 2
    assert estimate(model, max_rows=max_rows, num_tokens=num_tokens).memory.kv_cache == num_bytes(held)


def test_a_small_batch_is_all_there_is_to_keep():
    config = tiny.model("llama").config
    shared = {"adapter": AdapterSettings(rank=4), "engine": EngineSettings(), "device": "cpu"}

    def activations(num_samples, micro=8192, tokens=640):
        learner = LearnerSettings(micro_tokens=micro)
        found = estimate_run(config, **shared, learner=learner, sequence_tokens=tokens, num_samples=num_samples)
        return found.memory.activations

    # Six episodes of 640 tokens are 3,840 tokens; thirteen are more than a micro-batch of 8,192 holds.
    assert activations(6) == activations(None, micro=3840)
    assert activations(6) * 8192 == activations(None) * 3840
    assert activations(13) == activations(None)
    assert activations(1, micro=256) == activations(None, micro=640)  # an episode is never split
    found = [activations(num) for num in (1, 2, 7, 12, 13, 19)]
    assert found == sorted(found)


def test_a_reference_only_for_kl_without_adapters():
    model = tiny.model("llama")
    kl = LearnerSettings(kl_beta=0.001)
    assert estimate(model).memory.reference == 0
    assert estimate(model, rank=4, learner=kl).memory.reference == 0
    assert estimate(model, learner=kl).memory.reference == num_bytes(Learner(model, kl).reference.parameters())


# ------------------------------------------------------------------------------------------------ precision and sums


def test_precision_by_device():
    model = tiny.model("llama")
    size = estimate(model).num_parameters
    cpu, cuda = estimate(model).memory, estimate(model, device="cuda").memory
    assert (cpu.sampling_copy, cuda.sampling_copy) == (4 * size, 2 * size)
    assert cuda.kv_cache * 2 == cpu.kv_cache
    assert (cpu.cast_weights, cuda.cast_weights) == (0, 2 * size)
    assert cuda.weights == cpu.weights
    assert estimate(model, device="cuda", dtype="float32").memory.sampling_copy == 4 * size


def test_precision_of_a_frozen_base():
    model = tiny.model("llama")
    size = estimate(model).num_parameters
    assert estimate(model, rank=2).memory.weights == 4 * size
    assert estimate(model, rank=2, device="cuda").memory.weights == 2 * size
    assert estimate(model, rank=2, device="cuda").memory.cast_weights == 0
    wide = estimate(model, rank=2, device="cuda", base_dtype="float32").memory
    assert (wide.weights, wide.cast_weights) == (4 * size, 2 * size)


def test_total_and_logits():
    memory = estimate(tiny.model("llama")).memory
    assert memory.logits == 1024 * 440 * 4 * 3
    assert memory.total == sum(structs.asdict(memory).values())


# -------------------------------------------------------------------------------------------------------- roughly


def kept_bytes(model, rows, tokens):
    """What autograd really saves in a forward pass, weights aside."""
    own = {weight.untyped_storage().data_ptr() for weight in model.parameters()}
    saved = {}

    def keep(tensor):
        storage = tensor.untyped_storage()
        if storage.data_ptr() not in own:
            saved[storage.data_ptr()] = (storage.nbytes(), tensor)  # holding it keeps its address its own
        return tensor

    ids = torch.zeros(rows * tokens, dtype=torch.long)
    packing = Packing([tokens] * rows, torch.device("cpu"))
    use_varlen_attention(model)
    with torch.autograd.graph.saved_tensors_hooks(keep, lambda tensor: tensor):
        states = packed_states(model.train(), ids, packing)
    assert states.requires_grad
    return sum(size for size, _ in saved.values())


@pytest.mark.parametrize("family", ["llama", "qwen2", "qwen3", "mistral", "gemma3"])
def test_activations_are_near_what_autograd_keeps(family):
    model = tiny.model(family, num_hidden_layers=6)
    found = estimate(model, num_tokens=64, learner=LearnerSettings(micro_tokens=128)).memory.activations
    assert 0.7 < found / kept_bytes(model, 2, 64) < 1.4


def test_checkpointing_keeps_the_inputs_of_layers_and_one_layer():
    model = tiny.model("llama", num_hidden_layers=6)
    settings = LearnerSettings(micro_tokens=128, gradient_checkpointing=True)
    plain = estimate(model, num_tokens=64, learner=LearnerSettings(micro_tokens=128)).memory.activations
    found = estimate(model, num_tokens=64, learner=settings).memory.activations
    Learner(model, settings)  # switches it on
    between_layers = found - plain // 6  # the layer computed again is not alive yet after a forward pass
    assert 0.4 < between_layers / kept_bytes(model, 2, 64) <= 1.4
    assert found < plain / 3


def test_when_a_gpu_has_too_little_memory_by_hand(monkeypatch):
    """A step of 64 tokens over 1,000 weights in float32, of which 100 are trained.

    Gradients and moments 100 * 4 * 3, weights cast 1,000 * 2, logits 1,024 * 440 * 4 * 3; activations of 64 tokens in
    2 layers: 8 * 48 * 4 + (4 * 96 + 2 * 80) * 2 = 2,624 each. A quarter is added.
    """
    needed = (1200 + 2000 + 5_406_720 + 64 * 2 * 2624) * 5 // 4
    weight = SimpleNamespace(element_size=lambda: 4, numel=lambda: 1000)
    model = SimpleNamespace(parameters=lambda: iter([weight]), config=tiny.model("llama").config)
    trained = [SimpleNamespace(numel=lambda: 100)]
    for free in (needed - 1, needed, needed + 1):
        monkeypatch.setattr(estimate_module, "_free_bytes", lambda free=free: free)
        found = needs_checkpointing(model, trained, LearnerSettings(micro_tokens=64), sequence_tokens=64)
        assert found == (free < needed)


def test_one_long_episode_is_a_micro_batch_of_its_own():
    model = tiny.model("llama")
    small = LearnerSettings(micro_tokens=100)
    long = estimate(model, num_tokens=700, learner=small).memory.activations
    assert long == estimate(model, num_tokens=64, learner=LearnerSettings(micro_tokens=700)).memory.activations


# ------------------------------------------------------------------------------------------------ folders, refusals


def test_a_folder_without_weights_is_enough(tmp_path):
    model = tiny.model("qwen3")
    model.config.save_pretrained(tmp_path)
    found = estimate(tmp_path)
    assert isinstance(found, RunEstimate)
    assert found == estimate(str(tmp_path)) == estimate(model)


@pytest.mark.parametrize(
    "text",
    [
        "{",
        "{}",
        '{"model_type": "nonsense"}',
        '{"model_type": "clip_vision_model"}',
        '{"model_type": "llama", "hidden_size": "wide"}',
        '{"model_type": "llama", "hidden_size": 64, "num_attention_heads": 7}',
    ],
)
def test_what_is_no_model_is_refused_in_one_line(tmp_path, text):
    (tmp_path / "config.json").write_text(text)
    with pytest.raises(ModelMissing) as caught:
        estimate(tmp_path)
    assert "\n" not in str(caught.value)


def test_a_folder_without_a_config_is_refused(tmp_path):
    with pytest.raises(ModelMissing, match="cannot read the config of"):
        estimate(tmp_path)
