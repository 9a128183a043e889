"""How hard are the generated worlds? Measured with BM25 and with scripts that have no model.

    python benchmarks/world.py                      # both families, 500 articles, five seeds, 400 questions each
    python benchmarks/world.py --articles 2000 --seeds 1 2

Two tables per family. The first says what one search finds when the question itself is the query: the page of the first
fact, the page that bears the answer, and the pages of all facts, each within the first three results. The second says
how many answers scripts get exactly right. The scripts see only the question and the pages, and know nothing of the
generator; a world whose questions they could answer would not need a model.
"""

from __future__ import annotations

import argparse
import re
from collections import Counter, defaultdict
from collections.abc import Callable, Sequence
from functools import cached_property

import bm25s

from quaere.worlds import FAMILIES, Article, GoldQuestion, generate_world

TOP = 3
STOP = frozenset(
    "a an the of in on at by to for from with and or as is was are were be been it its he she his her him who whom "
    "whose which what where when how many much that this did does do has have had into under than one".split()
)
ASKED_YEAR = re.compile(r"\byear\b|^\s*(?:since )?when\b", re.IGNORECASE)
ASKED_NUMBER = re.compile(r"\bhow (?:many|long|tall|deep|high|old)\b|\bnumber\b|\blength\b|\bage\b", re.IGNORECASE)
ASKED_PERSON = frozenset("who whom whose person".split())
YEAR = re.compile(r"\b1\d{3}\b")
NUMBER = re.compile(r"\b\d[\d,]*\b|\b(?:two|three|four|five|six|seven|eight|nine|ten|eleven|twelve)\b")
NAME = re.compile(r"[A-Z][\w'-]*(?:(?: (?:of|the|and|for|on))* [A-Z][\w'-]*)*")
IS_A = re.compile(
    r"\b(?:is|was) an? (?:[\w-]+ ){0,2}?([\w-]+)(?= (?:of|that|with|who|known|where|at|whose|for)\b|[,.])"
)
KNOWN_WORDS = {  # what anyone can recognise without having seen these worlds
    "colour": frozenset(
        "red blue green grey black white brown crimson ochre russet indigo olive scarlet saffron violet".split()
    ),
    "day": frozenset("monday tuesday wednesday thursday friday saturday sunday".split()),
    "month": frozenset("january february march april june july august september october november december".split()),
    "metal": frozenset("bronze pewter lead iron copper gunmetal steel brass silver gold".split()),
    "stone": frozenset("granite sandstone limestone basalt slate marble flint brick".split()),
    "wood": frozenset("walnut pearwood maple yew rosewood cherry ash spruce oak".split()),
    "tree": frozenset("cypress fig tamarind cedar palm lemon olive eucalyptus mulberry carob oak".split()),
}


def words(text: str) -> list[str]:
    """Content words, lower-case and crudely stemmed: "bridges" meets "bridge"."""
    return [stem(word) for word in re.findall(r"\w+", text.lower()) if word not in STOP]


def stem(word: str) -> str:
    for ending in ("ings", "ing", "ers", "er", "ed", "es", "s", "e"):
        if word.endswith(ending) and len(word) - len(ending) >= 4:
            return word[: -len(ending)]
    return word


def sentences(text: str) -> list[str]:
    return re.split(r"(?<=[.;])\s+", text)


def normal(text: str) -> str:
    return " ".join(word for word in re.sub(r"[^\w\s]", " ", text.lower()).split() if word not in ("a", "an", "the"))


class Library:
    """The articles of a world behind a BM25 index."""

    def __init__(self, articles: Sequence[Article]) -> None:
        self.articles = articles
        self.engine = bm25s.BM25()
        texts = [f"{article.title}\n{article.text}" for article in articles]
        self.engine.index(bm25s.tokenize(texts, stopwords="en", show_progress=False), show_progress=False)
        self.titles = {normal(article.title): article for article in articles}
        self.resolved: dict[str, Article] = {}

    def search(self, query: str, top: int = TOP) -> list[Article]:
        tokens = bm25s.tokenize([query], stopwords="en", show_progress=False)
        found, _ = self.engine.retrieve(tokens, k=top, show_progress=False)
        return [self.articles[int(at)] for at in found[0]]

    @cached_property
    def types(self) -> frozenset[str]:
        """Nouns that say what pages are about: "... is a steep valley that ..."."""
        nouns = Counter(stem(match[1]) for a in self.articles if (match := IS_A.search(a.text)))
        return frozenset(noun for noun, num in nouns.items() if num >= len(self.articles) / 100)

    @cached_property
    def plain_words(self) -> frozenset[str]:
        """Words that also occur without a capital, so that "Rats" at the start of a sentence is no name."""
        return frozenset(word for article in self.articles for word in re.findall(r"\b[a-z]+\b", article.text))

    def page_of(self, name: str) -> Article:
        """The page of that title, else the best page that contains the name."""
        if page := self.titles.get(normal(name)) or self.resolved.get(name):
            return page
        pages = self.search(name, 5)
        self.resolved[name] = next((page for page in pages if name.lower() in page.text.lower()), pages[0])
        return self.resolved[name]


