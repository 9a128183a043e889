"""The web as a search engine: real requests to a stand-in for the vendors and to sites on the loopback."""

import json
import sys
import types

import pytest

from quaere.cli.main import main
from quaere.errors import IndexMissing, SearchFailed
from quaere.search.extracted import Unreadable
from quaere.search.fetch import Fetched
from quaere.search.searcher import find_opener, open_searcher
from quaere.search.web_search import VENDORS, HttpFinder, Result, WebSearcher, choose_passage, clean_page
from websites import HOSTILE, open_fetcher, page, websites

MENU = "<nav><a href=/>Home</a> <a href=/x>Bridges</a></nav>"
FILLER = "".join(
    f"<p>The market at Halmgate was held on day {number}, with {'stalls ' * 30}.</p>" for number in range(9)
)
RIVERS = f"""<title>The Oss</title>{MENU}<h1>The Oss</h1>{FILLER}<h2>Bridges</h2>
<p>The Halm bridge was built by Orsolya Venn in 1841.</p>{FILLER}<footer>All rights reserved</footer>"""
LAMP = "# The lamp\n\nThe lamp at Korrin was lit in 1850."
PAGES = {"/rivers": page(RIVERS), "/lamp": page(LAMP, content_type="text/markdown")}


def open_web(sites):
    return WebSearcher(HttpFinder("searxng", sites.url("")), open_fetcher(sites))


async def search(sites, query="who built the Halm bridge?", topk=3):
    searcher = open_web(sites)
    try:
        return (await searcher.search([query], topk))[0]
    finally:
        await searcher.close()


async def test_hits_are_the_best_passages_of_pages_with_exact_offsets_in_the_order_of_the_engine():
    with websites(PAGES) as sites:
        sites.results["who built the Halm bridge?"] = [sites.url("/lamp"), sites.url("/rivers", "halm.test")]
        lamp, rivers = await search(sites)
    assert lamp.score > rivers.score
    assert (lamp.passage.doc_id, lamp.passage.title, lamp.passage.text) == (sites.url("/lamp"), "The lamp", LAMP)
    found = rivers.passage
    assert "built by Orsolya Venn" in found.text and "Home" not in found.text and "rights" not in found.text
    assert (found.title, found.heading) == ("The Oss", "Bridges") and found.place.startswith("paragraphs ")
    assert found.doc_id == sites.url("/rivers", "halm.test") and found.id.startswith(f"{found.doc_id}#")
    document = clean_page(Fetched(found.doc_id, 200, [("content-type", "text/html")], RIVERS.encode()))
    assert document.text[found.start : found.end] == found.text


async def test_a_query_and_a_page_are_asked_for_once():
    with websites(PAGES) as sites:
        sites.results |= {"bridge": [sites.url("/rivers")], "market": [sites.url("/rivers")], "none": []}
        searcher = open_web(sites)
        found = await searcher.search(["bridge", "market", "bridge", "none"], 3)
        assert await searcher.search(["bridge"], 3) == found[:1]
        assert found[0] == found[2] != found[1] and found[3] == []
        assert sites.paths() == ["/rivers"] and len(sites.asked) == 3
        await searcher.close()


async def test_hostile_pages_change_nothing_but_their_own_results():
    with websites(PAGES | HOSTILE) as sites:
        good = [sites.url("/rivers"), sites.url("/lamp")]
        sites.results["alone"], bad = good, {}
        for number in range(0, len(HOSTILE), 9):
            some = [*HOSTILE][number : number + 9]
            sites.results["bridge"] = [good[0], *map(sites.url, some), good[1]]
            searcher = open_web(sites)
            expected, found = [[hit.passage for hit in hits] for hits in await searcher.search(["alone", "bridge"], 20)]
            assert expected[0].doc_id == found[0].doc_id == good[0] and found[-1] == expected[-1]
            bad |= {passage.doc_id: passage for passage in found[1:-1]}
            await searcher.close()
    assert {*bad} == {*map(sites.url, HOSTILE)}
    for url, passage in bad.items():
        assert passage.text == f"An excerpt of {url}." and passage.place == "excerpt of the search engine"
        assert (passage.start, passage.end, passage.title) == (0, len(passage.text), f"Title of {url}")


def test_a_page_without_a_title_has_that_of_the_search_result():
    def title(body, given):
        return clean_page(Fetched("http://a.test/x", 200, [("content-type", "text/html")], body), given).title

    assert title(b"<p>The Oss rises in Korrin.</p>", "Rivers") == "Rivers"
    assert title(b"<title>The Oss</title><p>It rises in Korrin.</p>", "Rivers") == "The Oss"
    assert title(b"<p>The Oss rises in Korrin.</p>", "") == "a.test"


