"""Settings of a warm-up: which cannot be, and what follows from those that are given."""

from pathlib import Path
from types import SimpleNamespace

import pytest

from evaluated import answer, episode, search
from quaere.api.warmup import _describe
from quaere.api.warmup_documents import _count, _roles, _share, refuse_others, teach_form
from quaere.api.warmup_settings import WarmupSettings, make_settings
from quaere.errors import BadInput
from quaere.warmup.dialects import DIALECTS
from quaere.warmup.scripted_episodes import Demonstrations

HAMLET = {"model": "blank", "facts": (1,), "proposer_hops": (1,)}


def settings(**given):
    return WarmupSettings(**{"recipe": "drzero", "model": "m", "out": Path("warm"), **given})


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"epochs": 0}, "--epochs must be at least 1"),
        ({"max_rows": 0}, "--max-rows must be at least 1"),
        ({"most": 0, "index": Path("i")}, "--most must be at least 1"),
        ({"questions": Path("q.jsonl")}, "--questions needs --index"),
        ({"most": 3}, "--most needs --index"),
        ({"practice": Path("p.jsonl")}, "--practice needs --index"),
        ({"scores_only": True, "recipe": "evalact"}, "--scores-only needs --index and a recipe that scores searches"),
        ({"shuffle_scores": True, "index": Path("i")}, "--shuffle-scores needs --index and a recipe"),
        ({"questions": "hub:o/n:train", "index": Path("i")}, "--questions of a warm-up is a file"),
        ({"practice": Path("p.jsonl.gz"), "index": Path("i")}, "p.jsonl.gz: plain text is written, not .gz"),
        ({"questions": Path("q.jsonl.xz"), "index": Path("i")}, "q.jsonl.xz: plain text is written, not .xz"),
        ({"lora_rank": -1}, "--lora-rank must be 0 or more"),
        ({"adapter": True}, "--adapter needs --lora-rank"),
        ({"learning_rate": 0.0}, "--learning-rate must be above 0"),
        ({**HAMLET, "recipe": "eve"}, "learns drzero in a hamlet, nothing else"),
        ({**HAMLET, "also": ("eve",)}, "learns drzero in a hamlet, nothing else"),
        ({**HAMLET, "index": Path("i")}, "learns drzero in a hamlet, nothing else"),
        ({**HAMLET, "lora_rank": 8}, "learns drzero in a hamlet, nothing else"),
        ({**HAMLET, "facts": (1, 1)}, "every question is of one fact"),
        ({**HAMLET, "proposer_hops": (1, 1)}, "every question is of one fact"),
    ],
)
def test_what_cannot_be_is_refused_in_one_line(given, said):
    with pytest.raises(BadInput, match=said):
        settings(**given).check()


@pytest.mark.parametrize(
    "given",
    [
        {},
        HAMLET,
        {"epochs": 1, "batch": 1, "max_turns": 1, "topk": 1},
        {"index": Path("i"), "questions": Path("q.jsonl"), "most": 1, "practice": Path("p.jsonl")},
        {"lora_rank": 1, "adapter": True, "learning_rate": 1e-9},
    ],
)
def test_what_can_be_is_let_through(given):
    settings(**given).check()


def test_questions_that_are_there_may_be_compressed(tmp_path):
    (tmp_path / "q.jsonl.gz").touch()
    settings(index=Path("i"), questions=tmp_path / "q.jsonl.gz").check()


def test_values_are_read_by_name_and_type():
    read = make_settings({"recipe": "drzero", "model": "m", "out": "warm", "facts": [2, 1], "handler": print})
    assert read == settings(facts=(2, 1))


@pytest.mark.parametrize(
    ("wrong", "said", "hint"),
    [
        ({"epochs": "two"}, "epochs of a warm-up must be a whole number, not 'two'", "such as epochs=2"),
        ({"facts": "1"}, "facts of a warm-up must be a list of whole numbers, not '1'", "such as facts=(4, 3, 2, 1)"),
        ({"style": "long"}, "style of a warm-up must be one of brief, full, not 'long'", "such as style='full'"),
        ({"out": 3}, "out of a warm-up must be a path, not 3", "see quaere warmup --help"),
        ({"most": "all"}, "most of a warm-up must be a whole number or null, not 'all'", "see quaere warmup --help"),
    ],
)
def test_a_value_of_another_type_is_refused_with_the_right_one(wrong, said, hint):
    with pytest.raises(BadInput) as caught:
        make_settings({"recipe": "drzero", "model": "m", "out": "warm", **wrong})
    assert (str(caught.value), caught.value.hint) == (said, hint)


def test_what_is_not_given_follows_from_the_rest():
    alone, several = settings(), settings(also=("evalact", "score"))
    assert (alone.num_episodes, several.num_episodes, settings(episodes=7).num_episodes) == (400, 1200, 7)
    assert (alone.family, settings(**HAMLET).family) == ("warmup", "hamlet")
    assert (alone.rate, settings(lora_rank=8).rate, settings(learning_rate=0.5).rate) == (1e-4, 3e-4, 0.5)


