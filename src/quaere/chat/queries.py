"""Reader of queries in tags, shared by several dialects.

read_query(Block("search", "Halm bridge", ...)) -> Search(queries=("Halm bridge",))
"""

from __future__ import annotations

from quaere.chat.tags import Block
from quaere.chat.tools import MAX_QUERY_CHARS, is_text
from quaere.records import Malformed, Search


def read_query(block: Block) -> Search | Malformed:
    """The query in a block; `Malformed` if it is empty, too long or not encodable as text."""
    query = block.content.strip()
    if not query:
        return Malformed(reason="the query is empty")
    if len(query) > MAX_QUERY_CHARS:
        return Malformed(reason=f"a query may have at most {MAX_QUERY_CHARS} characters")
    if not is_text(query):
        return Malformed(reason="a query holds half a character")
    return Search(queries=(query,))
