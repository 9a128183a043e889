"""Kinds of answers by hand, the options of closed questions, and constants among the answers."""

import gzip
import json
from pathlib import Path

import pytest

from quaere.evaluation.qa.answer_kinds import (
    KINDS,
    Constant,
    describe_answer,
    find_constants,
    kind_of,
    option_of,
    say_constant,
)
from quaere.evaluation.qa.items import Item, hash_text
from quaere.records import Question

BENCHMARKS = Path(__file__).parents[2] / "benchmarks"


@pytest.mark.parametrize(
    ("question", "answers", "kind"),
    [
        ("Is Halm older than Oss?", ["Yes."], "yes/no"),
        ("Was the mill of Oss a bakery or a brewery, and is it still open?", ["no", "closed"], "yes/no"),
        ("Which is older, Halm or Oss?", ["Oss"], "choice"),
        ("which is larger Halm or the Oss mill", ["Oss mill"], "choice"),  # without a comma
        ("Which film is older, Dead Or Alive or The Mill?", ["Dead Or Alive"], "choice"),  # a title with "Or"
        ("Which mall, Halm Mall or Oss Mall, has more shops?", ["Oss Mall"], "choice"),  # in the middle
        ("Who died first, Venn or Brod?", ["Orsolya Venn"], "name"),  # an answer the question does not name
        ("Who built Halm or Oss?", ["Venn"], "name"),
        ("Who built it?", ["Orsolya de Venn"], "name"),
        ("Which company?", ["20th Century Fox"], "name"),
        ("Where is it?", ["712 Fifth Avenue"], "name"),
        ("Which command dumps a table?", ["pg_dump"], "name"),
        ("Which option?", ["--min-overlap"], "name"),
        ("Which class?", ["configParser"], "name"),
        ("Which alliance?", ["NATO"], "name"),
        ("When?", ["24 January 1926"], "number"),
        ("When?", ["April 1917"], "number"),
        ("When?", ["In 1966"], "number"),
        ("When?", ["the 12th century"], "number"),
        ("How many?", ["291 episodes"], "number"),
        ("How many?", ["over 3,800"], "number"),
        ("How many?", ["fifteen"], "number"),
        ("What rate?", ["20%"], "number"),
        ("What is the default?", ["-1"], "number"),
        ("What is his occupation?", ["politician", "Political leader"], "other"),
        ("Which colour?", ["Blue", "blue"], "other"),  # accepted in lower case: a word, not a name
        ("What is it?", ["Triple threat"], "other"),
        ("When is it?", ["May"], "name"),  # a month without a number
        ("What?", ["漢字"], "other"),
        ("What?", ["..."], "other"),
    ],
)
def test_kinds_by_hand(question, answers, kind):
    assert kind in KINDS
    assert kind_of(question, answers) == kind


@pytest.mark.parametrize(
    ("question", "answer", "option"),
    [
        ("Is it old?", "The no", "no"),
        ("Which is older, Halm or Oss?", "halm", "first"),
        ("Which is older, Halm or Oss?", "the Oss.", "second"),
        ("Which is older, Halm or Oss?", "Brod", ""),
        ("Which is older, Halm or Oss?", "", ""),
        ("Which is older, Halm or the Halm mill?", "Halm", ""),  # on both sides
        ("Which is older?", "Oss", ""),
    ],
)
def test_options_by_hand(question, answer, option):
    assert option_of(question, answer) == option


def test_an_option_of_another_kind_is_none():
    assert describe_answer("Is it old?", ["yes"], "No") == {"kind": "yes/no", "right_option": "yes", "option": "no"}
    choice = "Which is older, Halm or Oss?"
    assert describe_answer(choice, ["Oss"], "yes") == {"kind": "choice", "right_option": "second", "option": ""}
    assert describe_answer(choice, ["Oss"], None)["option"] == ""
    assert describe_answer("Who built it?", ["Venn"], "no") == {"kind": "name", "right_option": "", "option": ""}


