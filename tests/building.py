"""What several workers of one test run need, and one of them builds; what was taught is kept for later runs."""

import asyncio
import hashlib
import json
import os
import pickle
import platform
import shutil
from functools import lru_cache
from importlib.metadata import version
from pathlib import Path

from filelock import FileLock

import quaere

TESTS = Path(__file__).parent
SOURCES = TESTS.parent / "src" / "quaere"
PACKAGE = Path(quaere.__file__).parent  # elsewhere for `make mutants`, whose copies have a fault
KEPT = TESTS.parent / ".pytest_cache" / "d" / "taught"  # where `pytest --cache-clear` empties it
# Rooms above training: whatever teaches cannot import them (see test_layers.py), so it does not depend on them.
ABOVE = {"api", "cli", "evaluation", "recipes", "serving", "viewer", "warmup"}
LIBRARIES = ("numpy", "tokenizers", "torch", "transformers")


def build_once(factory, name, build):
    """What `build(folder)` returned for whichever worker came first; the others wait for it and use the same folder.

    build_once(tmp_path_factory, "village", village.build) -> (index, model)
    """
    root = factory.getbasetemp()
    if "PYTEST_XDIST_WORKER" in os.environ:
        root = root.parent  # each worker's own folder lies in one for all of them
    done = root / f"{name}.pickle"
    with FileLock(root / f"{name}.lock"):
        if not done.exists():
            folder = root / name
            shutil.rmtree(folder, ignore_errors=True)  # of a worker that failed half-way
            folder.mkdir()
            done.write_bytes(pickle.dumps(build(folder)))
    return pickle.loads(done.read_bytes())


def teach_once(folder, name, teach):
    """Fill a new folder with what `teach(folder)` writes, or with what it wrote in an earlier run of the same sources.

    A package with a fault in it is never asked what it would have taught: it starts with what the sources themselves
    taught, if that is kept.
    """
    place = KEPT / f"{name}-{digest()}"
    if PACKAGE != SOURCES:
        if place.exists():
            shutil.copytree(place, folder)
        else:
            folder.mkdir()
            teach(folder)
        return
    KEPT.mkdir(parents=True, exist_ok=True)
    with FileLock(KEPT / f"{name}.lock"):
        if not place.exists():
            fresh = KEPT / f"{name}-new"
            # Only hashes: `hybrid-0-*` would be the folders and the lock of `hybrid-0-0` as well.
            for outdated in (fresh, *KEPT.glob(f"{name}-{'[0-9a-f]' * 16}")):
                shutil.rmtree(outdated, ignore_errors=True)
            fresh.mkdir()
            teach(fresh)
            fresh.rename(place)
        shutil.copytree(place, folder)


def play_once(folder, name, play):
    """What `await play()` is, or was in an earlier run of the same sources, as JSON gives it back.

    Only for what follows from the sources to the last bit, and takes long: a learner's history in deterministic mode.
    A package with a fault in it plays for itself.
    """
    if PACKAGE != SOURCES:
        return json.loads(json.dumps(asyncio.run(play())))
    teach_once(folder, name, lambda place: (place / "played.json").write_text(json.dumps(asyncio.run(play()))))
    return json.loads((folder / "played.json").read_text())


def digest():
    """What a taught model follows from: our sources, the libraries, and how this processor rounds."""
    import torch

    rounding = (platform.machine(), torch.backends.cpu.get_cpu_capability(), torch.get_num_threads())
    return hashlib.sha256(repr((_sources(), rounding)).encode()).hexdigest()[:16]


@lru_cache
def _sources():
    helpers = [path for path in TESTS.rglob("*.py") if not path.name.startswith(("test_", "conftest"))]
    package = [path for path in SOURCES.rglob("*") if path.relative_to(SOURCES).parts[0] not in ABOVE]
    files = sorted(path for path in [*helpers, *package] if path.is_file() and path.suffix != ".pyc")
    read = [(str(path.relative_to(TESTS.parent)), hashlib.sha256(path.read_bytes()).hexdigest()) for path in files]
    return read, [version(name) for name in LIBRARIES]
