import fcntl
import gc
import importlib
import os
import sys
from contextlib import suppress
from functools import cache
from pathlib import Path

# Before torch is loaded: see quaere.cli.main.
os.environ.setdefault("OMP_WAIT_POLICY", "passive")
os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")
os.environ.setdefault("HF_HUB_DISABLE_PROGRESS_BARS", "1")
# No test may depend on the hub.
os.environ["HF_HUB_OFFLINE"] = "1"

import httpx._transports.default as httpx_transports
import pytest
from hypothesis import settings
from hypothesis import strategies as st

import tiny

# `make test` asks for the quick one, everybody else gets the full one; see also `properties.py`. The quick one tries
# the same examples each time, so that what it says follows from what was changed; the full one looks for new ones.
settings.register_profile("full", deadline=None)
settings.register_profile("quick", deadline=None, max_examples=25, derandomize=True)
settings.load_profile("full")


# Files that take longest come first, or one worker is left with one of them when all others are done.
LONGEST = (
    "test_hostile_folder.py",
    "test_viewer_browser.py",
    "test_page_files_browser.py",
    "test_ask_browser.py",
    "test_score_train.py",
    "test_validation.py",
    "test_eve_options.py",
    "test_drzero_train.py",
    "test_iterations.py",
    "test_drzero_resume.py",
    "test_viewer_safety.py",
    "test_learning.py",
    "test_packing.py",
    "test_warmup_command.py",
    "test_score_learning.py",
    "test_without_torch.py",
    "test_search_lance.py",
    "test_connections.py",
    "test_killed_commands.py",
    "test_practice_runs.py",
    "test_eve_selector.py",
    "test_search_pool.py",
    "test_given_questions.py",
    "test_eval_command.py",
    "test_sharing.py",
    "test_estimate.py",
    "test_learner.py",
    "test_warmup_score.py",
    "test_failed_searches.py",
    "test_warmup.py",
)


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_collection_modifyitems(items):
    """The order of the files; within one nothing changes. Hypothesis looks for constants here, in every file."""
    places = {name: number for number, name in enumerate(LONGEST)}
    items.sort(key=lambda item: places.get(item.path.name, len(places)))
    with open(__file__) as file:
        if "PYTEST_XDIST_WORKER" in os.environ:  # one at a time: the first writes what the others then only read
            fcntl.flock(file, fcntl.LOCK_EX)
        st.text().validate()  # its table of all characters
        return (yield)


def pytest_collection(session):
    """What is loaded to collect stays until the end: it is not searched for garbage."""
    gc.disable()
    if "PYTEST_XDIST_WORKER" in os.environ:
        _import_share(session.config.args)


def _import_share(folders):
    """Each worker begins with other test files: their assertions are rewritten once, and the others find that done."""
    number = int(os.environ["PYTEST_XDIST_WORKER"].removeprefix("gw"))
    files = sorted(path for folder in folders for path in Path(folder).rglob("test_*.py"))
    for path in files[number :: int(os.environ["PYTEST_XDIST_WORKER_COUNT"])]:
        sys.path.insert(0, str(path.parent))
        with suppress(Exception, pytest.skip.Exception):  # whoever collects the file meets it again, and says so
            importlib.import_module(path.stem)
        sys.path.pop(0)


def pytest_collection_finish():
    """Nor does any later search walk through it."""
    gc.freeze()
    gc.enable()


@pytest.hookimpl(tryfirst=True)
def pytest_runtestloop():
    """Between the last import and the first test: what some tests fork has no threads of others yet."""
    if "preloaded" in sys.modules:
        sys.modules["preloaded"].open_server()


@pytest.fixture(autouse=True, scope="session")
def _no_waiting_for_disks():
    """A tiny run flushes a hundred files, at milliseconds each, and no test cuts the power: kills lose nothing.

    SQLite flushes at every commit.
    """
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(os, "fsync", lambda handle: None)
        patch.setattr("quaere.runs.directory.SYNCHRONOUS", "OFF")
        yield


@pytest.fixture(autouse=True, scope="session")
def _certificates_once():
    """Whoever asks over HTTP, and be it this machine, first reads all certificates of the world, which takes 40 ms."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(httpx_transports, "create_ssl_context", cache(httpx_transports.create_ssl_context))
        yield


@pytest.fixture(autouse=True, scope="module")
def _threads(request):
    """Tiny models gain nothing from a second thread and lose much to waiting for it; the real one gains.

    It takes what cores there are for each worker: threads of several that wait for one core gain nothing either.
    """
    import torch

    is_real = any(mark.name == "model" for mark in request.node.iter_markers())
    num_workers = int(os.environ.get("PYTEST_XDIST_WORKER_COUNT", "1"))
    before = torch.get_num_threads()
    torch.set_num_threads(max(1, (os.cpu_count() or 1) // num_workers) if is_real else 1)
    yield
    torch.set_num_threads(before)


@pytest.fixture(scope="session")
def village_paths(tmp_path_factory):
    """The index of the village and a model that was taught its format, once for all who train there."""
    import torch

    import village
    from building import build_once

    torch.set_num_threads(1)
    return build_once(tmp_path_factory, "village", village.build)


@pytest.fixture(scope="session")
def weighing_paths(tmp_path_factory):
    """The index of the village, a model that was taught every dialect, and questions."""
    import torch

    import weighing
    from building import build_once

    torch.set_num_threads(1)
    return build_once(tmp_path_factory, "weighing", weighing.build)


@pytest.fixture(params=tiny.TEMPLATES)
def tokenizer(request):
    """A small tokenizer with each of the chat templates in turn."""
    return tiny.tokenizer(request.param)
