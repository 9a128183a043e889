"""Search engines of installed packages: found by their entry points, loaded when they are used."""

import sys

import pytest

from quaere import Index
from quaere.cli.main import build_parser, main
from quaere.errors import BadInput
from quaere.search.engines import ENGINE_NAMES, find_engine
from quaere.search.index import IndexSettings, open_index
from quaere.search.index_build import build_index, update_index

ENGINE = '''
from quaere.search.engines import Backend
from quaere.search.engines import Match


class Longest:
    """Every query finds the longest passages."""

    def __init__(self, lengths):
        self._lengths = lengths

    def search(self, queries, topk):
        order = sorted(range(len(self._lengths)), key=lambda number: -self._lengths[number])
        return [[Match(number, float(self._lengths[number])) for number in order[:topk]] for _ in queries]


def build(build):
    build.folder.mkdir()
    lengths = [str(len(build.read(number).text)) for number in range(build.num_passages)]
    (build.folder / "lengths.txt").write_text(" ".join(lengths))
    return 0


def open_engine(folder, settings):
    return Longest([int(length) for length in (folder / "lengths.txt").read_text().split()])


LONGEST = Backend(build, open_engine)
'''


@pytest.fixture
def install(tmp_path, monkeypatch):
    """A function that puts a package with an entry point for an engine where Python finds it."""
    site = tmp_path / "site"

    def install(name, value, code, package="quaere_longest"):
        info = site / f"{package}-1.0.dist-info"
        info.mkdir(parents=True)
        (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {package.replace('_', '-')}\nVersion: 1.0\n")
        (info / "entry_points.txt").write_text(f"[quaere.retrievers]\n{name} = {value}\n")
        (site / f"{package}.py").write_text(code)
        monkeypatch.syspath_prepend(str(site))
        monkeypatch.delitem(sys.modules, package, raising=False)

    return install


@pytest.fixture
def pages(tmp_path):
    folder = tmp_path / "pages"
    folder.mkdir()
    (folder / "oss.md").write_text("# Oss\n\nThe Oss is a river.")
    (folder / "halm.md").write_text("# Halm\n\nThe Halm bridge crosses the Oss at the northern gate of the town.")
    return folder


def test_an_installed_engine_is_built_searched_and_updated(install, pages, tmp_path, capsys):
    build_parser("index")  # what an earlier parser offered must not be kept
    install("longest", "quaere_longest:LONGEST", ENGINE)
    assert tuple(ENGINE_NAMES) == ("bm25", "dense", "hybrid", "lance", "longest")
    assert "quaere_longest" not in sys.modules
    assert main(["index", str(pages), "--out", str(tmp_path / "index"), "--engine", "longest"]) == 0
    assert "engine longest" in capsys.readouterr().out
    index = open_index(tmp_path / "index")
    assert [hit.passage.doc_id for hit in index.search(["oss"], 2)[0]] == ["halm.md", "oss.md"]
    (pages / "korrin.md").write_text("# Korrin\n\n" + "A town of smiths and ferries. " * 4)
    updated = update_index(tmp_path / "index").index
    assert updated.search(["oss"], 1)[0][0].passage.doc_id == "korrin.md"
    assert updated.fingerprint != index.fingerprint


@pytest.mark.parametrize(
    ("value", "code", "said"),
    [
        ("quaere_longest:LONGEST", "import a_library_that_is_missing", "ModuleNotFoundError: No module named"),
        ("quaere_longest:LONGEST", "", "AttributeError: module 'quaere_longest' has no attribute 'LONGEST'"),
        ("quaere_longest:LONGEST", "LONGEST = 3", "TypeError: quaere_longest:LONGEST is not a Backend"),
        ("quaere_longest:LONGEST", "raise RuntimeError('no\\nGPU')", "RuntimeError: no GPU"),
    ],
)
def test_a_broken_package_is_named_in_one_line(install, pages, tmp_path, value, code, said):
    install("longest", value, code)
    with pytest.raises(BadInput) as raised:
        build_index(pages, tmp_path / "index", IndexSettings(engine="longest"))
    message = str(raised.value)
    assert message.startswith("the search engine 'longest' of the package quaere-longest cannot be loaded: ")
    assert said in message and "\n" not in message and raised.value.hint
    assert not (tmp_path / "index").exists()
    assert len(build_index(pages, tmp_path / "index")) == 2  # other engines do not need it


def test_an_index_of_a_package_that_is_gone_says_so(install, pages, tmp_path, monkeypatch):
    install("longest", "quaere_longest:LONGEST", ENGINE)
    Index.build(pages, tmp_path / "index", engine="longest")
    monkeypatch.undo()
    with pytest.raises(BadInput, match="there is no search engine 'longest'") as raised:
        open_index(tmp_path / "index").search(["oss"], 1)
    assert "bm25, dense, hybrid, lance" in raised.value.hint


def test_an_unknown_engine_is_refused(pages, tmp_path):
    with pytest.raises(BadInput, match="there is no search engine 'bm52'"):
        Index.build(pages, tmp_path / "index", engine="bm52")


@pytest.mark.parametrize("name", ["bm25", "hybrid"])
def test_a_package_cannot_replace_an_engine(install, name):
    install(name, "quaere_longest:LONGEST", ENGINE)
    assert find_engine("bm25").uses(IndexSettings()) == ("bm25",)
    assert IndexSettings(engine="hybrid").engine_names == ("bm25", "dense")
    assert tuple(ENGINE_NAMES) == ("bm25", "dense", "hybrid", "lance")
