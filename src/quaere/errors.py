"""Exceptions for errors with a known cause; each has a one-line message and a hint.

Every error a user can cause is a `QuaereError`: one line that says what is wrong and what would be right, and a hint
with the next command to type. The command line prints both and exits with code 2; nothing else in the program prints
errors.

    raise IndexMissing("no index at demo/index", hint="quaere index FOLDER --out demo/index")
"""

import difflib
import re
import shlex
import traceback
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from typing import Any

UPDATE_HINT = "update Quaere (in a clone: git pull)"  # hint for files written by a newer version


_LOGIN = re.compile(r"(?<=://)[^\s/]*@")


def hide_logins(text: str) -> str:
    """The text with the user and password of every URL replaced by `***`.

    hide_logins("no answer from http://me:s3cret@host/v1") == "no answer from http://***@host/v1"
    """
    return _LOGIN.sub("***@", text)


def failure_line(error: Exception) -> str:
    """The exception's type, place and message on one log line: "ZeroDivisionError at app.py:31 (division by zero)"."""
    places = traceback.extract_tb(error.__traceback__)
    place = f" at {Path(places[-1].filename).name}:{places[-1].lineno}" if places else ""
    said = " ".join(hide_logins(str(error)).split())[:200]
    return f"{type(error).__name__}{place} ({said if said.isprintable() else ascii(said)})"


class QuaereError(Exception):
    """Base class of errors with a known cause. `str(error)` is one line; `error.hint` is what to type next.

    Neither ever holds the user and password of a URL: errors are printed, logged and stored with episodes. A command
    that raises the error ends with `exit_code`.
    """

    exit_code = 2

    def __init__(self, message: str, *, hint: str = "") -> None:
        super().__init__(hide_logins(message))
        self.hint = hide_logins(hint)
        if hint:
            self.add_note(f"try: {self.hint}")  # Python prints notes below the message of an uncaught error


class BadInput(QuaereError):
    """A file, folder or value given by the user is invalid."""


class NotFound(QuaereError):
    """A question was asked and searched for, and no answer was found: nothing is wrong with the input."""

    exit_code = 3


class StaleIndex(UserWarning):
    """The sources of an index have changed since it was built. The command line prints the message as one line."""


class ServerDown(UserWarning):
    """One of several search servers no longer answers. The command line prints the message as one line."""


class SampledLess(UserWarning):
    """The GPU's memory was full, so fewer rows are sampled at once. The command line prints the message as one line."""


class IndexMissing(QuaereError):
    """The index directory does not exist or is incomplete."""


class ModelMissing(QuaereError):
    """The model cannot be found, downloaded or read."""


class TemplateRefused(QuaereError):
    """The tokenizer's chat template cannot render multi-turn episodes token for token."""


class ExtraMissing(QuaereError):
    """An optional dependency is not installed; the hint is the command that installs the extra with it.

    raise ExtraMissing("reading PDF files needs pypdf", extra="pdf")
    """

    def __init__(self, message: str, *, extra: str) -> None:
        super().__init__(message, hint=install_hint(extra))


def import_extra(module: str, needed: str, *, extra: str) -> Any:
    """An optional dependency; `ExtraMissing`, with this message, if it is not installed."""
    try:
        return import_module(module)
    except ImportError:
        raise ExtraMissing(needed, extra=extra) from None


def install_hint(extra: str, package: Path = Path(__file__).parent) -> str:
    """The pip command that installs an extra on this machine.

    In a clone, the command names the clone. Otherwise it names the package: pip reads the extras from the metadata of
    the installed package, so this also works for a wheel that did not come from PyPI.

        install_hint("pdf") -> "pip install -e '.[pdf]'"           # in the clone's folder; elsewhere with its path
        install_hint("pdf") -> "pip install 'quaere[pdf]'"         # from an installed package
    """
    clone = package.resolve().parents[1]
    if (clone / "pyproject.toml").is_file():
        return shlex.join(["pip", "install", "-e", f"{'.' if clone == Path.cwd() else clone}[{extra}]"])
    return shlex.join(["pip", "install", f"quaere[{extra}]"])


def requirement_hint(requirement: str) -> str:
    """The pip command that installs a package in a version that no extra asks for.

    requirement_hint("tinker<0.26") -> "pip install 'tinker<0.26'"
    """
    return shlex.join(["pip", "install", requirement])


# Libraries of the extra `torch`. Only models need them: indexing, searching and reading runs do not.
MODEL_LIBRARIES = ("torch", "transformers", "tokenizers", "safetensors", "huggingface_hub", "gguf")


def check_model_libraries() -> None:
    """Raise `ExtraMissing` unless every library that models need is installed; none of them is imported."""
    if missing := next((name for name in MODEL_LIBRARIES if find_spec(name) is None), None):
        raise _library_missing(missing)


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


def is_out_of_memory(error: BaseException) -> bool:
    """True for torch's error of a full GPU; by name, because importing torch takes seconds."""
    return type(error).__name__ == "OutOfMemoryError"


class OutOfMemory(QuaereError):
    """The GPU has too little free memory for what is computed at once."""


@contextmanager
def catch_out_of_memory() -> Iterator[None]:
    """Raise `OutOfMemory` in place of torch's error, with how much memory there is and what needs less."""
    try:
        yield
    except RuntimeError as error:
        if not is_out_of_memory(error):
            raise
        said = ". ".join(str(error).split(". ")[:3])
        less = (
            "compute less at once: --max-rows, engine.max_rows, solver.learner.micro_tokens; or end what else uses it"
        )
        raise OutOfMemory(said, hint=f"{less}. The same command continues a run") from error


class SearchFailed(QuaereError):
    """A search failed: the retriever was unreachable, timed out, was overloaded or answered with an error.

    Not to be confused with an empty result. `kind` is one of unreachable, timeout, overloaded, rejected, broken.
    """

    def __init__(self, message: str, *, kind: str, hint: str = "") -> None:
        super().__init__(message, hint=hint)
        self.kind = kind


class SamplingFailed(QuaereError):
    """The policy could not sample a turn: the endpoint failed, or the engine stopped."""


class TrainingStopped(QuaereError):
    """A training step was not taken: a value was not finite, or there was no data to train on. No weight changed."""


NEAR = 0.7
"""Least similarity of a name that is suggested; at 0.6, "questions" would be what "iterations" was meant to be."""


def find_nearest(name: str, known: Iterable[str]) -> str:
    """The known name that was probably meant, "" if none is similar enough.

    find_nearest("drzro", ["drzero", "eve"]) == "drzero"; find_nearest("nosuch", ["sh"]) == ""
    """
    return next(iter(difflib.get_close_matches(name, list(known), n=1, cutoff=NEAR)), "")


def nearest_hint(name: str, known: Sequence[str], command: str) -> str:
    """The closest known name, if one is similar enough, and the command that lists all names.

    nearest_hint("ask-l", ["ask-1", "demo-7"], "quaere runs list") == "did you mean ask-1? see: quaere runs list"
    """
    near = find_nearest(name, known)
    return f"did you mean {near}? see: {command}" if near else command
