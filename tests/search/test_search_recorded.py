"""Recorded retrieval: replayed bit for bit, over an index and over the web; damage, other indexes, other queries."""

import asyncio
import gzip
import os
import subprocess
import sys
from io import BytesIO

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec import structs

import tiny
from quaere.chat.renderer import Renderer
from quaere.cli.main import main
from quaere.dialects.tool_call import ToolCallSolver
from quaere.errors import BadInput, SearchFailed, StaleIndex
from quaere.records import Hit, Passage, Question, SolveTask
from quaere.rollout.episode import Job, Limits, run_many
from quaere.rollout.policy import TokenPolicy
from quaere.search.fetch import Fetched
from quaere.search.index_build import build_index
from quaere.search.recorded import Recorder, RecordFile, Replayer, Retrieval
from quaere.search.searcher import find_opener, open_searcher
from quaere.search.warc import BadRecord, pack_record, read_record, read_records
from quaere.search.web_search import HttpFinder, WebSearcher, clean_page
from scripted import ScriptedSampler
from websites import open_fetcher, page, websites

QUERIES = ["Halm bridge", "Korrin", "首都", "xyzzy", "lamp 1850"]


class Listed(tiny.ListSearcher):
    async def close(self):
        pass


async def search(place, queries=QUERIES, topk=2):
    searcher = open_searcher(place)
    try:
        return await searcher.search(queries, topk)
    finally:
        await searcher.close()


async def play(searcher):
    """Episodes of a scripted policy, each with two searches; without their times."""
    tokenizer = tiny.tokenizer("chatml")
    ask = '<tool_call>{"name": "search", "arguments": {"query_list": ["%s", "%s"]}}</tool_call>'
    scripts = {
        f"e{number}": [ask % (query, QUERIES[0]), ask % (QUERIES[1], query), "<answer>Venn</answer>"]
        for number, query in enumerate(QUERIES)
    }
    policy = TokenPolicy(ScriptedSampler(tokenizer, scripts), Renderer(tokenizer))
    jobs = [Job(ToolCallSolver(), SolveTask(Question(name, "Who?")), name) for name in scripts]
    try:
        return [without_times(episode) async for episode in run_many(policy, jobs, searcher, Limits())]
    finally:
        await searcher.close()


def without_times(episode):
    turns = tuple(structs.replace(turn, sample_s=0.0, search_s=0.0) for turn in episode.turns)
    return structs.replace(episode, turns=turns)


# ----------------------------------------------------------------------------------------------------- equal episodes


async def test_episodes_are_equal_searched_recorded_and_replayed(index, tmp_path):
    record = tmp_path / "study.warc.gz"
    searched = await play(open_searcher(str(index.path)))
    recorded = await play(open_searcher(f"record:{record}@{index.path}"))
    for path in sorted(index.path.rglob("*"), reverse=True):  # a record needs no index
        path.unlink() if path.is_file() else path.rmdir()
    replayed = await play(open_searcher(f"replay:{record}"))
    assert searched == recorded == replayed
    assert len({episode.segments for episode in replayed}) == len(QUERIES)


RIVERS = "<title>The Oss</title><p>The Halm bridge was built by Orsolya Venn in 1841.</p>"
PAGES = {"/rivers": page(RIVERS), "/korrin": page(gzip.compress(b"<p>Korrin has a lamp."), content_encoding="gzip")}


async def test_episodes_over_the_web_are_equal_and_the_record_has_the_pages(tmp_path):
    record = tmp_path / "study.warc.gz"
    with websites(dict(PAGES)) as sites:
        found = [sites.url("/rivers"), sites.url("/korrin"), sites.url("/missing")]
        sites.results |= dict.fromkeys(QUERIES, found)

        def open_web():
            return WebSearcher(HttpFinder("searxng", sites.url("")), open_fetcher(sites))

        searched = await play(open_web())
        recorded = await play(Recorder(record, "web:searxng@http://127.0.0.1:8888", open_web))
        sites.pages["/rivers"] = page("<p>Something else.")
        assert await play(open_web()) != searched  # the web has changed
    assert searched == recorded == await play(open_searcher(f"replay:{record}"))
    with record.open("rb") as stream:
        records = [*read_records(stream)]
    pages = {one.uri: one.content for one in records if one.kind == "response"}
    assert {*pages} == {*found[:2]}
    assert pages[found[1]].endswith(b"\r\n\r\n<p>Korrin has a lamp.") and b"content-encoding" not in pages[found[1]]
    # The passages of the episodes are spans of the pages in the record, cleaned.
    head, _, body = pages[found[0]].partition(b"\r\n\r\n")
    assert head.startswith(b"HTTP/1.1 200 OK\r\n")
    cleaned = clean_page(Fetched(found[0], 200, [("content-type", "text/html")], body))
    passage = recorded[0].turns[0].results[0].hits[0].passage
    assert cleaned.text[passage.start : passage.end] == passage.text


