"""Every option takes what its help says: numbers where it shows N, paths where it shows FILE, the default it names."""

import argparse
import ast
import re
from importlib import import_module
from pathlib import Path

import pytest

import quaere.cli
from quaere.cli.main import COMMANDS, build_parser, walk_parsers

# Their names say what kind of value they take, so the help repeats the name.
SELF_EXPLAINING = {"host", "port", "model", "name", "role", "question", "seed", "temperature", "articles", "phase"}
# Empty here, and filled later with what the help shows: by the engine, the server, the settings or the run.
DEFAULTS_ELSEWHERE = ("quaere index", "quaere serve-search", "quaere evolve --trainer", "quaere eval --role")


def options():
    """Every option and argument with a value, by how it is called."""
    for parser in walk_parsers(build_parser()):
        for action in parser._actions:
            if action.nargs != 0 and not isinstance(action, argparse._SubParsersAction):
                yield f"{parser.prog} {'/'.join(action.option_strings) or action.dest}", action


OPTIONS = dict(options())


def takes(action, text):
    try:
        return action.type(text) if action.type else text
    except (ValueError, argparse.ArgumentTypeError):
        return None


def test_the_help_shows_what_kind_of_value_an_option_takes():
    shown = {name for name, action in OPTIONS.items() if action.metavar or action.choices is not None}
    unclear = {name for name in OPTIONS.keys() - shown if OPTIONS[name].dest not in SELF_EXPLAINING}
    assert not {name for name in unclear if OPTIONS[name].help != argparse.SUPPRESS}


def test_what_is_not_for_users_is_not_in_the_help():
    assert all("SUPPRESS" not in parser.format_help() for parser in walk_parsers(build_parser()))


def test_what_the_help_calls_a_number_is_one():
    numbers = {name: action for name, action in OPTIONS.items() if action.metavar in ("N", "H", "I", "STEP", "X")}
    assert len(numbers) > 50
    for name, action in numbers.items():
        assert takes(action, "1") == 1 and takes(action, "many") is None, name
        assert takes(action, "0.5") == (0.5 if action.metavar == "X" else None), name


def test_what_the_help_calls_a_file_is_a_path():
    files = {name: action for name, action in OPTIONS.items() if action.metavar in ("FILE", "FILE.json", "FILE|DIR")}
    assert len(files) > 10
    for name, action in files.items():
        assert takes(action, "x") == Path("x") and takes(action, "") is None, name


def test_a_default_is_the_one_that_the_help_says():
    checked = 0
    for name, action in OPTIONS.items():
        said = re.search(r"\(default: ([^\s(),;]+)\)", (action.help or "") % vars(action))
        if said and not name.startswith(DEFAULTS_ELSEWHERE):
            if re.fullmatch(r"\d+(\.\d+)?", said[1]):
                assert action.default == float(said[1]), name
            elif action.default or said[1] in (action.choices or ()):
                assert action.default in (said[1], argparse.SUPPRESS), name
            checked += 1
    assert checked > 50


MODULES = sorted(path.stem for path in Path(quaere.cli.__file__).parent.glob("[a-z]*.py"))


@pytest.mark.parametrize("module", MODULES)
def test_what_a_command_reads_its_parser_has(module):
    """An option that a command reads and nobody declares is an error only once the command gets there."""
    source = Path(import_module(f"quaere.cli.{module}").__file__).read_text()
    nodes = (node for node in ast.walk(ast.parse(source)) if isinstance(node, ast.Attribute))
    read = {node.attr for node in nodes if isinstance(node.value, ast.Name) and node.value.id == "args"}
    parsers = list(walk_parsers(build_parser(module if module in COMMANDS else None)))  # others serve several commands
    declared = {action.dest for parser in parsers for action in parser._actions}
    declared |= {name for parser in parsers for name in parser._defaults}
    assert read <= declared


def test_an_option_before_a_subcommand_is_not_forgotten_after_it():
    """Where both have an option, the subcommand's default would otherwise replace what was typed before it."""
    shared = 0
    for parser in walk_parsers(build_parser("curriculum")):
        for group in (action for action in parser._actions if isinstance(action, argparse._SubParsersAction)):
            own = {action.dest for action in parser._actions if action is not group} - {"help"}
            for below in group.choices.values():
                for action in below._actions:
                    if action.dest in own:
                        assert action.default == argparse.SUPPRESS, f"{below.prog} {action.dest}"
                        shared += 1
    assert shared > 20


@pytest.mark.parametrize("words", [["start", "--model", "m"], ["status"], ["stop"]], ids=lambda words: words[0])
def test_a_trainer_may_be_named(words):
    action, *options = words
    for named in ([], ["skyrl"]):
        assert build_parser("trainer").parse_args(["trainer", action, *named, *options]).server == "skyrl"