def item(number, right, taken, *, kind="yes/no", group=""):
    usual = {"answer": taken, "f1": 0.0, "end": "answered", "num_turns": 1, "num_searches": 1, "num_tokens": 9}
    more = {"kind": kind, "right_option": right, "option": taken, "set": group}
    return Item(f"q{number}", "", exact_match=float(right == taken), **usual, **more)


def test_a_model_that_always_says_no_is_noticed():
    """Nine of ten answers are "no", which is right for two."""
    items = [item(n, "no" if n < 2 else "yes", "no" if n else "yes") for n in range(10)]
    (found,) = find_constants(items)
    assert found == Constant("", "yes/no", "no", 0.9, 0.2, 10, is_constant=True)
    assert say_constant("warm", found) == 'warm says "no" to 9 of 10 yes/no questions; "no" is right for 2'


def test_what_is_no_constant():
    right = [item(n, "no", "no") for n in range(10)]
    assert not find_constants(right)[0].is_constant  # the questions are like that
    mixed = [item(n, "yes", "no" if n < 8 else "yes") for n in range(10)]
    assert find_constants(mixed)[0].share == 0.8 and not find_constants(mixed)[0].is_constant
    few = [item(n, "yes", "no") for n in range(7)]
    assert not find_constants(few)[0].is_constant
    assert find_constants([*few, item(7, "yes", "no")])[0].is_constant
    assert find_constants([item(n, "yes", "") for n in range(10)]) == ()  # answers that take no option
    assert find_constants([item(n, "", "", kind="name") for n in range(10)]) == ()


def test_sets_are_counted_apart_and_choices_by_place():
    """The one set is always answered "no", the other well: over both it would not show."""
    items = [item(n, "yes", "no", group="2wiki") for n in range(10)]
    items += [item(n, "yes", "yes", group="hotpot") for n in range(10, 20)]
    items += [item(n, "first" if n % 2 else "second", "first", kind="choice", group="nq") for n in range(20, 30)]
    found = find_constants(items)
    assert [(one.set, one.kind, one.is_constant) for one in found] == [
        ("2wiki", "yes/no", True),
        ("hotpot", "yes/no", False),
        ("nq", "choice", True),
    ]
    assert say_constant("warm", found[2]) == (
        "warm takes the first of two things in 10 of 10 choices of nq; the first is right in 5"
    )


def test_older_items_get_the_kind_that_eval_would_store(monkeypatch):
    monkeypatch.syspath_prepend(str(BENCHMARKS))
    from add_kinds import add_kind

    text = "Which is older, Halm or Oss?"
    usual = {"f1": 0.0, "end": "answered", "num_turns": 1, "num_searches": 1, "num_tokens": 9, "exact_match": 0.0}
    old = Item("q1", hash_text(text), "Halm", **usual)
    found = add_kind(old, {old.key: Question("q1", text, ("Oss",))})
    assert (found.kind, found.right_option, found.option) == ("choice", "second", "first")
    assert add_kind(found, {}) == found
    # Nothing else changes, and a question of another wording is another question.
    assert add_kind(old, {("q1", hash_text("Which?")): Question("q1", "Which?", ("Oss",))}) == old
    assert [name for name in old.__struct_fields__ if getattr(old, name) != getattr(found, name)] == [
        *("kind", "right_option", "option"),
    ]


def test_the_cost_of_a_run_is_the_sum_of_its_steps(monkeypatch, tmp_path):
    monkeypatch.syspath_prepend(str(BENCHMARKS))
    from run_costs import cost_row

    rows = [[step, "step/seconds", 10.4 * step] for step in (0, 1, 2)]
    rows += [[step, "reward/mean", 0.5] for step in (1, 2)]
    rows += [[step, "questions/distinct", 64.0 * step] for step in (1, 2)]
    path = tmp_path / "warm-1.metrics.json.gz"
    path.write_bytes(gzip.compress(json.dumps(rows).encode()))
    assert cost_row(path) == ["warm-1", "2", "31", "128", ""]
