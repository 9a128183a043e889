"""`quaere.learn(..., update=True)`: documents change, and what was learned follows."""

import json
import re
import shutil

import msgspec
import pytest
from msgspec import structs

import quaere
from dictating import dictating
from learning_runs import (
    ADDED,
    BUILDERS,
    BUILT,
    CONTRADICTED,
    MOVED,
    REMOVED,
    REWRITTEN,
    SMALL,
    answer,
    change_pages,
    digest,
    let_write,
    make_place,
    stop_at,
    write_pages,
)
from quaere.api import learning_update
from quaere.api.checked_questions import read_checked
from quaere.api.learning_plan import Plan
from quaere.api.learning_update import Cost, fit_update, is_loss, plan_update, read_cost
from quaere.dialects.notes import read_json
from quaere.evaluation.intervals import Interval
from quaere.policies.sampler import ChatReply
from quaere.rollout import policy
from quaere.rollout.policy import ChatPolicy
from quaere.search.changed_documents import ChangedDocuments
from quaere.warmup.documents.checks import UNREAD
from quaere.warmup.documents.held_back import list_documents
from quaere.warmup.documents.stale_questions import NO_DOCUMENT, NO_EVIDENCE
from village import BRIDGES

COST = Cost(total_s=1200.0, writing_s=200.0, step_s=5.0, question_s=0.5)
STALE = {REWRITTEN: NO_EVIDENCE, CONTRADICTED: UNREAD, REMOVED: NO_DOCUMENT}


def read(folder, name):
    return read_checked(folder / f"{name}.jsonl")


def divide(*parts):
    raise ZeroDivisionError


@pytest.fixture(scope="module")
def place(weighing_paths, tmp_path_factory):
    """Pages that changed after a learning was finished, and its arguments; `out` is copied by each test."""
    folder = tmp_path_factory.mktemp("learned")
    given = make_place(weighing_paths, folder) | {"settings": {**SMALL, "writer.minutes": 0, "solver.steps": 20}}
    del given["questions"]
    with pytest.MonkeyPatch.context() as patch:
        let_write(patch)
        pages = write_pages(folder / "pages")
        quaere.learn(pages, **given)
        with pytest.raises(quaere.BadInput, match="nothing changed: 0 of 48 documents"):
            quaere.learn(pages, **given, update=True)
        assert not (given["out"] / "updates").exists()
        change_pages(pages)
        for name, who in {**MOVED, **ADDED}.items():
            patch.setitem(BUILDERS, name, who)
        with dictating(answer):
            yield pages, given


@pytest.fixture
def given(place, tmp_path):
    shutil.copytree(place[1]["out"], tmp_path / "out")
    return {**place[1], "out": tmp_path / "out"}


@pytest.fixture(scope="module")
def updated(place, tmp_path_factory):
    """A whole update, and what was said in it."""
    out, notes = tmp_path_factory.mktemp("updated") / "out", []
    shutil.copytree(place[1]["out"], out)
    return quaere.learn(place[0], **{**place[1], "out": out}, update=True, on_note=notes.append), notes


def test_stale_questions_are_found_and_new_ones_written(updated, place):
    learned, _ = updated
    found = learned.update
    assert {one.document.removesuffix(".md"): one.reason for one in found.retired} == STALE
    assert found.num_checked == len(STALE)
    assert found.documents.added == tuple(f"{name}.md" for name in sorted(ADDED))
    assert found.documents.removed == (f"{REMOVED}.md",) and found.documents.num_documents == 49
    new = read(learned.out, "new")
    assert {name for one in new for name in list_documents(one)} <= {f"{name}.md" for name in {**MOVED, **ADDED}}
    assert all(one.answers[0] in {**MOVED, **ADDED}.values() for one in new) and found.num_new == len(new) >= 3
    assert json.loads((learned.out / "update.json").read_text())["retired"][0]["reason"] in STALE.values()
    asked = {one.question for one in read(place[1]["out"], "questions")}
    now = {one.id: one for one in read(learned.out, "questions")}
    assert len(now) == len(asked) - len(STALE) + len(new)
    assert [one.answers for one in now.values() if REWRITTEN in one.question] == [(MOVED[REWRITTEN],)]


