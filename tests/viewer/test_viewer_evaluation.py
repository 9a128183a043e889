"""Pages of evaluations: tables with intervals, and two results question by question."""

import re
import shutil

import msgspec
import pytest
from msgspec import structs

from quaere.api.answering import score_metrics
from quaere.cli.main import main
from quaere.evaluation.qa.differences import compare
from quaere.evaluation.qa.items import Item, write_items
from quaere.evaluation.qa.scores import (
    Evaluation,
    read_scored,
    score_answering,
    score_episode,
    write_evaluation,
)
from quaere.records import Question, SolveTask
from quaere.rewards.abstention import ABSTENTION, hide_answers
from quaere.runs import Run
from quaere.viewer import evaluation_pages, page_formats
from viewing import make_episode, open_client, twin, write_eval, write_run

RIGHT, WRONG = "Orsolya Venn", "Someone"
FIRST = [RIGHT] * 6 + [WRONG] * 3 + [None]
SECOND = [WRONG, WRONG, RIGHT, RIGHT, WRONG, WRONG, RIGHT, WRONG, WRONG, None]


def read_run_scores(path, *, evidence=False):
    with Run.open(path) as run:
        return [score_episode(episode, evidence=evidence) for episode in run.episodes()]


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    """Two evaluations and a training, and one of the evaluations as files; only to be copied."""
    home = tmp_path_factory.mktemp("made")
    write_eval(home / "runs/first", FIRST, evidence=True, sets=("old", "new"))
    write_eval(home / "runs/second", SECOND, evidence=True, sets=("old", "new"))
    write_run(home / "runs/alpha")
    scores = read_run_scores(home / "runs/second", evidence=True)
    evaluation = Evaluation("stored", "tiny", {"questions": "eval.jsonl"}, score_answering(scores), tuple(scores))
    write_evaluation(evaluation, home / "stored.json")
    write_items(evaluation.items, home / "stored.items.jsonl.gz")
    return home


@pytest.fixture
def place(made, tmp_path):
    return shutil.copytree(made, tmp_path, dirs_exist_ok=True)


@pytest.fixture
def client(place):
    return open_client(place / "runs", files=[place / "stored.json", place / "stored.items.jsonl.gz"])


def test_results_are_listed_with_their_intervals(client, place):
    lines = {line["key"]: line for line in twin(client, "/evaluations")["page"]["items"]}
    newest_first = ["second", "first"]  # alpha is a training
    assert list(lines) == ["file:stored.json", "file:stored.items.jsonl.gz", *newest_first]
    expected = score_answering(read_run_scores(place / "runs/first"))
    shown = lines["first"]["exact_match"]
    assert shown == {"mean": 0.6, "low": expected.exact_match.low, "high": expected.exact_match.high, "num": 10}
    assert lines["second"]["exact_match"] == lines["file:stored.json"]["exact_match"]
    page = client.get("/evaluations").text
    assert "60.0 " in page and f"[{100 * shown['low']:.1f}, {100 * shown['high']:.1f}]" in page
    assert list(twin(client, "/evaluations?text=FIRST")["page"]["items"]) == [lines["first"]]
    assert "/evaluation?of=first" in client.get("/run/first").text
    assert "/evaluation?of" not in client.get("/run/alpha").text


def test_a_result_is_scored_as_the_command_scores_it(client, place):
    shown = twin(client, "/evaluation?of=first")
    score = score_answering(read_run_scores(place / "runs/first", evidence=True))
    groups = {row["name"]: (row["num"], row["exact_match"]["mean"], row["f1"]["mean"]) for row in shown["groups"]}
    assert groups["all"] == (10, score.exact_match.mean, score.f1.mean)
    assert [name for name in groups if "fact" in name] == ["1 fact", "2 facts"]
    assert groups["set old"][0] == groups["set new"][0] == 5 and len(groups) == 5
    assert [one["name"] for one in shown["score"]["by_kind"]] == ["name"]  # one kind alone is no group of its own
    assert shown["evidence"]["evidence verbatim"]["mean"] == pytest.approx(score.evidence.verbatim.mean)
    assert shown["score"]["answered"] == 0.9
    page = client.get("/evaluation?of=first").text
    for text in ("90.0 % answered", "no answer: turn limit", "/run/first/episode?id=q3", "2 facts", "set old"):
        assert text in page


@pytest.mark.parametrize(
    ("query", "ids"),
    [
        ("right=yes", ["q0", "q1", "q2", "q3", "q4", "q5"]),
        ("right=no", ["q6", "q7", "q8", "q9"]),
        ("text=BRIDGE+7", ["q7"]),
        ("text=someone&right=yes", []),
    ],
)
def test_questions_of_a_result_are_selected(client, query, ids):
    assert [item["id"] for item in twin(client, f"/evaluation?of=first&{query}")["page"]["items"]] == ids


