"""The YAML of a config: it reads the same here and in other readers, and looks as a person would type it."""

import pytest
import yaml

from quaere.errors import BadInput
from quaere.runs.config_yaml import _QuickReader, _Reader, parse_yaml, write_yaml

SAME = [4, 3, 2, 1]


def test_a_config_is_written_as_a_person_would():
    text = write_yaml({"model": "größer", "b": SAME, "a": SAME, "steps": (1, 2), "rate": 0.5, "none": None, "on": True})
    assert text == (
        "model: größer\nb: [4, 3, 2, 1]\na: [4, 3, 2, 1]\nsteps: [1, 2]\nrate: 0.5\nnone: null\n'on': true\n"
    )  # the order is kept, and a list that occurs twice is written twice
    assert write_yaml({"a": {"b": 1}}, flow=True) == "{a: {b: 1}}\n"


@pytest.mark.parametrize(
    "text", ["yes", "off", "1e3", "1_000", "0x1f", "12:30", "null", "~", "", " a ", "a\nb", "x " * 500, ".inf", "007"]
)
def test_text_stays_text_for_every_reader(text):
    written = write_yaml({"a": text})
    assert len(written.splitlines()) == 1
    assert parse_yaml(written, "config") == yaml.safe_load(written) == {"a": text}


@pytest.mark.parametrize(
    ("written", "meant"),
    [
        ("yes", "yes"),
        ("off", "off"),
        ("1e-4", 1e-4),
        ("012", 12),
        ("12:30", "12:30"),
        ("TRUE", True),
        ("Null", None),
        ("-.Inf", float("-inf")),
        ("9" * 5000, "9" * 5000),  # more digits than Python reads
    ],
)
def test_scalars_are_those_of_yaml_1_2(written, meant):
    assert parse_yaml(f"a: {written}", "config") == {"a": meant}
    assert yaml.load(f"a: {written}", Loader=_Reader) == yaml.load(f"a: {written}", Loader=_QuickReader) == {"a": meant}


def test_both_readers_read_the_deepest_that_the_quick_one_is_given():
    deepest = "".join(f"{' ' * depth}a:\n" for depth in range(440))
    for text in ("[" * 240 + "]" * 240, "- " * 240 + "x", deepest):
        assert parse_yaml(text, "config") == yaml.load(text, Loader=_QuickReader)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("a: 1\nb:\n  c: 1\n  c: 2", "config, line 4: bad YAML: c is given twice"),
        ("a: [1", "config, line 1: bad YAML"),
        ("a: 1\nb: \x07", "config, line 2: bad YAML: a character that YAML does not allow"),
        ("[" * 600, "config: bad YAML: nested too deeply"),
        ("[\n" * 30_000, "config: bad YAML: nested too deeply"),  # libyaml would end the process
        ("- " * 3000 + "x", "config: bad YAML: nested too deeply"),
        ("? " * 3000 + "x", "config: bad YAML: nested too deeply"),
        ("a: !!python/object:os.system x", "config, line 1: bad YAML"),
        ("? [1]\n: 2", "config, line 1: bad YAML"),
    ],
)
def test_bad_yaml_is_named_by_its_line(text, said):
    with pytest.raises(BadInput) as caught:
        parse_yaml(text, "config")
    assert str(caught.value).startswith(said)
