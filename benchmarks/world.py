"""How hard are the generated worlds? Measured with BM25 and with scripts that have no model.

    python benchmarks/world.py                      # both families, 500 articles, five seeds
    python benchmarks/world.py --articles 2000 --seeds 1 2

Two tables per family. The first says what one search finds when the question itself is the query: the page of the first
hop, the page that bears the answer, and the pages of all hops, each within the first three results. The second says
how many answers the best scripts get exactly right. The scripts see only what a search agent sees (the question and the
found pages) and know nothing of the generator; a world whose questions they could answer would not need a model.
"""

from __future__ import annotations

import argparse
import re
from collections import Counter, defaultdict
from collections.abc import Callable, Sequence

import bm25s

from quaere.worlds import Article, GoldQuestion, generate_world

TOP = 3
STOP = frozenset(
    "a an the of in on at by to for from with and or as is was are were be been it its he she his her him who whom "
    "whose which what where when how many much that this did does do has have had into under than whoever person one".split()
)
ASKED_YEAR = re.compile(r"\byear\b|^when\b", re.IGNORECASE)
ASKED_NUMBER = re.compile(r"\bhow (many|long|tall|deep|high|old|wide|far)\b|\bnumber\b|\blength\b", re.IGNORECASE)
NUMBER_WORDS = "two three four five six seven eight nine ten eleven twelve".split()
IS_A = re.compile(r"\b(?:is|was) an? ((?:[\w-]+ ){0,3}?[\w-]+)(?= (?:of|that|with|who|known|where|at|whose|more|for|in|and)\b|[,.])")
COMMON = {
    "colour": set(
        "red blue green grey black white yellow brown crimson ochre russet indigo olive scarlet saffron violet".split()
    ),
    "day": set("monday tuesday wednesday thursday friday saturday sunday".split()),
    "month": set(
        "january february march april may june july august september october november december".split()
    ),
}
CAPITALISED = re.compile(r"(?:the )?[A-Z][\w'’-]*(?:(?: (?:of|the|and|for|on))* [A-Z][\w'’-]*)*")


class Library:
    """A BM25 index over the articles of a world."""

    def __init__(self, articles: Sequence[Article]) -> None:
        self.articles = articles
        self.engine = bm25s.BM25()
        tokens = bm25s.tokenize([f"{a.title}\n{a.text}" for a in articles], stopwords="en", show_progress=False)
        self.engine.index(tokens, show_progress=False)
        self.titles = {normal(article.title): article for article in articles}
        num_types: Counter[str] = Counter()
        for article in articles:
            num_types.update(words(match[1]) if (match := IS_A.search(article.text)) else ())
        self.types = {word for word, num in num_types.items() if num >= len(articles) / 100}
        num_seen: Counter[str] = Counter()
        for article in articles:
            num_seen.update(set(words(article.text)))
        self.rarity = {word: 1 / (1 + num) for word, num in num_seen.items()}

    def search(self, query: str, top: int = TOP) -> list[Article]:
        tokens = bm25s.tokenize([query], stopwords="en", show_progress=False)
        found, _ = self.engine.retrieve(tokens, k=top, show_progress=False)
        return [self.articles[int(at)] for at in found[0]]


def words(text: str) -> list[str]:
    """Lower-case content words, crudely stemmed, so that "built" is lost but "bridges" meets "bridge"."""
    return [stem(word) for word in re.findall(r"\w+", text.lower()) if word not in STOP]


def stem(word: str) -> str:
    for ending in ("ings", "ing", "ers", "er", "ed", "es", "s", "e"):
        if word.endswith(ending) and len(word) - len(ending) >= 4:
            return word[: -len(ending)]
    return word


def sentences(text: str) -> list[str]:
    return re.split(r"(?<=[.;])\s+", text.replace("\n\n", " "))


def candidates(question: str, sentence: str, title: str) -> list[str]:
    """Spans that could answer: a year or number where one is asked for, else names that are not in the question."""
    if ASKED_YEAR.search(question):
        return re.findall(r"\b1\d{3}\b", sentence)
    if ASKED_NUMBER.search(question):
        numbers = re.findall(r"\b\d[\d,]*\b|\b(?:" + "|".join(NUMBER_WORDS) + r")\b", sentence)
        return [number for number in numbers if not re.fullmatch(r"1\d{3}", number)]
    names = CAPITALISED.findall(sentence)
    known = (question + " " + title).lower()
    return [name for name in names if normal(name) and normal(name) not in known and name not in ("It", "She", "He")]


def normal(text: str) -> str:
    text = re.sub(r"[^\w\s]", " ", text.lower())
    return " ".join(word for word in text.split() if word not in ("a", "an", "the"))


