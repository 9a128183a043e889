"""Search results as parts of a message, and the results that remain visible after a message was cut."""

from __future__ import annotations

from collections.abc import Sequence

from msgspec import structs

from quaere.chat.messages import Message, Part, Quoted
from quaere.records import Hit, SearchResult


def format_results(results: Sequence[SearchResult], numbers: Sequence[int] | None = None) -> tuple[Part, ...]:
    """Passages as numbered, titled paragraphs; with several queries, each gets a heading.

    `numbers` has one number per passage. Without it, numbering restarts at 1 for every query.

        format_results([SearchResult("q", (Hit(Passage(..., title="Halm", text="A bridge."), 1.0),))])
        -> ("[1]\\n", Quoted("Halm\\nA bridge."))
    """
    parts: list[Part] = []
    given = iter(numbers) if numbers is not None else None
    for number, result in enumerate(results, start=1):
        if parts:
            parts.append("\n\n")
        if len(results) > 1:
            # The heading has the query's number, not its text: text that the policy wrote is never encoded again.
            parts.append(f"Results of query {number}:\n")
        if not result.hits:
            parts.append("No passage was found.")
        for rank, hit in enumerate(result.hits, start=1):
            if rank > 1:
                parts.append("\n\n")
            parts += [f"[{rank if given is None else next(given)}]\n", Quoted(hit.passage.titled_text)]
    return tuple(parts)


def shown_results(results: Sequence[SearchResult], shown: Message) -> tuple[SearchResult, ...]:
    """The results that are visible in a message made by `format_results` and possibly cut by a limit.

    A cut passage ends where the message was cut; passages after it are dropped, because the policy cannot quote from
    text it was not shown.

        shown_results(results, Message("tool", ("[1]\\n", Quoted("Halm\\nA bri"))))[0].hits[0].passage.text -> "A bri"
    """
    texts = iter([part.text for part in shown.parts if isinstance(part, Quoted)])
    return tuple(
        structs.replace(
            result, hits=tuple(kept for hit in result.hits if (kept := _shown_hit(hit, next(texts, None))) is not None)
        )
        for result in results
    )


def _shown_hit(hit: Hit, text: str | None) -> Hit | None:
    if text is None:
        return None
    passage = hit.passage
    num_chars = len(text) - len(passage.titled_text) + len(passage.text)
    if num_chars == len(passage.text):
        return hit
    if num_chars <= 0:  # the cut is in the title or right after it
        return None
    cut = structs.replace(passage, text=passage.text[:num_chars], end=passage.start + num_chars)
    return structs.replace(hit, passage=cut)
