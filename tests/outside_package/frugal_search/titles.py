"""A search engine that compares the words of a query with the titles of passages; it needs no library."""

import json

from quaere.search.engines import Backend, Match, rank


class TitleEngine:
    """Passages with a word of the query in their title; the score is the number of such words."""

    def __init__(self, titles):
        self._titles = [words_of(title) for title in titles]

    def search(self, queries, topk):
        return [rank(self._matches(words_of(query)), topk) for query in queries]

    def _matches(self, words):
        shared = [len(words & title) for title in self._titles]
        return [Match(number, float(count)) for number, count in enumerate(shared) if count]


def words_of(text):
    return {word.strip("?.,").lower() for word in text.split()}


def build_titles(build):
    build.folder.mkdir()
    titles = [build.read(number).title for number in range(build.num_passages)]
    (build.folder / "titles.json").write_text(json.dumps(titles))
    return 0


def open_titles(folder, settings):
    return TitleEngine(json.loads((folder / "titles.json").read_text()))


TITLES = Backend(build_titles, open_titles)
