"""`quaere mcp` as it is typed, what it says if something is missing, and the files of clients in docs/mcp.md."""

import json
import re
import subprocess
import sys
from pathlib import Path

import pytest

from documented import check_command
from quaere.cli.main import main
from quaere.errors import MODEL_LIBRARIES, install_hint
from quaere.search.index_build import build_index

PAGE = Path(__file__).parents[2] / "docs/mcp.md"


@pytest.fixture(scope="module")
def index(tmp_path_factory):
    folder = tmp_path_factory.mktemp("mcp")
    (folder / "docs").mkdir()
    (folder / "docs" / "oss.md").write_text("# The Oss\n\nThe Oss rises in the Korrin hills.\n")
    return build_index(folder / "docs", folder / "index").path


def test_without_the_extra_one_line_says_what_to_install(index, monkeypatch, capsys):
    monkeypatch.setitem(sys.modules, "mcp_types", None)
    assert main(["mcp", "--index", str(index)]) == 2
    out, err = capsys.readouterr()
    assert out == ""
    assert err == f"quaere: quaere mcp needs the package mcp, version 2\n  try: {install_hint('mcp')}\n"


@pytest.mark.parametrize(
    ("words", "line"),
    [
        (["--index", "missing"], "missing does not exist"),
        (["--index", "{index}", "--model", "no-such-model"], "no-such-model"),
        (["--index", "{index}", "--attempts", "8"], "--attempts and --min-confidence need an agent"),
        (["--index", "{index}", "--min-confidence", "0"], "--attempts and --min-confidence need an agent"),
        (["--index", "{index}", "--http", "--host", "0.0.0.0", "--port", "0"], "an API key is required"),
    ],
)
def test_bad_input_is_one_line_and_nothing_on_stdout(index, words, line, capsys, monkeypatch):
    pytest.importorskip("mcp_types", reason="needs the extra mcp")
    monkeypatch.delenv("QUAERE_API_KEY", raising=False)
    assert main(["mcp", *(word.format(index=index) for word in words)]) == 2
    out, err = capsys.readouterr()
    assert out == "" and line in err and "Traceback" not in err


def test_documents_are_served_without_the_libraries_of_models(index):
    pytest.importorskip("mcp_types", reason="needs the extra mcp")
    absent = f"import sys; sys.modules.update(dict.fromkeys({MODEL_LIBRARIES!r}))"
    code = f"{absent}; from quaere.cli.main import main; sys.exit(main(['mcp', '--index', {str(index)!r}]))"
    words = [sys.executable, "-c", code]
    done = subprocess.run(words, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=120)
    assert (done.returncode, done.stdout) == (0, ""), done.stderr


# ------------------------------------------------------------------------------------------------- files of clients


# Where each client keeps it, and the key that its servers are under.
CLIENTS = {"claude_desktop_config.json": "mcpServers", ".vscode/mcp.json": "servers", ".cursor/mcp.json": "mcpServers"}


@pytest.mark.parametrize("file", CLIENTS)
def test_the_file_of_a_client_starts_our_server(file):
    shown = re.findall(r"`([^`\n]+)`[^\n]*\n\n```json\n(.*?)```", PAGE.read_text(encoding="utf-8"), re.DOTALL)
    (text,) = [text for named, text in shown if named.endswith(file)]
    (servers,) = json.loads(text).values()
    assert list(json.loads(text)) == [CLIENTS[file]]
    (server,) = servers.values()
    assert server["command"] == "quaere" and set(server) <= {"command", "args", "type", "env"}
    assert server.get("type", "stdio") == "stdio"
    check_command(server["args"])
    assert server["args"][:2] == ["mcp", "--index"]