async def test_a_search_is_recorded_once_and_many_at_a_time_ask_once(index, tmp_path):
    asked = []

    class Counting(Listed):
        async def search(self, queries, topk):
            asked.extend(queries)
            await asyncio.sleep(0.01)
            return await super().search(queries, topk)

    recorder = Recorder(tmp_path / "a.warc.gz", "somewhere", Counting)
    found = await asyncio.gather(*(recorder.search([query], 2) for query in QUERIES * 3))
    assert sorted(asked) == sorted(QUERIES) and found[:5] == found[5:10]
    await recorder.close()
    again = Recorder(tmp_path / "a.warc.gz", "somewhere", Counting)
    assert [await again.search([query], 2) for query in QUERIES] == found[:5] and len(asked) == len(QUERIES)
    await again.search(["new"], 2)
    await again.search([QUERIES[0]], 3)
    assert asked[len(QUERIES) :] == ["new", QUERIES[0]]
    await again.close()
    assert await search(f"replay:{tmp_path / 'a.warc.gz'}", ["new"]) == found[:1][0]


async def test_failures_are_replayed_in_their_order(tmp_path):
    outcomes = [SearchFailed("it is down", kind="unreachable"), SearchFailed("it is full", kind="overloaded"), None]

    class Failing(Listed):
        async def search(self, queries, topk):
            if outcome := outcomes.pop(0):
                raise outcome
            return await super().search(queries, topk)

    async def ask_all(searcher):
        said = []
        for _ in range(4):
            try:
                said.append(await searcher.search(["Halm"], 1))
            except SearchFailed as failure:
                said.append((failure.kind, str(failure)))
        await searcher.close()
        return said

    recorded = await ask_all(Recorder(tmp_path / "a.warc.gz", "somewhere", Failing))
    assert (
        recorded[2] == recorded[3]
        and recorded[:2] == [("unreachable", "it is down"), ("overloaded", "it is full")]
        and not outcomes
    )
    assert recorded == await ask_all(Replayer(tmp_path / "a.warc.gz"))


async def test_failures_of_several_queries_at_once_are_replayed_together(tmp_path):
    num_asked = {"a": 0, "b": 0}

    class Failing(Listed):
        """Fails once for each query."""

        async def search(self, queries, topk):
            num_asked[queries[0]] += 1
            if num_asked[queries[0]] == 1:
                raise SearchFailed(f"{queries[0]} fails", kind="broken")
            return await super().search(queries, topk)

    for open_one in (lambda path: Recorder(path, "somewhere", Failing), Replayer):
        searcher = open_one(tmp_path / "a.warc.gz")
        with pytest.raises(SearchFailed, match="a fails"):
            await searcher.search(["a", "b"], 1)
        assert len(await searcher.search(["a", "b"], 1)) == 2
        await searcher.close()


@given(
    query=st.text(st.characters(exclude_categories=["Cs"]), max_size=40),
    topk=st.integers(1, 100),
    score=st.floats(allow_nan=False, allow_infinity=False),
    text=st.text(st.characters(exclude_categories=["Cs"]), max_size=200),
)
def test_whatever_was_found_is_read_back(tmp_path_factory, query, topk, score, text):
    path = tmp_path_factory.mktemp("record") / "a.warc.gz"
    found = Retrieval(query, topk, [Hit(Passage("a#0", "a", query, text, 3, 3 + len(text), heading=text), score)])
    with path.open("a+b") as stream:
        RecordFile(path, stream).add(found)
    with path.open("rb") as stream:
        assert RecordFile(path, stream).find((query, topk)) == [found]


# ------------------------------------------------------------------------------------------------ what does not fit


async def test_a_query_that_is_not_in_the_record_is_one_clear_line(index, tmp_path, capsys):
    record = tmp_path / "study.warc.gz"
    await search(f"record:{record}@{index.path}")
    with pytest.raises(BadInput, match="has no search for 'Venn' with 2 passages") as refused:
        await search(f"replay:{record}", ["Venn"])
    assert refused.value.hint == f"--search record:{record}@{index.path} adds it"
    with pytest.raises(BadInput, match="has no search for 'Korrin' with 3 passages"):
        await search(f"replay:{record}", ["Korrin"], 3)
    code = await asyncio.to_thread(main, ["search", "Venn", "--search", f"replay:{record}"])
    assert code == 2 and len(capsys.readouterr().err.splitlines()) == 2


