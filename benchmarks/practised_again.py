"""What a run of `quaere learn` gained, without the questions held back whose text or sentences were practised.

    cd benchmarks/results/learn
    python ../../practised_again.py questions.jsonl.gz held-before.items.jsonl.gz held-after.items.jsonl.gz

Runs before the split of `warmup/documents/held_back.py` left such questions out. Intervals are over clusters of
documents, as `quaere learn` has them, and over questions, as it had them.
"""

import argparse
from pathlib import Path

from quaere.api.checked_questions import read_checked
from quaere.api.printing import between
from quaere.evaluation.intervals import clustered_difference, paired_difference
from quaere.evaluation.qa.items import read_items
from quaere.warmup.documents.held_back import find_clusters, list_contents, list_documents


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    for name in ("questions", "before", "after"):
        parser.add_argument(name, type=Path)
    args = parser.parse_args()
    before, after = ({one.id: one for one in read_items(path)} for path in (args.before, args.after))
    every = read_checked(args.questions)
    held = [one for one in every if one.id in before and before[one.id].answerable]
    documents = {name for one in held for name in list_documents(one)}
    practised = [one for one in every if documents.isdisjoint(list_documents(one))]
    known = set().union(*map(list_contents, practised))
    for name, asked in (("all", held), ("new", [one for one in held if known.isdisjoint(list_contents(one))])):
        clusters = find_clusters(asked)
        shares = [[side[one.id].exact_match for one in asked] for side in (after, before)]
        means = (f"{100 * sum(side) / len(side):.1f}" for side in reversed(shares))
        by_document = between(clustered_difference(*shares, [clusters[one.id] for one in asked]), "+")
        by_question = between(paired_difference(*shares), "+")
        num = len(set(clusters.values()))
        print(
            f"{name}: {len(asked)} in {num} clusters, {', '.join(means)}: {by_document}; over questions {by_question}"
        )


if __name__ == "__main__":
    main()
