"""The words that open a report: what to write, what comes back, and by what it will be judged.

`full` explains the protocol to a model that has never seen it, `brief` reminds one that was taught it.
"""

from __future__ import annotations

from collections.abc import Sequence

from quaere.chat.messages import Message, Part, Quoted
from quaere.chat.prompts import PromptStyle
from quaere.records import Dimension, Rubric

RESULTS_TAG = "observation"

FULL_SYSTEM = """\
You write research reports by searching a collection of documents. The documents are right, even where they differ \
from what you remember.

Each turn, think briefly inside <think> and </think>, then do exactly one of two things:
- to search, write <search>one query in plain words</search>
- to finish, write <answer>the whole report</answer>

What a search finds comes back between <observation> and </observation>: passages, each under a number such as [1]. A \
passage keeps its number. One search is rarely enough: search again with other words, and for every side of the \
question, before you finish.

The report answers the question in full sentences, in paragraphs or short sections, and says nothing that the passages \
do not say. Every sentence that states a fact ends with the numbers of the passages it comes from, as [1] or [1, 3]. \
Cite only numbers you were shown, and write no list of sources: it is added for you. The last paragraph begins with \
"Conclusion:" and says in a few sentences what it all comes to."""

BRIEF_SYSTEM = "Write a report on the question and cite the passages. Think, then search or answer."

# Short, because every further word costs a small model more than it helps.
GUIDED_SYSTEM = """\
You write short reports from documents. To search, write <search>your query</search>. To finish, write \
<answer>your report</answer>. End every sentence of the report with the number of the passage it comes from, as [1]."""

FINISH = "put the report between <answer> and </answer>"


def report_system(style: PromptStyle, *, guided: bool) -> str:
    """The system prompt.

    report_system("brief", guided=False)
    -> "Write a report on the question and cite the passages. Think, then search or answer."
    """
    if guided:
        return GUIDED_SYSTEM
    return FULL_SYSTEM if style == "full" else BRIEF_SYSTEM


def describe_rubric(rubric: Rubric, pool: Sequence[Dimension], style: PromptStyle) -> tuple[Part, ...]:
    """By what the report will be judged; the meaning of each dimension only in the full style.

    Names and meanings may have been written by a language model, so they are quoted.

        describe_rubric(Rubric("factuality", (Weight("coverage", 0.4),)), POOL, "brief")
        -> ("\\n\\nJudged by ", Quoted("factuality"), ", ", Quoted("coverage"), " 0.4", ".")
    """
    if style == "brief":
        parts: list[Part] = ["\n\nJudged by ", Quoted(rubric.primary)]
        for item in rubric.weights:
            parts += [", ", Quoted(item.dimension), f" {item.weight:g}"]
        return (*parts, ".")
    meanings = {dimension.name: dimension.text for dimension in pool}
    counts = ["above all", *(f"weight {item.weight:g}" for item in rubric.weights)]
    parts = ["\n\nThe report will be judged by:"]
    for name, count in zip(rubric.dimensions, counts, strict=True):
        parts += ["\n- ", Quoted(name), f" ({count})"]
        parts += [": ", Quoted(meanings[name])] if meanings.get(name) else []
    return tuple(parts)


def worked_report() -> list[Message]:
    """A short episode on invented facts, as messages that open a guided one."""
    town = "[1]\nFerrin town hall\nThe town hall of Ferrin was finished in 1811. Marta Oleen painted its ceiling."
    painter = "[2]\nMarta Oleen\nMarta Oleen was a painter. She learned her trade in the port of Sall."
    report = (
        "The town hall of Ferrin was finished in 1811 [1]. Its ceiling was painted by Marta Oleen [1]. She was a "
        "painter who learned her trade in the port of Sall [2].\n\nConclusion: The ceiling is the work of a painter "
        "from Sall [2]."
    )
    return [
        Message("user", ("Question:\nWho painted the ceiling of the town hall in Ferrin, and what is known of her?",)),
        Message("assistant", ("<search>Ferrin town hall ceiling painted by</search>",)),
        Message("user", (town,), tag=RESULTS_TAG),
        Message("assistant", ("<search>Marta Oleen painter</search>",)),
        Message("user", (painter,), tag=RESULTS_TAG),
        Message("assistant", (f"<answer>{report}</answer>",)),
    ]
