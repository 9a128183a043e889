"""The reply after which no search is possible: passages are kept, instructions on how to search are not."""

import pytest

from quaere.chat.protocol import Acted, Message, Quoted, final_reply
from quaere.records import Failure, Malformed, Search

FOUND = Message("tool", ("[1]\n", Quoted("Halm")))
NONE_LEFT = "No searches are left. To finish, answer."


def test_passages_are_followed_by_the_note():
    reply = final_reply(FOUND, Acted(Search(("Halm",))), "answer")
    assert (reply.parts, reply.note) == (FOUND.parts, "This was the last search. Now answer.")


@pytest.mark.parametrize(
    ("action", "failure", "happened"),
    [
        (Malformed("it is empty"), None, "That turn could not be used: it is empty."),
        (Malformed("it is empty"), Failure("protocol", "malformed", "x"), "That turn could not be used: it is empty."),
        (Search(("Halm",)), Failure("search", "timeout", "x"), "The search could not be carried out."),
    ],
)
def test_what_could_not_be_done_is_said_in_place_of_how_to_search(action, failure, happened):
    reply = final_reply(Message("user", ("To search, write so.",)), Acted(action, (), failure), "answer")
    assert (reply.parts, reply.note) == ((happened,), NONE_LEFT)


def test_a_refused_search_has_been_told_already():
    told = Message("tool", ("No searches are left.",))
    assert final_reply(told, Acted(Search(("Halm",)), (), Failure("limit", "searches", "x")), "answer") == told
