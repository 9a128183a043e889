"""Runs that were not trained: the answers of `quaere ask` and the scores of `quaere eval`."""

import html
import json
import re

import pytest

from quaere.runs import Run
from quaere.search.index_build import build_index
from quaere.viewer import answer_view
from viewing import open_client, twin, write_asked, write_eval

SENTENCE = "Orsolya Venn built it."


@pytest.fixture(scope="module")
def runs(tmp_path_factory):
    """Runs over documents of which one is that of `make_episode`, word for word."""
    home = tmp_path_factory.mktemp("answers")
    texts = ("The Oss is a river.", f"It is old. {SENTENCE}")
    rows = [{"id": f"d{number}", "title": f"Title {number}", "text": text} for number, text in enumerate(texts)]
    (home / "corpus.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    index = str(build_index(home / "corpus.jsonl", home / "index").path)
    folder = home / "runs"
    write_asked(folder / "found", ["Orsolya Venn"], index=index)
    write_asked(folder / "quoted", ["Orsolya Venn"], spans=[SENTENCE], index=index, evidence=True)
    write_asked(folder / "nowhere", ["Atlantis"], index=index, evidence=False)
    write_asked(folder / "silent", [None], index=index)
    write_asked(folder / "doubtful", ["Orsolya Venn"], index=index, min_overlap=0.9)
    write_asked(folder / "abstained", ["not in these documents"], index=index, abstained=True)
    write_asked(folder / "unsure", ["Orsolya Venn"], index=index, min_confidence=0.9)
    write_asked(folder / "many", ["Orsolya Venn", "x", None], scored=True)
    write_eval(folder / "eval", ["Orsolya Venn", "x", None, "x"])
    return folder


@pytest.fixture(scope="module")
def client(runs):
    return open_client(runs)


def words(page):
    """The text of a page."""
    return html.unescape(" ".join(re.sub(r"<[^>]*>", " ", page).split()))


@pytest.mark.parametrize(
    ("name", "state", "quotation", "chips_are", "says"),
    [
        ("found", "answered", "none", "support", "It is old. Orsolya Venn built it. contains the answer · d1, Title 1"),
        ("quoted", "answered", "verbatim", "quoted", "It is old. Orsolya Venn built it. verbatim · d1, Title 1"),
        ("nowhere", "answered", "none", "", "and it was not asked to quote one (--evidence)"),
        ("silent", "unanswered", "none", "seen", "It ended without an answer turn limit"),
        ("doubtful", "unanswered", "none", "seen", "the passage with this answer does not mention: Halm"),
        ("abstained", "abstained", "none", "seen", "Not in these documents Searched for Halm bridge"),
        ("unsure", "abstained", "none", "seen", "(it has an answer, with a confidence of 0.78, below 0.9)"),
    ],
)
def test_a_run_of_ask_shows_its_answer_and_no_health(client, name, state, quotation, chips_are, says):
    (answer,) = twin(client, f"/run/{name}")["answers"]
    assert answer["question"].strip() == "Who built the Halm bridge?"
    assert (answer["state"], answer["quotation"], answer["chips_are"]) == (state, quotation, chips_are)
    page = client.get(f"/run/{name}").text
    assert says in words(page)
    assert f'/run/{name}/episode?id=ask-0">Who built the Halm bridge?' in page
    assert "Health" not in page and "no steps" not in page and "open the step" not in page
    assert ("no evidence" in page) == (name == "nowhere")  # never above a sentence that contains the answer


@pytest.mark.parametrize("name", ["found", "quoted"])
def test_the_sentence_of_an_answer_leads_into_its_document(client, name):
    (chip,) = twin(client, f"/run/{name}")["answers"][0]["chips"]
    assert (chip["label"].strip(), chip["text"]) == ("d1, Title 1", SENTENCE)
    assert f'<mark id="span" tabindex="-1">{SENTENCE}</mark>' in client.get(chip["href"]).text


def test_many_answers_have_their_scores_and_a_page_of_their_own(client, monkeypatch):
    assert [answer["scores"].get("answer/exact_match") for answer in twin(client, "/run/many")["answers"]] == [1, 0, 0]
    page = words(client.get("/run/many").text)
    assert "Who built the Halm bridge? right F1 1 Orsolya Venn" in page and "wrong F1 0 x" in page
    assert "All 3 questions" not in page
    monkeypatch.setattr(answer_view, "MAX_ANSWERS", 2)
    page = client.get("/run/many").text
    assert '<a href="/run/many/questions">All 3 questions</a>' in page and page.count("<article") == 2


def test_the_list_shows_what_came_out(client):
    cards = {card["name"]: card for card in twin(client, "/")["page"]["items"]}
    shown = {name: (card["question"].strip(), card["answer"]) for name, card in cards.items()}
    assert shown["found"] == ("Who built the Halm bridge?", "Orsolya Venn")
    assert shown["silent"] == shown["doubtful"] == ("Who built the Halm bridge?", "")
    assert shown["many"] == shown["eval"] == ("", "")
    assert cards["many"]["figures"] == pytest.approx({"answer/exact_match": 1 / 3, "answer/f1": 1 / 3})
    assert cards["eval"]["figures"] == {"answer/exact_match": 0.25, "answer/f1": 0.25}
    page = words(client.get("/").text)
    assert "Who built the Halm bridge? Orsolya Venn" in page and "Who built the Halm bridge? no answer" in page
    assert "exact match 0.25" in page


def test_scores_that_a_run_has_logged_are_those_of_the_list(tmp_path):
    """They may count what the episodes do not, and reading them takes no look at every episode."""
    with Run.open(write_eval(tmp_path / "eval", ["x"]), write=True) as run:
        run.log_metrics(0, {"answer/exact_match": 0.75, "evidence/joint": 0.5})
    assert twin(open_client(tmp_path), "/")["page"]["items"][0]["figures"] == {"answer/exact_match": 0.75}


def test_a_run_of_eval_shows_its_scores_on_every_page(client):
    scores = twin(client, "/run/eval")["scores"]
    assert (scores["exact_match"]["mean"], scores["num"]) == (0.25, 4)
    page = words(client.get("/run/eval").text)
    assert "Exact match 25.0 [" in page and "of 4 questions" in page and "Health" not in page
    listed = words(client.get("/run/eval/questions").text)
    assert "Orsolya Venn right F1 1" in listed and "no answer wrong F1 0" in listed and "4 questions" in listed
    assert "Step" not in listed and "Mean reward" not in listed  # it has none
    attempts = words(client.get("/run/eval/group?task=q0&step=0").text)
    assert (
        "1. Orsolya Venn right F1 1 · 1 search" in attempts and "Step 0" not in attempts and "only step" not in attempts
    )
    episode = words(client.get("/run/eval/episode?id=q1").text)
    assert "wrong F1 0 · accepted: Orsolya Venn" in episode and "Advantage" not in episode and "Reward" not in episode


def test_a_question_without_an_answer_quoted_nothing(tmp_path):
    write_eval(tmp_path / "eval", [None], evidence=True)
    row = words(open_client(tmp_path).get("/evaluation?of=eval").text).partition("no answer: turn limit")[2]
    assert row.startswith(" 0 F1 1 search none")  # it had been called "not found", as a false quotation is


def test_an_episode_that_abstained_has_no_answer_and_shows_what_it_searched_for(client):
    page = words(client.get("/run/abstained/episode?id=ask-0").text)
    assert "Not in these documents Searched for Halm bridge Passages seen" in page
    assert "abstained wrongly though an answer is known: Orsolya Venn" in page
    assert twin(client, "episode?id=ask-0", run="abstained")["abstained"]
    assert not twin(client, "episode?id=ask-0", run="found")["abstained"]
