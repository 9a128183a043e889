from typing import Annotated, Literal

import pytest
import yaml
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec import Meta, Struct, structs

from properties import examples
from quaere.errors import BadInput
from quaere.rollout.episode import Limits
from quaere.training.config import config_from_yaml, config_to_yaml, diff_configs, load_config
from quaere.training.settings import LearnerSettings


class Role(Struct, frozen=True, forbid_unknown_fields=True):
    steps: int = 50
    ratio: tuple[int, ...] = (4, 3, 2, 1)
    advantage: Literal["hrpo", "grpo"] = "hrpo"
    document: bool = True
    limits: Limits = Limits(sequence_tokens=4096)
    learner: LearnerSettings = LearnerSettings(kl="k2")


class Config(Struct, frozen=True, forbid_unknown_fields=True):
    model: str = ""
    batch: Annotated[int, Meta(ge=1)] = 8
    cap: float | None = None
    proposer: Role = Role()
    solver: Role = Role(steps=7)


PRESETS = {
    "paper": {"solver.steps": 60, "proposer.limits": {"max_turns": 2, "topk": 1}},
    "demo": {"proposer": {"steps": 1, "learner.learning_rate": 1e-4}},
}


def load(*assignments, preset=None, file=None, given=None):
    return load_config(
        Config, presets=PRESETS, preset=preset, file=file, assignments=assignments, given={} if given is None else given
    )


def refuse(*assignments, **layers):
    with pytest.raises(BadInput) as caught:
        load(*assignments, **layers)
    assert "\n" not in str(caught.value)
    return str(caught.value)


def write(tmp_path, text):
    path = tmp_path / "run.yaml"
    path.write_text(text, encoding="utf-8")
    return path


# ------------------------------------------------------------------------------------------------------------- layers


def test_nothing_said_is_the_schema():
    assert load() == Config()


def test_each_layer_overrules_the_one_before(tmp_path):
    file = write(tmp_path, "solver: {steps: 61}\nmodel: from-file\nproposer.steps: 3\n")
    assert load(preset="paper").solver.steps == 60
    assert load(preset="paper", file=file).solver.steps == 61
    assert load(preset="paper", file=file, given={"solver.steps": 62}).solver.steps == 62
    assert load("solver.steps=63", preset="paper", file=file, given={"solver.steps": 62}).solver.steps == 63
    assert load("solver.steps=63", "solver.steps=64").solver.steps == 64
    whole = load(preset="paper", file=file, given={"model": None})
    assert (whole.model, whole.proposer.steps) == ("from-file", 3)


def test_a_section_merges_into_its_own_default():
    config = load("proposer.limits={max_turns: 9}", preset="paper")
    assert config.proposer.limits == Limits(max_turns=9, topk=1, sequence_tokens=4096)
    assert config.proposer.learner.kl == "k2"
    assert config.solver.limits == Limits(sequence_tokens=4096)


def test_nested_and_dotted_keys_mean_the_same(tmp_path):
    nested = write(tmp_path, "proposer:\n  learner:\n    learning_rate: 2e-5\n    betas: [0.8, 0.9]\n")
    first = load(file=nested)
    dotted = write(tmp_path, "proposer.learner: {learning_rate: 0.00002}\nproposer:\n  learner.betas: [0.8, 0.9]\n")
    assert load(file=dotted) == first
    assert first.proposer.learner.betas == (0.8, 0.9)


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("1e-6", 1e-6),
        ("1E-6", 1e-6),
        ("1", 1.0),
        (".5", 0.5),
        ("2.5e+3", 2500.0),
        ("+3.", 3.0),
        (".inf", float("inf")),
    ],
)
def test_numbers_of_every_spelling(text, value):
    found = load(f"proposer.learner.learning_rate={text}").proposer.learner.learning_rate
    assert (found, type(found)) == (value, float)


def test_a_leading_zero_is_not_octal():
    assert load("batch=010").batch == 10


@pytest.mark.parametrize(
    "text", ["2024", "no", "null", "2024-01-01", "a: b", "[open", "1e-6", "http://host:80/x=y", "#1"]
)
def test_text_needs_no_quotes(text):
    assert load(f"model={text}").model == text


def test_quotes_around_text_are_taken_off():
    assert load("model='a b'").model == "a b"
    assert load("model=").model == ""


