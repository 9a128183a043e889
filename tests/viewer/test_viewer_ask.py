"""Pages of Ask: the box, a question with its steps, chips that lead into documents."""

import html
import json
import re

import httpx
import pytest
from msgspec import structs

from asked import ask_and_wait, open_queue, wait_until, write_documents
from backups import SENTENCE
from quaere.cli.main import main
from quaere.records import Evidence
from quaere.runs import Run
from quaere.search.index_build import build_index
from quaere.viewer import ask_queue, page_formats
from quaere.viewer.answer_view import CONTEXT_CHARS, AnswerView, view_answer, write_markdown
from quaere.viewer.ask_pages import MAX_RECENT
from quaere.viewer.ask_queue import AskHistory, AskRecord
from quaere.viewer.document_reader import WINDOW_CHARS, DocumentQuery, show_document
from viewing import open_client, serve_view, write_run

JSON = {"content-type": "application/json"}


@pytest.fixture(scope="module")
def place(tmp_path_factory):
    return tmp_path_factory.mktemp("asked")


@pytest.fixture(scope="module")
def index(place):
    write_run(place / "runs/alpha", index=place / "index")
    return write_documents(place)


@pytest.fixture(scope="module")
def queue(index):
    with open_queue(index, max_turns=3) as found:
        yield found


@pytest.fixture(scope="module")
def client(place, queue):
    return open_client(place / "runs", queue)


def asked(client, queue, question):
    """Twin and page of a question that is over."""
    id = ask_and_wait(queue, question).id
    return client.get(f"/json/ask/{id}").json(), client.get(f"/ask/{id}").text


def test_a_question_is_taken_and_has_a_page(client, queue):
    reply = client.post("/ask", content=json.dumps({"question": " When did we move the backups? "}), headers=JSON)
    said = reply.json()
    assert reply.status_code == 202 and said["page"] == f"/ask/{said['id']}"
    wait_until(lambda: queue.find(said["id"]).is_over)
    twin = client.get(f"/json{said['page']}").json()
    assert (twin["question"], twin["state"], twin["answer"]) == (
        "When did we move the backups?",
        "answered",
        "May 2019",
    )
    page = client.get(said["page"]).text
    for text in ("May 2019", "verbatim", SENTENCE, 'href="/ask?question=', "moved backups Oslo"):
        assert text in page
    assert "data-changes" not in page  # it is over
    listed = client.get("/ask?text=backups").text
    assert said["page"] in listed and "a-model answers by searching" in listed and "2 documents" in listed
    assert client.get("/json/ask?text=nothing+like+it").json()["page"]["items"] == []


@pytest.mark.parametrize(
    ("question", "quotation", "chips_are", "says"),
    [
        ("move the backups", "verbatim", "quoted", "<b>verbatim</b>"),
        ("made up", "not found", "", "It quotes <q>We never moved.</q>"),
        ("without proof", "none", "support", "contains the answer; the model quoted none"),
        ("out of nowhere", "none", "", "no sentence that it was shown contains this answer"),
        ("no answer", "none", "seen", "it ended without an answer: turn limit"),
    ],
)
def test_the_states_of_an_answer(client, queue, question, quotation, chips_are, says):
    twin, page = asked(client, queue, question)
    assert (twin["quotation"], twin["chips_are"]) == (quotation, chips_are)
    assert says in page and bool(twin["chips"]) == bool(chips_are)
    assert ("no evidence" in page) == (question == "out of nowhere")  # a warning above a right sentence would mislead


def test_a_model_that_was_not_asked_to_quote_is_told_apart(place, index):
    with open_queue(index, evidence=False) as queue:
        assert "was not asked to quote" in asked(open_client(place / "runs", queue), queue, "without proof")[1]


def test_a_chip_leads_to_the_sentence_in_its_document(client, queue, index):
    twin, page = asked(client, queue, "move the backups")
    (chip,) = twin["chips"]
    assert chip["text"] == SENTENCE and chip["label"].startswith("ops.md") and chip["href"].endswith("#span")
    assert chip["href"].replace("&", "&amp;") in page
    shown = client.get("/json" + chip["href"]).json()
    assert [part["text"] for part in shown["parts"] if part["is_quoted"]] == [SENTENCE]
    assert "".join(part["text"] for part in shown["parts"]) in index.document("ops.md")
    assert f'<mark id="span" tabindex="-1">{SENTENCE}</mark>' in client.get(chip["href"]).text


def test_the_document_is_opened_around_the_sentence(client, queue, index):
    chip = asked(client, queue, "move the backups")[0]["chips"][0]
    before, sentence, after = (part["text"] for part in chip["context"])
    assert sentence == SENTENCE and before.startswith("… ") and after.endswith(" …")
    assert "\n\n" not in before + after and len(before) + len(after) <= 2 * CONTEXT_CHARS + 4
    spaced = " ".join(index.document("ops.md").split())  # whole words, as the document has them
    assert f" {' '.join((before + sentence + after).strip('… ').split())} " in spaced


