import itertools
import random
import re
import unicodedata

import pytest
from hypothesis import given
from hypothesis import strategies as st

from quaere.chat.spans import check_evidence, find_evidence, locate_span, shown_passages
from quaere.errors import QuaereError
from quaere.records import (
    Answer,
    Episode,
    Evidence,
    Failure,
    Hit,
    Passage,
    Proposal,
    ProposeTask,
    Question,
    Search,
    SearchResult,
    SolveTask,
    Turn,
)

# ------------------------------------------------------------------------------------------------------ single spans


@pytest.mark.parametrize(
    ("span", "text", "place"),
    [
        ("Oss", "The Oss. The Oss!", (4, 7)),
        ("  Oss\n", "The Oss.", (4, 7)),
        ("the Halm bridge", "by the Halm \n\t bridge", (3, 21)),
        ("the  Halm", "x the Halm", (2, 10)),
        ("a b", "a\u00a0b", (0, 3)),
        ('said "no" to Venn\'s', "He said “no” to Venn’s face", (3, 22)),
        ("„no“", 'say "no"', (4, 8)),
        # Letter for letter beats an earlier place that only folding finds.
        ("a b", "a  b, a b", (6, 9)),
        ("a  b", "a b, a\nb", (0, 3)),
        ("橋が", "古い橋がある", (2, 4)),
        ("👩‍🔧 built", "the 👩‍🔧  built it", (4, 14)),
        ("cafe\u0301", "un cafe\u0301 noir", (3, 8)),
        ("x y", " \n x\n\ny \n", (3, 7)),
        # The first occurrence in whole words counts, not the first of all.
        ("in 17", "in 1702 and in 17 days", (12, 17)),
        ("a b", "aa b, a  b", (6, 10)),
        ("3.1", "at 3.14 and 3.1.", (12, 15)),
    ],
)
def test_places(span, text, place):
    assert locate_span(span, text) == place


@pytest.mark.parametrize(
    ("span", "text"),
    [
        ("", "text"),
        (" \n\t\u3000", "text \n\t\u3000 text"),
        ("oss", "The Oss"),
        ("the Oss", "theOss"),
        ("theOss", "the Oss"),
        ("1990-1995", "1990–1995"),
        ("5'", "5′"),
        ('"no"', "«no»"),
        ("'no'", '"no"'),
        ("caf\u00e9", "cafe\u0301"),
        ("Venn built", "Ve\u200bnn built"),
        ("Oss.", "Oss"),
        ("the Oss [...] sea", "the Oss runs to the sea"),
        ("Oss", ""),
        # A span does not begin or end inside a word or number.
        ("finished in 170", "The bridge was finished in 1702."),
        ("02", "1702"),
        ("ridge was", "The bridge was"),
        ("The Halm brid", "The Halm\nbridge"),
        ("3", "about 3.14 m"),
        ("14", "about 3.14 m"),
        ("1,70", "about 1,702 men"),
    ],
)
def test_what_is_not_there(span, text):
    assert locate_span(span, text) is None


@pytest.mark.parametrize(
    ("span", "text"),
    [
        ("a " * 1000 + "b", " " * 1_000_000),
        ("x " * 300_000 + "y", "x  " * 330_000),
        ("'" * 50_000 + '"', "’" * 1_000_000),
        ("a b", "a\n\n" * 300_000 + "a  c"),
        ("’ " * 5000 + "z", "'\t" * 500_000),
    ],
)
def test_a_million_spaces_or_quotes_are_no_trouble(span, text):
    # Anything quadratic would outlast the time limit of the whole run.
    assert locate_span(span, text) is None


ALPHABET = st.text(alphabet="ab'’\"“ \n\u00a0", max_size=14)


def pattern_of(span):
    """The same rule written another way: as a regular expression."""
    parts = []
    for word in span.split():
        quoted = [{"'": "['‘’‚‛]", '"': '["“”„‟]'}.get(_straight(letter), re.escape(letter)) for letter in word]
        parts.append("".join(quoted))
    return re.compile(r"\s+".join(parts))


def _straight(letter):
    return "'" if letter in "‘’‚‛" else '"' if letter in "“”„‟" else letter


def is_whole(text, start, end):
    """True if no word goes on across either end; texts of letters alone, so numbers do not matter."""
    return not any(re.fullmatch(r"\w\w", text[at - 1 : at + 1]) for at in (start, end) if at)


@given(ALPHABET, ALPHABET)
def test_agrees_with_a_regular_expression(span, text):
    places = []
    if span.strip():
        for pattern in (re.escape(span.strip()), pattern_of(span).pattern):
            found = [match.span(1) for match in re.finditer(f"(?=({pattern}))", text)]  # overlapping ones too
            places += [place for place in found if is_whole(text, *place)]
    assert locate_span(span, text) == (places[0] if places else None)


def test_an_occurrence_that_overlaps_one_inside_a_word_is_found():
    assert locate_span("ab a", "ab ab a") == (3, 7)


