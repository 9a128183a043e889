from unicodedata import normalize

import pytest
from hypothesis import given
from hypothesis import strategies as st

from quaere.search.words import count_words, fold, terms, word_spans


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("Café Zürich, 1905", ["cafe", "zurich", "1905"]),
        ("don't stop_it", ["don", "t", "stop", "it"]),
        ("東京都", ["東", "京", "都", "東京", "京都"]),
        ("abc東京", ["abc", "東", "京", "東京"]),
        ("コーヒー・ﾊﾝ", ["コ", "ー", "ヒ", "ー", "コー", "ーヒ", "ヒー", "ハ", "ン", "ハン"]),
        ("서울은", ["서", "울", "은", "서울", "울은"]),
        ("ที่", ["ที่"]),
        ("ကခ", ["က", "ခ", "ကခ"]),  # the first letters of Burmese
        ("हिन्दी में", ["हिन्दी", "में"]),
        ("Привет, МИР", ["привет", "мир"]),
        ("العَرَبِيَّة", ["العربية"]),
        ("Straße İstanbul ﬁn Ⅷ", ["strasse", "istanbul", "fin", "viii"]),
        ("Donau\u00addampf\ufeff java.\u200butil pg\u2011dump", ["donaudampf", "java", "util", "pg", "dump"]),
        ("... !?", []),
    ],
)
def test_terms_of_every_script(text, expected):
    assert terms(text) == expected


def test_names_and_hyphenated_words_are_also_terms_as_a_whole():
    def whole(text):
        return terms(text, stemmer="english", whole_names=True)

    assert whole("con-\n  figuring it")[-1] == "configur" and whole("con-\r\nfiguring")[-1] == "configur"
    assert whole("con- figuring 1-\n2 a\n-b") == ["con", "figur", "1", "2", "a", "b"]
    assert {"pg-dump", "java.util"} <= {*whole("pg\u2011dump java.\u200butil")}
    assert terms("con-\nfiguring") == ["con", "figuring"]


@pytest.mark.parametrize("whole", ["서울은 크다", "東京都庁", "ภาษาไทยที่", "สวัสดี"])
def test_a_part_of_a_word_without_spaces_shares_terms_with_the_whole(whole):
    assert set(terms(whole[:2])) & set(terms(whole))


@given(st.text(alphabet="aZ09éÉüÜñÑçÇжЖωΩ東 ,-"))
def test_case_and_composition_do_not_matter(text):
    for form in (text.upper(), text.lower(), normalize("NFD", text), normalize("NFC", text)):
        assert terms(form) == terms(text)
    assert fold(fold(text)) == fold(text)


@given(st.text())
def test_spans_are_what_is_counted(text):
    spans = list(word_spans(text, 0, len(text)))
    assert len(spans) == count_words(text)
    assert all(start < end for start, end in spans)
    covered = {position for start, end in spans for position in range(start, end)}
    assert all(position in covered for position, character in enumerate(text) if not character.isspace())


def test_a_word_without_end_counts_for_many():
    assert count_words("x" * 1000) == 50
    assert count_words("字" * 1000) == 500
    assert count_words("one two  three\n") == 3
