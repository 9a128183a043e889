"""Replies of the environment when no further search is possible: the policy is told to finish, and how."""

from __future__ import annotations

from msgspec import structs

from quaere.chat.messages import Message
from quaere.records import Action, Failure, Malformed, Search

LAST_SEARCH = "This was the last search."
NONE_LEFT = "No searches are left."


def final_reply(message: Message, action: Action, failure: Failure | None, finish: str) -> Message:
    """The last reply of the environment: `message` with a note that tells the policy how to finish.

    Passages are kept and followed by the note. Instructions on how to search are replaced by the note.

        final_reply(Message("tool", ("[1]\\n", Quoted("Halm"))), Search(("Halm",)), None, "answer").note
        -> "This was the last search. Now answer."
    """
    if isinstance(action, Search) and failure is None:
        return structs.replace(message, note=f"{LAST_SEARCH} Now {finish}.")
    if failure is not None and failure.kind == "searches":
        return message  # a search that was refused: this reply already says that none are left
    happened = "The search could not be carried out."
    if not isinstance(action, Search):
        reason = action.reason if isinstance(action, Malformed) else "that was not expected here"
        happened = f"That turn could not be used: {reason}."
    return structs.replace(message, parts=(happened,), note=f"{NONE_LEFT} To finish, {finish}.")
