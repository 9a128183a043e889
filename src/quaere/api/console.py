"""The console that results are printed to.

Console(highlight=False).print(plain_table("claim", "V", rows=[("c1", "0.50")]))
"""

from rich.console import Console as RichConsole


class Console(RichConsole):
    """A console of `rich` that does not end the process, with exit code 1, once nobody reads its output any more."""

    def on_broken_pipe(self) -> None:
        """Let the `BrokenPipeError` that is being handled go on to `quaere.cli.main`, as that of a `print` does."""
        raise
