"""Words that a command cannot use: one line, exit code 2, and nothing is lost."""

import errno

import pytest

from quaere.cli.main import build_parser, main
from quaere.cli.options import server_settings
from quaere.search.index import open_index

LONG = "a" * 300


@pytest.fixture
def place(tmp_path, monkeypatch):
    """A folder `notes` of one document and its index `made`, in the working directory."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "notes").mkdir()
    (tmp_path / "notes/halm.md").write_text("Venn built the Halm bridge.")
    (tmp_path / "dangling").symlink_to("gone")
    assert main(["index", "notes", "--out", "made"]) == 0
    return tmp_path


def run(capsys, *words):
    """The exit code, and what was said on stderr."""
    capsys.readouterr()
    try:
        code = main(words)
    except SystemExit as stop:  # of argparse
        code = stop.code
    return code, capsys.readouterr().err


@pytest.mark.parametrize(
    "words",
    [
        ["search", "x", "--index", LONG],
        ["index", "notes", "--out", LONG],
        ["search", "x", "--index", f"replay:{LONG}"],
        ["view", LONG],
        ["runs", "list", "--runs", LONG],
        ["doctor", "--index", LONG],
        ["doctor", "--model", LONG],
        ["index", LONG, "--out", "b"],
    ],
)
def test_a_name_that_is_too_long_is_said_in_a_line(place, capsys, words):
    code, said = run(capsys, *words)
    assert code == 2 and "Traceback" not in said and len(said.splitlines()) <= 2


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["index", "", "--out", "b"], "the name is empty"),
        (["index", "notes", "--out", ""], "the name is empty"),
        (["index", "notes", "--out", "b", "--title-weight", "100000000000"], "the title weight must be from 0 to 1000"),
        (["index", "notes", "--out", "b", "--embedder", "x"], "engine bm25 has no use for embedder"),
        (["index", "notes", "--out", "b", "--num-lists", "5"], "engine bm25 has no use for num_lists"),
        (["index", "notes", "--out", "b", "--lance-search", "dense"], "engine bm25 has no use for lance_search"),
        (["index", "notes", "--out", "b", "--engine", "dense", "--k1", "2"], "engine dense has no use for k1"),
        (["runs", "show", "made", "--episodes", "-1"], "must be at least 0"),
        (["curriculum", "made", "--iteration", "-5"], "must be at least 0"),
        (["mcp", "--index", "made", "--port", "9"], "add --http"),
        (["mcp", "--index", "made", "--api-key-file", "notes/halm.md"], "add --http"),
        (["serve-search", "--index", "made", "--allow-origin", "foo"], "foo is not an origin"),
        (["serve-search", "--index", "made", "--allow-origin", "https://a.example/x"], "is not an origin"),
        (["serve-search", "--index", "made", "--allow-origin", "https://me@a.example"], "is not an origin"),
        (["serve-search", "--index", "made", "--allow-origin", "null"], "is not an origin"),
        (["serve-search", "--index", "made", "--allow-origin", "https://[a.example"], "is not an origin"),
        (["search", "x", "--index", "dangling"], "dangling does not exist"),
        (["serve-search", "--index", "http://127.0.0.1:1"], "is the URL of a server"),
        (["doctor", "--index", ""], "the name is empty"),
        (["search", "x", "--index", ""], "the name is empty"),
        (["runs", "list", "--runs", ""], "the name is empty"),
        (["runs", "show", ""], "the name is empty"),
        (["view", "", "--export", "b"], "the name is empty"),
        (["evolve", "--resume", ""], "the name is empty"),
    ],
)
def test_what_cannot_be_meant_is_refused(place, capsys, words, said):
    code, err = run(capsys, *words)
    assert code == 2 and said in err
    assert not (place / "b").exists()


def test_an_error_of_no_file_is_not_taken_for_one_of_the_disk(monkeypatch):
    def refuse(words):
        raise PermissionError(errno.EPERM, "Operation not permitted")

    monkeypatch.setattr("quaere.cli.main._run", refuse)
    with pytest.raises(PermissionError):
        main(["doctor"])


@pytest.mark.parametrize("origin", ["https://a.example", "http://[::1]:8000/", "chrome-extension://abcdefgh"])
def test_the_origin_of_a_page_or_an_extension_is_taken(origin):
    args = build_parser("serve-search").parse_args(["serve-search", "--index", "made", "--allow-origin", origin])
    assert server_settings(args).allow_origins == (origin,)


def test_what_lies_in_an_index_folder_stays_there(place, capsys):
    (place / "made/mine.txt").write_text("mine")
    (place / "made/runs").mkdir()
    (place / "made/runs/one").write_text("1")
    (place / "notes/more.md").write_text("Oleen paid for the Halm bridge.")
    assert main(["index", "--update", "made"]) == 0
    assert main(["index", "notes", "--out", "made", "--force", "--row-words", "9"]) == 0
    assert (place / "made/mine.txt").read_text() == "mine" and (place / "made/runs/one").read_text() == "1"
    assert open_index(place / "made").manifest.num_documents == 2
