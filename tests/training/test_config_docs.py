"""Every setting says what it does and where it comes from, and a config printed with that is still the config."""

import pytest
from msgspec import Struct, structs

from quaere.cli.main import main
from quaere.recipes.registry import RECIPES, find_recipe
from quaere.recipes.score.config import HarnessSettings, ScoreConfig
from quaere.records import Dimension
from quaere.training.config import (
    OURS,
    PAPERS,
    SettingDoc,
    config_from_yaml,
    config_to_commented_yaml,
    config_to_yaml,
    describe_paper,
    list_settings,
    load_config,
    read_docs,
)
from quaere.training.settings import AdapterSettings

PRESETS = [(name, preset) for name in RECIPES for preset in (None, *find_recipe(name).presets)]


class Base(Struct):
    """A base.

    Base(size=1)

    Attributes:
        size: How large. [Quaere]
        shape: How formed: round [not square], or
            flat. [LoRA; Dr. Zero, Eq. 2 and 3]
    """

    size: int = 1
    shape: str = "round"
    hidden: bool = False


class Derived(Base):
    """Another.

    Attributes:
        size: How small. [PPO]
    """

    colour: str = ""


def test_a_setting_is_read_from_the_docstring_of_its_schema_or_of_the_one_that_has_it_first():
    shape = SettingDoc("How formed: round [not square], or flat.", ("LoRA", "Dr. Zero, Eq. 2 and 3"))
    assert read_docs(Base) == {"size": SettingDoc("How large.", (OURS,)), "shape": shape}
    assert read_docs(Derived) == {"size": SettingDoc("How small.", ("PPO",)), "shape": shape}
    assert shape.papers == ["LoRA", "Dr. Zero"]


@pytest.mark.parametrize("recipe", RECIPES)
def test_every_setting_is_described_and_cites_what_is_known(recipe):
    for setting in list_settings(find_recipe(recipe).schema()):
        assert setting.doc.text.endswith("."), setting.name
        if setting.kind:
            assert setting.doc.sources and set(setting.doc.papers) <= {*PAPERS, OURS}, setting.name


def schemas(config):
    yield type(config)
    for field in structs.fields(config):
        if isinstance(value := getattr(config, field.name), Struct):
            yield from schemas(value)


def test_nothing_is_described_that_is_no_setting():
    for schema in {schema for name in RECIPES for schema in schemas(find_recipe(name).schema())}:
        assert read_docs(schema).keys() <= set(schema.__struct_fields__), schema


@pytest.mark.parametrize(("name", "preset"), PRESETS)
def test_a_commented_config_reads_as_the_config(name, preset):
    recipe = find_recipe(name)
    config = load_config(recipe.schema, presets=recipe.presets, preset=preset, file=None, assignments=[])
    text = config_to_commented_yaml(config)
    assert config_from_yaml(recipe.schema, text) == config
    # Without its comments it is the plain form, line by line.
    plain = [line for line in text.splitlines() if line.strip() and not line.lstrip().startswith("#")]
    assert plain == config_to_yaml(config).splitlines()


def test_values_that_look_like_comments_stay_values():
    notes = "one\n# two: three\n  four # five"
    harness = HarnessSettings(notes=notes, extra=(Dimension("order", '# It\'s "so":\n - yes'),))
    config = ScoreConfig(model="# none", index="a: b #c", harness=harness)
    assert config_from_yaml(ScoreConfig, config_to_commented_yaml(config)) == config


def test_comments_say_what_a_setting_does_where_it_comes_from_and_what_may_be_chosen():
    assert config_to_commented_yaml(AdapterSettings(rank=4)).splitlines()[1:4] == [
        "#   [LoRA] LoRA: Low-Rank Adaptation of Large Language Models, https://arxiv.org/abs/2106.09685",
        "",
        "# Rank of the adapters; 0 trains all weights instead, with a copy of the model per role. [LoRA]",
    ]
    assert describe_paper("Eval-RAR") == PAPERS["Eval-RAR"][0]


def test_print_config_has_the_comments(capsys):
    assert main(["evolve", "drzero", "--preset", "demo", "--print-config"]) == 0
    lines = capsys.readouterr().out.splitlines()
    said = "# What an alarm does: warn says so, stop ends the run, rollback goes back to the last good"
    place = lines.index(f"  {said}")
    assert lines[place + 1 : place + 3] == ["  # checkpoint. One of rollback, stop, warn. [Quaere]", "  policy: warn"]
