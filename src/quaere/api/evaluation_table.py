"""Results of `quaere.evaluate` and `quaere eval` on the terminal: scores and differences, as tables or as JSON.

print_results(evaluation, [earlier], None)
"""

from __future__ import annotations

import shlex
from collections.abc import Iterable, Sequence
from statistics import fmean

from rich.console import Console
from rich.table import Table
from rich.text import Text

from quaere.api.printing import as_json, between, cells, count, inflect, plain_table, share_table, wide_console
from quaere.chat.terminal_text import printable
from quaere.evaluation.intervals import Interval
from quaere.evaluation.qa import differences, scores
from quaere.evaluation.qa.abstaining import AbstentionScore
from quaere.evaluation.qa.answer_kinds import say_constant
from quaere.evaluation.qa.differences import ArmDifference, Difference
from quaere.evaluation.qa.items import EvidenceScore
from quaere.evaluation.qa.scores import Judging, Scored
from quaere.runs import Run

ABSTENTION_HEAD = ("unanswerable refused %", "answerable refused %", "wrong of answered %", "wrong at 80 %")
_MEASURES = {
    "exact_match": "EM",
    "f1": "F1",
    "present": "present",
    "verbatim": "verbatim",
    "supported": "supported",
    "joint": "joint",
    "gold": "gold",
    "gold_joint": "gold joint",
    "open_exact_match": "EM without yes/no and choices",
}
_LEGEND = (
    "in brackets the 95 % interval over questions alone; in parentheses the smallest difference that could be shown"
)
_ARM_LEGEND = (
    "in brackets the 95 % interval over questions and seeds; in parentheses the smallest difference that could be shown"
)
_MAX_INTERVALS = 4  # columns with intervals that fit into 120 characters
_GOLD_LEGEND = "gold: the span is verbatim of a gold passage that was shown and holds the answer; gold joint: and EM"


def print_results(
    evaluation: Scored, others: list[Scored], stored: Run | None, arms: Sequence[ArmDifference] = ()
) -> None:
    """Print a table of all results, the paired differences, and where the episodes are stored."""
    # With seeds, one file's difference to another says less than that of their arms.
    compared = [] if arms else [differences.compare(evaluation, other) for other in others]
    console = wide_console(120)
    console.print(_table([*others, evaluation]))
    if (groups := _group_table([*others, evaluation])) is not None:
        console.print(groups)
    _print_abstention(console, [*others, evaluation])
    _print_evidence(console, [*others, evaluation])
    for other in others:
        if scores.has_other_index(other, evaluation):
            said = f"* {other.name}: with another index, not comparable with {evaluation.name}"
            console.print(Text(printable(said)), style="yellow")
    for other, difference in zip(others, compared, strict=not arms):
        console.print(Text(printable(_difference_line(evaluation, other, difference))))
    for arm in arms:
        console.print(Text(printable(_arm_line(arm))))
    if arms or any(compared):
        console.print(_ARM_LEGEND if arms else _LEGEND, style="dim", markup=False)
    for one in (*others, evaluation):
        for constant in one.score.constants:
            if constant.is_constant:
                console.print(Text(printable(say_constant(one.name, constant)), style="yellow"))
    score = evaluation.score
    told = []
    if score.num_search_failed:
        told.append(f"search failed in {count(score.num_search_failed, 'episode')}; each counts as wrong")
    if score.num_failed:
        told.append(f"the model failed in {count(score.num_failed, 'episode')}; each counts as wrong")
    if told and stored is not None:
        told.append(f"the same command with --resume {shlex.quote(str(stored.path))} asks these questions again")
    if score.unanswered:
        told.append(f"{score.unanswered:.1%} of the questions were left unanswered at a limit of turns or tokens")
    for line in told:
        console.print(line, style="yellow", markup=False)
    costs = f"{score.mean_turns:.2f} turns and {score.mean_tokens:.0f} tokens an episode"
    console.print(f"{_count_asked(evaluation)}; {costs}; {count(score.num_malformed, 'malformed turn')}", style="dim")
    if stored is not None:
        console.print(f"quaere runs show {shlex.quote(str(stored.path))}", style="dim", markup=False, soft_wrap=True)


def print_json(
    evaluation: Scored, others: list[Scored], stored: Run | None, arms: Sequence[ArmDifference] = ()
) -> None:
    """Print the result and what it is compared with; the questions one by one are in the run and in --out."""
    found = {
        "name": evaluation.name,
        "settings": evaluation.settings,
        "score": evaluation.score,
        "judging": evaluation.judging,
        "compare": [
            {
                "name": other.name,
                "score": other.score,
                "difference": differences.compare(evaluation, other),
                "differs": ["index"] if scores.has_other_index(other, evaluation) else [],
            }
            for other in others
        ],
        "arms": arms,
        "run": str(stored.path) if stored else None,
    }
    print(as_json(found))


