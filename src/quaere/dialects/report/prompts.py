"""Prompts of the report writer: what to write, what a search returns, and the rubric the report is graded by.

`full` explains the protocol to a model that has never seen it; `brief` reminds a model that was taught it.
"""

from __future__ import annotations

from collections.abc import Sequence

from quaere.chat.messages import Message, Part, Quoted
from quaere.chat.protocol import PromptStyle
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

# Short, because every further word costs a small model more than it helps. A number before each sentence is easier for
# a small model than one after it: having copied a sentence, it goes on to the next passage.
GUIDED_SYSTEM = """\
You write short reports. First write a query between <search> and </search>. Passages with numbers come back. Then \
write a report between <answer> and </answer>: one sentence on each passage, with its number."""

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
    """The rubric as parts of the prompt; the meaning of each dimension only in the full style.

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


# Question, query, passages with their titles, report: all invented.
_EXAMPLES = (
    (
        "Who painted the ceiling of the town hall in Ferrin?",
        "Ferrin town hall ceiling painter",
        (
            "Ferrin town hall\nThe town hall of Ferrin was finished in 1811. Marta Oleen painted its ceiling over "
            "three winters.",
            "Marta Oleen\nMarta Oleen was a painter of ships. She learned her trade in the port of Sall.",
            "Sall\nSall is a port in the south. Its harbour freezes every winter.",
        ),
        "[1] Ferrin town hall: Marta Oleen painted its ceiling over three winters. [2] Marta Oleen: She was a painter "
        "of ships. [3] Sall: It is a port in the south. Conclusion: Marta Oleen painted it [1].",
    ),
    (
        "What did the ferry Blue Heron carry?",
        "Blue Heron ferry carried",
        (
            "River ferries\nThree ferries cross the river at Brum. The oldest is the Blue Heron.",
            "Blue Heron\nThe Blue Heron is a ferry built of oak. For forty years she brought the mail across.",
            "Brum\nBrum is a village of fishermen. It has no bridge.",
        ),
        "[1] River ferries: Three ferries cross the river at Brum. [2] Blue Heron: For forty years she brought the "
        "mail across. [3] Brum: It has no bridge. Conclusion: She carried the mail [2].",
    ),
)


def worked_reports() -> list[Message]:
    """Two short example episodes on invented facts, as messages for a guided prompt."""
    messages: list[Message] = []
    for question, query, passages, report in _EXAMPLES:
        shown = "\n\n".join(f"[{number}]\n{passage}" for number, passage in enumerate(passages, start=1))
        messages += [
            Message("user", (f"Question:\n{question}",)),
            Message("assistant", (f"<search>{query}</search>",)),
            Message("user", (shown,), tag=RESULTS_TAG),
            Message("assistant", (f"<answer>{report}</answer>",)),
        ]
    return messages
