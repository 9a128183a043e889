"""Pages of a curriculum: facets, items in their documents, verdicts, and episodes that were paid and not proven."""

import json
from functools import partial

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec import structs

import viewing
from quaere.records import Proposal, ProposeTask, Support
from quaere.runs import Run, give_verdicts, judge
from quaere.runs.review import EVERY_ITERATION, Item
from quaere.search.index_build import build_index
from quaere.viewer import page_formats
from quaere.viewer.attempt_groups import MISQUOTED, UNSEEN, find_fault
from quaere.viewer.curriculum_browser import TITLES, Shelf
from viewing import add_episodes, make_candidate, make_episode, open_client, write_run


@pytest.fixture
def runs(tmp_path):
    (tmp_path / "docs").mkdir()
    (tmp_path / "docs" / "halm.md").write_text("Orsolya Venn built it. It is a bridge over the Oss.\n")
    index = build_index(tmp_path / "docs", tmp_path / "index")
    with Run.open(write_run(tmp_path / "runs/alpha", index=index.path), write=True) as run:
        add_episodes(run, step=6)
        run.add_episode(make_episode("c0-try", "c0"), {"answer/exact_match": 1.0}, step=6)
    return tmp_path / "runs"


@pytest.fixture
def client(runs):
    return open_client(runs)


twin = partial(viewing.twin, run="alpha")


def give(client, **body):
    return client.post("/run/alpha/verdict", content=json.dumps(body), headers={"content-type": "application/json"})


def ids(page):
    return [item["candidate"]["id"] for item in page["page"]["items"]]


# ------------------------------------------------------------------------------------------------------------- facets


def test_items_are_listed_with_facets(client):
    shown = twin(client, "curriculum")
    assert ids(shown) == ["c0", "c1", "c2", "c3"]
    facets = {facet["name"]: {one["value"]: one["count"] for one in facet["values"]} for facet in shown["facets"]}
    assert facets == {
        "state": {"kept": 2, "never solved": 2},
        "rate": {"never": 1, "up to 1/3": 1, "up to 2/3": 2},
    }
    page = client.get("/run/alpha/curriculum").text
    for text in (
        "Kept, or why not",
        "never solved",
        "training learns from 2",
        "Who built the bridge 3?",
        "?state=kept",
    ):
        assert text in page


@pytest.mark.parametrize(
    ("query", "found"),
    [
        ("state=kept", ["c0", "c2"]),
        ("state=kept&rate=never", ["c0"]),
        ("state=kept&rate=always", []),
        ("text=BRIDGE+3", ["c3"]),
        ("text=venn+built", ["c0", "c1", "c2", "c3"]),
        ("text=nothing", []),
        ("searches=1&value=0.5+to+0.75&cluster=none&iteration=0&verdict=none", ["c0", "c1", "c2", "c3"]),
        ("searches=2", []),
        ("verdict=rejected", []),
    ],
)
def test_items_are_found_by_facets_and_words(client, query, found):
    assert ids(twin(client, f"curriculum?{query}")) == found
    assert client.get(f"/run/alpha/curriculum?{query}").status_code == 200


def test_a_facet_counts_what_its_other_values_would_give(client):
    (state,) = [
        facet for facet in twin(client, "curriculum?state=kept&text=bridge")["facets"] if facet["name"] == "state"
    ]
    assert {one["value"]: (one["count"], one["is_chosen"]) for one in state["values"]} == {
        "kept": (2, True),
        "never solved": (2, False),
    }


def facets_of(chosen=None, **field):
    """The facets of items that differ in one field: (value, count) by name."""
    ((name, values),) = field.items()
    items = [
        Item(structs.replace(make_candidate(f"c{number}", 0), **{name: value})) for number, value in enumerate(values)
    ]
    _, facets = Shelf(items).select(chosen or {}, "", {})
    return {facet.name: [(one.value, one.count) for one in facet.values] for facet in facets}


def test_numbers_are_in_their_order_and_what_has_none_is_last():
    assert facets_of(iteration=[10, EVERY_ITERATION, 2])["iteration"] == [("2", 1), ("10", 1), ("every", 1)]


def test_evidence_without_an_effect_is_not_worse_than_none():
    supports = [Support(0.5, 0.5), Support(0.25, 0.5), Support(1.0, 0.0), None]
    groups = [("not measured", 1), ("below 0", 1), ("0 to 0.25", 1), ("0.75 to 1", 1)]
    assert facets_of(support=supports)["value"] == groups