def overlap(library: Library, question: str, sentence: str, weighted: bool) -> float:
    shared = set(words(question)) & set(words(sentence))
    return sum(library.rarity.get(word, 1.0) for word in shared) if weighted else float(len(shared))


# ---------------------------------------------------------------------------------------------------------- scripts

Script = Callable[[Library, str], str]


def best_sentence(top: int, weighted: bool, pick_last: bool) -> Script:
    """Of all sentences on the found pages, take the one most like the question, and in it the first (or last) span."""

    def answer(library: Library, question: str) -> str:
        scored = [
            (overlap(library, question, sentence, weighted), -rank, -at, spans)
            for rank, page in enumerate(library.search(question, top))
            for at, sentence in enumerate(sentences(page.text))
            if (spans := candidates(question, sentence, page.title))
        ]
        if not scored:
            return ""
        spans = max(scored)[3]
        return spans[-1 if pick_last else 0]

    return answer


def page_title(rank: int) -> Script:
    """The title of the n-th page found: right when the question runs against the arrow."""

    def answer(library: Library, question: str) -> str:
        pages = [page for page in library.search(question, 5) if normal(page.title) not in normal(question)]
        return pages[rank].title if len(pages) > rank else ""

    return answer


def most_frequent(library: Library, question: str) -> str:
    """The span that occurs most often on the first five pages."""
    counts: Counter[str] = Counter()
    for page in library.search(question, 5):
        for sentence in sentences(page.text):
            counts.update(candidates(question, sentence, page.title))
    return counts.most_common(1)[0][0] if counts else ""


def iterated(num_rounds: int, weighted: bool) -> Script:
    """Search, take the span of the best sentence, search for that span with the rest of the question, and so on."""

    def answer(library: Library, question: str) -> str:
        query, span = question, ""
        for _ in range(num_rounds):
            page = library.search(query, 1)[0]
            lines = [line for line in sentences(page.text) if candidates(question, line, page.title)]
            if not lines:
                break
            line = max(lines, key=lambda line: overlap(library, question, line, weighted))
            span = candidates(question, line, page.title)[0]
            query = f"{span} {span} {question}"
        return span

    return answer


class Reader:
    """A careful script: it reads the question from the inside out and follows names whose page has the right type.

    What a page is about is read off its first sentence ("... is a steep river ..."); whether a noun of the question is
    such a type ("the river that ...") is read off the first sentences of the whole corpus.
    """

    def __init__(self, pick: str) -> None:
        self.pick = pick  # among spans of the right type: the "best" sentence's, the "first" or the "last" one

    def __call__(self, library: Library, question: str) -> str:
        head, span = cut_name(library, question.rstrip("?"))
        pieces = [piece for piece in re.split(r"\bthe\b", head) if piece.strip()]
        answer = ""
        for at, piece in enumerate(reversed(pieces)):
            page = resolve(library, span)
            is_last = at == len(pieces) - 1
            found = self.step(library, piece, page, question if is_last else "")
            if found:
                answer = span = found
        return answer

    def step(self, library: Library, piece: str, page: Article, question: str) -> str:
        wanted = wanted_types(library, piece, bool(question))
        options: list[tuple[float, str]] = []
        for sentence in sentences(page.text):
            score = overlap(library, piece, sentence, False)
            spans = literals(library, piece, sentence) if question else None
            if spans is None:
                spans = [span for span in candidates("", sentence, page.title) if fits(library, span, wanted)]
            options += [(score, span) for span in spans]
        if not options:
            return ""
        if self.pick == "best":
            return max(options, key=lambda option: option[0])[1]
        return options[0 if self.pick == "first" else -1][1]


def cut_name(library: Library, question: str) -> tuple[str, str]:
    """The question up to the name of an entity, and that name: the longest run of words that is a title or an alias."""
    tokens = question.split()
    for length in range(min(8, len(tokens) - 1), 0, -1):
        for at in range(len(tokens) - length, 0, -1):
            name = " ".join(tokens[at : at + length])
            if normal(name) in library.titles:
                return " ".join(tokens[:at] + tokens[at + length :]), name
    runs = [run for run in CAPITALISED.findall(question) if run not in tokens[:1]]
    name = max(runs, key=len) if runs else tokens[-1]
    return question.replace(name, ""), name


def resolve(library: Library, name: str) -> Article:
    """The page of that title; else the best page that contains the name."""
    if normal(name) in library.titles:
        return library.titles[normal(name)]
    pages = library.search(name, 5)
    return next((page for page in pages if name.lower() in page.text.lower()), pages[0])


def first_words(page: Article) -> set[str]:
    return set(words(sentences(page.text)[0]))


