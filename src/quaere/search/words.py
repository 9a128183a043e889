"""Words in any script: chunking counts words, BM25 matches terms, which may be stems of a language.

Most scripts put spaces between words. Chinese, Japanese, Thai, Lao, Khmer and Burmese do not, and Korean attaches
particles to words; these scripts are treated character by character.

    >>> count_words("The Oss rises near Halmgate.")
    5
    >>> terms("Café Zürich, 1905")
    ['cafe', 'zurich', '1905']
    >>> terms("東京都")
    ['東', '京', '都', '東京', '京都']
    >>> terms("Configuring max_wal_size", stemmer="english", whole_names=True)
    ['configur', 'max', 'wal', 'size', 'max_wal_size']
    >>> detect_language(["The bridge is crossed by the road to Korrin, and it was built by a smith."])
    'english'
"""

import re
import threading
import unicodedata
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from functools import cache
from itertools import chain, pairwise
from typing import Any, NamedTuple

from quaere.errors import BadInput

AUTO = "auto"  # the language is detected in the documents
NO_STEMMER = "none"


def _character_class(categories: str, *blocks: range) -> str:
    """Regex ranges, for use inside `[...]`, of the characters in these blocks with these Unicode categories."""
    ranges: list[list[int]] = []
    for code in (code for code in chain(*blocks) if unicodedata.category(chr(code))[0] in categories):
        if ranges and ranges[-1][1] == code - 1:
            ranges[-1][1] = code
        else:
            ranges.append([code, code])
    return "".join(f"\\U{first:08X}-\\U{last:08X}" for first, last in ranges)


class _Patterns(NamedTuple):
    counted: re.Pattern[str]
    matched: re.Pattern[str]
    character: re.Pattern[str]
    many_marks: re.Pattern[str]


@cache
def _patterns() -> _Patterns:
    """The patterns, compiled at first use, because compiling takes longer than searching a small index."""
    unspaced = _character_class(
        "LN",
        range(0x0E00, 0x0F00),  # Thai, Lao
        range(0x1000, 0x10A0),  # Burmese
        range(0x1100, 0x1200),  # Hangul, letter by letter
        range(0x1780, 0x1800),  # Khmer
        range(0x3005, 0x3008),  # the signs that repeat a Chinese character, and zero
        range(0x3040, 0x3200),  # Hiragana, Katakana, Hangul compatibility letters
    ) + (
        r"\u3400-\u4DBF\u4E00-\u9FFF\uF900-\uFAFF\U00020000-\U000323AF"  # Chinese characters
        r"\uAC00-\uD7AF"  # Hangul
        r"\uFF66-\uFFDC\U0001B000-\U0001B16F"  # Katakana and Hangul of half width, historic kana
    )
    # Marks belong to the letter before them. Python's \w does not match them, so it would split words of Hindi or Thai
    # at every vowel sign. The blocks left out are Chinese characters and Hangul, which have no marks.
    marks = _character_class(
        "M", range(0x0300, 0x3100), range(0xA600, 0xAC00), range(0xFB00, 0xFF00), range(0x10000, 0x1F000)
    )
    return _Patterns(
        # One "word" of a budget: two unspaced characters, or a run of up to 20 others (so that a blob without spaces
        # still costs, and may be cut, like text).
        counted=re.compile(rf"(?:[{unspaced}][{marks}]*){{1,2}}|[^\s{unspaced}]{{1,20}}"),
        # A run of unspaced characters, or a word of letters and digits.
        matched=re.compile(rf"[{unspaced}][{unspaced}{marks}]*|[^\W_{unspaced}]+(?:[{marks}]+[^\W_{unspaced}]*)*"),
        character=re.compile(rf"[{unspaced}][{marks}]*"),
        # No text has more than 30 marks on a letter (the bound of Unicode's Stream-Safe Text Format), and
        # normalisation sorts the marks of a letter by comparing all of them with one another.
        many_marks=re.compile(rf"([{marks}]{{30}})[{marks}]++"),
    )


# Fast path: many corpora are mostly ASCII, which needs none of the above.
_ASCII_COUNTED = re.compile(r"\S{1,20}")
_ASCII_MATCHED = re.compile(r"[a-z0-9]+")

# Names of programs, options and settings: max_wal_size, --no-ff, limits.cpu, 2.0.3. They begin at a word's beginning.
_NAMES = re.compile(r"(?<![^\W_])[a-z0-9]++(?:[_.-][a-z0-9]++)++")

# A word that a hyphen breaks at the end of a line.
_BROKEN = re.compile(r"(?<![^\W\d_])([^\W\d_]++)-\r?\n[ \t]*+([^\W\d_]++)")

# Characters that folding removes: combining accents of Latin, Greek and Cyrillic letters, optional vowel points of
# Hebrew and Arabic, variation selectors of Chinese characters, and invisible marks for breaking words.
_ACCENTS = re.compile(
    "(?<=[!-~])\u200b+|[\u00ad\u2060\ufeff\ufe00-\ufe0f\U000e0100-\U000e01ef\u0300-\u036f\u0591-\u05bd\u05bf\u05c1\u05c2\u05c4\u05c5\u05c7\u064b-\u065f\u0670]+"
)


