"""examples/first_steps.ipynb, cell by cell, as Jupyter runs it: inside a running event loop, with the real model."""

import ast
import asyncio
import json
from functools import cache
from pathlib import Path

import pytest

from quaere.policies.native import bridge

NOTEBOOK = Path(__file__).parents[2] / "examples/first_steps.ipynb"


def read_cells():
    cells = json.loads(NOTEBOOK.read_text(encoding="utf-8"))["cells"]
    return ["".join(cell["source"]) for cell in cells if cell["cell_type"] == "code"]


def test_every_name_it_takes_from_the_package_is_there():
    """Its cells are run by the slow test; what they call is public, and shown in docs/python.md, which is run."""
    import quaere

    nodes = [node for cell in read_cells() for node in ast.walk(ast.parse(cell)) if isinstance(node, ast.Attribute)]
    names = {node.attr for node in nodes if isinstance(node.value, ast.Name) and node.value.id == "quaere"}
    assert {"Agent", "Index"} < names and all(hasattr(quaere, name) for name in names)


def test_the_notebook_is_kept_without_output():
    cells = json.loads(NOTEBOOK.read_text(encoding="utf-8"))["cells"]
    assert all(not cell["outputs"] and cell["execution_count"] is None for cell in cells if cell["cell_type"] == "code")


@pytest.mark.slow
@pytest.mark.model
async def test_every_cell_runs(capsys, monkeypatch):
    monkeypatch.setattr(bridge, "load_model", cache(bridge.load_model))  # two agents have the same
    assert asyncio.get_running_loop().is_running()
    names = {"__name__": "__main__"}
    cells = "\0".join(read_cells())
    assert cells.count("turn_tokens=48") == 2  # a few tokens a turn show as well that they run
    for number, source in enumerate(cells.replace("turn_tokens=48", "turn_tokens=6").split("\0")):
        exec(compile(ast.parse(source), f"cell {number}", "exec"), names)
    said = capsys.readouterr().out
    # What so small a model writes depends on the processor; that it wrote something does not.
    assert "bridge.md: " in said and "turn 0:" in said and "EM %" in said
    assert names["answer"].episode.turns and names["result"].score.exact_match.num == 2