def wanted_types(library: Library, piece: str, is_last: bool) -> set[str]:
    """The types a piece of the question asks for: its first noun that is one, or "person" for who and for agents."""
    for token in re.findall(r"\w+", piece.lower()):
        if token in ("who", "whom", "whose", "person", "one") or (len(token) > 5 and token.endswith(("er", "or", "ee"))):
            return {"person"}
        if stem(token) in library.types:
            return {stem(token)}
        if token not in STOP and not is_last:
            return set()
    return set()


def fits(library: Library, span: str, wanted: set[str]) -> bool:
    if not wanted:
        return True
    page = resolve(library, span)
    if wanted == {"person"}:
        return len(re.findall(r"\b(?:he|she|him|his|her)\b", page.text)) > 1 and len(span.split()) > 1
    return bool(wanted & first_words(page))


def literals(library: Library, piece: str, sentence: str) -> list[str] | None:
    """Years, numbers, colours, weekdays, months: what anyone can recognise; None if the question wants a name."""
    if ASKED_YEAR.search(piece) or ASKED_NUMBER.search(piece):
        return candidates(piece, sentence, "")
    for cue, known in COMMON.items():
        if cue in piece.lower():
            return [word for word in re.findall(r"\w+", sentence) if word.lower() in known]
    return None


SCRIPTS: dict[str, Script] = {
    "best sentence, first page": best_sentence(1, weighted=False, pick_last=False),
    "best sentence, first page, last span": best_sentence(1, weighted=False, pick_last=True),
    "best sentence, three pages": best_sentence(3, weighted=False, pick_last=False),
    "best sentence, three pages, rare words": best_sentence(3, weighted=True, pick_last=False),
    "best sentence, ten pages, rare words": best_sentence(10, weighted=True, pick_last=False),
    "first other title": page_title(0),
    "second other title": page_title(1),
    "most frequent span": most_frequent,
    "iterated, two rounds": iterated(2, weighted=False),
    "iterated, three rounds, rare words": iterated(3, weighted=True),
    "reader, best sentence": Reader("best"),
    "reader, first of its type": Reader("first"),
    "reader, last of its type": Reader("last"),
}

# ------------------------------------------------------------------------------------------------------- measuring


def is_right(given: str, question: GoldQuestion) -> bool:
    return bool(given) and normal(given) in {normal(answer) for answer in question.answers}


def measure(family: str, num_articles: int, seeds: Sequence[int], num_questions: int) -> None:
    found: dict[str, dict[int, list[bool]]] = defaultdict(lambda: defaultdict(list))
    right: dict[str, dict[int, list[bool]]] = defaultdict(lambda: defaultdict(list))
    for seed in seeds:
        world = generate_world(seed, num_articles, family)  # type: ignore[arg-type]
        library = Library(list(world.articles()))
        for question in world.questions(num_questions):
            pages = {page.id for page in library.search(question.text)}
            found["first hop"][question.hops].append(question.gold_ids[0] in pages)
            found["answer page"][question.hops].append(question.gold_ids[-1] in pages)
            found["all hops"][question.hops].append(pages.issuperset(question.gold_ids))
            for name, script in SCRIPTS.items():
                right[name][question.hops].append(is_right(script(library, question.text), question))
    print(f"\n{family}: {num_articles} articles, seeds {list(seeds)}, {num_questions} questions each\n")
    print_table("one search with the question, first three pages", found)
    print_table("exact match of scripts without a model", right)


def print_table(title: str, rows: dict[str, dict[int, list[bool]]]) -> None:
    hops = sorted(next(iter(rows.values())))
    print(f"| {title} | " + " | ".join(f"{hop} hop{'s' * (hop > 1)}" for hop in hops) + " | all |")
    print("|---|" + "--:|" * (len(hops) + 1))
    for name, by_hops in rows.items():
        shares = [100 * sum(by_hops[hop]) / len(by_hops[hop]) for hop in hops]
        everything = [flag for hop in hops for flag in by_hops[hop]]
        shares.append(100 * sum(everything) / len(everything))
        print(f"| {name} | " + " | ".join(f"{share:.1f} %" for share in shares) + " |")
    print()


def main() -> None:
    parser = argparse.ArgumentParser(description="How hard are the generated worlds?")
    parser.add_argument("--articles", type=int, default=500)
    parser.add_argument("--questions", type=int, default=400)
    parser.add_argument("--seeds", type=int, nargs="+", default=[1, 2, 3, 4, 5])
    parser.add_argument("--families", nargs="+", default=["evaluation", "warmup"])
    args = parser.parse_args()
    for family in args.families:
        measure(family, args.articles, args.seeds, args.questions)


if __name__ == "__main__":
    main()
