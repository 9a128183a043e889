"""The reference pages of the documentation site: every command and option, every setting of every recipe.

reference_pages() -> {"reference/commands.md": "# Commands ...", "reference/settings/drzero.md": "# Settings of ..."}
"""

import argparse
import html
import json
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

import msgspec

from quaere.cli.main import build_parser, walk_parsers
from quaere.recipes.registry import RECIPES, Recipe, find_recipe
from quaere.training.config import OURS, PAPERS, Setting, describe_paper, list_settings, load_config

_UNLISTED = (argparse._HelpAction, argparse._SubParsersAction)
_MAX_VALUE = 60  # characters of a value that a table shows


def reference_pages() -> dict[str, str]:
    """Every page as Markdown, by its path in the site."""
    settings = {f"reference/settings/{name}.md": settings_page(find_recipe(name)) for name in RECIPES}
    return {"reference/commands.md": commands_page(build_parser())} | settings


# ------------------------------------------------------------------------------------------------------------ commands


def commands_page(parser: argparse.ArgumentParser) -> str:
    """The page of all commands below this parser: purpose, usage and options."""
    summaries = dict(_summaries(parser))
    lines = ["# Commands", "", _sentence(parser.description or ""), ""]
    for each in walk_parsers(parser):
        depth = len(each.prog.split()) if each is not parser else 2
        said = _sentence(each.description or summaries.get(each.prog, "")) if each is not parser else ""
        lines += [f"{'#' * min(depth, 4)} {each.prog}", "", said, ""]
        lines += ["```text", " ".join(each.format_usage().removeprefix("usage: ").split()), "```", ""]
        for group in each._action_groups:
            shown = (action for action in group._group_actions if not isinstance(action, _UNLISTED))
            rows = [_option_row(each, action) for action in shown if action.help != argparse.SUPPRESS]
            lines += _table((group.title or "", "default", "what it does"), rows)
    return "\n".join(lines)


def _summaries(parser: argparse.ArgumentParser) -> Iterator[tuple[str, str]]:
    for each in walk_parsers(parser):
        for action in each._actions:
            if isinstance(action, argparse._SubParsersAction):
                for choice in action._choices_actions:
                    yield action.choices[choice.dest].prog, choice.help or ""


def _option_row(parser: argparse.ArgumentParser, action: argparse.Action) -> tuple[str, str, str]:
    formatter = parser._get_formatter()
    said = formatter._expand_help(action) if action.help else ""
    value = formatter._format_args(action, formatter._get_default_metavar_for_optional(action))
    if not action.option_strings:
        name = _code(formatter._metavar_formatter(action, action.dest)(1)[0])
    else:
        name = ", ".join(_code(f"{option} {value}".strip()) for option in action.option_strings)
    # A default described in the help text is clearer than its value; the default of a flag is not worth a cell.
    is_plain = action.default in (None, False, argparse.SUPPRESS, []) or "default" in said
    is_required = action.required and action.option_strings
    return name, "required" if is_required else "" if is_plain else _value(action.default), _text(said)


# ------------------------------------------------------------------------------------------------------------ settings


def settings_page(recipe: Recipe) -> str:
    """The page of a recipe's settings: default, preset values, description and source."""
    presets = {name: _values(recipe, name) for name in recipe.presets}
    lines = [f"# Settings of {recipe.name}", "", _sentence(recipe.summary), ""]
    lines += [f"`quaere evolve {recipe.name} --set NAME=VALUE`, or a file given with `--config`.", ""]
    rows: list[tuple[str, ...]] = []
    headings = ("setting", "default", "what it does", "from")
    settings = list(list_settings(recipe.schema()))
    # Settings without a section have a table of their own, before the first section.
    top = [setting for setting in settings if setting.kind and "." not in setting.name]
    lines += _table(headings, [_setting_row(setting, presets) for setting in top])
    for setting in [setting for setting in settings if "." in setting.name or not setting.kind]:
        if setting.kind:
            rows.append(_setting_row(setting, presets))
            continue
        lines += _table(headings, rows)
        lines += [f"## {setting.name}", "", _text(setting.doc.text), ""]
        rows = []
    lines += _table(headings, rows)
    cited = {paper for setting in settings for paper in setting.doc.papers}
    lines += ["## Sources", ""]
    lines += [f"- **{name}**: {_text(describe_paper(name))}" for name in (*PAPERS, OURS) if name in cited]
    return "\n".join([*lines, ""])


def _values(recipe: Recipe, preset: str) -> dict[str, Any]:
    config = load_config(recipe.schema, presets=recipe.presets, preset=preset, file=None, assignments=[])
    return {setting.name: setting.value for setting in list_settings(config)}


def _setting_row(setting: Setting, presets: Mapping[str, Mapping[str, Any]]) -> tuple[str, ...]:
    changed = [
        f"{name}: {_value(values[setting.name])}"
        for name, values in presets.items()
        if values[setting.name] != setting.value
    ]
    said = f"{_text(setting.doc.text)} <br>*{_text(setting.kind)}*"
    default = "<br>".join([_value(setting.value), *changed])
    return f"`{setting.name}`", default, said, _text("; ".join(setting.doc.sources))


# ------------------------------------------------------------------------------------------------------------ Markdown


def _table(headings: Sequence[str], rows: Iterable[Sequence[str]]) -> list[str]:
    """A Markdown table; [] if it has no rows."""
    lines = [f"| {' | '.join(row)} |" for row in rows]
    return [f"| {' | '.join(headings)} |", f"|{'---|' * len(headings)}", *lines, ""] if lines else []


def _sentence(text: str) -> str:
    """The text with a capital at the start and a full stop at the end."""
    return f"{text[:1].upper()}{text[1:]}{'' if text.endswith(('.', ':')) else '.'}" if text else ""


def _text(text: str) -> str:
    """Escaped text in which only code and web addresses are markup."""
    pieces = re.split(r"`([^`]+)`", text)
    plain = (_escape(piece) if place % 2 == 0 else _code(piece) for place, piece in enumerate(pieces))
    return re.sub(r"https://[^\s<]*\w", lambda found: f"<{found[0]}>", "".join(plain))


def _escape(text: str) -> str:
    return re.sub(r"[|*_\[\]$`]", lambda found: f"&#{ord(found[0])};", html.escape(text, quote=False))


def _code(text: str) -> str:
    return f"<code>{_escape(text)}</code>"


def _value(value: object) -> str:
    """A value as written after `=`, shortened if it is long."""
    shown = value if isinstance(value, str) and value else json.dumps(msgspec.to_builtins(value, enc_hook=str))
    return _code(shown if len(shown) <= _MAX_VALUE else f"{shown[:_MAX_VALUE]}...")