async def test_a_changed_index_is_noticed(index, folder, tmp_path):
    record = tmp_path / "study.warc.gz"
    found = await search(f"record:{record}@{index.path}")
    (folder / "rivers.md").write_text("The Halm bridge is gone.")
    build_index(folder, index.path, force=True)
    with pytest.raises(BadInput, match="is a record of another index"):
        await search(f"record:{record}@{index.path}", ["new"])
    with pytest.warns(StaleIndex, match=f"the index {index.path} has changed since {record} was recorded"):
        assert await search(f"replay:{record}") == found
    with pytest.raises(BadInput, match=f"is a record of {index.path}"):
        await search(f"record:{record}@{build_index(folder, tmp_path / 'other').path}", ["new"])


async def test_a_changed_index_of_a_server_is_noticed(index, folder, tmp_path, serve):
    record = tmp_path / "study.warc.gz"
    with serve(index) as url:
        found = await search(f"record:{record}@{url}")
    (folder / "rivers.md").write_text("The Halm bridge is gone.")
    other = build_index(folder, tmp_path / "other")
    with serve(other, port=int(url.rpartition(":")[2])), pytest.raises(BadInput, match="is a record of another index"):
        await search(f"record:{record}@{url}", ["new"])
    assert await search(f"replay:{record}") == found


@pytest.mark.parametrize(
    ("place", "said"),
    [
        ("record:", "a record must be written as record:FILE@PLACE"),
        ("record:a.warc.gz", "a record must be written as record:FILE@PLACE"),
        ("record:@docs", "a record must be written as record:FILE@PLACE"),
        ("record:a.warc.gz@nowhere", "nowhere does not exist"),
        ("record:a.warc.gz@web:google", "there is no web search 'google'"),
        ("record:missing/a.warc.gz@INDEX", "cannot write missing/a.warc.gz: No such file or directory"),
        ("record:text.txt@INDEX", "text.txt cannot be read: the record at byte 0 is damaged"),
        ("record:.@INDEX", "cannot write .: Is a directory"),
        ("replay:", "there is no record FILE"),
        ("replay:nowhere", "there is no record nowhere"),
        ("replay:text.txt", "text.txt cannot be read: the record at byte 0 is damaged"),
        ("replay:empty", "empty is not a record of searches"),
        ("replay:foreign.warc.gz", "foreign.warc.gz is not a record of searches"),
    ],
)
def test_a_wrong_record_is_one_clear_line_and_nothing_is_lost(index, tmp_path, place, said, capsys, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "text.txt").write_text("dear diary")
    (tmp_path / "empty").touch()
    (tmp_path / "foreign.warc.gz").write_bytes(pack_record("response", "http://a.test/", "text/html", b"<p>x"))
    before = {path.name: path.read_bytes() for path in tmp_path.iterdir() if path.is_file()}
    assert main(["search", "Halm", "--search", place.replace("INDEX", str(index.path))]) == 2
    shown = capsys.readouterr().err
    assert said in shown and len(shown.splitlines()) <= 2
    assert {path.name: path.read_bytes() for path in tmp_path.iterdir() if path.is_file()} == before


async def test_a_record_has_one_writer(index, tmp_path):
    place = f"record:{tmp_path / 'a.warc.gz'}@{index.path}"
    writer = open_searcher(place)
    with pytest.raises(BadInput, match="is being recorded by another process"):
        open_searcher(place)
    await writer.close()
    await search(place)


def test_an_opener_writes_nothing(index, tmp_path):
    find_opener(f"record:{tmp_path / 'a.warc.gz'}@{index.path}")
    assert not (tmp_path / "a.warc.gz").exists()


# --------------------------------------------------------------------------------------------------------- damage


async def test_a_record_that_ends_anywhere_has_all_whole_searches_and_is_continued(index, tmp_path):
    record, torn = tmp_path / "whole.warc.gz", tmp_path / "torn.warc.gz"
    found = {query: (await search(f"record:{record}@{index.path}", [query]))[0] for query in QUERIES}
    whole = record.read_bytes()
    with record.open("rb") as stream:
        starts = [one.offset for one in read_records(stream)]
    ends = dict(zip(QUERIES, [*starts[2:], len(whole)], strict=True))
    for end in [*range(starts[1], len(whole), 97), *ends.values()]:
        torn.write_bytes(whole[:end])
        known = [query for query in QUERIES if ends[query] <= end]
        assert await search(f"replay:{torn}", known) == [found[query] for query in known]
        assert await search(f"record:{torn}@{index.path}") == [*found.values()]
        assert await search(f"replay:{torn}") == [*found.values()]


