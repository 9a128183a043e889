"""Stems, whole names, question words and languages, and indexes that were built before there were any."""

import json
import threading

import pytest

from quaere.cli.main import main
from quaere.records import Passage
from quaere.search.bm25 import Bm25Settings, passage_terms, query_terms
from quaere.search.index import IndexSettings, open_index
from quaere.search.index_build import build_index
from quaere.search.words import detect_language, question_words, stem, terms

ENGLISH = Bm25Settings(stemmer="english")
PAGES = {
    "limits.md": "The server is configured by max_wal_size, and the log is cut when it is longer than that.",
    "sizes.md": "The size of a wal file is the max of what was written to it in a day.",
    "merge.md": "Use --no-ff in order to keep the branch: the merge is then a commit of its own.",
    "order.md": "There is no order of ff and no in the table, and no ff is given for it.",
}


@pytest.fixture
def pages(tmp_path):
    folder = tmp_path / "pages"
    folder.mkdir()
    for name, text in PAGES.items():
        (folder / name).write_text(text)
    return folder


def found(index, query):
    return [hit.passage.doc_id for hit in index.search([query], 4)[0]]


# ---------------------------------------------------------------------------------------------------------------- stems


def test_forms_of_a_word_meet(pages, tmp_path):
    index = build_index(pages, tmp_path / "index")
    assert index.manifest.settings.bm25.stemmer == "english"
    assert found(index, "configuring") == ["limits.md"]
    plain = build_index(pages, tmp_path / "plain", IndexSettings(bm25=Bm25Settings(stemmer="none")))
    assert found(plain, "configuring") == []
    assert plain.fingerprint != index.fingerprint


def test_lance_has_the_same_terms(pages, tmp_path):
    pytest.importorskip("lancedb")
    index = build_index(pages, tmp_path / "index", IndexSettings(engine="lance"))
    assert index.manifest.settings.bm25.stemmer == "english"
    assert found(index, "What is configuring?") == ["limits.md"]
    assert found(index, "max_wal_size")[0] == "limits.md"


def test_a_heading_is_indexed_once_and_a_title_by_its_weight():
    passage = Passage(id="a#0", doc_id="a", title="Bridges", text="stones", start=0, end=6, heading="Options > Roads")
    assert sorted(passage_terms(passage, ENGLISH)) == ["bridg", "bridg", "bridg", "option", "road", "stone"]


@pytest.mark.parametrize(
    ("language", "one", "other"),
    [
        ("portuguese", "configuração", "configurações"),
        ("russian", "новый", "новая"),
        ("german", "Häuser", "Haus"),
        ("english", "configured", "configuration"),
    ],
)
def test_stems_need_accents_and_queries_may_lack_them(language, one, other):
    assert set(terms(one, stemmer=language)) & set(terms(other, stemmer=language))
    folded = terms(one)[0]
    assert set(terms(folded, stemmer=language)) <= set(terms(one, stemmer=language))


def test_scripts_without_spaces_have_no_stems():
    assert terms("東京都", stemmer="english") == terms("東京都")


