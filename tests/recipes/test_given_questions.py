"""A run that is given questions: its first curriculum begins with them, held to what its own are held to."""

import json
from hashlib import sha256

import pytest

from dictating import dictating
from quaere.errors import BadInput
from quaere.runs.checkpoints import find_checkpoints
from quaere.training.given import GIVEN, copy_given
from quaere.training.self_play import check_self_play as check_config
from quaere.training.self_play import count_steps
from quaere.training.self_play import plan_self_play as plan
from village import BRIDGES, builder, payer
from village_runs import Told, make_config, make_quoting, run_drzero, run_eve

ALONE = {"proposer.steps": 0, "generation.candidates": 0}  # nothing but what was given


def write(path, *rows):
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return {"generation.given": str(path)}


def row(number, **more):
    name, sentence = BRIDGES[number], f"{builder(number)} built it."
    evidence = {"doc_id": name, "start": 0, "end": len(sentence), "text": sentence}
    made = {"id": f"{name}#0:0", "question": f"Who built {name}?", "answers": [builder(number)], "hops": 1}
    return {**made, "evidence": [evidence], **more}


def given(run):
    return {item.id.removeprefix("given-"): item for item in run.candidates() if item.given}


def weights(folder):
    """The hash of every file of weights in the last checkpoint."""
    last = find_checkpoints(folder / "checkpoints")[-1].path
    return {str(path.relative_to(last)): sha256(path.read_bytes()).hexdigest() for path in last.rglob("*.safetensors")}


class Paused(Exception):
    pass


class Pausing(Told):
    """Stops the run after so many steps."""

    def __init__(self, num_steps):
        super().__init__()
        self.num_steps = num_steps

    def step(self, report):
        super().step(report)
        if report.step == self.num_steps:
            raise Paused


# ------------------------------------------------------------------------------------------------------ the curriculum


def test_given_questions_are_attempted_filtered_and_learned_from(paths, tmp_path):
    rows = [row(number) for number in range(6)]
    rows += [row(6, id="both", answers=[builder(6), payer(6)])]  # right whoever is named
    rows += [row(7, id="nobody", answers=["Nobody"])]
    rows += [row(0, id="again"), row(1, id="told", question=f"Did {builder(1)} build it?")]
    rows += [row(2, id="long", question=f"Who {'really ' * 50}built Korrin?")]
    config = make_config(paths, **ALONE, **write(tmp_path / "mine.jsonl", *rows))
    check_config(config)
    run, told = run_drzero(tmp_path / "run", config)
    with run:
        found = given(run)
        reasons = {name: item.reason for name, item in found.items()}
        assert list(found) == [line["id"] for line in rows]  # in the file's order
        assert (reasons["again"], reasons["told"], reasons["long"]) == ("duplicate", "leaked answer", "invalid")
        assert reasons["nobody"] == "never solved" and found["both"].aliases == (payer(6),)
        tried = [item for item in found.values() if item.num_attempts]
        assert len(tried) == 8 and all(item.num_attempts == 3 for item in tried)
        attempted = run.index(phase="generation")
        assert {row.task_id for row in attempted} == {item.id for item in tried}
        for item in tried:
            solved = sum(row.answer in item.answers for row in attempted if row.task_id == item.id)
            assert solved == item.num_right and item.kept == (0 < solved < 3)
        kept = {item.id for item in found.values() if item.kept}
        assert kept and {row.task_id for row in run.index(phase="solver")} <= kept
        first = found[f"{BRIDGES[0]}#0:0"]
        assert (first.document_id, first.evidence.text) == (BRIDGES[0], f"{builder(0)} built it.")
        assert run.metrics_at(1)["curriculum/given"] == len(rows)
        assert not any(item.added for item in found.values())
    assert told.steps[0].phase == "generation"


def test_without_attempts_all_that_are_good_in_form_are_kept(paths, tmp_path):
    source = write(tmp_path / "mine.jsonl", row(0), row(1), row(1, id="again"))
    config = make_config(paths, **ALONE, **source, **{"generation.attempts": 0, "solver.steps": 1})
    run, _ = run_drzero(tmp_path / "run", config)
    with run:
        assert [item.kept for item in given(run).values()] == [True, True, False]
        assert run.index(phase="generation") == []
        assert {row.task_id for row in run.index(phase="solver")} == {item.id for item in run.curriculum(0)}


