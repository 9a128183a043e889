"""Any function from a query to passages, as an agent searches with it."""

import asyncio
import threading

import pytest

from quaere.api.search_function import FunctionSearcher
from quaere.errors import BadInput, SearchFailed
from quaere.records import Hit, Passage

PASSAGE = Passage("p1", "oss.md", "The Oss", "It rises in Korrin.", 40, 59)


def search(function, *queries, topk=3):
    async def run():
        searcher = FunctionSearcher(function)
        try:
            return await searcher.search(queries or ("q",), topk)
        finally:
            await searcher.close()

    return asyncio.run(run())


def test_passages_may_be_texts_mappings_passages_and_hits():
    row = {"id": 7, "title": "Halm", "text": "Venn built it.", "score": 2.5, "more": object()}
    found = search(lambda query: ["Plain.", row, PASSAGE, Hit(PASSAGE, 9.0)], topk=4)[0]
    text, mapping, passage, hit = found
    assert (text.passage.text, text.passage.start, text.passage.end) == ("Plain.", 0, 6)
    assert mapping == Hit(Passage("7", "7", "Halm", "Venn built it.", 0, 14), 2.5)
    assert passage.passage == PASSAGE and hit == Hit(PASSAGE, 9.0)
    assert text.score > passage.score  # what came first is the best, where nothing else is said


def test_the_same_text_is_the_same_document():
    (first, second, third) = search(lambda query: ["Same.", "Same.", "Other."])[0]
    assert first.passage == second.passage and first.passage.doc_id != third.passage.doc_id


def test_every_query_is_searched_and_results_are_cut():
    found = search(lambda query: (f"{query} {number}" for number in range(9)), "a", "b", topk=2)
    assert [[hit.passage.text for hit in hits] for hits in found] == [["a 0", "a 1"], ["b 0", "b 1"]]


def test_an_async_function_is_awaited():
    async def look_up(query):
        await asyncio.sleep(0)
        return [query.upper()]

    assert search(look_up, "halm")[0][0].passage.text == "HALM"


def test_a_plain_function_is_called_in_one_thread_that_is_not_the_loops():
    threads = []

    def look_up(query):
        threads.append(threading.current_thread())
        return []

    search(look_up, "a", "b")
    assert len(set(threads)) == 1 and threads[0] is not threading.current_thread()
    assert not threads[0].is_alive()  # it ends with the searcher


def fails(query):
    raise ZeroDivisionError("no shelf")


def breaks_off(query):
    yield "One."
    raise ZeroDivisionError("no shelf")


@pytest.mark.parametrize("function", [fails, breaks_off])
def test_an_error_of_the_function_is_a_failed_search(function):
    with pytest.warns(UserWarning, match="no shelf"), pytest.raises(SearchFailed, match="ZeroDivisionError: no shelf"):
        search(function)


@pytest.mark.parametrize("found", [None, "a text", {"text": "x"}, 3, [3], [{"title": "no text"}], [{"text": 3}]])
def test_what_is_no_list_of_passages_is_refused(found):
    with pytest.raises(BadInput, match="search function"):
        search(lambda query: found)


def test_what_is_no_function_is_refused():
    with pytest.raises(BadInput, match="must be a function, not str"):
        FunctionSearcher("notes-index")


@pytest.mark.parametrize("error", [StopIteration("no first result"), StopAsyncIteration()])
def test_a_function_that_takes_the_next_of_nothing_fails_its_search(error):
    """`next()` of nothing raises what a future cannot hold: without care, its search would never end."""

    def fail(query):
        raise error

    async def run():
        searcher = FunctionSearcher(fail)
        try:
            return await asyncio.wait_for(searcher.search(["q"], 3), 10)
        finally:
            await searcher.close()

    with pytest.warns(UserWarning, match="failed"), pytest.raises(SearchFailed, match="Stop"):
        asyncio.run(run())
