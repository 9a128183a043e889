"""Turns of a Tinker server: cut where the native engine would have stopped."""

import pytest

import tiny
from quaere.errors import TrainingStopped
from quaere.policies.sampler import SamplingParams, StopStrings, cut_turn
from quaere.policies.tinker import prompt_scores

TOKENIZER = tiny.tokenizer()


def cut(text, **params):
    """What is left of a text that a server has sampled, and why it ended there."""
    ids = TOKENIZER.encode(text, add_special_tokens=False)
    found = cut_turn(
        ids, [-float(place) for place in range(len(ids))], SamplingParams(**params), StopStrings(TOKENIZER.decode)
    )
    assert list(found.token_ids) == ids[: len(found.token_ids)]
    assert found.logprobs == tuple(-float(place) for place in range(len(found.token_ids)))
    return TOKENIZER.decode(found.token_ids), found.stop_reason, len(ids)


def test_a_stop_string_ends_a_turn_after_the_token_that_completes_it():
    said, why, _ = cut("<answer>Orsolya Venn</answer> and on it went", stop=("</answer>",))
    assert said.startswith("<answer>Orsolya Venn</answer>")
    assert why == "stop_string"
    assert "it went" not in said


def test_a_stop_id_before_the_string_ends_it_first():
    ids = TOKENIZER.encode("one two three", add_special_tokens=False)
    params = SamplingParams(stop=("three",), stop_token_ids=(ids[1],))
    found = cut_turn(ids, [0.0] * len(ids), params, StopStrings(TOKENIZER.decode))
    assert (found.token_ids, found.stop_reason) == (tuple(ids[:2]), "end_of_turn")


def test_a_turn_without_an_end_is_as_long_as_it_may_be():
    said, why, num_tokens = cut("no end is in sight here", stop=("</answer>",))
    assert (said, why) == ("no end is in sight here", "length")
    assert cut("no end is in sight here", max_tokens=num_tokens - 2)[1] == "length"


def test_scores_of_a_prompt_with_and_without_an_entry_for_the_first_token():
    assert prompt_scores([None, -0.5, -1.0], 3) == prompt_scores([-0.5, -1.0], 3) == [0.0, -0.5, -1.0]
    with pytest.raises(TrainingStopped, match="scored 1 tokens of a sequence of 3"):
        prompt_scores([-0.5], 3)