def test_they_keep_the_searches_they_need_and_all_their_evidence(paths, tmp_path):
    sentences = [{"doc_id": BRIDGES[n], "start": 0, "end": 5, "text": f"{n} is."} for n in (0, 1)]
    rows = [row(0, facts=2, searches=1, evidence=sentences), row(1, facts=2, searches=2, evidence=sentences)]
    source = write(tmp_path / "mine.jsonl", *rows)
    config = make_config(paths, **ALONE, **source, **{"generation.attempts": 0, "solver.steps": 1})
    run, _ = run_drzero(tmp_path / "run", config)
    with run:
        asked = [item.to_question() for item in given(run).values()]
        assert [(question.facts, question.searches) for question in asked] == [(2, 1), (2, 2)]
        assert [[span.doc_id for span in question.evidence] for question in asked] == [list(BRIDGES[:2])] * 2


def test_every_accepted_answer_is_paid(paths, tmp_path):
    source = write(tmp_path / "mine.jsonl", *(row(number, answers=["Nobody", payer(number)]) for number in range(4)))
    config = make_config(paths, **ALONE, **source, **{"generation.attempts": 0, "solver.steps": 1})
    run, _ = run_drzero(tmp_path / "run", config)
    with run:
        rows = run.index(phase="solver")
        answers = {item.id: item.answers for item in run.curriculum(0)}
        assert any(row.metrics["answer/exact_match"] for row in rows)
        for line in rows:
            assert run.episode(line.id).task.question.answers == answers[line.task_id]
            assert line.metrics["answer/exact_match"] == (line.answer in answers[line.task_id])


def test_they_come_before_the_proposers_own_which_do_not_repeat_them(paths, tmp_path):
    asked = [
        row(number, id=f"{what}{number}", question=f"Who {what} {BRIDGES[number]}?")
        for number in range(0, len(BRIDGES), 2)
        for what in ("built", "paid for")
    ]
    source = write(tmp_path / "mine.jsonl", *asked)
    changes = {"proposer.steps": 1, "generation.attempts": 0, "iterations": 2, "solver.steps": 1}
    config = make_config(paths, **source, **changes)
    run, told = run_drzero(tmp_path / "run", config)
    assert len(told.steps) == count_steps(config) == 1 + 2 * 3
    with run:
        own = [item for item in run.candidates(iteration=0) if not item.given]
        assert len(own) == 8 and any(item.reason == "duplicate" for item in own)
        known = {line["question"] for line in asked}
        assert not any(item.kept and item.question in known for item in own)
        # The second iteration writes its own alone, and does not repeat what was given to the first.
        second = list(run.candidates(iteration=1))
        assert not any(item.given for item in second) and any(item.kept for item in second)
        assert any(item.question in known for item in second)
        assert not any(item.kept and item.question in known for item in second)


def test_evidence_that_the_documents_do_not_have_is_mere_text(paths, tmp_path):
    wrong = [{"doc_id": BRIDGES[0], "start": 3, "end": 9, "text": "a lie."}]
    config = make_config(
        paths,
        **ALONE,
        **write(tmp_path / "mine.jsonl", row(0, evidence=wrong), row(1, evidence=[])),
        **{"generation.attempts": 0, "solver.steps": 0},
    )
    run, _ = run_drzero(tmp_path / "run", config)
    with run:
        first, second = given(run).values()
        assert (first.evidence, first.span, first.document_id) == (None, "a lie.", BRIDGES[0])
        assert (second.evidence, second.span, second.document_id) == (None, "", "")