def test_documents_stay_on_their_side_and_old_questions_are_mixed_in(updated, place):
    learned, first = updated[0], place[1]["out"]
    practice, held = (
        {name for folder in (first, learned.out) for one in read(folder, side) for name in list_documents(one)}
        for side in ("practice", "held")
    )
    assert not practice & held
    old = {one.id for one in read(learned.out, "kept")}
    is_old = [one.id in old for one in read(learned.out, "practice")]
    assert is_old.count(True) == is_old.count(False) > 0
    before = {one.id for one in read(first, "held")}
    assert {one.id for one in read(learned.out, "held")} & old == before & old
    assert learned.update.regression.num == len(before & old)


def test_an_update_costs_a_tenth_and_the_new_agent_is_taken(updated, place):
    learned, first = updated[0], place[1]["out"]
    num_first, num_now = (
        sum((folder / name).read_bytes().count(b"\n") for name in names)
        for folder, names in (
            (first, ("questions.jsonl", "dropped.jsonl")),
            (learned.out, ("new.jsonl", "dropped.jsonl")),
        )
    )
    assert num_now <= num_first / 10 and learned.plan.steps == 2
    with quaere.Run.open(learned.out / "run") as run:
        assert run.config["solver"]["steps"] == 2
    assert not learned.update.is_worse and learned.is_trained
    assert learned.agent == learned.out.parent.parent / "agent"
    assert digest(learned.agent) == digest(learned.out / "agent") != digest(first / "agent")
    assert digest(learned.out / "start") == digest(first / "agent")


@pytest.mark.parametrize(
    ("num_changed", "drafts", "steps", "expected"),
    [(6, 20_000, 48, (600, 4)), (150, 20_000, 48, (2000, 4)), (0, 20_000, 5, (1, 1)), (1, 100, 80, (1, 8))],
)
def test_drafts_are_in_proportion_and_at_most_a_tenth(place, tmp_path, num_changed, drafts, steps, expected):
    plan = structs.replace(read_json(place[1]["out"] / "plan.json", Plan), drafts=drafts, steps=steps)
    changed = ChangedDocuments((), tuple(map(str, range(num_changed))), ("gone",), 200)
    small = plan_update(plan, changed, tmp_path, tmp_path / "index", COST)
    assert (small.drafts, small.steps) == expected
    assert (small.writer_settings().drafts, small.config(plan.model).solver.steps) == expected


@pytest.mark.parametrize(
    ("num_changed", "steps", "mode", "num_measured"),
    [
        (6, 48, "fast", 148),  # a twelfth of 1200 s, less 3 % of 200 s and 4 steps of 5 s: 74 s
        (150, 48, "fast", 120),  # less 10 % of 200 s
        (6, 240, "fast", 50),  # 24 steps take more than there is: the least
        (6, 48, "deterministic", 0),  # all: no time may change what it does
    ],
)
def test_as_many_questions_are_measured_as_the_time_allows(place, tmp_path, num_changed, steps, mode, num_measured):
    plan = read_json(place[1]["out"] / "plan.json", Plan)
    plan = structs.replace(plan, steps=steps, settings={**plan.settings, "engine.mode": mode})
    changed = ChangedDocuments((), tuple(map(str, range(num_changed))), (), 200)
    small = plan_update(plan, changed, tmp_path, tmp_path / "index", COST)
    assert (small.num_measured, small.minutes, small.machine.step_s) == (num_measured, 1200 / 60 / 12, 5.0)


@pytest.mark.parametrize(("left_s", "expected"), [(100.0, 8), (49.0, 7), (16.0, 1), (3.0, 1), (-20.0, 1)])
def test_as_many_steps_are_made_as_fit_after_the_start(place, left_s, expected):
    plan = structs.replace(read_json(place[1]["out"] / "plan.json", Plan), steps=8)
    assert fit_update(plan, COST, left_s).steps == expected  # 5 s each, and two for the start


def test_the_cost_of_a_learning_is_read_from_its_stages(given):
    plan = read_json(given["out"] / "plan.json", Plan)
    num_asked = len(quaere.Evaluation.read(given["out"] / "before.json").questions)
    seconds = {"index": 1.0, "questions": 20.0, "before": 3.0, "reinforcement": 40.0, "after": 5.0}
    (given["out"] / "seconds.json").write_text(json.dumps(seconds))
    assert read_cost(plan, given["out"]) == Cost(69.0, 20.0, 40.0 / 20, 8.0 / (2 * num_asked))
    del seconds["after"]  # killed before it was noted
    (given["out"] / "seconds.json").write_text(json.dumps(seconds))
    assert read_cost(plan, given["out"]).question_s == pytest.approx(3.01 / (2 * num_asked))


