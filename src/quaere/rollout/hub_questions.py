"""Questions of a data set of the Hugging Face hub, read with the package `datasets`.

    hub:OWNER/NAME[/SUBSET][@REVISION][:SPLIT]

    parse_hub("hub:hotpotqa/hotpot_qa/distractor@main:validation")
        == HubQuestions("hotpotqa/hotpot_qa", subset="distractor", revision="main", split="validation")

Data is read, code never: `datasets` runs no scripts of a data set.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Literal

from msgspec import Struct, structs

from quaere.errors import BadInput, ExtraMissing
from quaere.policies.hub import explain_hub_error
from quaere.rollout.question_columns import ANSWERS, QUESTION, find_columns
from quaere.rollout.question_rows import QuestionRow

PREFIX = "hub:"
SHAPE = "hub:OWNER/NAME[/SUBSET][@REVISION][:SPLIT]"
NO_ANSWERS = f"a data set needs a column called {', '.join(ANSWERS[:-1])} or {ANSWERS[-1]}"
_TIMEOUT_S = 5.0
_NAME = r"\w[\w.-]{0,95}"
_SOURCE = re.compile(
    rf"hub:(?P<id>{_NAME}/{_NAME})(/(?P<subset>{_NAME}))?(@(?P<revision>\w[\w./-]{{0,99}}))?(:(?P<split>[\w.-]{{1,96}}))?"
)


class HubQuestions(Struct, frozen=True):
    """A data set of the hub, or a part of it; "" is the only subset or split, or the hub's default revision.

    HubQuestions("hotpotqa/hotpot_qa", subset="distractor", revision="main", split="validation")
    """

    id: str
    subset: str = ""
    revision: str = ""
    split: str = ""

    def __str__(self) -> str:
        parts = zip(("/", "@", ":"), (self.subset, self.revision, self.split), strict=True)
        return f"{PREFIX}{self.id}" + "".join(mark + part for mark, part in parts if part)


def is_hub(source: str | Path) -> bool:
    """True if questions are to be read from the hub, and not from a file: `is_hub("hub:acme/qa")`."""
    return str(source).startswith(PREFIX)


def parse_hub(source: str | Path) -> HubQuestions:
    """The data set that `hub:...` names."""
    found = _SOURCE.fullmatch(str(source))
    if not found:
        raise BadInput(f"{source} names no data set of the hub", hint=f"--questions {SHAPE}")
    return HubQuestions(**{part: text or "" for part, text in found.groupdict().items()})


def read_hub(source: str | Path) -> Iterator[tuple[str, QuestionRow]]:
    """The questions of a data set with their ids.

    Rows without a text are left out, and in a data set with answers those without one. A data set may repeat an id, as
    those that join several benchmarks do: the later ones get the row's number too.
    """
    asked = parse_hub(source)
    rows = _open_rows(asked)
    columns = find_columns(rows.column_names)
    if columns is None:
        names = ", ".join(rows.column_names[:12])
        said = f"{asked} has no column of questions, only {names}"
        raise BadInput(said, hint=f"the column must be called {', '.join(QUESTION[:-1])} or {QUESTION[-1]}")
    seen: set[str] = set()
    for number, row in enumerate(rows.select_columns(columns.names), start=1):
        if question := columns.read(row):
            name = question.id or f"q{number}"
            name = f"{name}-{number}" if name in seen else name
            seen.add(name)
            yield name, question


def _open_rows(asked: HubQuestions) -> Any:
    """The rows of the split, downloaded into the cache of `datasets` unless they are there."""
    try:
        import datasets
    except ImportError as error:
        raise ExtraMissing("questions of the hub need the package datasets", extra="hub") from error
    from huggingface_hub import constants

    is_offline = bool(constants.HF_HUB_OFFLINE)
    # The prefix keeps a folder of this name in the working directory from being read instead.
    path = f"hf://datasets/{asked.id}"
    commit = (asked.revision or None) if is_offline else _find_commit(asked)
    verbosity = datasets.logging.get_verbosity()
    datasets.logging.set_verbosity(datasets.logging.CRITICAL)  # the one line below says it
    try:
        subset = _choose(asked, "subset", datasets.get_dataset_config_names(path, revision=commit))
        builder = datasets.load_dataset_builder(path, subset, revision=commit)
        if is_offline and asked.revision not in ("", builder.hash):
            raise BadInput(f"{asked} is not in the cache of datasets in that revision", hint="unset HF_HUB_OFFLINE")
        split = _choose(asked, "split", [str(split) for split in builder.info.splits or builder.config.data_files])
        builder.download_and_prepare()
        return builder.as_dataset(split=split)
    except BadInput:
        raise
    except Exception as error:  # `datasets` raises whatever its many readers raise
        reason = str(error.__cause__ or error).strip().partition("\n")[0] or type(error).__name__
        raise BadInput(f"{asked} cannot be read: {reason}", hint=f"--questions {SHAPE}, or a JSONL file") from error
    finally:
        datasets.logging.set_verbosity(verbosity)


def _find_commit(asked: HubQuestions) -> str:
    """The commit of the revision. One cheap request: without a network it fails at once, a download after minutes."""
    from huggingface_hub import HfApi

    try:
        found = HfApi().dataset_info(asked.id, revision=asked.revision or None, timeout=_TIMEOUT_S)
    except Exception as error:
        why = explain_hub_error(error)
        hint = "HF_HUB_OFFLINE=1 uses what was downloaded before; or --questions FILE"
        raise BadInput(f"{asked} is {why}", hint=hint if "reachable" in why else f"--questions {SHAPE}") from error
    return str(found.sha)


def _choose(asked: HubQuestions, part: Literal["subset", "split"], names: list[str]) -> str:
    """The subset or split that is asked for, or the only one; where there are several, it has to be said which."""
    name = str(getattr(asked, part))
    if name in names:
        return name
    if not name and len(names) == 1:
        return names[0]
    known = ", ".join(names[:12])
    said = f"{asked} has no {part} {name}, only {known}" if name else f"{asked} has the {part}s {known}: name one"
    raise BadInput(said, hint=f"--questions {structs.replace(asked, **{part: names[0]})}")
