"""The selector as a whole: what it draws, learns, keeps, and sees of a skewed corpus; and vectors for its passages."""

import json
from dataclasses import fields, is_dataclass
from statistics import mean

import numpy as np
import pytest

from quaere.dialects.tool_call import TYPE_NAMES
from quaere.errors import BadInput
from quaere.recipes.passage_clusters import Embedded, embed_index
from quaere.recipes.selector import STATE_FILE, Selector, SelectorSettings
from quaere.records import Candidate, Passage
from quaere.search.index import IndexSettings
from quaere.search.index_build import build_index
from quaere.training.rollouts import draw_tasks

pytest.importorskip("sklearn")

NUM_TOPICS = 10


def skewed_corpus(seed, num_passages=1000, share=0.9):
    """Vectors around ten topics, the first of which holds nearly all."""
    chance = np.random.default_rng(seed)
    num_large = round(share * num_passages)
    topics = np.concatenate([np.zeros(num_large, int), 1 + np.arange(num_passages - num_large) % (NUM_TOPICS - 1)])
    chance.shuffle(topics)
    vectors = chance.normal(size=(NUM_TOPICS, 32))[topics] + 0.4 * chance.normal(size=(num_passages, 32))
    vectors /= np.linalg.norm(vectors, axis=1, keepdims=True)
    return Embedded(vectors.astype(np.float32), f"synthetic {seed}"), topics


def write_samples(choices):
    return [
        Candidate(
            *("a", 1, 0, "a", "", 1, f"question number {n} about something", "answer"),
            cluster=choice.cluster,
            question_type=choice.question_type,
        )
        for n, choice in enumerate(choices)
    ]


def evolve(selector, iterations, num=16, seed=1):
    """Draw and learn, from wherever it stands."""
    drawn = []
    for iteration in range(selector.state.iteration, iterations):
        drawn += selector.draw(num, seed=100 * seed + iteration)
        selector.learn(iteration, write_samples(drawn[-num:]), proposer_reward=0.9, solver_reward=0.4)
    return drawn


def flatten(record, prefix=""):
    for field in fields(record):
        value = getattr(record, field.name)
        yield from flatten(value, field.name) if is_dataclass(value) else [(prefix + field.name, value)]


def same(one, other):
    """Bit for bit, types included."""
    pairs = list(zip(flatten(one), flatten(other), strict=True))
    return len(pairs) == 11 and all(
        name == other_name and np.array_equal(a, b) and np.asarray(a).dtype == np.asarray(b).dtype
        for (name, a), (other_name, b) in pairs
    )


# -------------------------------------------------------------------------------------------------- drawing, learning


def test_draws_follow_from_the_seed():
    embedded, _ = skewed_corpus(0)
    one, other, third = (Selector(embedded, SelectorSettings(), seed=7) for _ in range(3))
    assert one.draw(40, seed=3) == other.draw(40, seed=3) != third.draw(40, seed=4)
    for choice in one.draw(40, seed=5):
        assert one.state.clustering.labels[choice.passage] == choice.cluster
        assert choice.question_type in TYPE_NAMES
    assert one.state.uses.sum() == 80


def test_bandits_stand_still_within_an_iteration_and_learn_after_it():
    selector = Selector(skewed_corpus(0)[0], SelectorSettings(), seed=7)
    choices = selector.draw(32, seed=1)
    assert selector.state.clusters.pulls.tolist() == [1] * 10
    selector.learn(0, write_samples(choices), proposer_reward=0.9, solver_reward=0.4)
    state = selector.state
    expected = np.bincount([choice.cluster for choice in choices], minlength=10)
    assert (state.clusters.pulls - 1).tolist() == expected.tolist()
    assert state.types.pulls.sum() == 5 + 32
    assert state.clusters.raw_rewards.sum() == pytest.approx(32 * 0.65)
    assert state.types.raw_rewards.sum() == pytest.approx(32 * 0.65)
    fresh_rarity = 2.302585 + 0.5 * 0.65
    assert state.clusters.rewards == pytest.approx(expected * fresh_rarity, rel=1e-5)


