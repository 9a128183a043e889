"""Runs that ask several search servers."""

import asyncio
import threading
from types import SimpleNamespace
from unittest import mock

import pytest

from quaere.errors import BadInput
from quaere.search.client import SearchPool
from quaere.search.index_build import build_index
from quaere.serving.server import ServerSettings, make_search_server
from quaere.training.run_setup import open_run
from quaere.training.settings import RunConfig


@pytest.fixture
def servers(tmp_path):
    """Three real servers: two of one index, the third of another."""
    started = []
    for number, text in enumerate(("the oss", "the oss", "the halm")):
        (tmp_path / f"{number}.jsonl").write_text(f'{{"id": "1", "text": "{text}"}}')
        index = build_index(tmp_path / f"{number}.jsonl", tmp_path / f"index-{number}")
        server = make_search_server(index, ServerSettings(port=0))
        thread = threading.Thread(target=server.run, daemon=True)
        thread.start()
        started.append((server, thread))
    yield [server.url for server, _ in started]
    for server, thread in started:
        server.should_exit = True
        thread.join(20)


def open_with(tmp_path, urls):
    """What a run with these servers searches with, and what it finds; no model is opened."""
    config = RunConfig(model="m", index=str(tmp_path / "index-0"), search_url=",".join(urls))

    async def stop():
        pass

    async def run():
        async with open_run(config, ("solver",), SimpleNamespace(note=None)) as opened:
            return type(opened.searcher), (await opened.searcher.search(["oss"], 1))[0][0].passage.text

    actors = SimpleNamespace(policy=SimpleNamespace(stop=stop))
    with mock.patch("quaere.training.run_setup.open_actors", return_value=actors):
        return asyncio.run(run())


def test_a_run_asks_several_servers(servers, tmp_path):
    assert open_with(tmp_path, servers[:2]) == (SearchPool, "the oss")


@pytest.mark.filterwarnings("ignore::quaere.errors.ServerDown")
def test_a_run_begins_with_the_servers_that_are_there(servers, tmp_path):
    assert open_with(tmp_path, ["http://127.0.0.1:9", servers[0]]) == (SearchPool, "the oss")


def test_servers_of_different_indexes_are_refused_before_a_model_is_opened(servers, tmp_path):
    with pytest.raises(BadInput, match="serves another index"):
        open_with(tmp_path, servers[1:])
