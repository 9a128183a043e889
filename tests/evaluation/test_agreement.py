"""`benchmarks/agreement.py`: groups of attempts as votes, and what a least agreement refuses and loses."""

import importlib
import sys

import pytest

from quaere.records import Answer, Episode, Question, SolveTask
from quaere.rewards.abstention import ABSTENTION


@pytest.fixture
def agreement(monkeypatch, repo_benchmarks):
    monkeypatch.syspath_prepend(repo_benchmarks)
    yield importlib.import_module("agreement")
    sys.modules.pop("agreement", None)