def test_an_iteration_is_learned_from_once():
    selector = Selector(skewed_corpus(0)[0], SelectorSettings(), seed=7)
    evolve(selector, 2)
    before = selector.state
    selector.learn(1, write_samples(selector.draw(4, seed=1)), proposer_reward=1.0, solver_reward=1.0)
    assert selector.state is before
    with pytest.raises(ValueError, match="learn from iteration 2 first, then from iteration 3"):
        selector.learn(3, [], proposer_reward=1.0, solver_reward=1.0)


def test_a_failed_learning_changes_nothing():
    selector = Selector(skewed_corpus(0)[0], SelectorSettings(), seed=7)
    before = selector.state
    with pytest.raises(ValueError, match="finite"):
        selector.learn(0, write_samples(selector.draw(4, seed=1)), proposer_reward=float("nan"), solver_reward=0.0)
    assert selector.state is before


def test_clusters_grow_and_hand_down_their_rewards():
    selector = Selector(skewed_corpus(0)[0], SelectorSettings(num_clusters=5, growth=1.5), seed=7)
    sizes = []
    for iteration in range(4):
        sizes.append(len(selector.state.clustering))
        samples = write_samples(selector.draw(20, seed=iteration))
        expected = selector.state.clusters.raw_rewards.sum() + 20 * 0.65
        selector.learn(iteration, samples, proposer_reward=0.9, solver_reward=0.4)
        assert selector.state.clusters.raw_rewards.sum() == pytest.approx(expected)
        assert len(selector.state.clusters) == len(selector.state.clustering)
    assert sizes == [5, 6, 8, 9]
    assert selector.state.uses.sum() == 80  # kept over every re-clustering


def test_there_are_never_more_clusters_than_passages():
    vectors = np.eye(3, dtype=np.float32)
    selector = Selector(Embedded(vectors, "three"), SelectorSettings(growth=2.0), seed=7)
    assert len(evolve(selector, 3, num=6)) == 18
    assert len(selector.state.clustering) == 3
    same_text = Selector(Embedded(np.ones((5, 1), np.float32), "copies"), SelectorSettings(), seed=7)
    assert {choice.passage for choice in same_text.draw(60, seed=1)} == set(range(5))


def test_draws_are_kept_to_a_shard():
    embedded, topics = skewed_corpus(0)
    shard = np.arange(len(topics)) % 4 == 0
    choices = Selector(embedded, SelectorSettings(), seed=7).draw(60, seed=1, among=shard)
    assert all(shard[choice.passage] for choice in choices)
    for bad in (np.zeros(len(topics), bool), np.ones(3, bool)):
        with pytest.raises(ValueError, match="among"):
            Selector(embedded, SelectorSettings(), seed=7).draw(2, seed=1, among=bad)


@pytest.mark.parametrize(
    ("settings", "says"),
    [
        ({"num_clusters": 0}, "selector.num_clusters must be at least 1, not 0"),
        ({"growth": -0.1}, "selector.growth must be at least 0, not -0.1"),
        ({"growth": float("inf")}, "selector.growth must be finite"),
        ({"exploration": float("nan")}, "selector.exploration must be at least 0, not nan"),
    ],
)
def test_impossible_settings_are_refused(settings, says):
    with pytest.raises(BadInput, match=says):
        Selector(skewed_corpus(0)[0], SelectorSettings(**settings), seed=7)


# ------------------------------------------------------------------------------------------------- saving and going on


@pytest.mark.parametrize("growth", [0.0, 1.0])
def test_a_resumed_selector_goes_on_bit_for_bit(tmp_path, growth):
    embedded, _ = skewed_corpus(1)
    settings = SelectorSettings(growth=growth)
    straight, saved, resumed = (Selector(embedded, settings, seed=7) for _ in range(3))
    evolve(straight, 2)
    evolve(saved, 2)
    assert straight.draw(8, seed=55) == saved.draw(8, seed=55)  # in the middle of an iteration
    saved.save(tmp_path)
    resumed.load(tmp_path)
    assert same(resumed.state, saved.state)
    assert not same(resumed.state, Selector(embedded, settings, seed=7).state)
    assert evolve(resumed, 4) == evolve(straight, 4)
    assert same(resumed.state, straight.state)


