"""`quaere doctor`: checks that this machine has everything an episode needs; and how results of checks are printed.

quaere doctor
quaere doctor --model Qwen/Qwen2.5-0.5B-Instruct --index docs-index --json
"""

from __future__ import annotations

import argparse
import importlib.util
import platform
import shutil
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Literal

import msgspec
from msgspec import Struct
from rich.text import Text

from quaere.api.machine import read_memory
from quaere.api.printing import command_line, count
from quaere.cli.options import FolderName, JsonOption, command
from quaere.cli.terminal import open_console, printable
from quaere.errors import MODEL_LIBRARIES, BadInput, ExtraMissing, QuaereError, check_model_libraries
from quaere.policies.catalogue import CATALOGUE, find_pulled, models_directory

TESTED_PYTHONS = ((3, 11), (3, 12), (3, 13))
WANTED_MEMORY_GIB = 4
WANTED_DISK_GIB = 2


class DoctorOptions(JsonOption):
    """Options of `quaere doctor`.

    Attributes:
        model: also check this model's chat template (without downloading it)
        index: also check this index
    """

    model: str | None = None
    index: FolderName | None = None


def _run(args: argparse.Namespace) -> None:
    checks = [check() for check in (_python, _torch, _memory, _disk, _models, _extras)]
    if args.model is not None:
        checks.append(guard("template", lambda: _template(args.model)))
    if args.index is not None:
        checks.append(guard("index", lambda: _index(Path(args.index))))
    print_checks(checks, as_json=args.json)


fill = command(_run, DoctorOptions)


def _python() -> Check:
    tested = sys.version_info[:2] in TESTED_PYTHONS
    detail = f"Python {platform.python_version()}" + ("" if tested else ", which Quaere is not tested with")
    return Check("python", "ok" if tested else "warn", detail)


def _torch() -> Check:
    try:
        check_model_libraries()
    except ExtraMissing as error:
        return Check("torch", "warn", str(error), error.hint)
    import torch
    import transformers

    if torch.cuda.is_available():
        properties = torch.cuda.get_device_properties(0)
        device = f"{properties.name}, {properties.total_memory / 2**30:.0f} GiB"
        if torch.cuda.device_count() > 1:
            device += f" (one of {torch.cuda.device_count()}; the native engine uses one)"
    else:
        device = f"CPU, {torch.get_num_threads()} threads"
    return Check("torch", "ok", f"torch {torch.__version__}, transformers {transformers.__version__}, {device}")


def _memory() -> Check:
    found = read_memory()
    if found is None:
        return Check("memory", "warn", "this system does not say how much memory it has")
    wanted = "" if found[0] >= WANTED_MEMORY_GIB else f"; {WANTED_MEMORY_GIB} GiB or more are wanted"
    return Check("memory", "warn" if wanted else "ok", f"{found[0]:.0f} GiB, {found[1]:.0f} GiB free{wanted}")


def _disk() -> Check:
    place = models_directory()
    while not place.exists():
        place = place.parent
    free = shutil.disk_usage(place).free / 2**30
    if free >= WANTED_DISK_GIB:
        return Check("disk", "ok", f"{free:.0f} GiB free for models")
    return Check("disk", "warn", f"only {free:.1f} GiB free for models", "export QUAERE_CACHE=a roomier place")


def _models() -> Check:
    pulled = [entry.name for entry in CATALOGUE.values() if find_pulled(entry)]
    if pulled:
        return Check("models", "ok", f"{', '.join(pulled)} in {models_directory()}")
    return Check("models", "warn", f"no model in {models_directory()}", f"quaere models pull {next(iter(CATALOGUE))}")


def _extras() -> Check:
    extras = {
        "torch": MODEL_LIBRARIES,
        "train": (*MODEL_LIBRARIES, "peft"),
        "select": ("sklearn",),
        "dense": ("faiss", "sentence_transformers"),
        "pdf": ("pypdf",),
        "office": ("docx", "openpyxl", "pptx"),
        "parquet": ("pyarrow",),
        "ddgs": ("ddgs",),
        "mcp": ("mcp_types",),
    }
    here = [name for name, modules in extras.items() if all(importlib.util.find_spec(module) for module in modules)]
    missing = [name for name in extras if name not in here]
    detail = f"installed: {', '.join(here) or 'none'}" + (f"; not installed: {', '.join(missing)}" if missing else "")
    return Check("extras", "ok", detail)


def _template(model: str) -> Check:
    """Checks the chat template by deriving the joints between turns, which fails if they cannot be exact."""
    from quaere.cli.models import describe_joint, open_renderer

    renderer = open_renderer(model, pull=False)
    tools = "its own tool format" if renderer.lists_tools else "tools described in the prompt"
    if not renderer.has_template:
        tools = f"conversations are plain paragraphs, because it has no chat template; {tools}"
    said = f"{model}: {tools}; {describe_joint(renderer)}" + (f"; {renderer.note}" if renderer.note else "")
    return Check("template", "ok", said)


def _index(path: Path) -> Check:
    from quaere.search.index import open_index, update_hint

    index = open_index(path, check_sources=False)
    manifest = index.manifest
    size = f"{count(manifest.num_documents, 'document')}, {count(manifest.num_passages, 'passage')}"
    detail = f"{path}: {manifest.settings.summary}, {size}, fingerprint {manifest.fingerprint[:16]}"
    if changes := index.find_changes(bounded=False):
        return Check("index", "warn", f"{detail}; stale, {changes.describe()} since it was built", update_hint(path))
    gone = [source for source in manifest.sources if not Path(source).exists()]
    return Check("index", "ok", detail + (f"; its source {gone[0]} is not here" if gone else ""))


# ---------------------------------------------------------------------------------------------------- results of checks


class Check(Struct, frozen=True):
    """The result of one check.

    Check(name="memory", status="ok", detail="23 GiB, 21 GiB free")
    """

    name: str
    status: Literal["ok", "warn", "fail"]
    detail: str
    hint: str = ""


def guard(name: str, check: Callable[[], Check]) -> Check:
    """The result of a check; a failed one with the error's message if it raised a `QuaereError`."""
    try:
        return check()
    except QuaereError as error:
        return Check(name, "fail", str(error), error.hint)


def print_checks(checks: Sequence[Check], *, as_json: bool) -> None:
    """Print every check; `BadInput`, and so exit code 2, if one failed."""
    if as_json:
        print(msgspec.json.format(msgspec.json.encode(checks), indent=2).decode())
    else:
        _print(checks)
    if failed := [check.name for check in checks if check.status == "fail"]:
        raise BadInput(f"these checks failed: {', '.join(failed)}")


def _print(checks: Sequence[Check]) -> None:
    marks = {"ok": ("ok  ", "green"), "warn": ("warn", "yellow"), "fail": ("FAIL", "bold red")}
    console = open_console()
    for check in checks:
        console.print(Text.assemble(marks[check.status], printable(f" {check.name:<10} {check.detail}")))
        if check.hint:
            console.print(command_line(f"                try: {check.hint}"), soft_wrap=True)