def names_in(library: Library, sentence: str, known: str) -> list[str]:
    """Names in a sentence, except those already known: runs of capitals, and any words that are a title."""
    found = []
    for run in NAME.findall(sentence):
        tokens = run.removesuffix("'s").split()
        while tokens and tokens[0].lower() in library.plain_words and normal(" ".join(tokens)) not in library.titles:
            tokens = tokens[1:]
        found.append(" ".join(tokens))
    tokens = re.findall(r"[\w'-]+", sentence)
    for length in (3, 2, 1):
        for at in range(len(tokens) - length + 1):
            name = " ".join(tokens[at : at + length])
            if name.islower() and normal(name) in library.titles:
                found.append(name)
    return [name for name in found if normal(name) and normal(name) not in known]


def spans_in(library: Library, asked: str, sentence: str, title: str) -> list[str]:
    """What could answer: a year, a number, a colour and the like where that is asked for, else names."""
    if ASKED_YEAR.search(asked):
        return YEAR.findall(sentence)
    if ASKED_NUMBER.search(asked):
        return [number for number in NUMBER.findall(sentence) if not YEAR.fullmatch(number)]
    for cue, known in KNOWN_WORDS.items():
        if cue in asked.lower():
            return [word for word in re.findall(r"\w+", sentence) if word.lower() in known]
    return names_in(library, sentence, normal(f"{asked} {title}"))


def overlap(question: str, sentence: str) -> int:
    return len(set(words(question)) & set(words(sentence)))


# ---------------------------------------------------------------------------------------------------------- scripts

Script = Callable[[Library, str], str]


def best_sentence(top: int, last: bool = False) -> Script:
    """Of all sentences on the found pages, take the one most like the question, and in it the first (or last) span."""

    def answer(library: Library, question: str) -> str:
        options = [
            (overlap(question, sentence), -rank, -at, spans)
            for rank, page in enumerate(library.search(question, top))
            for at, sentence in enumerate(sentences(page.text))
            if (spans := spans_in(library, question, sentence, page.title))
        ]
        return max(options)[3][-1 if last else 0] if options else ""

    return answer


def other_title(library: Library, question: str) -> str:
    """The first page found that the question does not name: right when the question runs against the arrow."""
    pages = [page for page in library.search(question, 5) if normal(page.title) not in normal(question)]
    return pages[0].title if pages else ""


def most_frequent(library: Library, question: str) -> str:
    """The span that occurs most often on the first five pages."""
    pages = library.search(question, 5)
    spans = Counter(
        s for page in pages for line in sentences(page.text) for s in spans_in(library, question, line, page.title)
    )
    return spans.most_common(1)[0][0] if spans else ""


def iterated(num_rounds: int) -> Script:
    """Search, take the span of the best sentence, search for it together with the question, and so on."""

    def answer(library: Library, question: str) -> str:
        query, span = question, ""
        for _ in range(num_rounds):
            page = library.search(query, 1)[0]
            lines = [line for line in sentences(page.text) if spans_in(library, question, line, page.title)]
            if not lines:
                break
            line = max(lines, key=lambda line: overlap(question, line))
            span = spans_in(library, question, line, page.title)[0]
            query = f"{span} {span} {question}"
        return span

    return answer


class Reader:
    """The careful one: takes the question apart from the inside out and follows a name of the right type at every step.

    "Which river flows through | the town where | the author of | The Salt Ledger ...": from the page of The Salt Ledger
    to a person named there, to a town named on that person's page, to a river named on the town's page. The type of a
    page is read off its first sentence. Among names of the right type it takes the one in the sentence most like the
    piece of the question (`pick` "best"), or simply the first.
    """

    def __init__(self, pick: str) -> None:
        self.pick = pick

    def __call__(self, library: Library, question: str) -> str:
        rest, name = cut_name(library, question.rstrip("?"))
        pieces = [piece for piece in re.split(r"\bthe\b", rest) if piece.strip()]
        if len(pieces) > 1 and not words(pieces[0]):
            pieces[:2] = [pieces[0] + pieces[1]]  # "What is | the native town of" is one piece
        answer = ""
        for left in range(len(pieces) - 1, -1, -1):
            page = library.page_of(name)
            if found := self.step(library, pieces[left], page, is_last=left == 0):
                answer = name = found
        return answer

    def step(self, library: Library, piece: str, page: Article, is_last: bool) -> str:
        wanted = wanted_type(library, piece)
        options = []
        for line in sentences(page.text):
            spans = spans_in(library, piece if is_last else "", line, page.title)
            options += [(overlap(piece, line), span) for span in spans if is_of(library, span, wanted)]
        if not options:
            return ""
        return max(options, key=lambda option: option[0])[1] if self.pick == "best" else options[0][1]