@pytest.mark.parametrize("other", ["second", "file:stored.json", "file:stored.items.jsonl.gz"])
def test_two_results_are_compared_question_by_question(client, place, other):
    shown = twin(client, f"/evaluations/compare?of=first&of={other}")
    assert shown["counts"] == {"gained": 4, "lost": 1, "both": 2, "neither": 3} and shown["num_shared"] == 10
    first, second = (
        Evaluation(name, "", {}, score_answering(scores), tuple(scores))
        for name in ("first", "second")
        for scores in [read_run_scores(place / f"runs/{name}", evidence=True)]
    )
    difference = compare(first, second)
    (row, *_) = shown["rows"]
    assert row["name"] == "exact match" and row["difference"]["mean"] == difference.exact_match.mean
    assert (row["difference"]["low"], row["smallest"]) == (
        difference.exact_match.low,
        difference.smallest["exact_match"],
    )
    assert (row["ours"]["mean"], row["theirs"]["mean"]) == (0.6, 0.3)
    page = client.get(f"/evaluations/compare?of=first&of={other}").text
    for text in ("+30.0", "gained: 4", "/run/first/episode?id=q0", "the other way round"):
        assert text in page
    assert ("/run/second/episode?id=q0" in page) == (other == "second")


def test_changes_are_selected_and_the_order_matters(client):
    lost = twin(client, "/evaluations/compare?of=first&of=second&change=lost")["page"]["items"]
    assert [(pair["id"], pair["question"]) for pair in lost] == [("q6", "Who built bridge 6? ")]
    turned = twin(client, "/evaluations/compare?of=second&of=first&change=gained")["page"]["items"]
    assert [pair["id"] for pair in turned] == ["q6"]
    assert twin(client, "/evaluations/compare?of=first&of=second&change=lost&text=nothing")["page"]["items"] == []


def test_long_lists_have_pages_that_keep_the_choice(client, monkeypatch):
    monkeypatch.setattr(page_formats, "PAGE_SIZE", 3)
    page = client.get("/evaluations/compare?of=first&of=second&change=gained").text
    assert 'href="?of=first&amp;of=second&amp;change=gained&amp;page=2"' in page
    assert len(twin(client, "/evaluation?of=first&page=4")["page"]["items"]) == 1
    monkeypatch.setattr(evaluation_pages, "LIST_SIZE", 3)
    assert len(twin(client, "/evaluations?page=2")["page"]["items"]) == 1


def test_results_that_share_no_question_say_so(client, place):
    write_eval(place / "runs/third", FIRST, titles=["elsewhere"])
    assert "They share no question" in client.get("/evaluations/compare?of=first&of=third").text


def test_results_of_two_indexes_say_so(tmp_path, place):
    scores = tuple(read_run_scores(place / "runs/first"))
    for name, fingerprint in (("a", "5f"), ("b", "c0"), ("c", "")):
        found = Evaluation(name, "", {"index_fingerprint": fingerprint}, score_answering(scores), scores)
        write_evaluation(found, tmp_path / f"{name}.json")
    client = open_client(place / "runs", files=[tmp_path / f"{name}.json" for name in "abc"])
    said = "They searched different indexes"
    assert said in client.get("/evaluations/compare?of=file:a.json&of=file:b.json").text
    assert said not in client.get("/evaluations/compare?of=file:a.json&of=file:c.json").text


def test_a_run_whose_episodes_ended_in_another_order_has_the_intervals_of_its_file(tmp_path):
    """The bootstrap depends on the order of the questions, and the episodes of many rows end in any order."""
    answers = [RIGHT] * 10 + [WRONG] * 12
    for name, order in (("file", range(22)), ("run", range(21, -1, -1)), ("old", None)):
        write_eval(tmp_path / "runs" / name, answers if order else answers[::-1], order=order)
    scores = {name: read_run_scores(tmp_path / "runs" / name) for name in ("file", "old")}
    expected, turned = (msgspec.to_builtins(score_answering(of).exact_match) for of in scores.values())
    assert expected["mean"] == turned["mean"] and expected != turned
    write_items([score.item for score in scores["file"]], tmp_path / "file.items.jsonl")
    client = open_client(tmp_path / "runs", files=[tmp_path / "file.items.jsonl"])
    listed = {line["key"]: line["exact_match"] for line in twin(client, "/evaluations")["page"]["items"]}
    assert listed["run"] == listed["file:file.items.jsonl"] == expected
    for key in ("run", "file:file.items.jsonl"):
        shown = twin(client, f"/evaluation?of={key}")
        assert shown["score"]["exact_match"] == expected
        assert [item["id"] for item in shown["page"]["items"]] == [f"q{number}" for number in range(22)]


