"""The documents of a run: found by its config or settings, and said in one line where they are not."""

import warnings

import pytest

from quaere.api.run import name_index, open_documents
from quaere.runs import Run
from quaere.search.index_build import build_index


@pytest.fixture
def index(tmp_path):
    (tmp_path / "docs").mkdir()
    (tmp_path / "docs" / "halm.md").write_text("# Halm\n\nVenn built it.\n")
    return build_index(tmp_path / "docs", tmp_path / "index")


def run_of(folder, settings, config=None):
    Run.create(folder, "evolve", settings, config=config).close()
    return Run.open(folder)


def test_documents_are_read_from_the_index_of_the_run(index, tmp_path):
    run = run_of(tmp_path / "run", {"index": str(index.path), "index_fingerprint": index.fingerprint})
    found = open_documents(run)
    assert found.said == ""
    assert "Venn built it." in found.read("halm.md")
    assert found.read("other.md") == ""


def test_documents_that_have_changed_since_they_were_indexed_are_shown_as_they_were(index, tmp_path):
    run = run_of(tmp_path / "run", {"index": str(index.path)})
    (tmp_path / "docs" / "halm.md").write_text("Nobody built it.")
    with warnings.catch_warnings():
        warnings.simplefilter("error")  # who only reads a run is not told to index anew
        assert "Venn built it." in open_documents(run).read("halm.md")


def test_another_index_under_the_name_is_said(index, tmp_path):
    found = open_documents(run_of(tmp_path / "run", {"index": str(index.path), "index_fingerprint": "before"}))
    assert found.said.endswith("holds other documents than when the run began")
    assert "Venn built it." in found.read("halm.md")


@pytest.mark.parametrize(("settings", "said"), [({}, "names no index"), ({"index": "nowhere"}, "nowhere")])
def test_without_an_index_there_is_one_line(tmp_path, settings, said):
    found = open_documents(run_of(tmp_path / "run", settings))
    assert found.said.startswith("the documents are not here: ") and said in found.said
    assert (found.index, found.read("halm.md")) == (None, "")


@pytest.mark.parametrize(
    ("config", "named"), [("index: later", "later"), ("seed: 1", "first"), ("- 1", "first"), ("a: [", "first")]
)
def test_the_config_is_newer_than_the_settings(tmp_path, config, named):
    assert name_index(run_of(tmp_path / "run", {"index": "first"}, config)) == named
