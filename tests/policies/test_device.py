import warnings

import pytest

from quaere.policies.native import device
from quaere.policies.native.device import choose_dtype


@pytest.fixture(autouse=True)
def _measure_anew():
    device._fastest_dtype.cache_clear()
    yield
    device._fastest_dtype.cache_clear()


def dictate(monkeypatch, bfloat16, int8, *, has_bfloat16=True):
    """The seconds of products; float32 takes 1."""
    seconds = {"float32": 1.0, "bfloat16": bfloat16, "int8": int8}
    monkeypatch.setattr(device, "_seconds_of_product", lambda dtype, rows: seconds[dtype])
    monkeypatch.setattr(device, "_multiplies_bfloat16", lambda: has_bfloat16)


@pytest.mark.parametrize(
    ("bfloat16", "int8", "batch", "single"),
    [
        (0.5, 0.6, "bfloat16", "bfloat16"),
        (0.5, 0.4, "bfloat16", "int8"),
        (0.9, 0.9, "float32", "float32"),
        (3.0, 0.3, "float32", "int8"),
    ],
)
def test_a_cpu_samples_in_what_is_clearly_faster(monkeypatch, bfloat16, int8, batch, single):
    dictate(monkeypatch, bfloat16, int8)
    assert choose_dtype("auto", "cpu", "fast") == batch
    assert choose_dtype("auto", "cpu", "fast", interactive=True) == single
    # Where results must repeat, the clock has no say.
    assert choose_dtype("auto", "cpu", "deterministic", interactive=True) == choose_dtype("auto", "cpu") == "float32"


def test_bfloat16_is_not_tried_where_torch_has_no_product_for_it(monkeypatch):
    dictate(monkeypatch, 0.1, 0.9, has_bfloat16=False)
    assert choose_dtype("auto", "cpu", "fast") == "float32"


def test_what_is_asked_for_is_what_comes():
    assert choose_dtype("bfloat16", "cpu", "fast", interactive=True) == "bfloat16"
    assert choose_dtype("auto", "cuda", "deterministic") == "bfloat16"


@pytest.mark.parametrize("dtype", ["float32", "int8"])
def test_products_are_really_timed(dtype):
    assert device._seconds_of_product(dtype, 1) > 0


@pytest.mark.parametrize("interactive", [False, True])
def test_a_real_choice_warns_nobody(interactive):
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert choose_dtype("auto", "cpu", "fast", interactive=interactive) in ("float32", "bfloat16", "int8")
