"""Pages of reports: citations as chips, the rubric, scores with their reasons, harness versions."""

from functools import partial

import pytest

import viewing
from quaere.dialects.report.report_writer import bind_report
from quaere.records import Question
from quaere.runs import Run
from quaere.search.index_build import build_index
from quaere.viewer import page_formats
from viewed_reports import TEXTS, add_reports, make_assessment, make_report_episode, write_reports_run
from viewing import open_client, write_run


@pytest.fixture
def client(tmp_path):
    (tmp_path / "docs").mkdir()
    (tmp_path / "docs" / "oss.md").write_text(f"{TEXTS[0]} And more.\n")
    index = build_index(tmp_path / "docs", tmp_path / "index")
    write_reports_run(tmp_path / "runs/oss", index=index.path)
    return open_client(tmp_path / "runs")


twin = partial(viewing.twin, run="oss")


def test_reports_are_listed_with_conclusion_and_scores(client):
    page = twin(client, "reports")["page"]
    first, _, last = page["items"]
    assert page["num_items"] == 3 and last["conclusion"] is None
    assert first["conclusion"].strip() == "short"
    assert first["scores"] == {"factuality": 7.5} and first["reward"] == 0.6
    assert [line["id"] for line in twin(client, "reports?text=nothing+is")["page"]["items"]] == ["r1-1"]
    assert twin(client, "reports?step=2")["page"]["items"] == []
    shown = client.get("/run/oss/reports").text
    assert "not finished" in shown and "report?id=r1-0" in shown
    assert "/run/oss/reports" in client.get("/run/oss").text
    assert "report?id=r1-0" in client.get("/run/oss/episode?id=r1-0").text


def test_citations_lead_to_the_document_to_the_source_or_nowhere(client):
    shown = twin(client, "report?id=r1-0")
    cited = [(part["text"], part["number"], part["href"]) for part in shown["parts"] if part["number"] is not None]
    address = f"/run/oss/document?id=oss.md&start=0&end={len(TEXTS[0])}#span"
    assert cited == [("[1]", 1, address), ("[2]", 2, "#source-2"), ("[7: no such source]", 7, "")]
    assert shown["unresolved"] == [7] and "3 citations, 2 resolved" in shown["counts"]
    assert [(source["number"], source["href"]) for source in shown["sources"]] == [(1, address), (2, "")]
    written = "".join(part["text"] for part in shown["parts"])
    assert written.startswith("It rises at Korrin [1]. It is short [2][7: no such source].")
    page = client.get("/run/oss/report?id=r1-0").text
    assert 'id="source-2"' in page and '<span class="chip">[7: no such source]</span>' in page
    assert f'<mark id="span" tabindex="-1">{TEXTS[0]}</mark>' in client.get(address).text


def test_rubric_scores_reasons_and_harness_are_shown(client):
    shown = twin(client, "report?id=r1-0")
    assert [(row["name"], row["weight"]) for row in shown["rubric"]] == [("factuality", None), ("coverage", 0.4)]
    assert all(row["text"] for row in shown["rubric"])
    first, second = shown["passes"]
    assert (first["place"], first["scores"]["factuality"], first["num_searches"]) == (1, 7.0, 1)
    assert (second["place"], second["scores"]["factuality"], second["num_searches"]) == (2, 8.0, 1)
    assert first["verification"].startswith("[1] says so") and first["gaps"].startswith("No dates")
    assert shown["harness_version"] == 1 and [one["version"] for one in shown["harness"]] == [0, 1]
    assert shown["siblings"] == ["r1-1", "r1-2"]
    page = client.get("/run/oss/report?id=r1-0").text
    for text in ("k 4 → 2", "in force", "Missing:", "Verified:", "primary"):
        assert text in page


def test_a_report_that_was_scored_once_has_the_harness_of_that_pass(client, tmp_path):
    alone = make_report_episode("alone", Question("q9", "What else is known?"))
    with Run.open(tmp_path / "runs/oss", write=True) as run:
        run.add_episodes([alone, make_assessment("pass", [bind_report(alone)])], [{}, {}], step=1, phase="actor")
    shown = twin(client, "report?id=alone")
    assert [one["id"] for one in shown["passes"]] == ["pass"] and shown["harness_version"] == 1


def test_long_lists_have_pages_from_the_first_on(client, monkeypatch):
    monkeypatch.setattr(page_formats, "PAGE_SIZE", 2)
    first, second = (twin(client, f"reports{query}")["page"] for query in ("", "?page=2"))
    assert [line["id"] for line in first["items"]] == ["r1-0", "r1-1"] and first["number"] == 1
    assert [line["id"] for line in second["items"]] == ["r1-2"]


def test_a_report_that_was_not_finished_says_so(client):
    shown = twin(client, "report?id=r1-2")
    assert shown["parts"] == [] and shown["passes"] == [] and shown["rubric"]
    assert "It was not finished: turn limit" in client.get("/run/oss/report?id=r1-2").text


def test_passes_of_other_steps_and_questions_are_left_out(client, tmp_path):
    with Run.open(tmp_path / "runs/oss", write=True) as run:
        add_reports(run, step=2)
    assert [one["id"] for one in twin(client, "report?id=r2-1")["passes"]] == ["r2-a0", "r2-a1"]


def test_what_is_no_report_is_not_shown_as_one(client, tmp_path):
    for id in ("nowhere", "r1-a0"):
        assert client.get("/run/oss/report", params={"id": id}).status_code == 404
    write_run(tmp_path / "runs/alpha")
    assert client.get("/json/run/alpha/reports").json()["page"]["items"] == []
    assert "/run/alpha/reports" not in client.get("/run/alpha").text
