"""Suites that the documentation and the benchmarks show are valid."""

import re
from pathlib import Path

from quaere.api.suite_file import read_suite
from quaere.dialects.registry import UNTRAINED

ROOT = Path(__file__).parents[2]


def test_the_suite_of_the_benchmarks_has_every_method_of_the_committed_items():
    suite = read_suite(ROOT / "benchmarks" / "untrained.yaml")
    methods = [method.chosen for method in suite.asked_by]
    assert tuple(methods[: len(UNTRAINED)]) == UNTRAINED
    items = (ROOT / "benchmarks" / "results" / "untrained").glob("*.items.jsonl.gz")
    names = {f"{method.name}-{one.name}.items.jsonl.gz" for method in suite.asked_by for one in suite.sets}
    assert {path.name for path in items} == names


def test_the_suite_of_the_documentation_is_read_as_it_says(tmp_path):
    (shown,) = re.findall(r"```yaml\n(sets:.*?)```", (ROOT / "docs" / "training.md").read_text(), re.DOTALL)
    (tmp_path / "suite.yaml").write_text(shown)
    suite = read_suite(tmp_path / "suite.yaml")
    assert [method.chosen for method in suite.asked_by] == ["rag", "ircot", "search-r1"]
    ours = suite.asked_by[-1]
    assert (ours.name, ours.models, ours.limits) == ("ours", ("evolved",), {"max_turns": 7})
    assert (suite.sets[0].limit, suite.models[1].run) == (500, "RUN")