def test_a_solver_with_evidence_is_paid_by_the_sentence_that_was_given(quoting_paths, tmp_path):
    spans = [f"{builder(number)} built the bridge." for number in range(4)]
    rows = []
    for number, span in enumerate(spans):
        start = len(f"{BRIDGES[number]} is a bridge. ")
        evidence = [{"doc_id": BRIDGES[number], "start": start, "end": start + len(span), "text": span}]
        rows.append(row(number, question=f"Who built the {BRIDGES[number]} bridge?", evidence=evidence))
    changes = {**ALONE, "generation.attempts": 0, "solver.steps": 1, "evidence.guards": []}
    config = make_quoting(quoting_paths, **changes, **write(tmp_path / "mine.jsonl", *rows))
    run, _ = run_eve(tmp_path / "run", config)
    with run:
        assert [item.evidence.text for item in given(run).values()] == spans
        lines = run.index(phase="solver", protocol="eve-solver")
        gold = {item.id: item.evidence.text for item in given(run).values()}
        exact = [line for line in lines if getattr(run.episode(line.id).outcome, "span", "") == gold[line.task_id]]
        assert exact and all(line.metrics["reward/span"] == pytest.approx(0.3) for line in exact)


def test_a_sentence_that_no_document_has_is_gold_only_where_anything_written_is(quoting_paths, tmp_path):
    """The made-up sentence is repeated word for word, and paid for with `evidence.gold=written` alone."""
    lie = "Nobody built the bridge."
    made_up = [{"doc_id": BRIDGES[0], "start": 0, "end": len(lie), "text": lie}]
    source = write(tmp_path / "mine.jsonl", row(0, evidence=made_up))
    changes = {**ALONE, "generation.attempts": 0, "solver.steps": 1, "evidence.guards": [], **source}
    turns = [f"<evidence>{lie}</evidence><answer>{builder(0)}</answer>"]
    for gold, reward in (("verbatim", 0.0), ("written", 0.3)):
        config = make_quoting(quoting_paths, **changes, **{"evidence.gold": gold})
        with dictating(lambda job: turns):
            run, _ = run_eve(tmp_path / gold, config)
        with run:
            paid = [line.metrics["reward/span"] for line in run.index(phase="solver", protocol="eve-solver")]
            assert paid == [pytest.approx(reward)] * 3


def test_the_sentence_about_the_answer_is_gold_whatever_its_place(paths, tmp_path):
    """Of a comparison the answer's own sentence, of a chain the last one that holds the answer."""

    def cut(number, text):
        return {"doc_id": BRIDGES[number], "start": 0, "end": len(text), "text": text}

    first, second = (cut(number, f"{builder(number)} built it.") for number in (0, 1))
    rows = [
        row(0, id="first", answers=[builder(0)], evidence=[first, second]),
        row(1, id="last", question="Who built the second?", answers=[builder(1)], evidence=[first, second]),
        row(2, id="none", question="Is either of stone?", answers=["yes"], evidence=[first, second]),
    ]
    changes = {**ALONE, "generation.attempts": 0, "solver.steps": 0}
    run, _ = run_drzero(tmp_path / "run", make_config(paths, **changes, **write(tmp_path / "mine.jsonl", *rows)))
    with run:
        spans = {name: item.span for name, item in given(run).items()}
    assert spans == {"first": first["text"], "last": second["text"], "none": second["text"]}


@pytest.mark.parametrize(
    ("answers", "num_facts", "gold"),
    [
        (["Venn"], 2, 0),
        (["Brod"], 2, 1),
        (["Olm", "Venn"], 4, 1),  # of two facts about the answer the last
        (["Olm", "Brod"], 4, 3),
        (["Venn"], 3, 2),  # facts that cannot be halved
        (["both"], 2, 1),  # no alternative
    ],
)
def test_a_comparison_that_names_nobody_is_proved_by_the_side_of_its_answer(paths, tmp_path, answers, num_facts, gold):
    """Facts are in the question's order, and the sentences say "he"."""
    facts = [
        {"doc_id": BRIDGES[number], "start": 0, "end": 0, "text": f"He was born in 17{number:02}."}
        for number in range(num_facts)
    ]
    asked = row(0, question="Who was born later, Venn or Brod?", answers=answers, evidence=facts)
    changes = {**ALONE, "generation.attempts": 0, "solver.steps": 0}
    run, _ = run_drzero(tmp_path / "run", make_config(paths, **changes, **write(tmp_path / "mine.jsonl", asked)))
    with run:
        (candidate,) = run.candidates()
        assert candidate.span == facts[gold]["text"]