def test_a_recipe_that_writes_its_own_questions_writes_a_tenth(place, tmp_path):
    plan = read_json(place[1]["out"] / "plan.json", Plan)
    settings = {"proposer.steps": 21, "generation.candidates": 250, "adapter.rank": 0}
    changed = ChangedDocuments(("new",), (), (), 200)
    small = plan_update(
        structs.replace(plan, recipe="drzero", settings=settings), changed, tmp_path, tmp_path / "index", COST
    )
    config = small.config(plan.model)
    assert (config.proposer.steps, config.generation.candidates, config.solver.steps) == (2, 25, 2)


def test_killed_at_any_moment_it_leaves_the_old_agent_or_the_new_one(updated, place, given, monkeypatch):
    old, agent = digest(place[1]["out"] / "agent"), given["out"] / "agent"
    stops = ["documents: ", "loading", "3 questions checked", "facts asked about (", "searches: "]
    stops += [
        next(line for line in updated[1] if "to practise on" in line),
        "measuring",
        "answering 3",
        "reinforcing 1",
        "answering 5",
    ]
    for text in stops:
        with pytest.raises(ZeroDivisionError, match=re.escape(text)):
            quaere.learn(place[0], **given, update=True, **stop_at(text))
        assert digest(agent) == old and not (given["out"] / "updates/1/update.json").exists()
    for name, expected in (("link_file", old), ("write_file", digest(updated[0].agent))):
        with monkeypatch.context() as patch:
            patch.setattr(learning_update, name, divide)
            with pytest.raises(ZeroDivisionError):
                quaere.learn(place[0], **given, update=True)
        assert digest(agent) == expected
    changed = given["out"] / "updates/1/changed.json"
    changed.write_text(json.dumps(json.loads(changed.read_text()) | {"fingerprint": "of other documents"}))
    with pytest.raises(ZeroDivisionError, match="measuring"):
        quaere.learn(place[0], **given, update=True, **stop_at("measuring"))
    assert digest(agent) == digest(given["out"] / "updates/1/start") == old
    learned = quaere.learn(place[0], **given, update=True)
    assert learned.update == updated[0].update and digest(agent) == digest(updated[0].agent)
    with pytest.raises(quaere.BadInput, match="nothing changed: 0 of 49 documents"):
        quaere.learn(place[0], **given, update=True)


def test_an_agent_that_is_worse_at_old_questions_is_taken_only_anyway(place, given):
    out, old = given["out"] / "updates/1", digest(given["out"] / "agent")
    with pytest.raises(ZeroDivisionError):
        quaere.learn(place[0], **given, update=True, **stop_at("reinforcing 1"))
    before = quaere.Evaluation.read(out / "before.json")
    right = [structs.replace(one, exact_match=1.0) for one in before.questions]  # it cannot read these pages
    structs.replace(before, questions=right).write(out / "before.json")
    shutil.copytree(given["out"], given["out"].with_name("other"))
    notes = []
    learned = quaere.learn(place[0], **given, update=True, on_note=notes.append)
    assert notes[-1] == "worse at old questions held back: the agent stays as it is"
    assert learned.update.regression.mean < 0 and learned.update.is_worse and not learned.is_trained
    assert digest(given["out"] / "agent") == old
    anyway = quaere.learn(place[0], **{**given, "out": given["out"].with_name("other")}, update=True, anyway=True)
    assert anyway.update.is_worse and anyway.is_trained and digest(anyway.agent) != old


@pytest.mark.parametrize(
    ("difference", "expected"),
    [
        (Interval(-0.3, -0.5, -0.1, 40), True),
        (Interval(-0.3, -0.7, 0.1, 40), False),
        (Interval(-0.3, -1.0, 1.0, 40), True),  # one cluster of documents: by the mean
        (Interval(0.0, -1.0, 1.0, 40), False),
    ],
)
def test_a_loss_on_old_questions_is_one_by_its_interval_or_without_one_by_its_mean(difference, expected):
    assert is_loss(difference) is expected