def _result_table(first: str, *names: str, rows: Iterable[Sequence[str]]) -> Table:
    """A row per result; its name is wrapped on narrow terminals, numbers are not."""
    return plain_table(first, *names, rows=rows, whole=names)


def _table(evaluations: list[Scored]) -> Table:
    rows = []
    for evaluation in evaluations:
        score = evaluation.score
        rates = [between(rate) if rate.num else "" for rate in (score.exact_match, score.f1)]
        numbers = (str(score.exact_match.num), *rates)
        searches, items = f"{score.mean_searches:.2f}", evaluation.items
        if known := [item for item in items if item.answerable and item.searches_needed]:
            means = (fmean(getattr(item, name) for item in known) for name in ("num_searches", "searches_needed"))
            searches = "{:.2f} of {:.2f} needed".format(*means)
        answered = f"{score.answered:.1%}" + _say_num(len(items), score.exact_match.num)
        mark = " *" if scores.has_other_index(evaluation, evaluations[-1]) else ""
        rows.append((evaluation.name + mark, *numbers, searches, answered))
    return _result_table("result", "questions", "EM %", "F1 %", "searches", "answered", rows=rows)


def _group_table(evaluations: list[Scored]) -> Table | None:
    """Exact match by facts, kind of answer and searches needed; None if no grouping has two groups."""
    groups = [_groups(evaluation) for evaluation in evaluations]
    names = list(dict.fromkeys(name for found in reversed(groups) for name in found))
    if not names:
        return None
    table = plain_table("EM % by group", "questions", whole=("questions",))
    is_narrow = len(evaluations) > _MAX_INTERVALS
    width = 12 if is_narrow else 21
    for heading in cells(*(evaluation.name for evaluation in evaluations)):
        table.add_column(heading, min_width=width, max_width=width)  # long names are wrapped
    for name in names:
        found = [group.get(name) for group in groups]
        num = next(interval.num for interval in reversed(found) if interval)
        row = [name, str(num)]
        for interval in found:
            said = "" if interval is None else f"{100 * interval.mean:.1f}" if is_narrow else between(interval)
            row.append(said if interval is None else said + _say_num(interval.num, num))
        table.add_row(*cells(*row))
    return table


def _say_num(num: int, usual: int) -> str:
    """ " of 6" where a figure is of other questions than those whose number is said beside it."""
    return "" if num == usual else f" of {num}"


def _groups(evaluation: Scored) -> dict[str, Interval]:
    """Exact match by group, of each grouping that has several; searches only if they differ from facts."""
    score = evaluation.score
    facts = {_count(group.facts, "fact"): group.exact_match for group in score.by_facts}
    kinds = {group.name: group.exact_match for group in score.by_kind}
    searches = {_count(int(group.name), "search"): group.exact_match for group in score.by_searches}
    differ = any(item.searches_needed not in (0, item.facts) for item in evaluation.items)
    groupings = [facts, kinds, searches if differ else {}]
    return {name: interval for found in groupings if len(found) > 1 for name, interval in found.items()}


def _count(number: int, noun: str) -> str:
    return count(number, noun) if number else f"{inflect(2, noun)} unknown"


def _count_asked(evaluation: Scored) -> str:
    num_unanswerable = sum(not item.answerable for item in evaluation.items)
    asked = count(len(evaluation.items), "question")
    return f"{asked}, {num_unanswerable} of them without an answer" if num_unanswerable else asked


def _print_abstention(console: Console, evaluations: list[Scored]) -> None:
    """Print how often results abstain, and how often they are wrong; of a single result also by kind of answer."""
    found = [(one.name, one.score.abstention) for one in evaluations if one.score.abstention]
    if not found:
        return
    curves = [f"{name}: {', '.join(f'{100 * risk:.0f}' for _, risk in one.curve)}" for name, one in found]
    if len(evaluations) == 1:
        found += [(f"  {kind}", one) for kind, one in found[0][1].by_kind.items()]
    rows = [(name, *abstention_cells(one)) for name, one in found]
    console.print(_result_table("abstention", *ABSTENTION_HEAD, rows=rows))
    legend = "wrong % if only the surest 10, 20, ... 100 % of all questions are answered: "
    console.print(printable(legend + "; ".join(curves)), style="dim", markup=False)