def test_given_again_they_are_attempted_by_the_solver_of_every_iteration(paths, tmp_path):
    """`given_again`: the second iteration keeps what its own solver solves sometimes, and says what is new in it."""
    rows = [row(number) for number in range(8)]
    source = write(tmp_path / "mine.jsonl", *rows)
    changes = {**ALONE, **source, "iterations": 2, "generation.given_again": True, "solver.steps": 1}
    config = make_config(paths, **changes)
    check_config(config)
    assert ("given questions", "8 join every iteration's curriculum") in plan(config)
    run, told = run_drzero(tmp_path / "run", config)
    assert len(told.steps) == count_steps(config) == 2 * (1 + 1)
    with run:
        kept = []
        for iteration in (0, 1):
            found = run.candidates(iteration=iteration)
            assert [item.question for item in found] == [line["question"] for line in rows]
            assert all(item.given and item.num_attempts == 3 for item in found)
            assert {line.task_id for line in run.index(phase="solver")} & {item.id for item in found}
            kept.append({item.question for item in found if item.kept})
        assert len({item.id for item in run.candidates()}) == 16
        assert run.metrics_at(3)["curriculum/new"] == len(kept[1] - kept[0])
        assert run.metrics_at(3)["curriculum/overlap"] == 0  # what is given again repeats nothing
    with pytest.raises(BadInput, match=r"given_again=true repeats given questions: set generation.given=FILE"):
        check_config(make_config(paths, **{"generation.given_again": True}))


# ------------------------------------------------------------------------------------------------------------ going on


def test_a_run_that_was_stopped_ends_as_if_it_had_not_been_though_the_file_is_gone(paths, tmp_path):
    """Stopped after its first step and once more after its second."""
    source = tmp_path / "mine.jsonl"
    changes = {"proposer.steps": 0, "generation.candidates": 8, "solver.steps": 2}
    config = make_config(paths, **changes, **write(source, *(row(number) for number in range(8))))
    whole, _ = run_drzero(tmp_path / "whole", config)
    for num_steps in (1, 2):
        with pytest.raises(Paused):
            run_drzero(tmp_path / "cut", config, Pausing(num_steps))
        source.unlink(missing_ok=True)
    cut, _ = run_drzero(tmp_path / "cut", config)
    with whole, cut:
        assert whole.candidates() == cut.candidates() and len(given(cut)) == 8
        assert [line.task_id for line in whole.index()] == [line.task_id for line in cut.index()]
    assert weights(tmp_path / "whole") == weights(tmp_path / "cut") != {}


def test_a_run_keeps_a_copy(paths, tmp_path):
    config = make_config(paths, **write(tmp_path / "mine.jsonl", row(3, answers=["Oleen", "M. Oleen"])))
    (line,) = copy_given(config)[GIVEN].splitlines()
    assert json.loads(line)["answers"] == ["Oleen", "M. Oleen"] and copy_given(make_config(paths)) == {}


# -------------------------------------------------------------------------------------------------------------- config


def test_what_makes_no_sense_is_refused(paths, tmp_path):
    source = write(tmp_path / "mine.jsonl", row(0))
    check_config(make_config(paths, **ALONE, **source))
    for changes, match in (
        (ALONE, "leaves the solver no questions"),
        ({**ALONE, **source, "iterations": 2}, "leaves the others no questions"),
    ):
        with pytest.raises(BadInput, match=match):
            check_config(make_config(paths, **changes))
    with pytest.raises(BadInput, match="cannot be trained on"):
        copy_given(make_config(paths, **write(tmp_path / "open.jsonl", row(0, answers=[]))))
    with pytest.raises(BadInput, match="neither a question file nor a run"):
        copy_given(make_config(paths, **{"generation.given": str(tmp_path / "nothing.jsonl")}))


def test_the_plan_says_how_many_there_are(paths, tmp_path):
    config = make_config(paths, **ALONE, **write(tmp_path / "mine.jsonl", row(0), row(1)))
    assert ("given questions", "2 join the first iteration's curriculum") in plan(config)
    assert count_steps(config) == 1 + config.solver.steps
