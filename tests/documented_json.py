"""The fields of `--json` that docs/command-line.md lists, compared with what a command printed.

read_tables()["eval"]["judging"] -> {"judge", "validation", "num_unread"}
check_printed("index", json.loads(printed))
"""

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

PAGE = Path(__file__).parents[1] / "docs/command-line.md"
COMMANDS = ("ask", "eval", "learn", "index", "questions")
ROW = re.compile(r"^\| (`.*?) \|(.*)\|$", re.MULTILINE)
NAME = re.compile(r"`([a-z][a-z0-9_]*)`")


def read_tables() -> dict[str, dict[str, set[str]]]:
    """By command its fields, each with the fields of its value that its row names."""
    tables: dict[str, dict[str, set[str]]] = {}
    for row in ROW.findall(PAGE.read_text(encoding="utf-8").partition("\n## JSON\n")[2]):
        fields, parts = (NAME.findall(cell) for cell in row)
        if fields[0] in COMMANDS and fields[0] not in tables:  # the head of a table
            tables[fields[0]] = table = {}
            continue
        assert len(fields) == 1 or not parts, row
        table |= {field: set(parts) for field in fields}
    return tables


def check_printed(command: str, *printed: Mapping[str, Any]) -> None:
    """The table of a command has the fields of these objects and no others, and so have its rows that name parts."""
    table = read_tables()[command]
    assert {field for one in printed for field in one} == set(table)
    for field, parts in table.items():
        # A quotation that is found has, as the table says, the fields of the sentence that supports the answer, too.
        ways = [parts, parts | table["support"]] if field == "evidence" else [parts]
        values = [one[field] for one in printed if one.get(field)]
        shown = [set(part) for value in values for part in (value if isinstance(value, list) else [value]) if parts]
        assert not parts or shown, f"{command} printed no {field}"
        assert all(part in ways for part in shown), f"{command}: {field} has {shown}, and not {parts}"