@given(st.lists(st.text(alphabet="aé1橋’", min_size=1, max_size=4), min_size=1, max_size=12), st.data())
def test_every_run_of_words_is_found_and_is_itself(words, data):
    text = " ".join(words)
    first = data.draw(st.integers(0, len(words) - 1))
    last = data.draw(st.integers(first, len(words) - 1))
    span = " ".join(words[first : last + 1])
    start, end = locate_span(span, text)
    assert text[start:end] == span and start <= len(" ".join(words[:first])) + (first > 0)


@given(st.text(max_size=20), st.text(max_size=60))
def test_what_is_found_is_the_span_up_to_spaces_and_quotes(span, text):
    place = locate_span(span, text)
    if place is not None:
        found = text[slice(*place)]
        assert found == found.strip() != ""
        assert plain(found) == plain(span)


# -------------------------------------------------------------------------------------- ten thousand true, and mutated

WORDS = (
    'Oss Halm bridge rises built the of in 1702 Venn’s Venn\'s “old” "old" naïve nai\u0308ve Łódź Straße '
    "ﬁne Ωmega мост 橋 古い橋 北京市 한강 สะพาน 👩‍🔧 🇭🇺 e\u0301 — – - , . ; don‘t 𝔐arta A\u030a ½ İstanbul"
).split()
SPACES = [" "] * 12 + ["  ", "\n", "\n\n", "\t", "\u00a0", "\u3000", " \r\n "]


def plain(text):
    """Spaces and quotes folded by other means than the ones under test."""
    for quote in "‘’‚‛":
        text = text.replace(quote, "'")
    for quote in "“”„‟":
        text = text.replace(quote, '"')
    return " ".join(text.split())


def write_documents(dice, num_documents=30, num_words=120):
    """Documents that say many things twice."""
    return {f"d{number}": write(dice, num_words) for number in range(num_documents)}


def write(dice, num_words):
    pieces = []
    while len(pieces) < num_words:
        if pieces and dice.random() < 0.3:
            pieces += pieces[-dice.randint(1, 12) :]
        pieces.append(dice.choice(WORDS) + dice.choice(SPACES))
    return "".join(pieces)