def test_the_passage_has_the_rarest_words_of_the_query():
    text = "\n\n".join(["The market. " * 60, "The market of Korrin. " * 30, "The bridge at Korrin. " * 30])
    document = clean_page(Fetched("http://a.test/x", 200, [("content-type", "text/plain")], text.encode()))
    assert choose_passage("the bridge in Korrin?", document).text.startswith("The bridge")
    assert choose_passage("xyzzy", document).start == 0  # none has it: the first


def test_a_page_of_nothing_but_tags_is_not_read():
    """It would take seconds, within the bytes that a page may have."""
    body = b"<p>" * 100_000
    assert clean_page(Fetched("http://a.test/", 200, [("content-type", "text/html")], body + b"The Oss")).text
    with pytest.raises(Unreadable, match="more than 100000 tags"):
        clean_page(Fetched("http://a.test/", 200, [("content-type", "text/html")], body + b"<b>The Oss"))


@pytest.mark.parametrize("media_type", ["text/html", "text/plain", "text/markdown"])
def test_a_page_of_more_than_a_million_characters_is_not_read(media_type):
    def clean(num):
        body = ("x" * 99 + " ").encode() * (num // 100) + b"x" * (num % 100)
        return clean_page(Fetched("http://a.test/", 200, [("content-type", media_type)], body)).text

    assert len(clean(1 << 20)) == 1 << 20
    with pytest.raises(Unreadable, match="longer than 1048576 characters"):
        clean((1 << 20) + 1)


async def test_no_more_pages_are_asked_for_than_every_vendor_gives():
    with websites({}) as sites:
        sites.results["x"] = [sites.url(f"/{number}") for number in range(30)]
        assert len(await search(sites, "x", 100)) == len(sites.paths()) == 20


@pytest.mark.parametrize(
    ("content_type", "body", "said"),
    [
        ("text/html; charset=iso-8859-2", "<p>Łódź".encode("iso-8859-2"), "Łódź"),
        ("text/html; charset=nonsense", "<p>Łódź".encode(), "Łódź"),
        ("text/html; charset=punycode", b"<p>caf\xe9", "café"),
        ("TEXT/HTML;CHARSET='windows-1251'", "<p>Осса".encode("windows-1251"), "Осса"),
    ],
)
def test_the_declared_encoding_of_a_page_is_used(content_type, body, said):
    document = clean_page(Fetched("http://halm.test/x", 200, [("content-type", content_type)], body))
    assert (document.text, document.title) == (said, "halm.test")


# ---------------------------------------------------------------------------------------------------------- vendors


ANSWERS = {
    "searxng": {"results": [{"url": "http://a.test/x", "title": "A", "content": "An  excerpt."}]},
    "brave": {"web": {"results": [{"url": "http://a.test/x", "title": "A", "description": "An excerpt."}]}},
    "tavily": {"results": [{"url": "http://a.test/x", "title": "A", "content": "An excerpt.", "score": 0.9}]},
    "exa": {"results": [{"url": "http://a.test/x", "title": "A", "text": "An excerpt.", "id": "x"}]},
    "serper": {"organic": [{"link": "http://a.test/x", "title": "A", "snippet": "An excerpt.", "position": 1}]},
}
ASKED = {
    "searxng": ("GET", "/search?q=Halm+%26+Oss&format=json", None),
    "brave": ("GET", "/res/v1/web/search?q=Halm+%26+Oss&count=4&text_decorations=false", None),
    "tavily": ("POST", "/search", {"query": "Halm & Oss", "max_results": 4}),
    "exa": ("POST", "/search", {"query": "Halm & Oss", "numResults": 4, "contents": {"text": {"maxCharacters": 2000}}}),
    "serper": ("POST", "/search", {"q": "Halm & Oss", "num": 4}),
}
SENT = {
    "brave": [("x-subscription-token", "s3cret")],
    "tavily": [("authorization", "Bearer s3cret")],
    "exa": [("x-api-key", "s3cret")],
    "serper": [("x-api-key", "s3cret")],
}


@pytest.mark.parametrize("name", VENDORS)
async def test_a_vendor_is_asked_in_its_own_way(name, monkeypatch):
    if VENDORS[name].key:
        monkeypatch.setenv(VENDORS[name].key, "s3cret")
    answer = page(json.dumps(ANSWERS[name]), content_type="application/json")
    with websites({}) as sites:
        sites.results["Halm & Oss"] = answer
        finder = HttpFinder(name, sites.url(""))
        assert await finder.find("Halm & Oss", 4) == [Result("http://a.test/x", "A", "An excerpt.")]
        method, path, headers, body = sites.asked[0]
        assert (method, path, body) == ASKED[name]
        sent = {key.lower(): value for key, value in headers.items()}
        assert {name: sent[name] for name, _ in SENT.get(name, [])} == dict(SENT.get(name, []))
        await finder.close()


async def test_a_library_finds_pages_without_a_key(monkeypatch):
    """The library is not installed with the tests: this is its interface, of version 9."""

    class DDGS:
        def text(self, query, max_results):
            if query == "nothing":
                raise RuntimeError("No results found.")
            if query == "down":
                raise RuntimeError("rate limit")
            return [{"href": f"http://a.test/{number}", "title": "A", "body": "b"} for number in range(max_results)]

    monkeypatch.setitem(sys.modules, "ddgs", types.SimpleNamespace(DDGS=DDGS))
    with websites({}) as sites:
        searcher = open_searcher("web:ddgs")
        await searcher.close()
        searcher = WebSearcher(searcher._finder, open_fetcher(sites))
        hits, none = await searcher.search(["Halm", "nothing"], 2)
        assert [hit.passage.text for hit in hits] == ["b", "b"] and none == []
        with pytest.raises(SearchFailed, match="the library ddgs failed: RuntimeError: rate limit"):
            await searcher.search(["down"], 2)
        await searcher.close()


@pytest.mark.parametrize(
    "answer",
    [
        '{"results": {"url": "http://a.test"}}',
        '{"results": [1, null, "x", [], {}, {"url": 3}, {"url": "file:///etc/passwd"}, {"url": "javascript:x"}]}',
        '{"results": null}',
        "{}",
    ],
)
async def test_what_is_no_result_is_left_out(answer):
    with websites({}) as sites:
        sites.results["x"] = page(answer)
        assert await search(sites, "x") == []


@pytest.mark.parametrize(
    ("answer", "kind"),
    [
        (page("[]"), "broken"),
        (page("<html>"), "broken"),
        (page("[" * 100_000), "broken"),
        (page('{"results": "' + "x" * (5 << 20) + '"}'), "broken"),
        (page("no", 403), "rejected"),
        (page("slow down", 429), "overloaded"),
        (page("oh", 500), "broken"),
        (page("", 302, location="http://169.254.169.254/"), "broken"),
    ],
)
async def test_a_vendor_that_fails_is_a_failed_search_and_no_empty_one(answer, kind):
    with websites({}) as sites:
        sites.results["x"] = answer
        with pytest.raises(SearchFailed) as failed:
            await search(sites, "x")
        assert failed.value.kind == kind and str(failed.value).startswith("the search engine searxng ")


async def test_no_message_contains_the_key(monkeypatch):
    monkeypatch.setenv("TAVILY_API_KEY", "s3cret")
    with websites({}) as sites:
        sites.results["x"] = page("the key s3cret is wrong", 401)
        finder = HttpFinder("tavily", sites.url(""))
        with pytest.raises(SearchFailed, match=r"refused the request \(401\): the key \*\*\* is wrong") as failed:
            await finder.find("x", 3)
        assert failed.value.hint == "export TAVILY_API_KEY=..."
        await finder.close()


# ---------------------------------------------------------------------------------------------------- the command line


@pytest.mark.parametrize(
    ("place", "said"),
    [
        ("web:", "there is no web search ''"),
        ("web:google", "there is no web search 'google'"),
        ("web:searxng", "web:searxng needs the URL of a server"),
        ("web:searxng@", "'' is not the URL of a search server"),
        ("web:searxng@localhost:8888", "'localhost:8888' is not the URL of a search server"),
        ("web:searxng@http://me:s3cret@host", "holds a user or password"),
        ("web:brave", "web:brave needs a key"),
        ("web:ddgs@http://a", "web:ddgs takes no URL"),
    ],
)
def test_a_wrong_place_is_one_clear_line(place, said, capsys, monkeypatch):
    monkeypatch.delenv("BRAVE_API_KEY", raising=False)
    assert main(["search", "Halm", "--search", place]) == 2
    shown = capsys.readouterr().err
    assert said in shown and "s3cret" not in shown and len(shown.splitlines()) <= 2


def test_the_command_searches_the_web_and_refuses_private_pages(capsys):
    with websites(PAGES) as sites:
        sites.results["Halm"] = [sites.url("/rivers")]
        assert main(["search", "Halm", "--search", f"web:searxng@{sites.url('')}", "--json"]) == 0
        (hit,) = json.loads(capsys.readouterr().out)[0]["hits"]
        # The site is on the loopback, which no option allows: only the excerpt of the search engine is shown.
        assert hit["passage"]["text"] == f"An excerpt of {sites.url('/rivers')}." and sites.requests == []


def test_an_opener_opens_nothing(monkeypatch):
    monkeypatch.setenv("EXA_API_KEY", "s3cret")
    find_opener("web:exa")
    with pytest.raises(IndexMissing, match="nowhere-index does not exist"):
        find_opener("nowhere-index")