@pytest.mark.parametrize("letter", ["字", "a "])
@pytest.mark.parametrize("num_letters", [3, 1000])
def test_the_context_of_a_sentence_is_of_its_document_in_any_script(letter, num_letters):
    text = letter * num_letters + SENTENCE + letter * num_letters
    start = text.index(SENTENCE)
    found = Evidence("d", start, start + len(SENTENCE), SENTENCE)
    record = AskRecord("a", "When?", "", "answered", "May 2019", evidence=found)
    (chip,) = view_answer(AnswerView, record, lambda id: text, "/document").chips
    before, sentence, after = (part.text for part in chip.context)
    assert sentence == SENTENCE and (before.startswith("…"), after.endswith("…")) == (num_letters > 3, num_letters > 3)
    shown = (before + sentence + after).strip("… ")
    assert shown in text and len(shown) >= min(len(text.strip()), CONTEXT_CHARS)


@pytest.mark.parametrize(
    ("question", "lines"),
    [
        ("move the backups", ["**move the backups**", "May 2019", f"> {SENTENCE}", "> — ops.md, Backups"]),
        ("out of nowhere", ["**out of nowhere**", "Atlantis"]),
        ("not said", ["**not said**", "not in these documents"]),
    ],
)
def test_an_answer_is_copied_with_its_citation(client, queue, question, lines):
    twin, page = asked(client, queue, question)
    written = [line for line in twin["markdown"].splitlines() if line.strip("> ")]
    assert [line[: len(wanted)] for line, wanted in zip(written, lines, strict=True)] == lines
    assert f'data-copy="{html.escape(twin["markdown"])}"' in page


def test_what_is_copied_is_no_markup():
    record = AskRecord("a", "<img src=x> *who*?", "", "answered", "`_x_` [a](b)\n# no heading")
    assert write_markdown(record, []) == r"**\<img src=x\> \*who\*?**" + "\n\n" + r"\`\_x\_\` \[a\](b) \# no heading"


def test_the_last_questions_are_beside_an_answer(client, queue):
    ids = [ask_and_wait(queue, "made up").id for _ in range(2)]
    recent = client.get(f"/json/ask/{ids[0]}").json()["recent"]
    assert [line["id"] for line in recent[:2]] == ids[::-1] and len(recent) <= MAX_RECENT
    assert f'href="/ask/{ids[0]}" aria-current="page"' in client.get(f"/ask/{ids[0]}").text


def test_a_document_that_has_changed_has_no_address(client, queue):
    evidence = Evidence("ops.md", 3, 3 + len(SENTENCE), SENTENCE)
    gone = structs.replace(evidence, doc_id="gone.md")
    for number, one in enumerate((evidence, gone)):
        queue.history.add(AskRecord(f"old{number}", "When?", "2025-03-01T10:15:00+00:00", "answered", evidence=one))
        assert client.get(f"/json/ask/old{number}").json()["chips"][0]["href"] == ""
        assert "the document is not here, or has changed" in client.get(f"/ask/old{number}").text