def cut(doc_id, text, num_parts=4):
    cuts = [len(text) * part // num_parts for part in range(num_parts + 1)]
    return [
        Passage(f"{doc_id}#{part}", doc_id, f"Title of {doc_id}", text[start:end], start, end)
        for part, (start, end) in enumerate(itertools.pairwise(cuts))
    ]


def slice_of(dice, text):
    """Some words in a row with what stands between them."""
    words = list(re.finditer(r"\S+", text))
    first = dice.randrange(len(words))
    last = min(len(words) - 1, first + dice.randrange(20))
    return text[words[first].start() : words[last].end()]


def is_within(evidence, passage):
    return evidence.doc_id == passage.doc_id and passage.start <= evidence.start < evidence.end <= passage.end


def rewrite(dice, span):
    """Other spaces and other quotes, as a policy would write them."""
    span = re.sub(r"\s+", lambda run: dice.choice(SPACES), span)
    swaps = {"’": "'", "'": "’", "“": '"', "”": '"', '"': "“", "‘": "'"}
    return "".join(swaps.get(letter, letter) if dice.random() < 0.5 else letter for letter in span)


def change_letter(dice, span):
    places = [number for number, letter in enumerate(span) if not letter.isspace()]
    number = dice.choice(places)
    return span[:number] + dice.choice("xzQ7ж橋é-") + span[number + 1 :]


def reorder(dice, span):
    words = span.split()
    dice.shuffle(words)
    return " ".join(words)


COUNTS = pytest.mark.parametrize("count", [1500, pytest.param(10_000, marks=pytest.mark.slow)])


@COUNTS
def test_true_spans_are_located(count):
    dice = random.Random(11)
    documents = write_documents(dice)
    passages = [passage for doc_id, text in documents.items() for passage in cut(doc_id, text)]
    num_repeated = num_rewritten = 0
    for number in range(count):
        shown = dice.sample(passages, 4)
        home = dice.choice(shown)
        span = slice_of(dice, home.text)
        written = rewrite(dice, span) if number % 2 else span
        evidence = find_evidence(written, shown)
        check_evidence(evidence, documents[evidence.doc_id])
        assert plain(evidence.text) == plain(written)
        at = next(number for number, passage in enumerate(shown) if is_within(evidence, passage))
        loose = [plain(written) in plain(passage.text) for passage in shown]
        whole = [f" {plain(written)} " in f" {plain(passage.text)} " for passage in shown]
        assert loose.index(True) <= at <= whole.index(True), "the first passage that holds it in whole words"
        num_repeated += home.text.count(span) > 1
        num_rewritten += written.strip() not in home.text
    assert num_repeated > count / 10, "the documents repeat themselves"
    assert num_rewritten > count / 10, "and spans were rewritten"


@COUNTS
def test_mutated_spans_are_refused(count):
    dice = random.Random(12)
    documents = write_documents(dice)
    by_document = {doc_id: cut(doc_id, text) for doc_id, text in documents.items()}
    passages = [passage for parts in by_document.values() for passage in parts]
    folded = {passage.id: plain(passage.text) for passage in passages}
    mutations = {
        "one character": lambda shown: change_letter(dice, slice_of(dice, dice.choice(shown).text)),
        "order of words": lambda shown: reorder(dice, slice_of(dice, dice.choice(shown).text)),
        "another document": lambda shown: slice_of(dice, dice.choice(passages).text),
        "never retrieved": lambda shown: slice_of(
            dice, dice.choice([part for part in by_document[shown[0].doc_id] if part not in shown]).text
        ),
        "title": lambda shown: shown[-1].title,
        "astride two passages": lambda shown: shown[0].text[-20:] + shown[1].text[:20],
    }
    refused = dict.fromkeys(mutations, 0)
    while sum(refused.values()) < count:
        kind = dice.choice(list(mutations))
        shown = dice.sample(passages, 3)
        span = mutations[kind](shown)
        if any(plain(span) in folded[passage.id] for passage in shown):
            continue  # not mutated after all
        assert find_evidence(span, shown) is None, (kind, span)
        refused[kind] += 1
    assert min(refused.values()) > count / 20, refused


def test_the_documents_hold_what_makes_offsets_hard():
    text = "".join(write_documents(random.Random(11)).values())
    assert any(unicodedata.combining(letter) for letter in text)
    assert any(ord(letter) > 0xFFFF for letter in text)


# --------------------------------------------------------------------------------------------------- whole episodes

RIVER = Passage("river#0", "river", "The Oss", "The Oss runs past the Halm bridge.", 0, 34)
BRIDGE = Passage("bridge#1", "bridge", "Halm bridge", "Venn built the Halm  bridge.", 100, 128)
TOWN = Passage("town#0", "town", "Halmgate", "Nobody was shown this.", 0, 22)


def search_turn(index, passages, failure=None):
    results = (SearchResult("q", tuple(Hit(passage, 1.0) for passage in passages)),)
    return Turn(index, "...", Search(("q",)), "stop_string", results=results, reply="whatever", failure=failure)


def episode_of(task, turns, outcome):
    return Episode("e", task, "p", "m", 0, (), tuple(turns), outcome, "answered")


def test_a_proposer_was_shown_its_document_and_what_came_back():
    turns = [search_turn(0, [BRIDGE, RIVER]), search_turn(1, [BRIDGE])]
    episode = episode_of(ProposeTask("p1", RIVER, 2), turns, Proposal("Who?", "Venn"))
    assert shown_passages(episode) == [RIVER, BRIDGE]
    # Both hold it: the document comes first. Offsets are the document's, not the passage's.
    assert find_evidence("the Halm bridge", shown_passages(episode)) == Evidence("river", 18, 33, "the Halm bridge")
    assert find_evidence("built the Halm bridge", shown_passages(episode)) == Evidence(
        "bridge", 105, 127, "built the Halm  bridge"
    )
    for absent in (TOWN.text, "Halm bridge\nVenn", "whatever", ""):
        assert find_evidence(absent, shown_passages(episode)) is None


def test_other_tasks_show_what_came_back():
    asked = SolveTask(Question("q1", "Who?", evidence=(Evidence("town", 0, 6, "Nobody"),)))
    assert shown_passages(episode_of(asked, [search_turn(0, [BRIDGE])], Answer("Venn"))) == [BRIDGE]
    assert shown_passages(episode_of(ProposeTask("p1", None, 1), [], None)) == []


def test_a_reply_that_did_not_fit_was_not_shown():
    failure = Failure("limit", "sequence_tokens", "the reply does not fit into the sequence")
    assert shown_passages(episode_of(ProposeTask("p1", RIVER, 2), [search_turn(0, [BRIDGE], failure)], None)) == [RIVER]


@pytest.mark.parametrize(
    ("evidence", "words"),
    [
        (Evidence("d", 0, 4, "Vemn"), "'Venn', but the evidence is 'Vemn'"),
        (Evidence("d", 0, 4, "Venn "), "evidence is 'Venn '"),
        (Evidence("d", 10, 18, "built it"), "which has 14"),
        (Evidence("d", -9, -1, "built it"), "which has 14"),
        (Evidence("d", 4, 4, ""), "characters 4 to 4"),
    ],
)
def test_evidence_that_is_not_its_document_is_refused(evidence, words):
    with pytest.raises(QuaereError, match=words) as caught:
        check_evidence(evidence, "Venn built it.")
    assert "\n" not in str(caught.value)


def test_evidence_that_is_its_document_is_accepted():
    check_evidence(Evidence("d", 5, 13, "built it"), "Venn built it.")