def test_threads_have_stemmers_of_their_own():
    words = [f"configur{ending}" for ending in ("ed", "ing", "es", "ations")] * 500
    results = []
    threads = [threading.Thread(target=lambda: results.append(stem(words, "english"))) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert results == [stem(words, "english")] * 4


# ---------------------------------------------------------------------------------------------------------------- names


def test_a_name_is_found_whole_first_and_by_its_parts(pages, tmp_path):
    index = build_index(pages, tmp_path / "index")
    assert found(index, "max_wal_size")[0] == "limits.md"
    assert set(found(index, "wal size")) == {"limits.md", "sizes.md"}
    assert found(index, "--no-ff")[0] == found(index, "no-ff")[0] == "merge.md"
    parts_only = Bm25Settings(stemmer="english", whole_names=False)
    parts = build_index(pages, tmp_path / "parts", IndexSettings(bm25=parts_only))
    assert found(parts, "max_wal_size")[0] == "sizes.md"


def test_what_a_name_is():
    names = terms("See --no-ff, limits.cpu, v2.0.3. Not_this_end- nor - that.", whole_names=True)
    assert [name for name in names if not name.isalnum()] == ["no-ff", "limits.cpu", "v2.0.3", "not_this_end"]


# ------------------------------------------------------------------------------------------------------- question words


def test_question_words_are_left_out_of_queries_only():
    assert query_terms("What does max_wal_size do?", ENGLISH) == ["max", "wal", "size", "max_wal_size"]
    assert query_terms("Who is who?", ENGLISH) == ["who", "is", "who"]
    assert query_terms("What does it do?", Bm25Settings(stemmer="none")) == ["what", "does", "it", "do"]
    passage = Passage(id="a#0", doc_id="a", title="", text="who does", start=0, end=8)
    assert passage_terms(passage, ENGLISH) == ["who", "doe"]


@pytest.mark.parametrize(
    ("language", "text"),
    [
        ("english", "The bridge was built by a smith of the town, and it is the oldest in the valley."),
        ("german", "Die Brücke wurde von einem Schmied gebaut und ist die älteste in dem Tal."),
        ("french", "Le pont est dans la ville, et les routes de la vallée sont pour les charrettes."),
        ("spanish", "El puente es el más antiguo de la ciudad y los caminos del valle se cruzan en él."),
        ("danish", "Broen blev bygget af en smed, og den er ikke den ældste i byen."),
        ("norwegian", "Broen ble bygget av en smed, og den er ikke den eldste i byen."),
        ("none", "東京都は日本の首都である。"),
        ("none", "x=1; y=2; return x+y"),
        ("none", ""),
    ],
)
def test_the_language_of_a_text(language, text):
    assert detect_language([text]) == language
    assert bool(question_words(language)) == (language != "none")


# ------------------------------------------------------------------------------------------------ settings, old indexes


def test_an_unknown_language_is_refused_with_those_there_are(pages, tmp_path, capsys):
    assert main(["index", str(pages), "--out", str(tmp_path / "index"), "--stemmer", "klingon"]) == 2
    said, hint = capsys.readouterr().err.splitlines()
    assert "no stemmer for 'klingon'" in said
    assert "auto, none" in hint and "english" in hint
    assert not (tmp_path / "index").exists()


def test_the_stemmer_is_an_option_and_is_shown(pages, tmp_path, capsys):
    main(["index", str(pages), "--out", str(tmp_path / "index"), "--stemmer", "german"])
    assert "engine bm25, stemmer german" in capsys.readouterr().out
    assert open_index(tmp_path / "index").manifest.settings.bm25.stemmer == "german"
    main(["index", "--update", str(tmp_path / "index"), "--json"])
    assert json.loads(capsys.readouterr().out)["settings"]["bm25"]["stemmer"] == "german"


def test_an_index_of_format_1_is_searched_as_before(pages, tmp_path):
    plain = Bm25Settings(title_weight=2, stemmer="none", whole_names=False)
    index = build_index(pages, tmp_path / "index", IndexSettings(bm25=plain))
    queries = ["what is configured", "configuring", "max_wal_size", "who is it"]
    before = index.search(queries, 4)
    path = tmp_path / "index" / "manifest.json"
    manifest = json.loads(path.read_text())
    assert manifest["format"] == 1
    for name in ("stemmer", "whole_names"):
        del manifest["settings"]["bm25"][name]
    del manifest["settings"]["rerank"]
    path.write_text(json.dumps(manifest))
    old = open_index(tmp_path / "index")
    assert old.manifest.settings == index.manifest.settings
    assert old.search(queries, 4) == before


def test_a_stemmed_index_is_refused_by_programs_that_know_format_1_only(pages, tmp_path):
    assert build_index(pages, tmp_path / "index").manifest.format == 2
    assert build_index(pages, tmp_path / "names", IndexSettings(bm25=Bm25Settings(stemmer="none"))).manifest.format == 2
