"""`quaere view` as a person types it, up to the first request: what is said, and what is opened."""

from types import SimpleNamespace

import pytest

from quaere.cli.main import main
from viewing import write_run

URL = "http://127.0.0.1:8600"


@pytest.fixture
def view(tmp_path, monkeypatch, capsys):
    """The command with a server that is ready at once and ends at once; what is printed, and the pages it opens."""
    opened = []
    write_run(tmp_path / "runs" / "alpha", num_steps=1)

    def run_server(server, on_ready):
        with server.listener:
            on_ready(URL)

    monkeypatch.setattr("quaere.cli.view.run_server", run_server)
    monkeypatch.setattr("quaere.cli.view.webbrowser", SimpleNamespace(open=opened.append))

    def call(*words):
        assert main(["view", *words, "--runs", str(tmp_path / "runs"), "--port", "0"]) == 0
        said = capsys.readouterr()
        assert said.out == ""
        return said.err.splitlines(), opened

    return call


def test_it_says_where_the_runs_are_shown_and_opens_them_if_asked(view, tmp_path):
    assert view() == ([f"showing {tmp_path / 'runs'} at {URL}/, Ctrl-C ends"], [])
    assert view("alpha", "--open") == ([f"showing alpha at {URL}/run/alpha, Ctrl-C ends"], [f"{URL}/run/alpha"])


def test_a_browser_is_told_how_to_show_the_key_and_the_key_is_not_said(view, monkeypatch):
    monkeypatch.setenv("QUAERE_API_KEY", "k3y")
    (_, line), _ = view()
    assert line == f"a browser needs the key once: {URL}/?api_key=KEY"