def test_what_was_practised_is_not_held_back_later(place, given):
    """A new page says what a page practised on has said; one of two new pages is held back."""
    practice = given["out"] / "practice.jsonl"
    with practice.open("a") as file:
        for name in ADDED:
            asked = {"id": name, "question": f"Who built {name}?", "answers": ["Venn"], "kind": "single"}
            file.write(json.dumps({**asked, "facts": 1, "searches": 1, "hops": 1, "evidence": []}) + "\n")
    with pytest.raises(ZeroDivisionError):
        quaere.learn(place[0], **given, update=True, **stop_at("measuring"))
    out = given["out"] / "updates/1"
    old = {one.id for one in read(given["out"], "held")}
    assert {one.question for one in read(out, "new")} >= {f"Who built {name}?" for name in ADDED}
    assert {one.id for one in read(out, "held")} <= old
    shutil.rmtree(out)
    practice.write_text("".join(practice.read_text().splitlines(keepends=True)[: -len(ADDED)]))
    with pytest.raises(ZeroDivisionError):
        quaere.learn(place[0], **given, update=True, **stop_at("measuring"))
    assert {one.id for one in read(out, "held")} - old


def ask(document, text, answer="Venn"):
    """A question about a document, as a line of a question file."""
    evidence = [{"doc_id": document, "start": 0, "end": len(text), "text": text}]
    rest = {"kind": "single", "facts": 1, "searches": 1, "hops": 1, "evidence": evidence}
    return json.dumps({"id": f"{document}#0:0-{len(text)}", "question": f"{text} Who?", "answers": [answer], **rest})


def test_documents_stay_on_their_side_when_their_questions_were_retired(place, tmp_path):
    """Those practised on and held back at first have new questions in the second update only; new ones are fresh."""
    plan = read_json(place[1]["out"] / "plan.json", Plan)
    rows = {name: ask(name, f"The old text of {name} tells who built it.") for name in ("practised", "held", "kept")}
    new = [ask(name, f"The new page of {name} says who paid for it.") for name in ("practised", "held", "a", "b", "c")]
    files = {
        "": {"practice": ["practised"], "held": ["held", "kept"], "questions": list(rows)},
        "updates/1": {"practice": [], "held": ["kept"], "questions": ["kept"]},  # the others were retired
        "updates/2": {"kept": ["kept"]},
    }
    for folder, sides in files.items():
        (tmp_path / folder).mkdir(parents=True, exist_ok=True)
        for side, names in sides.items():
            (tmp_path / folder / f"{side}.jsonl").write_text("".join(rows[name] + "\n" for name in names))
    out = tmp_path / "updates/2"
    (out / "new.jsonl").write_text("".join(line + "\n" for line in new))
    changed = learning_update._Changed((), (), (), 6, fingerprint="")
    (out / "changed.json").write_bytes(msgspec.json.encode(changed))
    how = {"earlier": tmp_path / "updates/1", "writer": "", "cost": COST}
    refresh = learning_update._Refresh(out, plan, lambda line: None, lambda *state: None, **how)
    refresh._hold_back(out / "held.jsonl")
    practice, held = (
        {name for one in read(out, side) for name in list_documents(one)} for side in ("practice", "held")
    )
    assert "practised" in practice and {"held", "kept"} < held
    assert len(held & {"a", "b", "c"}) == 1 and not practice & held


# ------------------------------------------------------------------------------------------------------ the next answer


class Solver:
    """Searches with the question, and answers what the page found says last."""

    name = "solver"

    async def reply(self, messages, params):
        found = re.findall(r"was built by (\w+ \w+)", messages[-1]["content"])
        turn = f"<answer>{found[-1]}</answer>" if found else f"<search>Who built {CONTRADICTED}?</search>"
        return ChatReply(turn, "end_of_turn", 5)

    async def stop(self):
        pass


@pytest.mark.filterwarnings("ignore::quaere.errors.StaleIndex")
def test_a_contradicting_page_changes_the_answer(updated, place, monkeypatch):
    monkeypatch.setattr(policy, "open_policy", lambda model, **options: ChatPolicy(Solver()))
    answers = []
    for folder in (place[1]["out"], updated[0].out.parent.parent):
        with quaere.Agent(folder / "agent", folder / "index", topk=1) as agent:
            answers.append(agent.ask(f"Who built {CONTRADICTED}?").text)
    assert answers == [BUILT[CONTRADICTED], MOVED[CONTRADICTED]]


