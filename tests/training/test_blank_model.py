"""A model made from nothing: what it reads and writes is made of few tokens, its weights follow from the seed."""

import json
from pathlib import Path

import pytest

from quaere.cli.main import main
from quaere.policies.model_folders import load_tokenizer
from quaere.warmup.blank_model import blank_model
from quaere.worlds import generate_world

WARM_UP = ["warmup", "drzero", "--model", "blank", "--style", "brief", "--facts", "1", "--proposer-hops", "1"]
SHORT = ["--max-turns", "2", "--topk", "1", "--turn-tokens", "24", "--sequence-tokens", "128"]
SHORT += ["--tool-response-tokens", "32", "--articles", "200", "--learning-rate", "1e-2"]


@pytest.fixture(scope="module")
def tokenizer(tmp_path_factory):
    with blank_model("brief", 0, tmp_path_factory.mktemp("blank") / "tiny") as folder:
        return load_tokenizer(str(folder))


def split(tokenizer, text):
    return [tokenizer.decode([token]) for token in tokenizer.encode(text, add_special_tokens=False)]


@pytest.mark.parametrize("family", ["village", "hamlet"])
def test_words_and_spaces_are_single_tokens_wherever_they_stand(tokenizer, family):
    world = generate_world(5, 900, family)
    for article in world.articles():
        text = f"{article.title}\n{article.text}"
        assert split(tokenizer, text) == [*article.title.replace(" ", "| |").split("|"), "\n", *words(article.text)]
    for question in world.questions(100):
        assert split(tokenizer, question.text) == words(question.text)


def words(text):
    return text.replace(" ", "| |").replace(".", "|.").replace("?", "|?").split("|")


def test_what_is_always_the_same_is_a_single_token(tokenizer):
    call = '<tool_call>{"name": "search", "arguments": {"query_list": ["'
    turn = f'<think>Look.</think>\n{call}Old Mill built"]}}}}</tool_call>'
    expected = ["<think>", "Look.", f"</think>\n{call}", "Old", " ", "Mill", " ", "built", '"]}}</tool_call>']
    assert split(tokenizer, turn) == expected
    assert split(tokenizer, "<think>It is Rask.</think>\n<answer>Rask</answer>")[1:] == [
        *("It is ", "Rask", ".", "</think>\n<answer>", "Rask", "</answer>")
    ]


def test_no_text_is_two_tokens(tokenizer):
    """Or a model would have to learn a full stop twice; bytes that are no character by themselves are all alike."""
    texts = [tokenizer.decode([number]) for number in range(len(tokenizer))]
    whole = [text for text in texts if text != "\N{REPLACEMENT CHARACTER}"]
    assert len(whole) == len(set(whole))


def test_any_other_text_is_spelled(tokenizer):
    text = "Ünknown words, <tags> and 7 ◊"
    assert tokenizer.decode(tokenizer.encode(text)) == text


def test_a_turn_ends_the_text(tokenizer, tmp_path):
    with blank_model("brief", 0, tmp_path / "tiny") as folder:
        config = json.loads((folder / "config.json").read_text())
    assert config["eos_token_id"] == config["pad_token_id"] == tokenizer.eos_token_id
    assert tokenizer.eos_token == "<|im_end|>"


def test_the_seed_decides_the_weights(tmp_path):
    weights = []
    for seed in (0, 0, 1):
        with blank_model("brief", seed, tmp_path / "tiny") as folder:
            weights.append((folder / "model.safetensors").read_bytes())
    assert weights[0] == weights[1] != weights[2]
    assert list(tmp_path.iterdir()) == []


def test_a_warm_up_teaches_it(tmp_path, capsys):
    small = ["--episodes", "48", "--epochs", "3", "--batch", "8"]
    assert main([*WARM_UP, *SHORT, *small, "--out", str(tmp_path / "tiny"), "--json"]) == 0
    done = json.loads(capsys.readouterr().out.splitlines()[-1])
    assert (done["base_model"], done["world_family"]) == ("blank", "hamlet")
    assert done["loss_after"] < 0.5 * done["loss_before"]
    assert [path.name for path in Path(tmp_path).iterdir()] == ["tiny"]  # what it was made in is gone


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"drzero": "eve"}, "learns drzero in a hamlet, nothing else"),
        ({"--style": "--lora-rank", "brief": "4"}, "no --also, --index or --lora-rank"),
        ({"--style": "--also", "brief": "search-r1"}, "no --also, --index or --lora-rank"),
        ({"--style": "--index", "brief": "x"}, "no --also, --index or --lora-rank"),
        ({"--facts": "--episodes"}, "every question is of one fact"),
        ({"--proposer-hops": "--epochs"}, "every question is of one fact"),
    ],
)
def test_what_it_cannot_learn_is_refused(changes, said, tmp_path, capsys):
    words = [changes.get(word, word) for word in WARM_UP]
    assert main([*words, "--out", str(tmp_path / "tiny")]) == 2
    error = capsys.readouterr().err
    assert said in error and "quaere warmup drzero --model blank --style brief --facts 1" in error
