"""What `quaere doctor` says of memory and disk."""

import os
import shutil
from types import SimpleNamespace

import pytest

from quaere.api import machine
from quaere.cli import doctor
from quaere.cli.doctor import _disk, _extras, _memory

GIB = 2**30


@pytest.mark.parametrize(
    ("total", "free", "status", "said"),
    [
        (16, 12, "ok", "16 GiB, 12 GiB free"),
        (4, 1, "ok", "4 GiB, 1 GiB free"),
        (3, 1, "warn", "3 GiB, 1 GiB free; 4 GiB or more are wanted"),
    ],
)
def test_memory_is_told_in_gib(monkeypatch, tmp_path, total, free, status, said):
    page = 4096
    pages = {"SC_PAGE_SIZE": page, "SC_PHYS_PAGES": total * GIB // page, "SC_AVPHYS_PAGES": free * GIB // page}
    monkeypatch.setattr(os, "sysconf", pages.__getitem__)
    monkeypatch.setattr(machine, "_MEMORY_FILE", tmp_path / "meminfo")
    check = _memory()
    assert (check.name, check.status, check.detail) == ("memory", status, said)
    # With the page cache, where the system tells of it.
    machine._MEMORY_FILE.write_text(f"MemFree: 9 kB\nMemAvailable:   {2 * GIB // 1024} kB\nBuffers: 7 kB\n")
    assert _memory().detail == said.replace(f"{free} GiB free", "2 GiB free")


@pytest.mark.parametrize(
    ("free", "status", "said"),
    [
        (50 * GIB, "ok", "50 GiB free for models"),
        (2 * GIB, "ok", "2 GiB free for models"),
        (GIB // 2, "warn", "only 0.5 GiB free for models"),
    ],
)
def test_a_disk_with_too_little_room_for_models_is_told(monkeypatch, tmp_path, free, status, said):
    monkeypatch.setenv("QUAERE_CACHE", str(tmp_path / "not" / "there"))
    places = []
    monkeypatch.setattr(shutil, "disk_usage", lambda place: places.append(place) or SimpleNamespace(free=free))
    check = _disk()
    assert (check.name, check.status, check.detail) == ("disk", status, said)
    assert bool(check.hint) == (status == "warn") and places == [tmp_path]


def test_extras_that_read_documents_are_listed(monkeypatch):
    monkeypatch.setattr(
        doctor, "importlib", SimpleNamespace(util=SimpleNamespace(find_spec=lambda name: name != "pptx"))
    )
    said = _extras().detail
    assert said.startswith("installed: torch, train, ") and "pdf" in said
    assert said.endswith("; not installed: office")
