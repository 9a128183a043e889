"""A model made from nothing: its words are single tokens, its weights follow from the seed, and it can be taught."""

import json

import pytest

from quaere.cli.main import main
from quaere.policies.loading import load_tokenizer
from quaere.warmup.blank_model import vocabulary_texts, write_blank
from quaere.worlds import generate_world


@pytest.fixture(scope="module")
def worlds():
    return [generate_world(1, 300, family) for family in ("harbour", "village")]


def make(folder, worlds, seed=0):
    write_blank(folder, vocabulary_texts(worlds, "search-r1"), seed)
    return folder


def test_words_of_its_worlds_and_tags_of_its_dialect_are_single_tokens(worlds, tmp_path):
    tokenizer = load_tokenizer(str(make(tmp_path / "blank", worlds)))
    for world in worlds:
        for article in list(world.articles())[:50]:
            assert len(tokenizer.encode(article.text)) == len(article.text.replace(".", " .").split())
    written = "<think>It is Venn.</think>\n<answer>Venn</answer>"
    assert len(tokenizer.encode(written)) == 10
    assert tokenizer.decode(tokenizer.encode(written)) == written
    assert len(tokenizer.encode("<search></search><information></information>")) == 4


def test_the_seed_decides_the_weights(worlds, tmp_path):
    folders = [make(tmp_path / name, worlds, seed) for name, seed in (("a", 0), ("b", 0), ("c", 1))]
    one, same, other = ((folder / "model.safetensors").read_bytes() for folder in folders)
    assert one == same != other


def test_a_warm_up_teaches_it(tmp_path, capsys):
    small = ["--episodes", "24", "--epochs", "4", "--batch", "8", "--learning-rate", "1e-2", "--articles", "200"]
    teach = ["warmup", "search-r1", "--model", "blank", "--family", "harbour", "--facts", "1", "--style", "brief"]
    assert main([*teach, *small, "--out", str(tmp_path / "tiny"), "--json"]) == 0
    done = json.loads(capsys.readouterr().out.splitlines()[-1])
    assert done["base_model"] == "blank" and done["world_family"] == "harbour"
    assert done["loss_after"] < 0.8 * done["loss_before"]
    assert sorted(path.name for path in tmp_path.iterdir()) == ["tiny"]  # what it was made in is gone


@pytest.mark.parametrize(
    "more", [[], ["--family", "harbour", "--lora-rank", "4"], ["--family", "harbour", "--index", "x"]]
)
def test_what_it_cannot_learn_is_refused(more, tmp_path, capsys):
    assert main(["warmup", "search-r1", "--model", "blank", "--out", str(tmp_path / "o"), *more]) == 2
    assert "--model blank is made from the words of a harbour" in capsys.readouterr().err