def cut_name(library: Library, question: str) -> tuple[str, str]:
    """The question without the name it starts from, and that name: the longest title, else the longest capitals."""
    tokens = question.split()
    for length in range(min(8, len(tokens) - 1), 0, -1):
        for at in range(len(tokens) - length, 0, -1):
            name = " ".join(tokens[at : at + length])
            if normal(name) in library.titles:
                return " ".join(tokens[:at] + tokens[at + length :]), name
    runs = NAME.findall(" ".join(tokens[1:]))
    name = max(runs, key=len) if runs else tokens[-1]
    return question.replace(name, ""), name


def wanted_type(library: Library, piece: str) -> str:
    """The type of page a piece of the question leads to: its first noun that is one, or "person"."""
    for token in re.findall(r"\w+", piece.lower()):
        if stem(token) in library.types:
            return stem(token)
        if token in ASKED_PERSON or (len(token) > 5 and token.endswith(("er", "or", "ee"))):
            return "person"
    return ""


def is_of(library: Library, span: str, wanted: str) -> bool:
    if not wanted or span[0].isdigit():
        return True
    page = library.page_of(span)
    if wanted == "person":
        return len(re.findall(r"\b(?:he|him|his|she|her)\b", page.text)) > 1 and " " in span
    return wanted in words(sentences(page.text)[0])


SCRIPTS: dict[str, Script] = {
    "best sentence, first page": best_sentence(1),
    "best sentence, first page, last span": best_sentence(1, last=True),
    "best sentence, three pages": best_sentence(3),
    "best sentence, ten pages": best_sentence(10),
    "title of another page": other_title,
    "most frequent span": most_frequent,
    "iterated, two rounds": iterated(2),
    "iterated, four rounds": iterated(4),
    "reader, best sentence": Reader("best"),
    "reader, first name": Reader("first"),
}

# -------------------------------------------------------------------------------------------------------- measuring

Table = dict[str, dict[int, list[bool]]]


def is_right(given: str, question: GoldQuestion) -> bool:
    return bool(given) and normal(given) in {normal(answer) for answer in question.answers}


def measure(family: str, num_articles: int, seeds: Sequence[int], num_questions: int) -> tuple[Table, Table]:
    found: Table = defaultdict(lambda: defaultdict(list))
    right: Table = defaultdict(lambda: defaultdict(list))
    for seed in seeds:
        world = generate_world(seed, num_articles, family)
        library = Library(list(world.articles()))
        for question in world.questions(num_questions):
            pages = {page.id for page in library.search(question.text)}
            found["page of the first fact"][question.facts].append(question.gold_ids[0] in pages)
            found["page with the answer"][question.facts].append(question.gold_ids[-1] in pages)
            found["pages of all facts"][question.facts].append(pages.issuperset(question.gold_ids))
            for name, script in SCRIPTS.items():
                right[name][question.facts].append(is_right(script(library, question.text), question))
    return found, right


def print_table(title: str, rows: Table) -> None:
    facts = sorted(next(iter(rows.values())))
    print(f"| {title} | " + " | ".join(f"{number} fact{'s' * (number > 1)}" for number in facts) + " | all |")
    print("|---|" + "--:|" * (len(facts) + 1))
    for name, by_facts in rows.items():
        columns = [by_facts[number] for number in facts]
        columns.append([flag for column in columns for flag in column])
        print(f"| {name} | " + " | ".join(f"{100 * sum(flags) / len(flags):.1f} %" for flags in columns) + " |")
    print()


def main() -> None:
    parser = argparse.ArgumentParser(description="How hard are the generated worlds?")
    parser.add_argument("--articles", type=int, default=500)
    parser.add_argument("--questions", type=int, default=400)
    parser.add_argument("--seeds", type=int, nargs="+", default=[1, 2, 3, 4, 5])
    parser.add_argument("--families", nargs="+", default=list(FAMILIES), choices=list(FAMILIES))
    args = parser.parse_args()
    for family in args.families:
        found, right = measure(family, args.articles, args.seeds, args.questions)
        print(f"\n{family}: {args.articles} articles, seeds {args.seeds}, {args.questions} questions each\n")
        print_table("found by one search with the question, first three pages", found)
        print_table("answered by a script, exact match", right)


if __name__ == "__main__":
    main()