def count_words(text: str) -> int:
    """Number of words for length limits: `count_words("two words") == 2`, `count_words("東京都庁") == 2`."""
    return len((_ASCII_COUNTED if text.isascii() else _patterns().counted).findall(text))


def word_spans(text: str, start: int, end: int) -> Iterator[tuple[int, int]]:
    """Spans of the counted words in `text[start:end]`: `word_spans("ab cd", 0, 5)` gives (0, 2), (3, 5)."""
    return (match.span() for match in _patterns().counted.finditer(text, start, end))


def fold(text: str) -> str:
    """The text without case, accents and compatibility forms: `fold("ÉCOLE Ⅷ ﬁn") == "ecole viii fin"`.

    It is applied for matching only; stored text is never folded.
    """
    if text.isascii():
        return text.lower()
    bare = _ACCENTS.sub("", unicodedata.normalize("NFKD", _patterns().many_marks.sub(r"\1", text)))
    return unicodedata.normalize("NFKC", bare.replace("\u2010", "-").casefold())


def terms(
    text: str, *, stemmer: str = NO_STEMMER, whole_names: bool = False, without: frozenset[str] = frozenset()
) -> list[str]:
    """Terms for BM25: folded words; for unspaced scripts every character and every pair of characters.

    With a `stemmer` they are stems. With `whole_names`, names that are joined by `_`, `-` or `.` are also terms as they
    are, so that `max_wal_size` matches itself best and `wal size` as well; and so are words that were hyphenated at the
    end of a line. Words of `without` are left out.
    """
    folded = fold(text)
    found = _folded_words(folded)
    if whole_names and "-" in folded:
        found += [before + after for before, after in _BROKEN.findall(folded)]
    if without:
        found = [word for word in found if word not in without]
    if stemmer != NO_STEMMER:
        found = stem(found, stemmer)
        if not text.isascii():
            found += _accented_stems(text, stemmer, without)
    return found + _NAMES.findall(folded) if whole_names else found


def _folded_words(folded: str) -> list[str]:
    if folded.isascii():
        return _ASCII_MATCHED.findall(folded)
    found: list[str] = []
    patterns = _patterns()
    for word in patterns.matched.findall(folded):
        characters = [] if word.isascii() else patterns.character.findall(word)
        found += [*characters, *map("".join, pairwise(characters))] or [word]
    return found


def _accented_stems(text: str, stemmer: str, without: frozenset[str]) -> list[str]:
    """Additional stems of accented words: computed with the accents, then folded, if that differs from the plain stem.

    A stemmer needs the accents ("configuración" has the stem of "configuraciones"), but a query may lack them; so such
    a word gets both stems.
    """
    written = unicodedata.normalize("NFKC", _patterns().many_marks.sub(r"\1", text)).casefold()
    found: list[str] = []
    for word in _patterns().matched.findall(written):
        if word.isascii() or (folded := fold(word)) == word or folded in without or _patterns().character.match(word):
            continue
        with_accents, plain = stem([word, folded], stemmer)
        if fold(with_accents) != plain:
            found.append(fold(with_accents))
    return found


# ---------------------------------------------------------------------------------------------------------------- stems


def stem(words: Sequence[str], language: str) -> list[str]:
    """The stems of folded words; with the language "none" the words themselves."""
    return [*words] if language == NO_STEMMER else list(_open_stemmer(language).stemWords(words))


def check_stemmer(name: str) -> None:
    """Raise `BadInput` if there is no stemmer of this name."""
    if name not in (AUTO, NO_STEMMER, *_names()):
        hint = f"--stemmer takes auto, none, or one of {', '.join(_names())}"
        raise BadInput(f"there is no stemmer for {name!r}", hint=hint)


@cache
def _names() -> tuple[str, ...]:
    import Stemmer

    return tuple(Stemmer.algorithms())


_of_thread = threading.local()  # PyStemmer's stemmers are not to be shared between threads


def _open_stemmer(language: str) -> Any:
    if language not in vars(_of_thread):
        import Stemmer

        assert language != AUTO, "the build chooses the language"
        check_stemmer(language)
        vars(_of_thread)[language] = Stemmer.Stemmer(language)
    return vars(_of_thread)[language]


# ------------------------------------------------------------------------------------------------------------ languages


_MIN_SHARE = 0.05  # least share of frequent words: prose has three times that, tables of another language less
_LEAD = 1.2  # least ratio to the next language: neighbours (Danish and Norwegian) share many of their words


