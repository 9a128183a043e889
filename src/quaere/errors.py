"""What can go wrong, in words a person can act on.

Every error a user can cause is a `QuaereError`: one line that says what is wrong and what would be right, and a hint
with the next command to type. The command line prints both and exits with code 2; nothing else in the program prints
errors.

    raise IndexMissing("no index at demo/index", hint="quaere index FOLDER --out demo/index")
"""

from __future__ import annotations


class QuaereError(Exception):
    """A problem whose cause and remedy are known. `str(error)` is one line; `error.hint` is what to type next."""

    def __init__(self, message: str, *, hint: str = "") -> None:
        super().__init__(message)
        self.hint = hint


class BadInput(QuaereError):
    """A file, folder or value that the user named is not what it should be."""


class IndexMissing(QuaereError):
    """There is no (complete) index directory where one was expected."""


class ModelMissing(QuaereError):
    """The model cannot be found, downloaded or read."""


class TemplateRefused(QuaereError):
    """The tokenizer's chat template cannot carry token-exact multi-turn episodes."""


class ExtraMissing(QuaereError):
    """An optional dependency is needed for this; the hint says which extra to install."""


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
