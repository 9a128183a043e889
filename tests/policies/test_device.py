import warnings

import pytest
import torch

from quaere.policies.native import device
from quaere.policies.native.device import choose_dtype


@pytest.fixture(autouse=True)
def _measure_anew():
    device._bfloat16_wins.cache_clear()
    yield
    device._bfloat16_wins.cache_clear()


@pytest.mark.parametrize(("seconds", "chosen"), [(0.5, "bfloat16"), (0.9, "float32"), (3.0, "float32")])
def test_a_cpu_samples_in_what_is_clearly_faster(monkeypatch, seconds, chosen):
    monkeypatch.setattr(device, "_seconds_of_product", lambda dtype: seconds if dtype == torch.bfloat16 else 1.0)
    assert choose_dtype("auto", "cpu", "fast") == chosen
    # Where results must repeat, the clock has no say.
    assert choose_dtype("auto", "cpu", "deterministic") == choose_dtype("auto", "cpu") == "float32"


def test_what_is_asked_for_is_what_comes():
    assert choose_dtype("bfloat16", "cpu", "fast") == "bfloat16"
    assert choose_dtype("auto", "cuda", "deterministic") == "bfloat16"


def test_products_are_really_timed():
    assert device._seconds_of_product(torch.float32) > 0


def test_trying_bfloat16_warns_nobody(monkeypatch, recwarn):
    def warn(dtype):
        warnings.warn("no instructions for bfloat16", UserWarning, stacklevel=1)
        return 1.0

    monkeypatch.setattr(device, "_seconds_of_product", warn)
    assert choose_dtype("auto", "cpu", "fast") == "float32"
    assert not recwarn.list