def test_equal_states_are_equal_files(tmp_path):
    contents = []
    for name in ("a", "b"):
        selector = Selector(skewed_corpus(1)[0], SelectorSettings(), seed=7)
        evolve(selector, 2)
        (tmp_path / name).mkdir()
        selector.save(tmp_path / name)
        contents.append((tmp_path / name / STATE_FILE).read_bytes())
    assert contents[0] == contents[1]


def test_a_state_of_another_index_or_no_state_is_refused(tmp_path):
    selector = Selector(skewed_corpus(1)[0], SelectorSettings(), seed=7)
    with pytest.raises(BadInput, match="missing or is not a selector's state"):
        selector.load(tmp_path)
    selector.save(tmp_path)
    with pytest.raises(BadInput, match="belongs to another index"):
        Selector(skewed_corpus(2)[0], SelectorSettings(), seed=7).load(tmp_path)
    whole = (tmp_path / STATE_FILE).read_bytes()
    (tmp_path / STATE_FILE).write_bytes(whole[: len(whole) // 2])
    with pytest.raises(BadInput, match="missing or is not a selector's state"):
        selector.load(tmp_path)


# ----------------------------------------------------------------------------------------------------- a skewed corpus


class Numbered:
    """Passages known by their numbers."""

    def __init__(self, size):
        self.size = size

    def __len__(self):
        return self.size

    def passage(self, number):
        return Passage(str(number), str(number), "", "", 0, 0)


def test_more_of_a_skewed_corpus_is_seen_than_by_drawing_uniformly():
    """At 64 draws, of which the selector makes half before it has learned anything.

    Types are compared with those of a proposer that, untold, asks for a fact nine times in ten. Types drawn uniformly
    are all five soon enough, so against them it is the pairs of cluster and type that can be gained.
    """
    found = {name: [] for name in ("topics", "clusters", "types", "pairs", "large")}
    for seed in range(8):
        embedded, topics = skewed_corpus(seed, num_passages=2000)
        selector = Selector(embedded, SelectorSettings(), seed)
        labels = selector.state.clustering.labels
        chosen = evolve(selector, 2, num=32, seed=seed)
        numbers, types = [choice.passage for choice in chosen], [choice.question_type for choice in chosen]
        tasks = draw_tasks(Numbered(len(topics)), range(64), (1,), seed=seed, name="")
        plain = [int(task.document.doc_id) for task in tasks]
        chance = np.random.default_rng(seed)
        even, habit = (chance.choice(TYPE_NAMES, 64, p=p).tolist() for p in (None, [0.9, *[0.025] * 4]))
        pairs, plain_pairs = zip(labels[numbers], types, strict=True), zip(labels[plain], even, strict=True)
        found["topics"].append((len(set(topics[numbers])), len(set(topics[plain]))))
        found["clusters"].append((len(set(labels[numbers])), len(set(labels[plain]))))
        found["types"].append((len(set(types)), len(set(habit))))
        found["pairs"].append((len(set(pairs)), len(set(plain_pairs))))
        found["large"].append((np.mean(topics[numbers] == 0), np.mean(topics[plain] == 0)))
    gain = {name: mean(ours - plain for ours, plain in rows) for name, rows in found.items()}
    assert gain["topics"] > 2 and all(ours > plain for ours, plain in found["topics"])
    assert gain["clusters"] > 1.5 and all(ours >= plain for ours, plain in found["clusters"])
    assert gain["types"] > 0.3 and all(ours >= plain for ours, plain in found["types"])
    assert gain["pairs"] > 7 and all(ours > plain for ours, plain in found["pairs"])
    assert all(ours < 0.6 and plain > 0.75 for ours, plain in found["large"])


# ---------------------------------------------------------------------------------------------------- vectors of texts

TOPICS = {
    "river": "river water bank bridge flow north delta ferry",
    "star": "star comet telescope orbit light planet night sky",
    "bread": "bread oven flour yeast baker crust salt dough",
}


@pytest.fixture(scope="module")
def corpus(tmp_path_factory):
    """Ninety short documents about three things."""
    chance = np.random.default_rng(0)
    lines = []
    for number in range(90):
        topic = list(TOPICS)[number % 3]
        text = " ".join(chance.choice(TOPICS[topic].split(), 8))
        lines.append(json.dumps({"id": f"{topic}-{number}", "text": f"The {topic} in the year 19{number}: {text}."}))
    path = tmp_path_factory.mktemp("corpus") / "corpus.jsonl"
    path.write_text("\n".join(lines))
    return path


def test_words_tell_topics_apart_without_a_model(corpus, tmp_path):
    index = build_index(corpus, tmp_path / "index")
    embedded = embed_index(index, tmp_path / "embeddings")
    assert embedded.fingerprint.startswith("tfidf-svd of ")
    assert np.linalg.norm(embedded.vectors, axis=1) == pytest.approx(np.ones(90), abs=1e-5)
    selector = Selector(embedded, SelectorSettings(num_clusters=3), seed=7)
    topics = [passage.doc_id.split("-")[0] for passage in index.passages()]
    assert len(set(zip(topics, selector.state.clustering.labels.tolist(), strict=True))) == 3


def test_vectors_are_made_once_for_an_index(corpus, tmp_path):
    index = build_index(corpus, tmp_path / "index")
    folder = tmp_path / "embeddings"
    first = embed_index(index, folder)
    written = (folder / "vectors.npy").stat()
    assert np.array_equal(embed_index(index, folder).vectors, first.vectors)
    assert (folder / "vectors.npy").stat().st_ino == written.st_ino
    (tmp_path / "other.txt").write_text("東京都は日本の首都である。\n\nA river.")
    other = build_index(tmp_path / "other.txt", tmp_path / "other")
    assert len(embed_index(other, folder).vectors) == len(other) != 90


def test_damaged_vectors_are_named(corpus, tmp_path):
    index = build_index(corpus, tmp_path / "index")
    embed_index(index, tmp_path / "embeddings")
    (tmp_path / "embeddings" / "vectors.npy").write_bytes(b"")
    with pytest.raises(BadInput, match=r"vectors\.npy is damaged"):
        embed_index(index, tmp_path / "embeddings")


def test_a_single_passage_of_a_single_word_is_a_topic(tmp_path):
    (tmp_path / "word.jsonl").write_text('{"id": "a", "text": "river"}')
    embedded = embed_index(build_index(tmp_path / "word.jsonl", tmp_path / "index"), tmp_path / "embeddings")
    assert np.abs(embedded.vectors).tolist() == [[1.0]]
    assert {choice.passage for choice in Selector(embedded, SelectorSettings(), seed=7).draw(3, seed=1)} == {0}


@pytest.mark.parametrize("ann", ["flat", "hnsw", "ivf"])
def test_vectors_of_a_dense_index_are_those_it_searches_by(corpus, tmp_path, ann):
    pytest.importorskip("faiss")
    transformers = pytest.importorskip("sentence_transformers")
    from sentence_transformers.sentence_transformer.modules import StaticEmbedding
    from tokenizers import Tokenizer, models, pre_tokenizers

    from quaere.search.embedders import DenseSettings, open_embedder

    words = ["[UNK]", *" ".join(TOPICS.values()).split()]
    tokenizer = Tokenizer(models.WordLevel({word: number for number, word in enumerate(words)}, unk_token="[UNK]"))
    tokenizer.pre_tokenizer = pre_tokenizers.Whitespace()
    weights = np.random.default_rng(0).normal(size=(len(words), 16)).astype(np.float32)
    model = transformers.SentenceTransformer(modules=[StaticEmbedding(tokenizer, weights)], device="cpu")
    model.save(str(tmp_path / "model"))
    dense = DenseSettings(embedder=str(tmp_path / "model"), ann=ann)
    index = build_index(corpus, tmp_path / "index", IndexSettings(engine="hybrid", dense=dense))
    embedded = embed_index(index, tmp_path / "embeddings")
    assert embedded.fingerprint == f"dense of {index.fingerprint}"
    expected = open_embedder(dense).embed_passages(list(index.passages()))
    assert embedded.vectors == pytest.approx(expected, abs=1e-6)