def test_what_refused_a_question_is_a_facet():
    refusals = [(), ("far",), ("far",), ("verbatim", "needed")]
    assert sorted(facets_of(refusals=refusals)["refused"]) == [("far", 2), ("none", 1), ("verbatim, needed", 1)]


def test_a_choice_that_nothing_has_any_more_is_shown_so_that_it_can_be_undone():
    assert facets_of({"cluster": "7"}, cluster=[1, 1])["cluster"] == [("1", 2), ("7", 0)]


VALUES = st.sampled_from(["kept", "1", "never", "none"])


@given(
    chosen=st.dictionaries(st.sampled_from(["state", "searches", "rate", "verdict"]), VALUES),
    text=st.sampled_from(["", "bridge", "bridge 1", "x"]),
)
def test_selecting_is_what_each_facet_says(chosen, text):
    """Against a plain filter; and each count is the number that is found once that value is chosen."""
    items = [Item(make_candidate(f"c{number}", number)) for number in range(6)]
    shelf, verdicts = Shelf(items), {"c1": "flagged"}
    found, facets = shelf.select(chosen, text, verdicts)
    for facet in facets:
        for one in facet.values:
            again, _ = shelf.select({**chosen, facet.name: one.value}, text, verdicts)
            assert len(again) == one.count
    assert all(text.split()[-1] in item.candidate.question for item in found if text)
    assert set(chosen) <= set(TITLES)


def test_long_lists_have_pages(client, monkeypatch):
    monkeypatch.setattr(page_formats, "PAGE_SIZE", 3)
    assert ids(twin(client, "curriculum?page=2")) == ["c3"]
    assert 'href="?page=2"' in client.get("/run/alpha/curriculum").text


def test_new_candidates_are_seen(client, runs):
    assert len(ids(twin(client, "curriculum"))) == 4
    with Run.open(runs / "alpha", write=True) as run:
        run.add_candidates([make_candidate("c4", 4)])
    assert len(ids(twin(client, "curriculum"))) == 5
    with Run.open(runs / "alpha", write=True) as run:
        run.truncate_after(0)
        run.add_candidates([make_candidate(f"c{number}", number, "anew") for number in range(5)])
    assert twin(client, "curriculum")["page"]["items"][0]["candidate"]["question"].endswith("anew")


# -------------------------------------------------------------------------------------------------------------- items


def test_an_item_is_shown_in_its_document(client):
    shown = twin(client, "item?id=c0")
    assert shown["document"][0] == {"text": "Orsolya Venn built it.", "is_quoted": True}
    assert (shown["item"]["evidence_state"], shown["said"], shown["num_attempts"]) == ("verbatim", "", 1)
    assert shown["value"] == pytest.approx(0.6)
    page = client.get("/run/alpha/item?id=c0").text
    for text in (
        '<mark id="span">Orsolya Venn built it.</mark>',
        "chance of the answer 0.8 with the sentence, 0.2 without: value 0.6",
        "over the Oss",
        "group?task=c0",
    ):
        assert text in page


def test_an_item_says_that_its_document_has_changed_or_gone(client, runs):
    docs = runs.parent / "docs"
    (docs / "halm.md").write_text("Something else altogether, and longer than it was.\n")
    build_index(docs, runs.parent / "index", force=True)
    shown = twin(client, "item?id=c0")
    assert shown["item"]["evidence_state"] == "mismatch" and not any(part["is_quoted"] for part in shown["document"])
    (runs.parent / "index").rename(runs.parent / "elsewhere")
    shown = twin(client, "item?id=c0")
    assert shown["document"] == [] and "the documents are not here" in shown["said"]
    assert "<mark>Orsolya Venn built it.</mark>" in client.get("/run/alpha/item?id=c0").text


def test_a_document_is_found_by_its_id_in_the_index_alone(client, runs):
    (runs.parent / "secret.md").write_text("TOP-SECRET")
    hostile = [
        structs.replace(make_candidate(f"t{number}", 0), document_id=name, evidence=None)
        for number, name in enumerate(
            ("../secret.md", str(runs.parent / "secret.md"), "..\\secret.md", "docs/../../secret.md")
        )
    ]
    with Run.open(runs / "alpha", write=True) as run:
        run.add_candidates(hostile)
    for candidate in hostile:
        assert twin(client, f"item?id={candidate.id}")["document"] == []


