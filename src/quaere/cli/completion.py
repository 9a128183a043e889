"""`quaere completion`: a script that lets a shell complete commands, options and values.

eval "$(quaere completion bash)"      # in ~/.bashrc
"""

import argparse
from pathlib import Path
from typing import Annotated

import shtab
from msgspec import Struct

from quaere.cli.main import build_parser, walk_parsers
from quaere.cli.options import Flag, command

SHELLS = ("bash", "zsh", "fish")


class CompletionOptions(Struct):
    """Options of `quaere completion`.

    Attributes:
        shell: the shell that will read the script
    """

    shell: Annotated[str, Flag("shell", choices=SHELLS)]


def _run(args: argparse.Namespace) -> None:
    parser = build_parser()
    for each in walk_parsers(parser):
        _complete_paths(each)
    print(shtab.complete(parser, args.shell))


fill = command(
    _run,
    CompletionOptions,
    description="Print a script that lets the shell complete commands, options and values with TAB.",
    epilog="""\
bash: eval "$(quaere completion bash)" in ~/.bashrc; zsh: write it to a file _quaere in a folder of $fpath; fish: write
it to ~/.config/fish/completions/quaere.fish
""",
)


def _complete_paths(parser: argparse.ArgumentParser) -> None:
    """Mark options whose values are files or folders, mostly by their metavar, for path completion."""
    for action in parser._actions:
        metavar = action.metavar if isinstance(action.metavar, str) else ""
        is_folder = "DIR" in metavar and "FILE" not in metavar
        if action.choices is None and (is_folder or "FILE" in metavar or action.type is Path):
            # The attribute that shtab reads.
            action.complete = shtab.DIRECTORY if is_folder else shtab.FILE  # type: ignore[attr-defined]
