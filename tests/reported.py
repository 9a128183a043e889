"""Reports for tests: made from sentences with marks, without the writer's own reader."""

import json
import re

from quaere.evaluation.reports.criteria import DIMENSIONS
from quaere.records import Passage, Question, Report, Source, Statement

HALM = "Orsolya Venn built the Halm bridge in 1702. It has 12 arches and was never rebuilt. It cost 48,350 crowns."
OSS = "The Oss rises in the Korrin hills and runs for 86 leagues. Boats from Tallow reach its lower course."
TALLOW = "Tallow is a market town on the Oss. In 1650 a fire destroyed most of its 230 houses."


def passage(doc_id, title, text):
    return Passage(f"{doc_id}#0", doc_id, title, text, 0, len(text))


SOURCES = (
    Source(1, passage("halm.md", "Halm bridge", HALM)),
    Source(2, passage("oss.md", "The Oss", OSS)),
    Source(3, passage("tallow.md", "Tallow", TALLOW)),
)
GOOD = (
    "# The Halm bridge\n\nThe Halm bridge was built by Orsolya Venn in 1702 [1]. It has 12 arches [1]. "
    "It was never rebuilt [1].\n\nThe Oss rises in the Korrin hills [2]. It runs for some 90 leagues [2].\n\n"
    "A fire destroyed most houses of Tallow in 1650 [3].\n\n"
    "Conclusion: The Halm bridge was built in 1702 [1]. The Oss rises in the Korrin hills [2]."
)


def make_report(text=GOOD, sources=SOURCES, question="What is known of the Halm bridge and the Oss?", id="q1"):
    """Sentences end with a full stop; a label before the conclusion is none."""
    statements = []
    for line in re.finditer(r"[^\n]+", text):
        if line.group().startswith("#"):
            continue
        for found in re.finditer(r"(?:Conclusion: )?(\S[^.]*\.)", line.group()):
            start, said = line.start() + found.start(1), found.group(1)
            numbers = [int(number) for mark in re.findall(r"\[([\d, ]+)\]", said) for number in mark.split(",")]
            statements.append(Statement(said, start, start + len(said), tuple(numbers)))
    conclusion = text.partition("Conclusion: ")[2]
    return Report(Question(id, question), text, tuple(statements), tuple(sources), conclusion)


# A folder of the format of DeepResearch Bench, about nothing.
QUERIES = [
    {"id": 1, "topic": "Bridges", "language": "en", "prompt": "Who built the bridges on the Oss?"},
    {"id": 2, "topic": "Rivers", "language": "zh", "prompt": "奥斯河从哪里发源？"},
    {"id": 3, "topic": "Rivers", "language": "en", "prompt": "Where does the Oss rise?"},
]


def bench_criteria(query, **changes):
    items = [{"criterion": "Names", "explanation": "Names all.", "weight": 0.7}, {"criterion": "Dates", "weight": 0.3,
             "comment": "left alone"}]  # fmt: skip
    weights = dict(zip(sorted(DIMENSIONS), (0.3, 0.4, 0.2, 0.1), strict=True))
    row = {"id": query["id"], "prompt": query["prompt"], "dimension_weight": weights}
    return row | {"criterions": dict.fromkeys(DIMENSIONS, items)} | changes


def write_bench(folder, queries=QUERIES, rows=None):
    folder.mkdir(exist_ok=True)
    rows = [bench_criteria(query) for query in queries] if rows is None else rows
    for name, lines in (("query.jsonl", queries), ("criteria.jsonl", rows)):
        (folder / name).write_text("".join(json.dumps(line, ensure_ascii=False) + "\n" for line in lines))
    return folder