# By language: frequent words, and words of questions that pages rarely have. No frequent word is a single letter,
# because single letters are also names of variables.
_LANGUAGES = {
    "danish": (
        "og det er af til en på med som ikke den der for et de har blev også efter mellem",
        "hvad hvem hvis hvilken hvilket hvilke hvor hvornår hvorfor hvordan er var bliver blev har havde kan kunne "
        "skal skulle vil ville må gør gjorde findes",
    ),
    "dutch": (
        "de het een en van in is dat op te zijn met voor niet aan door ook naar bij wordt",
        "wat wie wiens welk welke waar wanneer waarom hoe is zijn was waren wordt worden heeft hebben had kan "
        "kunnen kon moet moeten zal zou mag doet doen er",
    ),
    "english": (
        "the of and to in is that it for with on by as are this be from at or was an which not",
        "what which who whom whose when where why how do does did doing is are was were be been being can could "
        "should would will may might must has have had there",
    ),
    "finnish": (
        "ja on ei se että oli hän myös joka mutta sen kun ovat tai niin kuin sekä jossa",
        "mikä mitä missä mistä mihin milloin miksi miten kuka kenen ketkä kumpi mitkä on ovat oli olivat onko oliko "
        "voi voiko pitää saa",
    ),
    "french": (
        "le la les de des du et est une un dans pour que qui par sur avec au aux ce cette sont pas",
        "que quel quelle quels quelles qui quoi où quand pourquoi comment combien lequel laquelle est sont était "
        "étaient sera a ont avait peut peuvent doit doivent faut fait il elle y ce",
    ),
    "german": (
        "der die das und in den von zu ist mit des dem ein eine im auf für nicht sich auch als wird",
        "was wer wem wen wessen welche welcher welches welchen welchem wo wohin woher wann warum wieso wie ist sind "
        "war waren wird werden wurde wurden hat haben hatte kann können konnte muss müssen soll sollte darf gibt es",
    ),
    "hungarian": (
        "az és hogy nem is egy ez volt csak meg de van mint már vagy amely",
        "mi mit mely melyik ki kit kinek hol hova honnan mikor miért hogyan hány mennyi van vannak volt voltak lesz "
        "lehet kell",
    ),
    "italian": (
        "il di che la in un per una con non del della le si da sono dei gli nel alla",
        "che cosa quale quali chi dove quando perché come quanto quanti quanta quante è sono era erano fu ha hanno "
        "aveva può possono deve devono fa",
    ),
    "norwegian": (
        "og det er av til en på med som ikke den for et de har ble også etter mellom",
        "hva hvem hvis hvilken hvilket hvilke hvor når hvorfor hvordan er var blir ble har hadde kan kunne skal "
        "skulle vil ville må gjør gjorde finnes",
    ),
    "portuguese": (
        "de que do da em um para com não uma os no se na por mais as dos ao pela são",
        "que qual quais quem onde quando porque porquê como quanto quantos quantas é são era eram foi foram tem têm "
        "tinha pode podem deve devem faz há",
    ),
    "romanian": (
        "și în de la cu pe este nu care un că din pentru sunt fost ale sau mai",
        "ce care cine cui unde când cum cât câți câte este sunt era erau a au fost poate pot trebuie",
    ),
    "russian": (
        "не на что по как это для из от но или при его также был",
        "что какой какая какое какие каком какого кто кого чей где когда куда откуда почему зачем как сколько был "
        "была было были есть может можно нужно ли",
    ),
    "spanish": (
        "de la que el en los del se las por un para con no una su al es lo más como",
        "qué cuál cuáles quién quiénes dónde cuándo cómo cuánto cuántos cuántas por es son era eran fue fueron está "
        "están ha han había puede pueden debe deben hay hace",
    ),
    "swedish": (
        "och att det som en på är av för med till den inte om ett de har var från",
        "vad vem vems vilken vilket vilka var när varför hur är var blir blev har hade kan kunde ska skulle vill "
        "ville måste gör gjorde finns",
    ),
    "turkish": (
        "ve bir bu için ile da de olarak daha çok olan gibi en kadar sonra ancak veya",
        "ne kim kimin hangi nerede nereye nereden neden niçin nasıl kaç mi mı mu mü",
    ),
}


def detect_language(texts: Iterable[str]) -> str:
    """The language whose frequent words are most common in the texts; "none" if no known language clearly leads."""
    counts = Counter(word for text in texts for word in terms(text))
    found = {name: sum(counts[word] for word in common) for name, common in _common_words().items()}
    best, second = sorted(found, key=lambda name: -found[name])[:2]
    is_clear = found[best] >= max(_MIN_SHARE * counts.total(), _LEAD * found[second], 1)
    return best if is_clear else NO_STEMMER


@cache
def question_words(language: str) -> frozenset[str]:
    """The folded question words and auxiliary verbs of a language; empty for languages without a list."""
    return frozenset(fold(_LANGUAGES[language][1]).split()) if language in _LANGUAGES else frozenset()


@cache
def _common_words() -> dict[str, frozenset[str]]:
    return {name: frozenset(fold(common).split()) for name, (common, _) in _LANGUAGES.items()}