def test_without_new_questions_the_agent_stays_and_the_next_update_goes_on_from_there(
    weighing_paths, tmp_path, monkeypatch
):
    let_write(monkeypatch)  # the reader writes no questions about bridges
    corpus = tmp_path / "corpus.jsonl"
    shutil.copy(weighing_paths[0].parent / "corpus.jsonl", corpus)
    given = make_place(weighing_paths, tmp_path) | {"settings": {**SMALL, "engine.mode": "fast"}}
    first = quaere.learn(corpus, **given)
    change_row(corpus, 2, "Venn built it.")
    with pytest.raises(ZeroDivisionError):
        quaere.learn(corpus, **given, update=True, **stop_at("measuring"))
    change_row(corpus, 2, "Venn built it. Brod paid for it. It leads to Oss.")
    notes, asked = [], []
    told = {"on_note": notes.append, "on_progress": lambda doing, *rest: asked.append(doing)}
    learned = quaere.learn(corpus, **given, update=True, **told)
    assert notes[0].startswith("the documents have changed again") and learned.out.name == "1"
    assert {one.document for one in learned.update.retired} == {BRIDGES[2]} and len(learned.update.retired) == 2
    assert "there is nothing new to practise on: the agent stays as it is" in notes
    assert not learned.is_trained and not (learned.out / "run").exists()
    assert digest(learned.agent) == digest(first.agent)
    assert learned.update.regression.mean == 0 and learned.update.gain is None
    known, now = (
        {one.id: one for one in quaere.Run.open(path).episodes()}
        for path in (first.out / ("after" if first.is_trained else "before"), learned.out / "before")
    )
    reused = [name for name, one in now.items() if one == known[name]]
    assert reused and asked.count("answering") == len(now) - len(reused)
    change_row(corpus, 2, "Venn built it. Brod paid for it. It leads to Halm.")
    again = quaere.learn(corpus, **given, update=True)
    assert again.out.name == "2" and again.update.documents.changed == (BRIDGES[2],) and not again.update.retired
    corpus.write_text("".join(corpus.read_text().splitlines(keepends=True)[:-1]))
    less = quaere.learn(corpus, **given, update=True)
    assert less.update.documents.removed == (BRIDGES[-1],) and not (less.out / "new.jsonl").read_bytes()
    assert [one.reason for one in less.update.retired] == [NO_DOCUMENT] * 2
    with pytest.raises(quaere.BadInput, match="was updated since, so the agent of its first learning"):
        quaere.learn(corpus, **given, anyway=not first.is_trained)
    kept = quaere.learn(corpus, **given, anyway=first.is_trained)
    assert kept.is_trained == first.is_trained and digest(kept.agent) == digest(again.agent)


def change_row(corpus, number, text):
    rows = [json.loads(line) for line in corpus.read_text().splitlines()]
    rows[number]["text"] = text
    corpus.write_text("".join(json.dumps(row) + "\n" for row in rows))


# -------------------------------------------------------------------------------------------------------- bad input


def test_what_cannot_be_updated_is_one_line(place, given, tmp_path):
    pages = place[0]
    with pytest.raises(quaere.BadInput, match="has nothing that was learned") as caught:
        quaere.learn(pages, **{**given, "out": tmp_path / "nowhere"}, update=True)
    assert caught.value.hint == "the same command without --update" and not (tmp_path / "nowhere").exists()
    with pytest.raises(quaere.BadInput, match="was begun with sources"):
        quaere.learn(tmp_path, **given, update=True)
    shutil.move(given["out"] / "agent", tmp_path / "agent")
    with pytest.raises(quaere.BadInput, match="has lost its agent") as caught:
        quaere.learn(pages, **given, update=True)
    assert caught.value.hint == "the same command without --update"
    quaere.learn(pages, **given)
    assert digest(given["out"] / "agent") == digest(tmp_path / "agent")
    (given["out"] / "documents.json").unlink()
    with pytest.raises(quaere.BadInput, match="did not record its documents"):
        quaere.learn(pages, **given, update=True)
    (given["out"] / "report.json").unlink()
    with pytest.raises(quaere.BadInput, match="is not finished"):
        quaere.learn(pages, **given, update=True)
    assert not (given["out"] / "updates").exists()
