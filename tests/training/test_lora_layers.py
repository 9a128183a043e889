"""An adapted layer computes what peft's own does, with less to remember for the backward pass."""

from __future__ import annotations

import pytest
import torch
from peft import LoraConfig, get_peft_model
from peft.tuners.lora import Linear
from torch import nn

from quaere.errors import BadInput
from quaere.training.adapters import FusedLinear, fuse
from quaere.training.learner import load_weights, save_weights


class Pair(nn.Module):
    """Two linear layers, the first with a bias."""

    def __init__(self) -> None:
        super().__init__()
        self.up = nn.Linear(24, 40)
        self.down = nn.Linear(40, 24, bias=False)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.down(torch.tanh(self.up(x)))


def adapted(seed: int = 0, *, alpha: int = 12, fused: bool) -> nn.Module:
    """A pair with two adapters of rank 8, all of whose weights are drawn at random; "one" is active."""
    torch.manual_seed(seed)
    config = LoraConfig(r=8, lora_alpha=alpha, target_modules=["up", "down"])
    model = get_peft_model(Pair(), config, adapter_name="one")
    model.add_adapter("two", config)
    model.set_adapter("one")
    for weight in model.parameters():
        weight.data = torch.randn(weight.shape) / 4
    if fused:
        fuse(model)
    return model


def run(model: nn.Module, x: torch.Tensor) -> tuple[torch.Tensor, dict[str, torch.Tensor]]:
    """The outputs, and the gradients of their squared sum, of the inputs too."""
    x = x.clone().requires_grad_()
    out = model(x)
    out.float().square().sum().backward()
    grads = {name: weight.grad for name, weight in model.named_parameters() if weight.grad is not None}
    return out.detach(), grads | {"x": x.grad}


def test_a_layer_by_hand():
    model = get_peft_model(nn.Sequential(nn.Linear(2, 2)), LoraConfig(r=1, lora_alpha=3, target_modules=["0"]))
    fuse(model)
    layer = next(module for module in model.modules() if isinstance(module, FusedLinear))
    layer.base_layer.weight.data = torch.tensor([[1.0, 0.0], [0.0, 2.0]])
    layer.base_layer.bias.data = torch.tensor([10.0, 20.0])
    layer.lora_A["default"].weight.data = torch.tensor([[1.0, -1.0]])
    layer.lora_B["default"].weight.data = torch.tensor([[0.5], [4.0]])
    # Wx + b = (15, 26); Ax = 2; s BAx = 3 (1, 8)
    assert layer(torch.tensor([[[5.0, 3.0]]])).tolist() == [[[18.0, 50.0]]]


@pytest.mark.parametrize("shape", [(24,), (5, 24), (2, 3, 24)])
def test_outputs_and_gradients_are_those_of_peft(shape):
    x = torch.randn(shape, generator=torch.Generator().manual_seed(1))
    ours, theirs = run(adapted(fused=True), x), run(adapted(fused=False), x)
    assert ours[0].shape == shape
    torch.testing.assert_close(ours[0], theirs[0], rtol=1e-4, atol=1e-4)
    assert ours[1].keys() == theirs[1].keys()
    assert sum("lora_" in name for name in ours[1]) == 4  # A and B of one adapter in two layers
    for name, grad in theirs[1].items():
        torch.testing.assert_close(ours[1][name], grad, rtol=1e-4, atol=1e-3)


def test_other_adapters_are_chosen_and_left_out_as_by_peft():
    ours, theirs = adapted(fused=True), adapted(fused=False)
    x = torch.randn(4, 24, generator=torch.Generator().manual_seed(2))
    for model in (ours, theirs):
        model.set_adapter("two")
    assert not torch.allclose(ours(x), adapted(fused=True)(x), atol=0.1)
    torch.testing.assert_close(ours(x), theirs(x), rtol=1e-4, atol=1e-4)
    with ours.disable_adapter(), theirs.disable_adapter():
        assert torch.equal(ours(x), theirs(x))


def test_a_layer_that_the_active_adapter_leaves_alone_is_the_base_alone():
    x = torch.randn(4, 24, generator=torch.Generator().manual_seed(2))
    outs = []
    for fused in (True, False):
        model = adapted(fused=fused)
        model.add_adapter("three", LoraConfig(r=8, target_modules=["down"]))
        model.set_adapter("three")
        up = model.get_submodule("base_model.model.up")
        assert "three" not in up.lora_A
        assert torch.equal(up(x), up.base_layer(x))
        outs.append(model(x))
    torch.testing.assert_close(*outs, rtol=1e-4, atol=1e-4)


def test_under_autocast_it_is_no_further_from_the_exact_result():
    """The sum of products is rounded once, peft's three times."""
    x = torch.randn(200, 24, generator=torch.Generator().manual_seed(3))
    exact = adapted(fused=False).double()(x.double())
    errors = []
    for fused in (True, False):
        model = adapted(fused=fused)
        for module in model.modules():
            if isinstance(module, Linear):
                module.base_layer.to(torch.bfloat16)
        with torch.autocast("cpu", dtype=torch.bfloat16):
            out, grads = run(model, x)
        assert all(torch.isfinite(grad).all() for grad in grads.values())
        assert {grad.dtype for name, grad in grads.items() if "lora_" in name} == {torch.float32}
        errors.append((out.double() - exact).square().mean().sqrt().item())
    ours, theirs = errors
    assert ours < 1.05 * theirs


def test_less_is_kept_for_the_backward_pass():
    x = torch.randn(64, 24).to(torch.bfloat16)
    kept = []
    for fused in (True, False):
        model, sizes = adapted(fused=fused), {}

        def keep(tensor: torch.Tensor, sizes: dict[int, int] = sizes) -> torch.Tensor:
            sizes[tensor.data_ptr()] = tensor.nbytes
            return tensor

        hooks = torch.autograd.graph.saved_tensors_hooks(keep, lambda tensor: tensor)
        with hooks, torch.autocast("cpu", dtype=torch.bfloat16):
            out = model(x.requires_grad_())
        kept.append(sum(sizes.values()))
        del out
    assert kept[0] < kept[1]


def test_an_adapter_of_another_dtype_is_cast_as_by_peft():
    ours, theirs = adapted(fused=True), adapted(fused=False)
    for model in (ours, theirs):
        for module in model.modules():
            if isinstance(module, Linear):
                module.base_layer.to(torch.bfloat16)
    x = torch.randn(4, 24).to(torch.bfloat16)
    assert torch.equal(ours(x), theirs(x))


def test_weights_of_another_rank_and_missing_ones_are_refused_in_one_line(tmp_path):
    save_weights(adapted(fused=False), tmp_path, "one")
    load_weights(adapted(1, fused=False), tmp_path, "one")
    wide = get_peft_model(Pair(), LoraConfig(r=4, target_modules=["up", "down"]), adapter_name="one")
    for folder in (tmp_path, tmp_path / "empty"):
        with pytest.raises(BadInput, match=r"belongs? to another model") as caught:
            load_weights(wide, folder, "one")
        assert "--model M --force" in caught.value.hint
