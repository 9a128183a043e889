"""Dense search with a real, tiny embedder: a random BERT of one layer, made here."""

import shutil
import sys

import numpy as np
import pytest

from quaere.errors import BadInput, ExtraMissing, ModelMissing, install_hint
from quaere.search.dense import _build_neighbours
from quaere.search.embedders import DenseSettings, open_embedder
from quaere.search.index import IndexSettings, open_index
from quaere.search.index_build import build_index

faiss = pytest.importorskip("faiss")

WORDS = ["oss", "halm", "bridge", "river", "korrin", "cliff", "lamp", "venn", "town", "north", "query", "passage"]


@pytest.fixture(scope="module")
def model(tmp_path_factory):
    """The folder of a sentence-transformers model that knows a few words; mean of random vectors, length one."""
    sentence_transformers = pytest.importorskip("sentence_transformers")  # a second to load, for all workers
    import torch
    from tokenizers import Tokenizer, models, normalizers, pre_tokenizers, processors
    from transformers import BertConfig, BertModel, PreTrainedTokenizerFast

    folder = tmp_path_factory.mktemp("embedder")
    vocabulary = {word: number for number, word in enumerate(["[PAD]", "[UNK]", "[CLS]", "[SEP]", ":", *WORDS])}
    tokenizer = Tokenizer(models.WordLevel(vocabulary, unk_token="[UNK]"))
    tokenizer.normalizer = normalizers.Lowercase()
    tokenizer.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    tokenizer.post_processor = processors.BertProcessing(("[SEP]", 3), ("[CLS]", 2))
    special = {"pad_token": "[PAD]", "unk_token": "[UNK]", "cls_token": "[CLS]", "sep_token": "[SEP]"}
    PreTrainedTokenizerFast(tokenizer_object=tokenizer, model_max_length=64, **special).save_pretrained(folder / "bert")
    torch.manual_seed(0)
    config = BertConfig(
        vocab_size=len(vocabulary),
        hidden_size=32,
        num_hidden_layers=1,
        num_attention_heads=2,
        intermediate_size=64,
        max_position_embeddings=64,
    )
    BertModel(config).save_pretrained(folder / "bert")
    sentence_transformers.SentenceTransformer(str(folder / "bert"), device="cpu").save(str(folder / "embedder"))
    return str(folder / "embedder")


@pytest.fixture(scope="module")
def corpus(tmp_path_factory):
    """240 documents of four words each."""
    folder = tmp_path_factory.mktemp("corpus")
    chance = np.random.default_rng(0)
    lines = [f'{{"id": "{n}", "text": "{" ".join(chance.choice(WORDS[:10], 4))} {n}"}}' for n in range(240)]
    (folder / "corpus.jsonl").write_text("\n".join(lines))
    return folder / "corpus.jsonl"


def settings(model, engine="dense", **dense):
    return IndexSettings(engine=engine, dense=DenseSettings(embedder=model, **dense))


@pytest.fixture(scope="module")
def flat(model, corpus, tmp_path_factory):
    """An index of the corpus whose every vector is compared, only to be read."""
    return build_index(corpus, tmp_path_factory.mktemp("flat") / "index", settings(model))


def exact_ranking(model, index, query):
    """All passages by cosine, computed without FAISS."""
    embedder = open_embedder(DenseSettings(embedder=model))
    scores = embedder.embed_passages(list(index.passages())) @ embedder.embed_queries([query])[0]
    return np.argsort(-scores, kind="stable"), scores


def test_flat_search_is_exact(model, flat):
    index = open_index(flat.path)
    for query in ("bridge river korrin", "lamp", "venn north"):
        order, scores = exact_ranking(model, index, query)
        hits = index.search([query], 10)[0]
        assert [hit.score for hit in hits] == pytest.approx(scores[order[:10]].tolist(), abs=1e-5)
        assert {hit.passage for hit in hits} <= {index.passage(int(n)) for n in order[:20]}
        assert hits == sorted(hits, key=lambda hit: -hit.score)


@pytest.mark.parametrize(
    "dense", [{"ann": "ivf", "num_lists": 4, "num_probes": 4}, {"ann": "hnsw", "search_width": 240}]
)
def test_approximate_search_that_looks_everywhere_finds_the_same(model, corpus, flat, tmp_path, dense):
    other = build_index(corpus, tmp_path / "other", settings(model, **dense))
    queries = ["bridge river korrin", "lamp", "venn north"]
    found, expected = other.search(queries, 5), flat.search(queries, 5)
    for hits, best in zip(found, expected, strict=True):
        assert [hit.score for hit in hits] == pytest.approx([hit.score for hit in best], abs=1e-5)
    assert other.fingerprint != flat.fingerprint


def test_fewer_probes_may_find_less_but_never_nonsense(model, corpus, tmp_path):
    index = build_index(corpus, tmp_path / "index", settings(model, ann="ivf", num_lists=60, num_probes=1))
    for hits in index.search(["bridge river", "lamp"], 100):
        assert 0 < len(hits) < 100
        assert hits == sorted(hits, key=lambda hit: -hit.score)


def test_equal_passages_come_in_their_order(model, tmp_path):
    path = tmp_path / "corpus.jsonl"
    path.write_text("\n".join(f'{{"id": "{n}", "text": "bridge {"." * n}"}}' for n in range(6)))
    index = build_index(path, tmp_path / "index", settings(model))
    vector = index.engine.embedder.embed_queries(["bridge"])
    index.engine.neighbours.reset()
    index.engine.neighbours.add(np.repeat(vector, 6, axis=0))
    for topk in (2, 6):
        assert [hit.passage.doc_id for hit in index.search(["bridge"], topk)[0]] == ["0", "1", "2", "3", "4", "5"][
            :topk
        ]


