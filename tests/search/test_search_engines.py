import math

import bm25s
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace as changed

from quaere.errors import BadInput
from quaere.records import Passage
from quaere.search.bm25 import Bm25Settings, best_matches, build_bm25, open_bm25, passage_terms, query_terms
from quaere.search.engines import EngineBuild, HybridEngine, Match, fuse
from quaere.search.index import IndexSettings

PLAIN = Bm25Settings(stemmer="none", whole_names=False)

# A small alphabet, so that passages share words and scores tie.
sentence = st.lists(
    st.sampled_from(["oss", "halm", "bridges", "max_river", "is", "the", "the", "東京", "korrin"]), max_size=8
).map(" ".join)


def passages_of(texts):
    return [
        Passage(id=f"{number}#0", doc_id=str(number), title=title, text=text, start=0, end=len(text))
        for number, (title, text) in enumerate(texts)
    ]


def build(folder, passages, settings):
    chosen = IndexSettings(bm25=settings)
    build_bm25(EngineBuild(passages.__getitem__, len(passages), chosen, folder, lambda *_: None))
    return open_bm25(folder, chosen)


@given(
    st.lists(st.tuples(sentence, sentence), min_size=1, max_size=25),
    st.lists(sentence, min_size=1, max_size=4),
    st.integers(1, 30),
    st.builds(
        Bm25Settings,
        st.floats(0, 3),
        st.floats(0, 1),
        st.integers(0, 3),
        stemmer=st.sampled_from(["none", "english", "german"]),
        whole_names=st.booleans(),
    ),
)
def test_bm25_equals_bm25s_used_directly(tmp_path_factory, texts, queries, topk, settings):
    passages = passages_of([*texts, ("", "oss")])
    engine = build(tmp_path_factory.mktemp("bm25"), passages, settings)
    direct = bm25s.BM25(k1=settings.k1, b=settings.b, method="lucene")
    direct.index([passage_terms(passage, settings) for passage in passages], show_progress=False)
    for query, found in zip(queries, engine.search(queries, topk), strict=True):
        known = [term for term in query_terms(query, settings) if term in direct.vocab_dict]
        scores = direct.get_scores(known) if known else np.zeros(len(passages), np.float32)
        ranked = sorted(range(len(passages)), key=lambda number: (-scores[number], number))
        assert found == [(number, scores[number]) for number in ranked if scores[number] > 0][:topk]


def test_bm25_agrees_with_what_bm25s_retrieves(index):
    settings = index.manifest.settings.bm25
    passages = list(index.passages())
    direct = bm25s.BM25(k1=settings.k1, b=settings.b, method="lucene")
    direct.index([passage_terms(passage, settings) for passage in passages], show_progress=False)
    query = "the lighthouse at Korrin"
    numbers, scores = direct.retrieve([query_terms(query, settings)], k=2, show_progress=False)
    hits = index.search([query], 2)[0]
    assert [hit.passage for hit in hits] == [passages[number] for number in numbers[0]]
    assert [hit.score for hit in hits] == scores[0].tolist()


def test_equal_scores_come_in_the_order_of_the_passages(tmp_path):
    passages = passages_of([("", "river"), ("", "bridge oss"), ("", "bridge halm"), ("", "bridge korrin")])
    engine = build(tmp_path, passages, PLAIN)
    assert [match.number for match in engine.search(["bridge"], 2)[0]] == [1, 2]


@given(st.integers(1, 1500), st.integers(1, 12), st.integers(0, 1000), st.sampled_from([1, 3, 40, 10_000]))
def test_the_best_of_many_scores_are_those_a_whole_sort_finds(num_passages, topk, seed, num_levels):
    draw = np.random.default_rng(seed)
    scores = draw.integers(0, num_levels + 1, num_passages).astype(np.float32) / num_levels  # few levels: many ties
    scores[draw.random(num_passages) < draw.random()] = 0
    ranked = sorted(range(num_passages), key=lambda number: (-scores[number], number))
    expected = [(number, scores[number]) for number in ranked[:topk] if scores[number] > 0]
    assert best_matches(scores, topk) == expected


def test_the_title_counts(tmp_path):
    passages = passages_of([("", "halm oss oss"), ("Halm", "oss oss oss")])
    for weight, best in ((0, 0), (3, 1)):
        engine = build(tmp_path / str(weight), passages, changed(PLAIN, title_weight=weight))
        assert engine.search(["halm"], 2)[0][0].number == best


def test_the_textbook_score_by_hand(tmp_path):
    """With k1 = 1.2 and b = 0.75: idf * tf / (tf + k1 * (1 - b + b * length / mean length))."""
    engine = build(tmp_path, passages_of([("", "bridge bridge oss halm"), ("", "river river")]), PLAIN)
    ((match,),) = engine.search(["bridge"], 2)
    idf = math.log(1 + (2 - 1 + 0.5) / (1 + 0.5))
    assert match.score == pytest.approx(idf * 2 / (2 + 1.2 * (1 - 0.75 + 0.75 * 4 / 3)))


@pytest.mark.parametrize("settings", [Bm25Settings(k1=-1), Bm25Settings(b=1.5), Bm25Settings(title_weight=-1)])
def test_impossible_constants_are_refused(settings):
    with pytest.raises(BadInput):
        settings.check()


@pytest.mark.parametrize(
    "settings", [changed(PLAIN, **one) for one in ({"k1": 0}, {"b": 0}, {"b": 1}, {"title_weight": 0})]
)
def test_the_smallest_and_largest_constants_are_taken(tmp_path, settings):
    settings.check()
    engine = build(tmp_path, passages_of([("Halm", "bridge"), ("", "river")]), settings)
    assert [match.number for match in engine.search(["bridge"], 2)[0]] == [0]


# ------------------------------------------------------------------------------------------------------------- hybrid


def test_fusion_by_hand():
    first = [Match(7, 9.0), Match(3, 8.0)]
    second = [Match(3, 0.9), Match(9, 0.8)]
    assert fuse([first, second], 3) == [(3, 1 / 62 + 1 / 61), (7, 1 / 61), (9, 1 / 62)]


def test_fusion_breaks_ties_by_passage_order_and_cuts():
    assert [match.number for match in fuse([[Match(5, 1.0)], [Match(2, 1.0)]], 2)] == [2, 5]
    assert len(fuse([[Match(n, 1.0) for n in range(9)]], 4)) == 4


def test_the_best_three_are_the_first_of_the_best_ten(tmp_path):
    passages = passages_of([("", f"bridge {'oss ' * (number % 7)}{'halm ' * (number % 5)}") for number in range(40)])
    engines = [
        build(tmp_path / "a", passages, PLAIN),
        build(tmp_path / "b", passages, changed(PLAIN, k1=0.2, b=0.0)),
    ]
    hybrid = HybridEngine(engines)
    assert hybrid.search(["oss halm", "bridge"], 3) == [
        found[:3] for found in hybrid.search(["oss halm", "bridge"], 10)
    ]
