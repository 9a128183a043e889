"""What can go wrong, in words a person can act on.

Every error a user can cause is a `QuaereError`: one line that says what is wrong and what would be right, and a hint
with the next command to type. The command line prints both and exits with code 2; nothing else in the program prints
errors.

    raise IndexMissing("no index at demo/index", hint="quaere index FOLDER --out demo/index")
"""

from __future__ import annotations

import re
import shlex
import traceback
from pathlib import Path

UPDATE_HINT = "update Quaere (in a clone: git pull)"  # for what a newer version wrote


_LOGIN = re.compile(r"(?<=://)[^\s/]*@")


def hide_logins(text: str) -> str:
    """The text with `***` in place of the user and password of every URL in it.

    hide_logins("no answer from http://me:s3cret@host/v1") == "no answer from http://***@host/v1"
    """
    return _LOGIN.sub("***@", text)


def failure_line(error: Exception) -> str:
    """What failed and where, on one line, for a log: "ZeroDivisionError at app.py:31 (division by zero)"."""
    places = traceback.extract_tb(error.__traceback__)
    place = f" at {Path(places[-1].filename).name}:{places[-1].lineno}" if places else ""
    said = " ".join(hide_logins(str(error)).split())[:200]
    return f"{type(error).__name__}{place} ({said if said.isprintable() else ascii(said)})"


class QuaereError(Exception):
    """A problem whose cause and remedy are known. `str(error)` is one line; `error.hint` is what to type next.

    Neither ever holds the user and password of a URL: errors are printed, logged and stored with episodes.
    """

    def __init__(self, message: str, *, hint: str = "") -> None:
        super().__init__(hide_logins(message))
        self.hint = hide_logins(hint)
        if hint:
            self.add_note(f"try: {self.hint}")  # Python prints notes below the message of an error nobody caught


class BadInput(QuaereError):
    """A file, folder or value that the user named is not what it should be."""


class IndexMissing(QuaereError):
    """There is no (complete) index directory where one was expected."""


class ModelMissing(QuaereError):
    """The model cannot be found, downloaded or read."""


class TemplateRefused(QuaereError):
    """The tokenizer's chat template cannot carry token-exact multi-turn episodes."""


class ExtraMissing(QuaereError):
    """An optional dependency is needed for this; the hint installs the extra that has it.

    raise ExtraMissing("reading PDF files needs pypdf", extra="pdf")
    """

    def __init__(self, message: str, *, extra: str) -> None:
        super().__init__(message, hint=install_hint(extra))


def install_hint(extra: str, package: Path = Path(__file__).parent) -> str:
    """The command that installs an extra, as it can be typed where this runs.

    In a clone it names the clone. An installed package need not be on PyPI, and what the extra stands for is.

        install_hint("pdf") -> "pip install -e '.[pdf]'"           # in the clone's folder; elsewhere with its path
        install_hint("pdf") -> "pip install 'pypdf<8,>=5'"         # from an installed package
    """
    clone = package.resolve().parents[1]
    if (clone / "pyproject.toml").is_file():
        folder = "." if clone == Path.cwd() else str(clone)
        return shlex.join(["pip", "install", "-e", f"{folder}[{extra}]"])
    return shlex.join(["pip", "install", *(_requirements(extra) or [f"quaere[{extra}]"])])


def _requirements(extra: str) -> list[str]:
    """What an extra stands for, by the metadata of the installed package; none if there is no metadata."""
    from importlib.metadata import PackageNotFoundError, requires

    try:
        lines = requires("quaere") or []
    except PackageNotFoundError:
        return []
    found = (re.fullmatch(r"(.+?)\s*;\s*extra == ['\"](.+)['\"]", line) for line in lines)
    return [match[1] for match in found if match and match[2] == extra]


class SearchFailed(QuaereError):
    """A search could not be carried out: the retriever failed, timed out, was overloaded or unreachable.

    Never the same thing as an empty result. `kind` is one of unreachable, timeout, overloaded, rejected, broken.
    """

    def __init__(self, message: str, *, kind: str, hint: str = "") -> None:
        super().__init__(message, hint=hint)
        self.kind = kind


class SamplingFailed(QuaereError):
    """The policy could not write a turn: the endpoint failed, or the engine stopped."""


class TrainingStopped(QuaereError):
    """A step could not be taken: something was not finite, or there was nothing to learn from. No weight moved."""