def test_hybrid_is_the_fusion_of_both(model, corpus, flat, tmp_path):
    from quaere.search.engines import FUSION_DEPTH, fuse

    parts = [build_index(corpus, tmp_path / "bm25", settings(model, "bm25")), flat]
    both = build_index(corpus, tmp_path / "hybrid", settings(model, "hybrid"))
    query = "river bridge 17"
    expected = fuse([part.engine.search([query], FUSION_DEPTH)[0] for part in parts], 5)
    assert [(hit.passage, hit.score) for hit in both.search([query], 5)[0]] == [
        (both.passage(match.number), match.score) for match in expected
    ]


def test_prefixes_change_what_is_embedded(model):
    plain, prefixed = (
        open_embedder(DenseSettings(embedder=model)),
        open_embedder(DenseSettings(embedder=model, query_prefix="query: ", passage_prefix="passage: ")),
    )
    assert np.allclose(prefixed.embed_queries(["oss"]), plain.embed_queries(["query: oss"]), atol=1e-6)
    assert not np.allclose(prefixed.embed_queries(["oss"]), plain.embed_queries(["oss"]), atol=1e-3)


@pytest.mark.parametrize(
    ("embedder", "prefix"),
    [
        ("intfloat/e5-base-v2", "query: "),
        ("intfloat/multilingual-e5-small", "query: "),
        ("models/e5-large", "query: "),
        ("intfloat/multilingual-e5-large-instruct", None),
        ("sentence-transformers/all-MiniLM-L6-v2", None),
    ],
)
def test_e5_gets_its_prefixes(embedder, prefix):
    assert DenseSettings(embedder=embedder).with_known_prefixes().query_prefix == prefix
    chosen = DenseSettings(embedder=embedder, query_prefix="Q: ").with_known_prefixes()
    assert (chosen.query_prefix, chosen.passage_prefix) == ("Q: ", None)


def test_an_embedder_that_is_not_there_is_named(folder, tmp_path):
    with pytest.raises(ModelMissing, match="no-such-model"):
        build_index(folder, tmp_path / "index", settings(str(tmp_path / "no-such-model")))
    assert sorted(path.name for path in tmp_path.iterdir()) == ["docs"]


def hub(monkeypatch, *, cached, answer):
    """sentence-transformers over a cache, and a hub that answers like this; returns how models were asked for."""
    asked = []

    def open_model(name, local_files_only=False):
        asked.append("cache" if local_files_only else "hub")
        if local_files_only and not cached:
            raise OSError("not in the cache")
        return name

    def model_info(self, name, **how):
        asked.append("question")
        if answer:
            raise answer

    monkeypatch.setattr("sentence_transformers.SentenceTransformer", open_model)
    monkeypatch.setattr("huggingface_hub.HfApi.model_info", model_info)
    return asked


def test_without_a_network_an_embedder_is_not_asked_for_file_by_file(monkeypatch):
    asked = hub(monkeypatch, cached=False, answer=ConnectionError("no route to the hub"))
    with pytest.raises(ModelMissing, match="'org/embedder' cannot be loaded: no route to the hub"):
        open_embedder(DenseSettings(embedder="org/embedder"))
    assert asked == ["cache", "question"]


def test_an_embedder_of_the_cache_asks_the_hub_nothing(monkeypatch):
    asked = hub(monkeypatch, cached=True, answer=ConnectionError("no route to the hub"))
    open_embedder(DenseSettings(embedder="org/embedder"))
    assert asked == ["cache"]


def test_an_embedder_of_the_hub_is_downloaded(monkeypatch):
    asked = hub(monkeypatch, cached=False, answer=None)
    open_embedder(DenseSettings(embedder="org/embedder"))
    assert asked == ["cache", "question", "hub"]


@pytest.mark.parametrize("package", ["faiss", "sentence_transformers"])
def test_without_the_extra_it_says_what_to_install(model, folder, tmp_path, monkeypatch, package):
    monkeypatch.setitem(sys.modules, package, None)
    with pytest.raises(ExtraMissing) as caught:
        build_index(folder, tmp_path / "index", settings(model))
    assert caught.value.hint == install_hint("dense")


def test_another_embedder_than_the_index_was_made_with_is_noticed(flat, tmp_path):
    index = open_index(shutil.copytree(flat.path, tmp_path / "index"))
    faiss.write_index(faiss.IndexFlatIP(7), str(index.path / "dense" / "neighbours.faiss"))
    index._engine = None
    with pytest.raises(BadInput, match="vectors have 32 dimensions"):
        index.search(["oss"], 1)


@pytest.mark.parametrize("dense", [{"num_probes": 0}, {"num_links": 1}, {"num_lists": -1}, {"batch_size": 0}])
def test_impossible_sizes_are_refused(dense):
    with pytest.raises(BadInput):
        DenseSettings(**dense).check()


@pytest.mark.parametrize(("num_vectors", "num_lists"), [(39, 1), (400, 10), (1000, 25)])
def test_without_a_number_there_are_forty_passages_to_a_list(num_vectors, num_lists):
    vectors = np.random.default_rng(0).normal(size=(num_vectors, 4)).astype(np.float32)
    built = _build_neighbours(faiss, vectors, DenseSettings(embedder="any", ann="ivf"))
    assert (built.nlist, built.ntotal) == (num_lists, num_vectors)


def test_more_lists_than_passages_are_refused(model, folder, tmp_path):
    with pytest.raises(BadInput, match="lists"):
        build_index(folder, tmp_path / "index", settings(model, ann="ivf", num_lists=50))
