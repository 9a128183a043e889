"""`quaere index`, `search` and `serve-search` as a person types them."""

import io
import json
import os
import re
import signal
import subprocess
import sys
from types import SimpleNamespace

import pytest

from preloaded import run_command, start_command
from quaere.api.index import index_settings
from quaere.api.printing import LogProgress
from quaere.cli import index as index_command
from quaere.cli import search as search_command
from quaere.cli.main import build_parser
from quaere.errors import BadInput, SearchFailed
from quaere.search.index import open_index
from quaere.search.index_build import build_index


def quaere(*words):
    args = build_parser(words[0]).parse_args([str(word) for word in words])
    args.run(args)


def test_a_log_says_every_half_minute_how_far_an_index_is():
    log, now = io.StringIO(), [0.0]
    progress = LogProgress(log, lambda: now[0])
    for now[0], done in ((0.0, 0), (29.0, 1_000_000), (31.0, 12_400_000), (40.0, 50_000_000)):
        progress("reading documents", done, 98_000_000)
    now[0] = 61.0
    progress("embedding", 512, 23784)
    assert log.getvalue() == "reading documents: 12.4 of 98.0 MB, about 4 min left\nembedding: 512 of 23,784\n"


def test_reading_is_told_in_bytes(folder, tmp_path):
    told = []
    build_index(folder, tmp_path / "index", progress=lambda *said: told.append(said))
    total = sum(path.stat().st_size for path in folder.rglob("*") if path.is_file())
    assert ("reading documents", total, total) in told


def test_index_and_search(folder, tmp_path, capsys):
    (folder / "old.txt").write_bytes("vieux château".encode("cp1252"))
    (folder / "picture.png").write_bytes(b"")
    (folder / "bad.txt").write_bytes(b"\0")
    quaere("index", folder, "--out", tmp_path / "index")
    summary = capsys.readouterr().out
    assert "4 passages of 4 documents, engine bm25" in summary
    assert "left out, other kinds of file: .png 1" in summary
    assert "bad.txt: contains NUL bytes" in summary
    assert "windows-1252 1" in summary
    quaere("search", "Halm bridge", "xyzzy", "--index", tmp_path / "index")
    shown = capsys.readouterr().out
    assert "1. The Oss  rivers.md#0" in shown
    assert "Orsolya Venn" in shown
    assert "nothing found" in shown


def test_the_summary_says_how_long_it_took(folder, tmp_path, capsys, monkeypatch):
    now = iter([100.0, 102.5, 200.0, 200.5])
    monkeypatch.setattr(index_command, "time", SimpleNamespace(monotonic=lambda: next(now)))
    quaere("index", folder, "--out", tmp_path / "index")
    assert "engine bm25, stemmer english, 2.5 s\n" in capsys.readouterr().out
    quaere("index", "--update", tmp_path / "index")
    assert "engine bm25, stemmer english, 0.5 s\n" in capsys.readouterr().out


def test_a_file_that_cannot_be_read_is_named_and_the_rest_is_indexed(folder, tmp_path, capsys):
    (folder / "gone.md").symlink_to(folder / "nowhere.md")
    quaere("index", folder, "--out", tmp_path / "index")
    summary = capsys.readouterr().out
    assert "of 3 documents" in summary
    assert "left out, not readable: 1\n  " in summary and "gone.md: a link that leads nowhere" in summary
    corpus = open_index(tmp_path / "index").manifest.corpus
    assert corpus.unreadable == ["gone.md: a link that leads nowhere"]


def test_what_a_document_holds_does_not_act_on_the_terminal(folder, tmp_path, capsys):
    evil = "\x1b]0;owned\x07 \x9b2J \u202egnp.exe\u2066 Halm \r over"
    (folder / "evil.md").write_text(f"# Head {evil}\n\nxyzzy {evil}\n", encoding="utf-8")
    (folder / "na\x1b[2Jme.txt").write_bytes(b"\0")
    quaere("index", folder, "--out", tmp_path / "index")
    quaere("search", "xyzzy", "plugh \x1b[1m", "--index", tmp_path / "index")
    shown = capsys.readouterr().out
    assert not set(shown) & set("\x1b\x07\x9b\r\u202e\u2066")
    assert "na␛[2Jme.txt: contains NUL bytes" in shown
    assert "xyzzy ␛]0;owned␇ \\u009b2J \\u202egnp.exe\\u2066 Halm ␍ over" in " ".join(shown.split())
    assert "plugh ␛[1m" in shown


def test_a_search_prints_excerpts_and_whole_passages_where_asked(tmp_path, capsys):
    told = "\n\n".join(f"In {year} nothing was built here." for year in range(1700, 1714))
    (tmp_path / "docs").mkdir()
    (tmp_path / "docs" / "halm.md").write_text(f"{told}\n\nThen Venn built the Halm bridge.\n", encoding="utf-8")
    quaere("index", tmp_path / "docs", "--out", tmp_path / "index")
    capsys.readouterr()
    quaere("search", "halm bridges", "--index", tmp_path / "index")
    short = capsys.readouterr().out
    assert "Then Venn built the Halm bridge." in " ".join(short.split())
    assert "In 1700" not in short and "\n\n" not in short
    quaere("search", "halm bridges", "--index", tmp_path / "index", "--full")
    full = capsys.readouterr().out
    assert "In 1700" in full and "Halm bridge" in full