def test_the_limits_of_an_episode_follow_the_dialect_unless_they_are_given():
    several = settings(also=("evalact", "score"))
    assert set(several.dialects) <= set(DIALECTS)
    turns = {name: several.limits_of(name).max_turns for name in several.dialects}
    assert turns == {"drzero": 5, "evalact": 12, "score": 8}
    assert (several.limits_of("drzero").turn_tokens, several.limits_of("drzero").sequence_tokens) == (512, 4096)
    assert (several.limits_of("score").turn_tokens, several.limits_of("score").sequence_tokens) == (1536, 8192)
    given = settings(also=("evalact", "score"), max_turns=3, turn_tokens=64, sequence_tokens=2048, topk=2)
    for name in given.dialects:
        limits = given.limits_of(name)
        assert (limits.max_turns, limits.turn_tokens, limits.sequence_tokens, limits.topk) == (3, 64, 2048, 2)


def test_documents_teach_no_reports_and_have_no_teacher():
    refuse_others(settings(index=Path("i")))
    for given, said in (({"also": ("score",)}, "score cannot be taught"), ({"teacher": "openai:m@u"}, "--teacher")):
        with pytest.raises(BadInput, match=said):
            refuse_others(settings(index=Path("i"), **given))


def test_questions_and_roles_are_shared_out():
    several = settings(also=("eve",), index=Path("i"))
    assert _share(several, list("abcde")) == {"drzero": list("ace"), "eve": list("bd")}
    assert _roles(several, "drzero") == ("solver", "proposer")
    assert _roles(settings(roles=("solver",)), "drzero") == ("solver",)
    assert _roles(settings(roles=("evaluator",)), "drzero") == ()


def test_attempts_are_counted_with_their_tokens_a_second(monkeypatch):
    told, now = [], iter([100.0, 102.0, 104.0])
    monkeypatch.setattr("quaere.api.warmup_documents.time", SimpleNamespace(monotonic=lambda: next(now)))
    count = _count("drzero", 2, lambda *given: told.append(given))
    for _ in range(2):
        count(episode(search(), answer("Venn")))  # two turns of seven tokens
    assert told == [("drzero attempts", 1, 2, "7.0 tok/s"), ("drzero attempts", 2, 2, "7.0 tok/s")]


def test_a_model_that_does_not_know_the_form_is_taught_it_first_and_then_deleted(tmp_path):
    given = settings(model=str(tmp_path), out=tmp_path / "warm", index=Path("i"), scores_only=True, shuffle_scores=True)
    asked = []

    def teach(form):
        asked.append(form)
        return SimpleNamespace(stopped=False)

    with teach_form(given, teach) as (taught, stopped):
        assert stopped is None
        (form,) = asked
        assert (form.index, form.model, form.out) == (None, given.model, Path(taught.model))
        assert not form.scores_only and not form.shuffle_scores and taught.scores_only
        assert (taught.base_model, taught.index) == (given.model, given.index)
        assert form.out.parent.is_dir()
    assert not form.out.parent.exists()
    with (
        pytest.raises(BadInput, match="was not taught the form"),
        teach_form(settings(model=str(tmp_path), out=tmp_path / "warm", adapter=True, lora_rank=8), teach),
    ):
        pass


def test_a_form_whose_teaching_was_stopped_is_what_is_written(tmp_path):
    def teach(form):
        form.out.mkdir()
        (form.out / "weights").write_text("half taught")
        return SimpleNamespace(stopped=True)

    with teach_form(settings(model=str(tmp_path), out=tmp_path / "warm"), teach) as (_, stopped):
        assert stopped is not None and stopped.stopped
    assert (tmp_path / "warm" / "weights").read_text() == "half taught"


def test_a_model_that_knows_the_form_is_not_taught_it_again(monkeypatch, tmp_path):
    from quaere.dialects.notes import Notes

    monkeypatch.setattr("quaere.api.warmup_documents.find_notes", lambda model: Notes(taught=("drzero", "eve")))
    known = settings(also=("eve",), adapter=True, lora_rank=8)
    with teach_form(known, lambda form: pytest.fail("taught again")) as (taught, _):
        assert taught is known


def test_what_was_taught_of_scores_is_recorded():
    measured = SimpleNamespace(num_held_out=0, num_steps=1, loss_before=2.0, loss_after=1.0, stopped=False)
    for how in ({"scores_only": True}, {"shuffle_scores": True}, {}):
        manifest = _describe(settings(recipe="evalact", index=Path("i"), **how), Demonstrations(), measured)
        assert (manifest.scores_only, manifest.shuffle_scores) == ("scores_only" in how, "shuffle_scores" in how)