def test_two_runs_differ_as_their_results_do(tmp_path):
    write_eval(tmp_path / "first", [RIGHT, WRONG, WRONG, WRONG] * 5, order=range(20))
    write_eval(tmp_path / "second", [RIGHT, WRONG, RIGHT, RIGHT, WRONG] * 4, order=range(19, -1, -1))
    client = open_client(tmp_path)
    (row, *_) = twin(client, "/evaluations/compare?of=second&of=first")["rows"]
    shown = twin(client, "/compare?run=first&run=second")["difference"]
    assert shown["difference"] == row["difference"] and row["difference"]["num"] == 20
    assert row["difference"]["mean"] == (shown["counts"]["gained"] - shown["counts"]["lost"]) / 20


def test_a_run_that_goes_on_is_read_again(client, place):
    assert twin(client, "/evaluation?of=first")["groups"][0]["num"] == 10
    with Run.open(place / "runs/first", write=True) as run:
        episode = next(iter(run.episodes()))
        question = structs.replace(episode.task.question, id="q10")
        added = structs.replace(episode, id="q10", task=structs.replace(episode.task, question=question))
        run.add_episode(added, {"answer/exact_match": 1.0, "answer/f1": 1.0})
    assert twin(client, "/evaluation?of=first")["groups"][0]["num"] == 11
    assert twin(client, "/evaluations?text=first")["page"]["items"][0]["num"] == 11


def test_what_is_no_result_is_not_shown(client, place):
    write_eval(place / "runs/empty", [])
    for path in ("/evaluation?of=alpha", "/evaluation?of=nowhere", "/evaluation", "/evaluation?of=empty"):
        assert client.get(path).status_code == 404
    for query in ("", "of=first", "of=first&of=first", "of=first&of=second&of=file:stored.json"):
        assert client.get(f"/evaluations/compare?{query}").status_code == 400
    for name in ("file:../stored.json", f"file:{place}/stored.json", "stored.json", "../stored.json"):
        assert client.get("/evaluation", params={"of": name}).status_code == 404
    assert client.get("/evaluations").status_code == 200


def test_files_are_checked_before_anything_is_served(place, tmp_path, capsys):
    (tmp_path / "other.json").write_text("{}")
    (tmp_path / "again").mkdir()
    (tmp_path / "again/stored.json").write_bytes((place / "stored.json").read_bytes())
    for files, says in (
        ([tmp_path / "other.json"], "is not an evaluation"),
        ([tmp_path / "nowhere.json"], "cannot be read"),
        ([place / "stored.json", tmp_path / "again/stored.json"], "the same name"),
    ):
        words = ["view", str(place / "runs"), "--port", "0", "--results", *map(str, files)]
        assert main(words) == 2 and says in capsys.readouterr().err
    assert read_scored(place / "stored.json").name == "stored"


def test_sets_are_listed_by_name(tmp_path):
    names = ("popqa", "bamboogle", "nq", "musique", "hotpotqa", "2wiki", "triviaqa")
    known = {"end": "answered", "num_turns": 2, "num_searches": 1, "num_tokens": 9, "f1": 1.0, "answer": "Venn"}
    items = [Item(id=f"q-{name}", text_hash="0" * 8, set=name, exact_match=1.0, **known) for name in names]
    write_items(items, tmp_path / "a.items.jsonl")
    (tmp_path / "runs").mkdir()
    shown = twin(
        open_client(tmp_path / "runs", files=[tmp_path / "a.items.jsonl"]), "/evaluation?of=file:a.items.jsonl"
    )
    ordered = ["2wiki", "bamboogle", "hotpotqa", "musique", "nq", "popqa", "triviaqa"]
    assert [row["name"] for row in shown["groups"]] == ["all", *(f"set {name}" for name in ordered)]


