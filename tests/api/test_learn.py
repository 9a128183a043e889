"""`quaere.learn`: from documents to an agent in one call, which goes on after a kill."""

import json

import pytest

import quaere
from learning_runs import FORM, SMALL, digest, make_place
from quaere.api.warmup_documents import read_checked


@pytest.fixture(scope="module")
def learned(weighing_paths, tmp_path_factory):
    """A whole run with a model that knows the form."""
    given = make_place(weighing_paths, tmp_path_factory.mktemp("learn"))
    corpus = weighing_paths[0].parent / "corpus.jsonl"
    notes, parts = [], []
    done = quaere.learn(
        corpus, **given, settings=SMALL, on_note=notes.append, on_progress=lambda *part: parts.append(part)
    )
    return done, notes, parts, (corpus, given)


def test_all_stages_leave_their_output(learned):
    done, notes, parts, _ = learned
    names = "plan.json index questions.jsonl practice.jsonl held.jsonl before.json run after.json agent".split()
    assert all((done.out / name).exists() for name in [*names, "report.json", "report.html"])
    assert not (done.out / "form").exists()  # it was taught before
    print(notes, parts)