def abstention_cells(one: AbstentionScore) -> list[str]:
    """The cells below `ABSTENTION_HEAD`."""
    shares = (one.refused, one.refused_answerable, one.wrong)
    return [*("" if share is None else between(share) for share in shares), f"{100 * one.wrong_at_80:.1f}"]


def _print_evidence(console: Console, evaluations: list[Scored]) -> None:
    """Print the accuracy of every judge, then the evidence scores of results that have them."""
    cited = [evaluation for evaluation in evaluations if evaluation.score.evidence]
    if not cited:
        return
    # A judge's accuracy comes before anything it decided.
    judgings = {evaluation.judging.judge: evaluation.judging for evaluation in cited if evaluation.judging}
    for judging in judgings.values():
        _print_judging(console, judging)
    names = ("present %", "verbatim %", "supported %", "joint %", "judged by")
    rows = []
    for evaluation in cited:
        score, judge = _evidence(evaluation), evaluation.judging.judge if evaluation.judging else "no judge"
        shares = (score.present, score.verbatim, score.supported, score.joint)
        rows.append((evaluation.name, *(between(share) if share else "" for share in shares), judge))
    console.print(_result_table("result", *names, rows=rows))
    found = [(evaluation.name, _evidence(evaluation)) for evaluation in cited]
    gold = [
        (name, str(score.gold.num), between(score.gold), between(score.gold_joint))
        for name, score in found
        if score.gold and score.gold_joint
    ]
    if gold:
        console.print(_result_table("result", "questions with gold", "gold %", "gold joint %", rows=gold))
        console.print(_GOLD_LEGEND, style="dim", markup=False)


def _evidence(evaluation: Scored) -> EvidenceScore:
    assert evaluation.score.evidence is not None  # results without were left out
    return evaluation.score.evidence


def _print_judging(console: Console, judging: Judging) -> None:
    trust = judging.validation
    num = count(trust.balanced.num, "question")
    console.print(Text(printable(f"judge accuracy of {judging.judge!r}: {num} ({trust.world})")))
    summary = {
        "gold, called supported (sensitivity)": trust.sensitivity,
        "corrupted, called not supported (specificity)": trust.specificity,
        "both (balanced accuracy; 50 is no better than chance)": trust.balanced,
    }
    kinds = {f"  {agreement.kind}": agreement.right for agreement in trust.by_kind}
    console.print(share_table("spans", "right on %", summary | kinds))
    if trust.balanced.low <= 0.5:
        told = "this judge has not been shown to be better than chance: do not rely on `supported`"
        console.print(told, style="yellow", markup=False)
    for num_unread, where in ((trust.num_unread, "there"), (judging.num_unread, "here")):
        if num_unread:
            told = f"{count(num_unread, 'verdict')} could not be read {where}; each counts as not supported"
            console.print(told, style="yellow", markup=False)


def _difference_line(evaluation: Scored, other: Scored, difference: Difference | None) -> str:
    if difference is None:
        return f"{evaluation.name} and {other.name} share no answerable question: there is no paired difference"
    num = difference.exact_match.num
    pair = f"{evaluation.name} - {other.name}, over {num} shared questions"
    found = [
        f"{word} {between(share, '+')}{_say_num(share.num, num)} ({100 * difference.smallest[measure]:.1f})"
        for measure, word in _MEASURES.items()
        if measure in difference.smallest and (share := getattr(difference, measure))
    ]
    shares = {"unanswerable refused": difference.refused, "right answers lost to abstention": difference.lost}
    signs = {"unanswerable refused": "+"}
    found += [
        f"{word} {between(share, signs.get(word, ''))}{_say_num(share.num, num)}"
        for word, share in shares.items()
        if share
    ]
    return f"{pair}: {', '.join(found)}"


def _arm_line(arm: ArmDifference) -> str:
    """A difference of arms: over questions and seeds, and over the seeds' means alone."""
    measures = {"EM": arm.exact_match, "F1": arm.f1, "EM without yes/no and choices": arm.open_exact_match}
    measures["unanswerable refused"] = arm.refused
    found = [
        f"{word} {between(interval, '+')}{_say_num(interval.num, arm.exact_match.num)} ({100 * interval.smallest:.1f})"
        + (f", t over seeds [{100 * seeds.low:+.1f}, {100 * seeds.high:+.1f}]" if (seeds := interval.by_seed) else "")
        for word, interval in measures.items()
        if interval
    ]
    ours, theirs = arm.num_seeds
    pair = f"{arm.name} - {arm.other}, {ours} and {theirs} seeds, over {arm.exact_match.num} questions and seeds"
    return f"{pair}: {'; '.join(found)}"
