"""The reference has every command, every option and every setting, each with what it does."""

import argparse
import html
import re

import pytest

from quaere.cli.main import Parser, build_parser, walk_parsers
from quaere.cli.reference import commands_page, reference_pages, settings_page
from quaere.recipes.registry import RECIPES, find_recipe
from quaere.training.config import list_settings

PAGES = reference_pages()


def rows(text):
    """The cells of every row of every table, as a reader sees them."""
    for line in text.splitlines():
        if line.startswith("| "):
            yield [html.unescape(re.sub(r"<[^>]+>", "", cell)).strip() for cell in line.strip("|").split(" | ")]


def options(parser):
    hidden = argparse._HelpAction | argparse._SubParsersAction
    return [each for each in parser._actions if not isinstance(each, hidden) and each.help != argparse.SUPPRESS]


def test_there_is_a_page_for_the_commands_and_one_for_each_recipe():
    assert PAGES.keys() == {"reference/commands.md", *(f"reference/settings/{name}.md" for name in RECIPES)}


def test_every_command_and_every_option_is_there_with_what_it_does():
    text = PAGES["reference/commands.md"]
    parts = re.split(r"^#+ (quaere.*)$", text, flags=re.MULTILINE)
    sections = dict(zip(parts[1::2], parts[2::2], strict=True))
    parsers = {parser.prog: parser for parser in walk_parsers(build_parser())}
    assert sections.keys() == parsers.keys()
    assert {"## quaere", "## quaere runs", "### quaere runs show"} <= set(text.splitlines())
    for prog, parser in parsers.items():
        says_nothing = sections[prog].strip().startswith("```")
        assert says_nothing == (prog == "quaere")  # whose description opens the page
        shown = {cells[0]: cells[-1] for cells in rows(sections[prog]) if cells[-1] != "what it does"}
        assert len(shown) == len(options(parser)), prog
        assert all(shown.values()), [f"{prog} {name} says nothing" for name, said in shown.items() if not said]
        named = {word for name in shown for word in name.replace(",", " ").split() if word.startswith("-")}
        assert named == {option for action in options(parser) for option in action.option_strings}


def test_a_default_is_shown_once_and_markup_in_a_help_text_is_text():
    parser = Parser(prog="tool", description="does things")
    parser.add_argument("--depth", type=int, default=3, metavar="N|M", help="how *deep*, 100 %% at most")
    parser.add_argument("--width", type=int, default=5, help="how wide (default: %(default)s)")
    parser.add_argument("--flag", action="store_true", help="see `--depth`")
    parser.add_argument("--out", required=True, help="where")
    found = list(rows(commands_page(parser)))
    assert found == [
        ["options", "default", "what it does"],
        ["--depth N|M", "3", "how *deep*, 100 % at most"],
        ["--width WIDTH", "", "how wide (default: 5)"],
        ["--flag", "", "see --depth"],
        ["--out OUT", "required", "where"],
    ]
    assert "*deep*" not in commands_page(parser)


@pytest.mark.parametrize("name", RECIPES)
def test_every_setting_is_there_with_its_default_and_its_source(name):
    recipe = find_recipe(name)
    shown = {cells[0].strip("`"): cells for cells in rows(PAGES[f"reference/settings/{name}.md"])}
    del shown["setting"]
    settings = [setting for setting in list_settings(recipe.schema()) if setting.kind]
    assert shown.keys() == {setting.name for setting in settings}
    for setting in settings:
        _, default, said, source = shown[setting.name]
        assert said.startswith(setting.doc.text.replace("`", "")) and source == "; ".join(setting.doc.sources)
        assert default


def test_what_presets_change_stands_beside_the_default():
    shown = {cells[0]: cells[1] for cells in rows(settings_page(find_recipe("evalrar")))}
    assert shown["`adapter.rank`"] == "0single-gpu: 16large-gpu: 32demo: 8"
    assert shown["`solver.limits.answer_turn`"] == "truepaper: false"
    assert shown["`solver.evaluation.bonus`"] == "0.1"