def test_other_values():
    config = load("proposer.ratio=[1,1, 1]", "proposer.document=false", "proposer.advantage=grpo", "cap=2")
    assert config.proposer.ratio == (1, 1, 1)
    assert (config.proposer.document, config.proposer.advantage, config.cap) == (False, "grpo", 2.0)
    assert load("cap=2", "cap=null").cap is None


@pytest.mark.parametrize("text", ["", "# nothing\n", "proposer:\n  # steps: 3\n", "---\n"])
def test_a_file_that_says_nothing(tmp_path, text):
    assert load(file=write(tmp_path, text)) == Config()


def test_a_file_with_a_byte_order_mark(tmp_path):
    assert load(file=write(tmp_path, "\ufeffbatch: 3\n")).batch == 3


def test_required_settings():
    class Needy(Struct):
        name: str
        limits: Limits

    def needy(*assignments):
        return load_config(Needy, presets={}, preset=None, file=None, assignments=assignments)

    assert needy("name=x", "limits.topk=2") == Needy("x", Limits(topk=2))
    with pytest.raises(BadInput, match=r"^name must be given: text$"):
        needy()


# ----------------------------------------------------------------------------------------------------------- refusals


@pytest.mark.parametrize(
    ("key", "meant"),
    [
        ("lr", "proposer.learner.learning_rate"),
        ("learning_rate", "proposer.learner.learning_rate"),
        ("proposer.learning_rate", "proposer.learner.learning_rate"),
        ("solver.learning_rate", "solver.learner.learning_rate"),
        ("solver.lr", "solver.learner.learning_rate"),
        ("propser.steps", "proposer.steps"),
        ("solver.stepz", "solver.steps"),
        ("steps", "proposer.steps"),
        ("max_turn", "proposer.limits.max_turns"),
        ("batchsize", "batch"),
        ("solvr", "solver"),
        ("Model", "model"),
    ],
)
def test_an_unknown_key_is_refused_with_the_nearest(key, meant):
    assert refuse(f"{key}=1") == f"unknown setting {key}: did you mean {meant}?"


def test_an_unknown_key_with_no_likeness():
    assert refuse("xyzzy=1") == "unknown setting xyzzy"
    assert refuse("batch.x=1") == "unknown setting batch.x"
    assert refuse("b=1") == "unknown setting b"  # one letter is no initials: many settings begin with it


def test_unknown_keys_are_named_in_full_wherever_they_stand(tmp_path):
    file = write(tmp_path, "proposer:\n  limits:\n    max_turn: 3\n")
    meant = "unknown setting proposer.limits.max_turn: did you mean proposer.limits.max_turns?"
    assert refuse(file=file) == f"{file}: {meant}"
    assert refuse("proposer={limits: {max_turn: 3}}") == meant
    assert refuse(given={"proposer.limits.max_turn": 3}) == meant
    assert "unknown setting 1" in refuse(file=write(tmp_path, "1: 2\n"))
    assert "unknown setting <<" in refuse(file=write(tmp_path, "<<: {batch: 2}\n"))


def test_unknown_presets():
    assert refuse(preset="papr") == "unknown preset 'papr': did you mean paper? There are paper, demo"
    assert refuse(preset="zzz") == "unknown preset 'zzz': There are paper, demo"


def test_stored_configs_may_name_settings_that_are_gone():
    stored = "proposer:\n  steps: 3\n  learner:\n    loss: clipped\n    epsilon: 0.2\n    kl: k1\n"
    config = config_from_yaml(Config, stored)
    assert (config.proposer.steps, config.proposer.learner.kl) == (3, "k1")


