"""The default pool of dimensions that reports are scored on.

A config may extend or replace the pool; a harness may drop dimensions and add others. The descriptions are shown to
both writers and evaluators.
"""

from quaere.records import Dimension

POOL: tuple[Dimension, ...] = (
    Dimension("factuality", "What it says is in the documents; nothing is made up or twisted."),
    Dimension("citation", "Every claim names the passage it comes from, and that passage says so."),
    Dimension("coverage", "Every side of the question that the documents know of is treated."),
    Dimension("depth", "It goes beyond the obvious: causes, figures, details that matter."),
    Dimension("insight", "It draws conclusions of its own from the facts, and they follow from them."),
    Dimension("coherence", "It reads as one text: ordered, connected, without repetition or contradiction."),
    Dimension("instruction", "It answers what was asked, all of it and nothing else."),
    Dimension("readability", "It is plain and easy to read; a layman could follow it."),
    Dimension("balance", "Where sources differ, each is heard and none is passed over."),
    Dimension("uncertainty", "It says what is not known, and does not claim more than its sources do."),
)
"""The default pool. `factuality` comes first: every rubric must include it unless a harness says otherwise."""
