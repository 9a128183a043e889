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
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from importlib.util import find_spec
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


class BadInput(QuaereError):
    """A file, folder or value that the user named is not what it should be."""


class OldName(FutureWarning):
    """A name that has changed was used and is still read. The command line prints the message as one line."""


class StaleIndex(UserWarning):
    """The sources of an index have changed since it was built. The command line prints the message as one line."""


def warn_old_name(old: str, new: str) -> None:
    """Say once that `old` is now called `new`.

    warn_old_name("--solver-protocol", "--solver-dialect")
    """
    # The place is always this line, so that a name that is read in several places is spoken of once.
    warnings.warn(f"{old} is now called {new}", OldName, stacklevel=1)


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

    A clone is named by its folder. For an installed package pip reads the extras from that package's own metadata, so
    its name is enough, also where it came from a wheel and not from PyPI.

        install_hint("pdf") -> "pip install -e '.[pdf]'"           # in the clone's folder; elsewhere with its path
        install_hint("pdf") -> "pip install 'quaere[pdf]'"         # from an installed package
    """
    clone = package.resolve().parents[1]
    if (clone / "pyproject.toml").is_file():
        folder = "." if clone == Path.cwd() else str(clone)
        return shlex.join(["pip", "install", "-e", f"{folder}[{extra}]"])
    return shlex.join(["pip", "install", f"quaere[{extra}]"])


# What the extra `torch` installs. Only models need it: indexing, searching and reading runs do without.
MODEL_LIBRARIES = ("torch", "transformers", "tokenizers", "safetensors", "huggingface_hub", "gguf")


def check_model_libraries() -> None:
    """Raise `ExtraMissing` unless every library that models need is installed; none of them is imported."""
    for name in MODEL_LIBRARIES:
        if find_spec(name) is None:
            raise _library_missing(name)


@contextmanager
def catch_missing_libraries() -> Iterator[None]:
    """Raise `ExtraMissing` in place of the failed import of a library that models need."""
    try:
        yield
    except ModuleNotFoundError as error:
        # A missing part of an installed library has a dotted name; installing the extra again would not mend that.
        if error.name not in MODEL_LIBRARIES:
            raise
        raise _library_missing(error.name) from error


def _library_missing(name: str) -> ExtraMissing:
    return ExtraMissing(f"{name} is not installed, and models need it", extra="torch")


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
