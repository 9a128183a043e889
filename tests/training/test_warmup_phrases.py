"""The oracle's words: thoughts of a good length, and hops in the words of the question they belong to."""

import pytest

from quaere.records import Evidence
from quaere.warmup.phrases import Wording, word_hop, write_thought
from quaere.worlds import GoldQuestion, Hop
from quaere.worlds.dice import Dice
from quaere.worlds.schema import Relation

COMPOSER = Relation(
    "composer",
    ("opera",),
    objects=("composer",),
    phrases=("the maker of {X}", "the composer of {X}"),
    questions=("Who wrote {X}?", "Who composed {X}?"),
    inverse_questions=("What did {X} write?", "Which opera did {X} compose?"),
)


def ask(text, inverse=False):
    """A question of one fact, in these words."""
    mention, answer = ("Ilse Varn", "The Salt Ring") if inverse else ("The Salt Ring", "Ilse Varn")
    evidence = Evidence("salt", 0, 38, "The Salt Ring was composed by Ilse Varn.")
    hop = Hop("e1", mention, "composer", inverse, answer, "e2", answer, evidence)
    return GoldQuestion("q", text, (answer,), (hop,), "warmup")


def test_a_hop_is_worded_as_in_its_question():
    for dice in map(Dice, range(8)):
        patron = word_hop(ask("Who was the patron of the composer of The Salt Ring?"), 0, COMPOSER, dice)
        assert patron.want == "the composer of {X}"
        assert word_hop(ask("Who composed The Salt Ring?"), 0, COMPOSER, dice).ask == "who composed {X}?"
        opera = word_hop(ask("Which opera did Ilse Varn compose?", inverse=True), 0, COMPOSER, dice)
        assert opera == Wording("", "which opera did {X} compose?")


@pytest.mark.parametrize(
    "poor",
    ["a clear case: it", "a clear case, and there is nothing at all that speaks against what it says: {F}."],
)
def test_a_thought_of_a_good_length_is_taken_if_one_was_drawn(poor):
    """The poor one has 4 or 16 words, where 5 to 15 are good, and is first in the alphabet."""
    for seed in range(8):
        assert write_thought((poor, "so it must be {F}."), Dice(seed), {"F": "Venn"}) == "So it must be Venn."