@pytest.mark.parametrize(
    ("assignment", "says"),
    [
        ("proposer.steps=many", "proposer.steps must be a whole number, not 'many'"),
        ("proposer.steps=1.5", "proposer.steps must be a whole number, not 1.5"),
        ("proposer.steps='3'", "proposer.steps must be a whole number, not '3'"),
        ("proposer.steps=true", "proposer.steps must be a whole number, not true"),
        ("proposer.steps=", "proposer.steps must be a whole number, not empty"),
        ("proposer.steps=!!int many", "proposer.steps must be a whole number, not 'many'"),
        ("batch=0", "batch must be at least 1, not 0"),
        ("batch=1.5", "batch must be a whole number of at least 1, not 1.5"),
        ("batch=-99999999999999999999", "batch must be at least 1, not -99999999999999999999"),
        ("proposer.limits.topk=0", "proposer.limits.topk must be at least 1, not 0"),
        ("proposer.learner.learning_rate=0", "proposer.learner.learning_rate must be above 0, not 0"),
        ("proposer.learner.warmup_ratio=1.5", "proposer.learner.warmup_ratio must be between 0 and 1, not 1.5"),
        ("proposer.learner.loss=clipped", "unknown setting proposer.learner.loss"),
        ("proposer.learner.learning_rate=.nan", "proposer.learner.learning_rate must be a number above 0, not '.nan'"),
        ("cap=high", "cap must be a number or null, not 'high'"),
        ("proposer.document=yes", "proposer.document must be true or false, not 'yes'"),
        ("proposer.document=1", "proposer.document must be true or false, not 1"),
        ("proposer.advantage=ppo", "proposer.advantage must be one of grpo, hrpo, not 'ppo'"),
        ("proposer.ratio=3", "proposer.ratio must be a list of whole numbers, not 3"),
        ("proposer.ratio=[1, a]", "proposer.ratio must be a list of whole numbers, not [1, 'a']"),
        ("proposer.ratio=[1,", "proposer.ratio must be a list of whole numbers, not '[1,'"),
        (
            "proposer.learner.betas=[0.9]",
            "proposer.learner.betas must be a list of 2 numbers of at least 0 and below 1, not [0.9]",
        ),
        ("proposer=3", "proposer is a group of settings, such as proposer.steps; it cannot be 3"),
        ("proposer=", "proposer is a group of settings, such as proposer.steps; it cannot be ''"),
        ("proposer.steps", "a setting must have the form KEY=VALUE, not 'proposer.steps'"),
        ("=3", "a setting must have the form KEY=VALUE, not '=3'"),
        ("proposer={steps: 1, steps: 2}", "proposer, line 1: bad YAML: steps is given twice"),
    ],
)
def test_wrong_values_are_refused_with_what_would_be_right(assignment, says):
    assert refuse(assignment) == says


@pytest.mark.parametrize("text", ["9" * 5000, "[" * 600, "'" + "a" * 9000 + "'", "[1, [2, [3, [4, [5, [6, [7]]]]]]]"])
def test_a_monstrous_value_still_makes_a_short_line(text):
    assert len(refuse(f"proposer.steps={text}")) < 200


def test_a_file_of_aliases_within_aliases_is_refused_at_once(tmp_path):
    lines = ["a0: &a0 [x, x, x, x, x, x, x, x, x, x]"]
    lines += [f"a{n}: &a{n} [{', '.join([f'*a{n - 1}'] * 10)}]" for n in range(1, 12)]
    nested = "".join(f"  {line}\n" for line in lines)
    says = refuse(file=write(tmp_path, f"batch:\n{nested}"))
    assert "batch must be a whole number" in says
    assert len(says) < 200 + len(str(tmp_path))


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("batch: 3\nproposer: [1\nsolver: 2\n", ", line 3: bad YAML: "),
        ("batch: 3\nbatch: 4\n", ", line 2: bad YAML: batch is given twice"),
        ("proposer.steps: 3\nproposer: {steps: 4}\n", ": proposer.steps is given twice"),
        ("a: b: c\n", ", line 1: bad YAML: mapping values are not allowed here"),
        ("batch: 3\n---\nbatch: 4\n", ", line 2: bad YAML: "),
        ("batch: !!python/object:os.system x\n", ", line 1: bad YAML: "),
        ("batch: 2\nmodel: a\x07b\n", ", line 2: bad YAML: a character that YAML does not allow"),
        ("[a]: 1\n", ", line 1: bad YAML: "),
        ("- 1\n- 2\n", " must contain settings, as in `model: ...`, not [1, 2]"),
        ("just words\n", " must contain settings, as in `model: ...`, not 'just words'"),
        ("model: 2024\n", ": model must be text, not 2024"),
        ("proposer: 3\n", ": proposer is a group of settings, such as proposer.steps; it cannot be 3"),
        ("[" * 600, ": bad YAML: nested too deeply"),
    ],
)
def test_files_that_are_no_settings(tmp_path, text, says):
    file = write(tmp_path, text)
    assert refuse(file=file).startswith(f"{file}{says}")


