"""`quaere.evaluate(known=...)`: after documents have changed, only episodes that would differ are played again."""

import pytest
from msgspec import structs

import quaere
from backups import SENTENCE, TURNS, call
from quaere.search.index_build import update_index

SCRIPTS = {"q1": TURNS, "q2": [call("Oss rises"), "<answer>Korrin</answer>"]}
OTHER = "<answer>Bergen</answer>"


@pytest.fixture
def played(notes, says):
    """Both questions answered, and their episodes."""
    quaere.Index.build("notes/", "notes-index")
    says([], SCRIPTS)
    return evaluate("first")


def evaluate(name, known=(), **limits):
    """The evaluation, its episodes in order of the questions, and how many were played."""
    parts = []
    how = {"run": f"{name}-run", "known": known, "on_progress": lambda *part: parts.append(part)}
    with quaere.Agent("a-model", "notes-index", topk=1, **limits) as agent:
        result = quaere.evaluate(agent, "questions.jsonl", **how)
    with quaere.Run.open(f"{name}-run") as run:
        return result, sorted(run.episodes(), key=lambda one: one.id), len(parts)


def change(notes, text, name="ops.md"):
    (notes / "notes" / name).write_text(text)
    update_index(notes / "notes-index")


def test_what_finds_the_same_is_not_played_again(played, notes, says):
    result, episodes, num_played = played
    assert num_played == 2 and [score.exact_match for score in result.questions] == [1.0, 1.0]
    change(notes, f"# Backups\n\nThey run at night. {SENTENCE} No: to Bergen.\n")
    says([], {"q1": [call("backups"), OTHER], "q2": [OTHER]})  # a second play of q2 would be noticed
    again, now, num_played = evaluate("second", episodes)
    assert num_played == 1 and now[1] == episodes[1] and now[0] != episodes[0]
    assert [score.answer for score in again.questions] == ["Bergen", "Korrin"]
    assert again.questions[1] == result.questions[1]


def test_a_new_document_that_is_found_first_is_noticed(played, notes, says):
    change(notes, "# Oss\n\nOss rises. Oss rises.\n", "new.md")
    says([], {"q2": [call("Oss rises"), OTHER]})
    assert [score.answer for score in evaluate("second", played[1])[0].questions] == ["May 2019", "Bergen"]


@pytest.mark.parametrize(
    "change_one",
    [
        lambda one: structs.replace(one, end="failed"),
        lambda one: structs.replace(one, protocol="another"),
        lambda one: structs.replace(one, id="q9"),
        lambda one: structs.replace(one, task=structs.replace(one.task, question=quaere.Question("q1", "Else?"))),
        lambda one: structs.replace(one, turns=(cut(one.turns[0]), *one.turns[1:])),
    ],
)
def test_episodes_of_something_else_are_not_taken(played, says, change_one):
    first, second = played[1]
    says([], {"q1": [OTHER]})
    again, now, num_played = evaluate("second", [change_one(first), second])
    assert num_played == 1 and now[1] == second and again.questions[0].answer == "Bergen"


def cut(turn):
    """The turn with a passage that was shown in part: whether it has grown since cannot be seen."""
    (result,) = turn.results
    (hit,) = result.hits
    passage = structs.replace(hit.passage, text=hit.passage.text[:-9])
    return structs.replace(turn, results=(structs.replace(result, hits=(structs.replace(hit, passage=passage),)),))


def test_what_a_stopped_evaluation_has_comes_first(played, notes, says):
    says([], {"q1": [OTHER], "q2": [OTHER]})
    evaluate("second")
    again, _, num_played = evaluate("second", played[1])
    assert num_played == 0 and [score.answer for score in again.questions] == ["Bergen", "Bergen"]
