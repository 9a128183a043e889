"""S4: 13,000 false spans, none accepted: 1,000 each of thirteen kinds, against passages of a generated encyclopedia.

A span is false if its words do not stand in a row in a passage that was shown, white space and the kind of quotes
aside. `plain` decides that by other means than the code under test.
"""

import random
import re
import string
from functools import lru_cache

import pytest

from quaere.chat.spans import find_evidence
from quaere.records import Passage
from quaere.worlds import generate_world

COUNT = 1000
NUM_SHOWN = 3


@pytest.fixture(scope="module")
def passages():
    """Two passages of each of 200 articles."""
    world = generate_world(11, 200, "evaluation")
    found = []
    for entity in world.entities:
        article = world.article(entity)
        middle = article.text.find(" ", len(article.text) // 2)
        for number, (start, end) in enumerate([(0, middle), (middle, len(article.text))]):
            found.append(
                Passage(f"{entity.id}#{number}", entity.id, article.title, article.text[start:end], start, end)
            )
    return found


@lru_cache(1000)  # the same passages are shown again and again
def plain(text):
    return " ".join(text.split()).translate(str.maketrans("‘’“”", "''\"\""))


def holds(text, span):
    """True if the span stands in the text and no word goes on across its ends."""
    start = text.find(span)
    while start >= 0:
        if not any(re.fullmatch(r"\w\w", text[at - 1 : at + 1]) for at in (start, start + len(span)) if at):
            return True
        start = text.find(span, start + 1)
    return False


def cut_words(dice, text, fewest=5, most=14):
    """Some words in a row, with what stands between them."""
    words = list(re.finditer(r"\S+", text))
    first = dice.randrange(max(1, len(words) - most))
    last = min(len(words) - 1, first + dice.randint(fewest, most) - 1)
    return text[words[first].start() : words[last].end()]


def change_letter(dice, span, letters):
    place = dice.choice([number for number, letter in enumerate(span) if letter in letters])
    return span[:place] + dice.choice([letter for letter in letters if letter != span[place]]) + span[place + 1 :]


def with_digits(dice, shown):
    texts = [passage.text for passage in shown if re.search(r"\d", passage.text)]
    text = dice.choice(texts) if texts else "in 1702"
    number = dice.choice(list(re.finditer(r"\d+", text)))
    return text[max(0, number.start() - 20) : number.end() + 20]


def change_words(dice, span, change):
    words = span.split(" ")
    place = dice.randrange(1, len(words) - 1)
    return " ".join([*words[:place], *change(words, place), *words[place + 1 :]])


def other(dice, shown, passages):
    names = {one.doc_id for one in shown}
    return next(passage for passage in iter(lambda: dice.choice(passages), None) if passage.doc_id not in names)


KINDS = {
    "a letter": lambda d, shown, all_: change_letter(d, cut_words(d, d.choice(shown).text), string.ascii_lowercase),
    "a digit": lambda d, shown, all_: change_letter(d, with_digits(d, shown), string.digits),
    "case": lambda d, shown, all_: cut_words(d, d.choice(shown).text).swapcase(),
    "order": lambda d, shown, all_: " ".join(reversed(cut_words(d, d.choice(shown).text).split())),
    "a word left out": lambda d, shown, all_: change_words(
        d, cut_words(d, d.choice(shown).text), lambda words, place: []
    ),
    "a word put in": lambda d, shown, all_: change_words(
        d, cut_words(d, d.choice(shown).text), lambda words, place: [words[place], "never"]
    ),
    "a word replaced": lambda d, shown, all_: change_words(
        d, cut_words(d, d.choice(shown).text), lambda words, place: [other(d, shown, all_).title]
    ),
    "stitched with dots": lambda d, shown, all_: " ... ".join(cut_words(d, d.choice(shown).text) for _ in range(2)),
    "astride two passages": lambda d, shown, all_: shown[0].text[-30:] + shown[1].text[:30],
    "another document": lambda d, shown, all_: cut_words(d, other(d, shown, all_).text),
    "a title": lambda d, shown, all_: f"{shown[0].title}\n{cut_words(d, shown[0].text)}",
    "cut inside a word": lambda d, shown, all_: cut_words(d, d.choice(shown).text).rstrip(string.punctuation)[:-1],
    "a reply imitated": lambda d, shown, all_: f"[1]\n{shown[0].title}\n{shown[0].text[:40]}",
}


def test_there_are_thirteen_thousand():
    assert len(KINDS) * COUNT == 13_000


@pytest.mark.parametrize("kind", KINDS)
def test_no_false_span_is_accepted(kind, passages):
    dice, num_false = random.Random(kind), 0
    while num_false < COUNT:
        shown = dice.sample(passages, NUM_SHOWN)
        span = KINDS[kind](dice, shown, passages)
        if any(holds(plain(passage.text), plain(span)) for passage in shown):
            continue  # true by chance
        assert find_evidence(span, shown) is None, span
        num_false += 1


def test_as_many_true_spans_are_all_found(passages):
    """Or a function that accepts nothing would pass."""
    dice = random.Random(1)
    for _ in range(COUNT):
        shown = dice.sample(passages, NUM_SHOWN)
        span = cut_words(dice, dice.choice(shown).text)
        found = find_evidence(span.replace(" ", dice.choice([" ", "\n", "  "])), shown)
        assert found is not None and plain(found.text) == plain(span)