def test_files_that_cannot_be_read(tmp_path):
    assert refuse(file=tmp_path) == f"{tmp_path} is a folder, not a YAML file of settings"
    missing = tmp_path / "none.yaml"
    assert refuse(file=missing) == f"the settings file {missing} does not exist"
    binary = tmp_path / "model.gguf"
    binary.write_bytes(b"GGUF\x00\xff\xfe\x80")
    assert refuse(file=binary) == f"{binary} is not text in UTF-8"


# ----------------------------------------------------------------------------------------------------- YAML and back

NUMBERS = st.floats(allow_nan=False)
LIMITS = st.builds(Limits, *[st.integers(min_value=1)] * 6)
LEARNERS = st.builds(
    LearnerSettings,
    learning_rate=st.floats(min_value=0, exclude_min=True),
    betas=st.tuples(*[st.floats(0, 1, exclude_max=True)] * 2),
    kl=st.sampled_from(["k1", "k2", "k3"]),
    gradient_checkpointing=st.booleans(),
)
ROLES = st.builds(
    Role,
    steps=st.integers(),
    ratio=st.lists(st.integers()).map(tuple),
    document=st.booleans(),
    limits=LIMITS,
    learner=LEARNERS,
)
WORDS = st.sampled_from(
    ["yes", "1e-6", "09", "0x1", "1_0", "null", "~", "1:30", "2024-01-01", ".inf", "true", "=", "<<"]
)
CONFIGS = st.builds(
    Config,
    model=st.text() | WORDS,
    batch=st.integers(min_value=1),
    cap=st.none() | NUMBERS,
    proposer=ROLES,
    solver=ROLES,
)


@settings(max_examples=examples(25))
@given(CONFIGS)
def test_yaml_and_back_is_the_same_config(config):
    text = config_to_yaml(config)
    read = config_from_yaml(Config, text)
    assert read == config
    assert diff_configs(config, read) == []
    # Other readers of YAML, of version 1.1, see the same values.
    seen = yaml.safe_load(text)
    assert seen["model"] == config.model
    assert seen["proposer"]["learner"]["learning_rate"] == config.proposer.learner.learning_rate
    assert seen["proposer"]["ratio"] == list(config.proposer.ratio)


class Note(Struct, frozen=True):
    text: str = ""
    number: float = 0.0


@given(st.text() | st.text(alphabet="\x85\u2028\n\r\t #:'\"-\ufeffa") | WORDS, NUMBERS)
def test_any_text_and_number_survive_a_file(tmp_path_factory, text, number):
    note = Note(text, number)
    file = write(tmp_path_factory.getbasetemp(), config_to_yaml(note))
    assert load_config(Note, presets={}, preset=None, file=file, assignments=[]) == note
    assert yaml.safe_load(file.read_text(encoding="utf-8"))["text"] == text


def test_yaml_is_readable():
    text = config_to_yaml(Config(model="tiny"))
    assert text.startswith("model: tiny\nbatch: 8\ncap: null\nproposer:\n  steps: 50\n  ratio: [4, 3, 2, 1]\n")
    assert "\n    learning_rate: 1.0e-06\n    betas: [0.9, 0.999]\n" in text


def test_config_from_yaml_names_its_source():
    with pytest.raises(BadInput, match=r"^run/config\.yaml: unknown setting bach: did you mean batch"):
        config_from_yaml(Config, "bach: 3", source="run/config.yaml")


# --------------------------------------------------------------------------------------------------------------- diff


def test_diff_says_what_changed_in_the_order_of_the_schema():
    after = load(
        "solver.learner.learning_rate=1e-4", "proposer.steps=2", "proposer.ratio=[1, 1]", "model=tiny", "cap=1"
    )
    assert diff_configs(Config(), after) == [
        "model: '' -> tiny",
        "cap: null -> 1.0",
        "proposer.steps: 50 -> 2",
        "proposer.ratio: [4, 3, 2, 1] -> [1, 1]",
        "solver.learner.learning_rate: 1.0e-06 -> 0.0001",
    ]


@settings(max_examples=examples(25))
@given(CONFIGS, CONFIGS)
def test_diff_is_empty_exactly_for_equal_configs(a, b):
    assert (diff_configs(a, b) == []) == (a == b)
    assert len(diff_configs(a, b)) == len(diff_configs(b, a))
    assert diff_configs(a, structs.replace(a, proposer=b.proposer)) == [
        line for line in diff_configs(a, b) if line.startswith("proposer.")
    ]