def test_gold_is_compared_over_the_questions_that_both_know_it_of(tmp_path):
    known = {"end": "answered", "num_turns": 2, "num_searches": 1, "num_tokens": 9, "f1": 1.0, "answer": "Venn"}
    known |= {"present": True, "verbatim": True}
    for name, golds in (("a", (True, True, None)), ("b", (True, False, None))):
        items = [
            Item(id=f"q{number}", text_hash="0" * 8, set="", exact_match=1.0, gold=gold, **known)
            for number, gold in enumerate(golds)
        ]
        write_items(items, tmp_path / f"{name}.items.jsonl")
    write_run(tmp_path / "runs/one")
    files = [tmp_path / "a.items.jsonl", tmp_path / "b.items.jsonl"]
    client = open_client(tmp_path / "runs", files=files)
    rows = client.get("/json/evaluations/compare?of=file:a.items.jsonl&of=file:b.items.jsonl").json()["rows"]
    gold = next(row for row in rows if row["name"] == "evidence of a gold passage")
    assert (gold["ours"]["mean"], gold["theirs"]["mean"], gold["difference"]["mean"]) == (1.0, 0.5, 0.5)
    page = client.get("/json/evaluation?of=file:b.items.jsonl").json()
    assert page["evidence"]["right and of a gold passage"]["num"] == 2


def test_kinds_are_groups_and_a_gain_is_compared_without_closed_questions(tmp_path):
    """Two yes/no questions that are gained, and of two names none."""

    def file(name, right):
        usual = {"answer": "no", "f1": 0.0, "end": "answered", "num_turns": 1, "num_searches": 1, "num_tokens": 9}
        found = [Item(f"y{n}", "", exact_match=right, kind="yes/no", **usual) for n in range(2)]
        found += [Item(f"n{n}", "", exact_match=float(n), kind="name", **usual) for n in range(2)]
        write_items(found, tmp_path / name)
        return tmp_path / name

    write_run(tmp_path / "runs/one")
    client = open_client(tmp_path / "runs", files=[file("a.items.jsonl", 1.0), file("b.items.jsonl", 0.0)])
    groups = twin(client, "/evaluation?of=file:a.items.jsonl")["groups"]
    assert [(row["name"], row["num"], row["exact_match"]["mean"]) for row in groups] == [
        ("all", 4, 0.75),
        ("yes/no answers", 2, 1.0),
        ("name answers", 2, 0.5),
    ]
    rows = twin(client, "/evaluations/compare?of=file:a.items.jsonl&of=file:b.items.jsonl")["rows"]
    gains = {row["name"]: (row["ours"]["num"], row["difference"]["mean"]) for row in rows}
    assert gains["exact match"] == (4, 0.5)
    assert gains["exact match without yes/no and choices"] == (2, 0.0)


def test_abstention_has_a_table_and_a_refused_question_without_an_answer_is_right(tmp_path):
    usual = {"f1": 0.0, "end": "answered", "num_turns": 1, "num_searches": 1, "num_tokens": 1, "exact_match": 0.0}
    silent = {"answer": "not in these documents", "abstained": True}
    found = [
        Item("a", "a", **{**usual, "exact_match": 1.0}, answer="Venn", confidence=0.9, kind="name"),
        Item("b", "b", **usual, **silent, kind="number"),
        Item("u", "u", **usual, **silent, answerable=False, set="other"),
    ]
    write_items(found, tmp_path / "ours.items.jsonl")
    write_items([structs.replace(found[2], abstained=False, answer="Venn")], tmp_path / "theirs.items.jsonl")
    (tmp_path / "runs").mkdir()
    client = open_client(tmp_path / "runs", files=[tmp_path / "ours.items.jsonl", tmp_path / "theirs.items.jsonl"])
    page = client.get("/evaluation?of=file:ours.items.jsonl").text
    assert "Unanswerable refused" in page and "(unanswerable)" in page and "with the highest confidence" in page
    shown = twin(client, "/evaluation?of=file:ours.items.jsonl")
    assert shown["score"]["abstention"]["refused"]["mean"] == 1.0
    assert [item["right"] for item in shown["page"]["items"]] == [True, False, True]
    assert [row["name"] for row in shown["groups"]] == ["all", "name answers", "number answers"]
    right = twin(client, "/evaluation?of=file:ours.items.jsonl&right=yes")["page"]["items"]
    assert [(item["id"], item["abstained"], item["answerable"]) for item in right] == [
        ("a", False, True),
        ("u", True, False),
    ]
    page = client.get("/evaluation?of=file:theirs.items.jsonl").text
    assert "Unanswerable refused" in page  # no question of it has an exact match
    pair = twin(client, "/evaluations/compare?of=file:ours.items.jsonl&of=file:theirs.items.jsonl")
    assert (pair["counts"]["gained"], pair["num_shared"], pair["rows"]) == (1, 1, [])


def write_voted(path, answers, *, min_confidence):
    """A run of `quaere eval --attempts`: answers with their agreements, each also to a question with hidden answers."""
    settings = {"name": path.name, "model": "tiny", "min_confidence": min_confidence}
    with Run.create(path, "eval", settings) as run:
        for number, (answer, agreement) in enumerate(answers):
            asked = Question(f"q{number}", f"Who built bridge {number}?", (RIGHT,))
            for question in (asked, hide_answers(asked)):
                made = make_episode(question.id, question.id, answer=answer)
                episode = structs.replace(made, task=SolveTask(question), agreement=agreement)
                score = score_episode(episode, min_confidence=min_confidence)
                run.add_episode(episode, score_metrics(score))