# ----------------------------------------------------------------------------------------------------------- verdicts


def test_a_verdict_is_kept_and_honoured_by_training(client, runs):
    assert give(client, id="c0", kind="rejected", note="two fit").json() == {
        "id": "c0",
        "kind": "rejected",
        "is_learned": False,
    }
    assert give(client, id="c1", kind="accepted").json()["is_learned"] is True
    assert give(client, id="c2", kind="flagged").json()["is_learned"] is True
    with Run.open(runs / "alpha") as run:
        assert [candidate.id for candidate in run.curriculum()] == ["c1", "c2"]
        assert run.verdicts()["c0"].note == "two fit"
    assert ids(twin(client, "curriculum?verdict=rejected")) == ["c0"]
    assert twin(client, "curriculum")["num_learned"] == 2
    assert "two fit" in client.get("/run/alpha/item?id=c0").text
    assert give(client, id="c0", kind="").json() == {"id": "c0", "kind": "", "is_learned": True}
    assert ids(twin(client, "curriculum?verdict=none")) == ["c0", "c3"]


def test_a_verdict_on_an_earlier_text_is_shown_as_such(client, runs):
    candidate = make_candidate("c0", 0, "before")
    give_verdicts(runs / "alpha", [judge(candidate, "rejected")])
    assert ids(twin(client, "curriculum?verdict=rejected")) == []
    assert "on an earlier text" in client.get("/run/alpha/curriculum").text


@pytest.mark.parametrize(
    ("body", "status", "says"),
    [
        ({"id": "nowhere", "kind": "accepted"}, 404, "no candidate nowhere"),
        ({"id": "c0", "kind": "praised"}, 400, "not a verdict"),
        ({"kind": "accepted"}, 400, "not a verdict"),
        ({"id": "c0", "kind": "accepted", "note": "x" * 3000}, 400, "2000"),
        ({"id": "blank", "kind": "accepted"}, 400, "it has no answer"),
        (["c0"], 400, "not a verdict"),
    ],
)
def test_a_verdict_that_cannot_be_given_is_said(client, runs, body, status, says):
    with Run.open(runs / "alpha", write=True) as run:
        run.add_candidates([structs.replace(make_candidate("blank", 0), answer="")])
    reply = client.post("/run/alpha/verdict", content=json.dumps(body), headers={"content-type": "application/json"})
    assert reply.status_code == status and says in reply.json()["error"]
    with Run.open(runs / "alpha") as run:
        assert run.verdicts() == {}


# ------------------------------------------------------------------------------------------------ paid, and not proven


def test_well_paid_episodes_that_fail_a_check_are_listed(client, runs):
    with Run.open(runs / "alpha", write=True) as run:
        paid = {"reward/total": 2.0}
        run.add_episode(make_episode("unseen", answer="Somebody Else"), paid, step=6, phase="solver")
    shown = twin(client, "unproven")
    assert [(one["id"], one["reward"], one["fault"]) for one in shown["episodes"]] == [("unseen", 2.0, UNSEEN)]
    assert shown["num_checked"] == 3  # one of the four has no reward
    assert twin(client, "unproven?phase=proposer")["episodes"] == []
    assert UNSEEN in client.get("/run/alpha/unproven").text


def test_the_checks_of_an_episode():
    episode = make_episode("e")
    assert find_fault(episode) == ""
    assert find_fault(structs.replace(episode, outcome=structs.replace(episode.outcome, span="made up"))) == MISQUOTED
    assert find_fault(structs.replace(episode, outcome=structs.replace(episode.outcome, text="Yes"))) == ""
    abstained = structs.replace(episode.outcome, text="not in these documents", span="", abstained=True)
    assert find_fault(structs.replace(episode, outcome=abstained)) == ""
    assert find_fault(make_episode("e", ends=False)) == ""
    asked = structs.replace(episode, task=ProposeTask("p", None, 2))
    good = Proposal("Who built Halm Bridge?", "Orsolya Venn", "Orsolya Venn built it.")
    assert find_fault(structs.replace(asked, outcome=good)) == ""
    assert find_fault(structs.replace(asked, outcome=structs.replace(good, span="made up"))) == MISQUOTED
    assert find_fault(structs.replace(asked, outcome=structs.replace(good, answer="Nobody"))) != ""