@pytest.mark.parametrize("size", [10, WINDOW_CHARS, 5 * WINDOW_CHARS + 7])
def test_every_character_of_a_document_is_on_one_of_its_parts(size):
    text = "".join(chr(ord("a") + number % 26) for number in range(size))
    query = DocumentQuery("d", start=size // 2, end=size // 2 + 5)
    page = show_document(text, query)
    assert [part.text for part in page.parts if part.is_quoted] == [text[size // 2 : size // 2 + 5]]
    seen, at = "", 0
    while at is not None:
        page = show_document(text, structs.replace(query, at=at))
        seen, at = seen + "".join(part.text for part in page.parts), page.after
    assert seen == text
    for odd in (DocumentQuery("d", -5, 10**9), DocumentQuery("d", 9, 3), DocumentQuery("d", at=10**9)):
        assert len("".join(part.text for part in show_document(text, odd).parts)) <= WINDOW_CHARS


def test_documents_come_from_the_named_indexes_alone(client, place):
    (place / "secret.md").write_text("TOP-SECRET")
    for base in ("/document", "/run/alpha/document"):
        assert "Korrin" in client.get(f"{base}?id=oss.md").text
        for id in ("../secret.md", str(place / "secret.md"), "docs/../../secret.md", "", "nowhere.md"):
            reply = client.get(base, params={"id": id})
            assert reply.status_code == 404 and "TOP-SECRET" not in reply.text


def test_a_document_of_an_index_that_has_changed_since_the_run_says_so(index, tmp_path):
    with Run.create(
        tmp_path / "early", "evolve", {"index": str(index.path), "index_fingerprint": "of other documents"}
    ):
        pass
    page = open_client(tmp_path).get("/run/early/document?id=oss.md").text
    assert "Korrin" in page and "holds other documents than when the run began" in page


def test_a_run_with_no_index_shows_no_document(tmp_path):
    write_run(tmp_path / "alpha")
    client = open_client(tmp_path)
    assert client.get("/run/alpha/document?id=ops.md").status_code == 404
    for path in ("/ask", "/document?id=ops.md", "/ask/changes"):  # nobody to ask
        assert client.get(path).status_code == 404
    assert 'href="/ask"' not in client.get("/").text


def test_bad_questions_are_refused_in_one_line(client, queue, monkeypatch):
    for body, says in (
        ({"question": "  "}, "1 to 4000"),
        ({"question": 7}, "not a question"),
        ({}, "not a question"),
        ([], "not a question"),
    ):
        reply = client.post("/ask", content=json.dumps(body), headers=JSON)
        assert reply.status_code == 400 and says in reply.json()["error"]
    monkeypatch.setattr(ask_queue, "MAX_WAITING", 0)
    reply = client.post("/ask", content=json.dumps({"question": "made up"}), headers=JSON)
    assert reply.status_code == 429 and "waiting" in reply.json()["error"]
    for path in ("/ask/nowhere", "/json/ask/nowhere", "/ask/nowhere/changes"):
        assert client.get(path).status_code == 404
    assert client.post("/ask/nowhere/cancel", content="{}", headers=JSON).status_code == 404


def test_a_question_can_be_cancelled(client, queue):
    id = queue.add("wait for it").id
    wait_until(lambda: len(queue.find(id).turns) == 1)
    page = client.get(f"/ask/{id}").text
    assert f'data-changes="/ask/{id}/changes"' in page and f'data-cancel="/ask/{id}/cancel"' in page
    waiting = queue.add("made up").id
    assert "waiting</span>, next" in client.get(f"/ask/{waiting}").text
    assert client.post(f"/ask/{id}/cancel", content="{}", headers=JSON).status_code == 200
    wait_until(lambda: queue.find(id).is_over)
    assert client.get(f"/json/ask/{id}").json()["state"] == "cancelled"
    assert "cancelled" in client.get(f"/ask/{id}").text


def test_steps_are_told_as_they_are_taken(place, queue):
    id = queue.add("wait for it").id
    with (
        serve_view(place / "runs", queue=queue) as url,
        httpx.stream("GET", f"{url}/ask/{id}/changes", timeout=60, trust_env=False) as stream,
    ):
        for line in stream.iter_lines():
            if line == "data: 0":
                wait_until(lambda: len(queue.find(id).turns) == 1)
                queue.cancel(id)
            if line == "event: change" and queue.find(id).is_over:
                break
        else:
            pytest.fail("the end was not told")


def test_long_histories_have_pages(client, queue, monkeypatch):
    monkeypatch.setattr(page_formats, "PAGE_SIZE", 2)
    for _ in range(3):
        ask_and_wait(queue, "made up")
    assert len(client.get("/json/ask").json()["page"]["items"]) == 2
    assert re.search(r'href="\?page=2"', client.get("/ask").text)


# --------------------------------------------------------------------------------------------------------- the command


def test_asking_needs_an_index(tmp_path, capsys):
    write_run(tmp_path / "alpha")
    assert main(["view", str(tmp_path), "--model", "a-model", "--port", "0"]) == 2
    assert "asking needs an index" in capsys.readouterr().err
    assert main(["view", str(tmp_path), "--history", "x.jsonl", "--port", "0"]) == 2
    assert "--history keeps questions" in capsys.readouterr().err
    assert main(["view", str(tmp_path), "--index", str(tmp_path / "nowhere"), "--port", "0"]) == 2
    assert "nowhere does not exist" in capsys.readouterr().err


def test_a_run_brings_its_own_model_and_index(tmp_path, monkeypatch):
    """`quaere view RUN --ask`: the run itself is the model, and the index it names is searched."""
    (tmp_path / "docs").mkdir()
    (tmp_path / "docs/oss.md").write_text("The Oss rises in the Korrin hills.\n")
    build_index(tmp_path / "docs", tmp_path / "index")
    write_run(tmp_path / "runs/alpha", index=tmp_path / "index")
    opened = []

    class Stop(Exception):
        pass

    def agent(model, index, **how):
        opened.append((model, index, how))
        raise Stop

    monkeypatch.setattr("quaere.cli.view.Agent", agent)
    for words in (["--ask"], ["--model", "other", "--evidence", "--device", "cpu"]):
        with pytest.raises(Stop):
            main(["view", str(tmp_path / "runs/alpha"), *words, "--history", str(tmp_path / "asked.jsonl")])
    (run, index, _), (other, _, how) = opened
    assert run.path == tmp_path / "runs/alpha" and index == str(tmp_path / "index")
    assert other == "other" and how["evidence"] is True and how["device"] == "cpu"
    AskHistory(tmp_path / "asked.jsonl").close()  # let go of
