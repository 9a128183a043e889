"""A harness, a rubric, reports and an assessment to judge by, and a way to spoil what was valid."""

import random

from quaere.chat.dimensions import POOL
from quaere.records import (
    AssessTask,
    DimensionRules,
    Harness,
    ProcessRules,
    Question,
    Report,
    Rubric,
    Source,
    Statement,
    Weight,
)
from tiny import passage

HARNESS = Harness(0, POOL, DimensionRules(k=3), ProcessRules())
RUBRIC = Rubric("factuality", (Weight("coverage", 0.4), Weight("insight", 0.2)))
QUESTION = Question("q1", "What is known of the Halm bridge?")
RUBRIC_TEXT = "<think>Which?</think>\n<rubric>\nfactuality\ncoverage: 0.4\ninsight: 0.2\n</rubric>"


def report(text="The bridge is old [1]. It is long [9].", sources=(1,)):
    """A report that cites passages 1 and 9."""
    statements = (Statement("The bridge is old [1].", 0, 22, (1,)), Statement("It is long [9].", 23, 38, (9,)))
    shown = tuple(Source(number, passage("It is old.", title=f"Title {number}")) for number in sources)
    return Report(QUESTION, text, statements, shown, "It is old.")


def assess_task(num_reports=2, rubric=RUBRIC, harness=HARNESS, **changes):
    return AssessTask("a0", QUESTION, rubric, harness, tuple(report(**changes) for _ in range(num_reports)))


def entry(number, scores=(7, 4, 10), names=RUBRIC.dimensions, more=""):
    """The entry of one report in an assessment."""
    given = "".join(f'<score dimension="{name}">{score}</score>' for name, score in zip(names, scores, strict=True))
    return f'<report id="{number}"><verification>Held.</verification><gaps>Dates.</gaps>{given}{more}</report>'


def assessment(*entries):
    return "<assessment>\n" + "\n".join(entries) + "\n</assessment>"


PIECES = (
    *("<", ">", "&", '"', "'", "/", ":", "{", "}", "[", "]", ",", "\n", "\x00", "é", "𝔘", "&lt;", "&#x41;", "]]>"),
    *("<rubric>", "</rubric>", "<report id='1'>", "</report>", "<score>", "</score>", "<think>", "</think>"),
    *("<assessment>", "</assessment>", '<score dimension="coverage">', "<![CDATA[", "<!DOCTYPE x>", "<?x?>", "<!--"),
    *("nan", "inf", "-1", "1e309", "0.4", "11", "99999999999999999999", "true", "null", '"k": 1', "factuality"),
)


def spoil(text, chance: random.Random):
    """The text after a few random changes: pieces cut out, doubled, moved, or put in."""
    for _ in range(chance.randint(1, 4)):
        start = chance.randint(0, len(text))
        end = min(len(text), start + chance.randint(0, 30))
        match chance.randrange(5):
            case 0:
                text = text[:start] + text[end:]
            case 1:
                text = text[:end] + text[start:end] + text[end:]
            case 2:
                text = text[:start] + chance.choice(PIECES) + text[start:]
            case 3:
                text = text[:start] + chance.choice(PIECES) + text[end:]
            case 4:
                rest = text[:start] + text[end:]
                at = chance.randint(0, len(rest))
                text = rest[:at] + text[start:end] + rest[at:]
    return text
