"""Tags whose embeddings were never trained are spelled out; all other ids stay as they are."""

import json
import shutil

import pytest
import torch
from tokenizers import AddedToken
from transformers import AutoTokenizer, LlamaConfig, LlamaForCausalLM, PreTrainedTokenizerFast

import tiny
from quaere.chat.renderer import Renderer
from quaere.policies import untrained_tokens
from quaere.policies.model_folders import load_tokenizer
from quaere.policies.untrained_tokens import find_alike
from quaere.training.exports import copy_tokenizer

TAGS = ("<tool_call>", "</tool_call>")
TEXT = '<tool_call>{"name": "search"}</tool_call>'
AFTER = "<|after|>"  # a control token whose id follows those of the tags


def write_model(folder, alike, tags_in_vocabulary, tags=TAGS):
    """A model folder whose tokenizer has the tags as tokens; the embeddings of the ids in `alike` are the same."""
    backend = tiny.tokenizer().backend_tokenizer
    read = json.loads(backend.to_str())
    read["added_tokens"] = [token for token in read["added_tokens"] if token["content"] not in TAGS]
    if tags_in_vocabulary:
        read["model"]["vocab"] |= {tag: len(read["model"]["vocab"]) + number for number, tag in enumerate(tags)}
    tokenizer = PreTrainedTokenizerFast(tokenizer_object=type(backend).from_str(json.dumps(read)))
    tokenizer.add_tokens([AddedToken(tag, normalized=False) for tag in tags])
    tokenizer.add_special_tokens({"additional_special_tokens": [AddedToken(AFTER, normalized=False)]})
    sizes = {"hidden_size": 16, "intermediate_size": 16, "num_hidden_layers": 1, "num_attention_heads": 1}
    torch.manual_seed(0)
    model = LlamaForCausalLM(LlamaConfig(vocab_size=len(tokenizer) + 8, **sizes))
    ids = tokenizer.convert_tokens_to_ids(list(alike))
    with torch.no_grad():
        table = model.get_input_embeddings().weight
        table[ids] = table[-1] + 1e-4 * torch.randn(len(ids), 16)
    model.save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    return tokenizer


@pytest.mark.parametrize("tags_in_vocabulary", [True, False])
def test_tags_with_the_same_embedding_are_spelled_out(tmp_path, tags_in_vocabulary):
    before = write_model(tmp_path, TAGS, tags_in_vocabulary)
    assert before.tokenize(TEXT)[0] == TAGS[0]
    after = load_tokenizer(str(tmp_path))
    assert not set(TAGS) & set(after.tokenize(TEXT)) and after.decode(after.encode(TEXT)) == TEXT
    assert after.spelled_out == TAGS and Renderer(after).note.endswith(
        "learned the tokens: <tool_call> and </tool_call>"
    )
    assert after.encode(AFTER) == before.encode(AFTER) and after.encode("the Oss") == before.encode("the Oss")
    after.save_pretrained(tmp_path / "saved")  # without weights, where nothing can be compared
    again = load_tokenizer(str(tmp_path / "saved"))
    assert [again.encode(text) for text in (TEXT, AFTER)] == [after.encode(text) for text in (TEXT, AFTER)]


@pytest.mark.parametrize("tags_in_vocabulary", [True, False])
def test_other_programs_read_an_export_as_it_was_trained(tmp_path, tags_in_vocabulary):
    base, out = tmp_path / "base", tmp_path / "out"
    write_model(base, TAGS, tags_in_vocabulary)
    out.mkdir()
    shutil.copyfile(base / "model.safetensors", out / "model.safetensors")
    copy_tokenizer(base, out)
    read = AutoTokenizer.from_pretrained(out)
    assert not set(TAGS) & set(read.tokenize(TEXT)) and read.encode(TEXT) == load_tokenizer(str(base)).encode(TEXT)


@pytest.mark.parametrize("alike", [(), (AFTER,)])
def test_other_tokens_stay(tmp_path, alike):
    """Tags with embeddings of their own, and control tokens whatever their embeddings are."""
    before = write_model(tmp_path, alike, tags_in_vocabulary=True)
    assert load_tokenizer(str(tmp_path)).encode(TEXT + AFTER) == before.encode(TEXT + AFTER)


def test_tokens_that_are_kept_free_stay(tmp_path):
    free = ("<unused0>", "<unused1>")
    before = write_model(tmp_path, free, tags_in_vocabulary=True, tags=free)
    after = load_tokenizer(str(tmp_path))
    assert after.encode("<unused0>") == before.encode("<unused0>") and Renderer(after).note == ""


def test_one_tag_alone_may_be_untrained(tmp_path):
    write_model(tmp_path, (TAGS[0], AFTER), tags_in_vocabulary=True)
    pieces = load_tokenizer(str(tmp_path)).tokenize(TEXT)
    assert TAGS[0] not in pieces and TAGS[1] in pieces


def test_weights_that_cannot_be_read_change_nothing(tmp_path):
    before = write_model(tmp_path, TAGS, tags_in_vocabulary=True)
    (tmp_path / "model.safetensors").write_bytes(b"no weights")
    assert load_tokenizer(str(tmp_path)).encode(TEXT) == before.encode(TEXT)


@pytest.mark.parametrize("block", [1, 2, 512])
def test_alike_means_the_same_but_for_rounding(monkeypatch, block):
    monkeypatch.setattr(untrained_tokens, "_BLOCK", block)
    rows = {3: torch.tensor([1.0, 0.0]), 4: torch.tensor([0.0, 1.0]), 5: torch.tensor([1.0, 0.01]), 6: torch.zeros(2)}
    assert find_alike(rows, rows) == {3, 5} and find_alike(rows, [3, 4, 9]) == {3} and find_alike({}, [3]) == set()
    assert find_alike({one: 100 * row for one, row in rows.items()}, rows) == {3, 5}
    assert find_alike({1: torch.zeros(2), 2: torch.zeros(2)}, [1, 2]) == {1, 2}