async def test_a_damaged_byte_is_noticed_and_no_other_record_is_lost(index, tmp_path):
    record = tmp_path / "a.warc.gz"
    found = await search(f"record:{record}@{index.path}")
    whole = record.read_bytes()
    with record.open("rb") as stream:
        last = [one.offset for one in read_records(stream)][-1]
    num_noticed = 0
    for at in range(0, last, 37):
        damaged = whole[:at] + bytes([whole[at] ^ 0x40]) + whole[at + 1 :]
        record.write_bytes(damaged)
        for place in (f"replay:{record}", f"record:{record}@{index.path}"):
            try:  # in a header of gzip, most bytes say nothing
                assert await search(place) == found
            except BadInput as error:
                assert f"{record} cannot be read: the record at byte" in str(error)
                num_noticed += 1
        assert record.read_bytes() == damaged
    assert num_noticed > last // 37


async def test_damage_that_looks_like_an_end_loses_nothing(index, tmp_path):
    """A block of gzip that says it is longer than the file: what comes after it is there all the same."""
    block = gzip.compress(b"")[:10] + b"\x01\xff\xff\x00\x00" + bytes(20)
    record = tmp_path / "a.warc.gz"
    await search(f"record:{record}@{index.path}")
    whole = record.read_bytes()
    with record.open("rb") as stream:
        second = [one.offset for one in read_records(stream)][1]
    for content in (whole[:second] + block + whole[second:], block):
        record.write_bytes(content)
        for place in (f"replay:{record}", f"record:{record}@{index.path}"):
            with pytest.raises(BadInput, match="is not complete"):
                await search(place)
        assert record.read_bytes() == content


def test_a_record_whose_content_was_edited_is_damaged(tmp_path):
    packed = pack_record("resource", "urn:x", "application/json", b'{"query": "Halm"}')
    edited = gzip.compress(gzip.decompress(packed).replace(b"Halm", b"Korr"))
    assert read_record(BytesIO(packed)).content == b'{"query": "Halm"}'
    with pytest.raises(BadRecord, match="byte 0 is damaged"):
        read_record(BytesIO(edited))


def test_a_record_that_unpacks_to_more_than_it_may_is_refused(tmp_path):
    path = tmp_path / "bomb.warc.gz"
    path.write_bytes(gzip.compress(bytes(65 << 20)))
    with path.open("rb") as stream, pytest.raises(BadRecord, match="byte 0 is damaged"):
        read_record(stream)


async def test_a_killed_recording_keeps_what_it_had_found(index, tmp_path):
    record = tmp_path / "a.warc.gz"
    script = f"""
import asyncio, os, signal
from quaere.search.searcher import open_searcher
async def run():
    searcher = open_searcher("record:{record}@{index.path}")
    await searcher.search({QUERIES[:3]!r}, 2)
    os.kill(os.getpid(), signal.SIGKILL)
asyncio.run(run())
"""
    ended = await asyncio.to_thread(subprocess.run, [sys.executable, "-c", script], env=os.environ)
    assert ended.returncode == -9
    assert await search(f"replay:{record}", QUERIES[:3]) == index.search(QUERIES[:3], 2)


async def test_a_full_disk_leaves_no_torn_search_in_a_record(tmp_path):
    """What is recorded after it would make the whole file unreadable."""
    resource = pytest.importorskip("resource", reason="limits on file size exist on POSIX only")
    path = tmp_path / "r.warc.gz"
    searcher = Recorder(path, "listed", lambda: Listed([os.urandom(40_000).hex()]))
    await searcher.search(["first"], 0)
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (path.stat().st_size + 9000, hard))
    try:
        with pytest.raises(BadInput, match="cannot write"):
            await searcher.search(["second"], 1)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
    (third,) = await searcher.search(["third"], 1)
    await searcher.close()
    replayed = Replayer(path)
    assert (await replayed.search(["first"], 0), await replayed.search(["third"], 1)) == ([[]], [third])
    with pytest.raises(BadInput, match="no search for 'second'"):
        await replayed.search(["second"], 1)
    await replayed.close()