def words(page):
    return " ".join(re.sub(r"<[^>]*>", " ", page.text).split())


def test_an_answer_below_the_runs_confidence_is_an_abstention_on_every_page(tmp_path):
    write_voted(tmp_path / "votes", [(RIGHT, 0.75), (WRONG, 0.25), (WRONG, 0.75)], min_confidence=0.5)
    client = open_client(tmp_path)
    score = twin(client, "/evaluation?of=votes")["score"]
    assert score["answered"] == pytest.approx(4 / 6)
    assert "6 episodes, 4 answered" in words(client.get("/"))
    run = twin(client, "/run/votes")
    assert (run["num_episodes"], run["num_answered"]) == (6, 4)
    lines = {line["group"]["task_id"]: line for line in twin(client, "/run/votes/questions")["page"]["items"]}
    counts = {name: (line["group"]["num_answered"], line["num_abstained"]) for name, line in lines.items()}
    assert counts == {f"q{n}{end}": (n != 1, n == 1) for n in range(3) for end in ("", "-hidden")}
    listed = words(client.get("/run/votes/questions?text=bridge+1"))
    assert listed.count(f"{WRONG} abstained 1 attempt , open") == 2 and "answered" not in listed.partition("Show")[2]
    shown = words(client.get("/evaluation?of=votes"))
    assert f"Who built bridge 1? refused {WRONG}" in shown and f"Who built bridge 2? wrong {WRONG}" in shown
    assert f"Who built bridge 1? rightly refused (unanswerable) {WRONG}" in shown
    refused = score["abstention"]["refused_answerable"]
    assert refused["mean"] == pytest.approx(1 / 3) and "Answerable refused Wrong of answered" in shown
    for name, says in (("q1", "abstained wrongly though an answer is known"), ("q1-hidden", "right its answer")):
        episode = twin(client, f"/run/votes/episode?id={name}")
        assert episode["abstained"] and episode["shown"]["state"] == "abstained"
        page = words(client.get(f"/run/votes/episode?id={name}"))
        assert says in page and "abstained · 1 search" in page
    assert not twin(client, "/run/votes/episode?id=q0")["abstained"]


def test_a_comparison_shows_an_abstention_and_not_the_answer_that_was_withheld(tmp_path):
    for name, agreement in (("sure", 0.75), ("unsure", 0.25)):
        write_voted(tmp_path / name, [(RIGHT, agreement), (WRONG, agreement)], min_confidence=0.5)
    client = open_client(tmp_path)
    rows = twin(client, "/compare?run=sure&run=unsure")["difference"]["rows"]
    (row,) = [row for row in rows if row["change"] == "lost"]
    assert row["answers"] == [RIGHT, ABSTENTION]
    page = words(client.get("/evaluations/compare?of=unsure&of=sure"))
    assert f"right {RIGHT} refused {RIGHT} lost" in page and f"wrong {WRONG} refused {WRONG} neither right" in page


def test_two_results_show_refusals_with_the_answers(tmp_path):
    usual = {"f1": 0.0, "end": "answered", "num_turns": 1, "num_searches": 1, "num_tokens": 1, "answer": "Venn"}
    right = Item("a", "a", **usual, exact_match=1.0)
    given = Item("u", "u", **usual, exact_match=0.0, answerable=False)
    write_items([right, given], tmp_path / "before.items.jsonl")
    write_items([right, structs.replace(given, abstained=True)], tmp_path / "after.items.jsonl")
    (tmp_path / "runs").mkdir()
    client = open_client(tmp_path / "runs", files=[tmp_path / f"{name}.items.jsonl" for name in ("before", "after")])
    address = "/evaluations/compare?of=file:after.items.jsonl&of=file:before.items.jsonl"
    row = twin(client, address)["rows"][-1]
    assert (row["name"], row["ours"]["mean"], row["theirs"]["mean"]) == ("unanswerable refused", 1.0, 0.0)
    page = client.get(address).text
    assert "Of 1 unanswerable question, 0.0 → 100.0 % refused" in page and "1 of them answerable" in page
    assert page.index("not refused") < page.index("rightly refused")  # before, then after
    page = client.get("/evaluation?of=file:before.items.jsonl").text
    assert "of 1 answerable question answered right, 0 of 1 unanswerable question refused" in page