def test_the_words_of_a_query_are_bold_on_a_terminal():
    for full in (False, True):
        shown = search_command.render_passage("halm", "The \x1bHalm bridge", full=full)
        assert shown.plain == "The ␛Halm bridge"
        assert [(span.start, span.end, span.style) for span in shown.spans] == [(5, 9, "bold")]


def test_an_index_that_is_there_is_to_be_updated_first(folder, tmp_path):
    quaere("index", folder, "--out", tmp_path / "index")
    with pytest.raises(BadInput, match="is an index already") as caught:
        quaere("index", folder, "--out", tmp_path / "index")
    assert caught.value.hint == f"quaere index --update {tmp_path / 'index'}, or --force to replace it"


def test_search_as_json(shared_index, capsys):
    quaere("search", "Halm bridge", "--index", shared_index.path, "--json", "--topk", 1)
    (result,) = json.loads(capsys.readouterr().out)
    assert result["query"] == "Halm bridge"
    assert [hit["passage"]["id"] for hit in result["hits"]] == ["rivers.md#0"]


def test_search_at_a_server(url, capsys):
    quaere("search", "東京", "--index", url, "--json")
    assert "tokyo.txt#0" in capsys.readouterr().out
    with pytest.raises(SearchFailed):
        quaere("search", "x", "--index", f"{url}/nowhere")


def test_every_option_reaches_the_settings(folder, tmp_path, capsys):
    options = "--chunk-words 7 --overlap-words 2 --row-words 9 --k1 0.9 --b 0.4 --title-weight 4 --json --force"
    options += " --max-file-mib 5 --stemmer german"
    dense = "--embedder e5-small --ann ivf --num-lists 5 --num-probes 2 --num-links 8 --search-width 9 --batch-size 3"
    quaere("index", folder, "--out", tmp_path / "index", *options.split())
    printed = json.loads(capsys.readouterr().out)
    settings = open_index(tmp_path / "index").manifest.settings
    assert printed["num_passages"] == len(open_index(tmp_path / "index")) > 3
    assert (settings.chunks.max_words, settings.chunks.overlap_words, settings.chunks.row_words) == (7, 2, 9)
    assert (settings.bm25.k1, settings.bm25.b, settings.bm25.title_weight) == (0.9, 0.4, 4)
    assert settings.bm25.stemmer == "german"
    assert (settings.engine, settings.max_file_mib) == ("bm25", 5)
    words = ["index", str(folder), "--out", "x", "--engine", "hybrid", *dense.split(), "--query-prefix", "Q: "]
    args = build_parser("index").parse_args(words)
    given = index_settings({name: value for name, value in vars(args).items() if value is not None}).dense
    assert (given.embedder, given.ann, given.query_prefix, given.passage_prefix) == ("e5-small", "ivf", "Q: ", None)
    assert (given.num_lists, given.num_probes, given.num_links, given.search_width, given.batch_size) == (5, 2, 8, 9, 3)


def test_bad_values_are_refused(folder, tmp_path):
    with pytest.raises(BadInput):
        quaere("index", folder, "--out", tmp_path / "index", "--chunk-words", 0)
    with pytest.raises(BadInput, match="max_file_mib must be at least 1"):
        quaere("index", folder, "--out", tmp_path / "index", "--max-file-mib", 0)
    with pytest.raises(BadInput):
        quaere("index", tmp_path / "nowhere", "--out", tmp_path / "index")


def test_help_is_light():
    code = (
        "import sys; from quaere.cli import index, search, serve_search;"
        "heavy = 'torch transformers faiss bm25s numpy httpx starlette uvicorn'.split();"
        "print([name for name in heavy if name in sys.modules])"
    )
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, text=True).stdout.strip() == "[]"


def test_serve_search_until_ctrl_c(shared_index, capsys):
    command = ["serve-search", "--index", shared_index.path, "--port"]
    server, stderr = start_command(*command, "0", "--max-concurrent", "1")
    try:
        line = stderr.readline()
        assert "serving 3 passages (bm25, stemmer english) at http://127.0.0.1:" in line
        address = line.split(" at ")[1].split("/retrieve")[0]
        quaere("search", "Halm bridge", "--index", address, "--json")
        assert "rivers.md#0" in capsys.readouterr().out
        port = address.rsplit(":", 1)[1]
        code, said = run_command(*command, port)
        assert code == 2
        assert said.count("\n") == 2
        assert f"port {port}" in said
        os.kill(server.pid, signal.SIGINT)
        server.join(timeout=20)
        assert server.exitcode == 0
        assert re.fullmatch(r"\S+ \S+ 127\.0\.0\.1 POST /retrieve 200 \d+ ms\n", stderr.read())
    finally:
        server.kill()
        server.join()
        stderr.close()
