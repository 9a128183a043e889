"""Prints results of `quaere grade`: first the judge's accuracy, then grades, citations and differences."""

from rich.console import Console
from rich.table import Table
from rich.text import Text

from quaere.api.printing import as_json, between, count, plain_table, share_table, wide_console
from quaere.cli.terminal import printable
from quaere.evaluation.intervals import Interval
from quaere.evaluation.judges.probes import JudgeAgreement
from quaere.evaluation.reports import scores
from quaere.evaluation.reports.fact_coverage import JudgeTruth
from quaere.evaluation.reports.scores import ReportDifference, ReportEvaluation, compare_reports

_LEGEND = (
    "in brackets the 95 % interval, in parentheses the smallest difference the sample could have shown (80 % power)"
)
# SCORE (paper 001) on DeepResearch Bench: overall and valid citations in percent, before and after training.
_PUBLISHED = (
    ("Qwen2.5-7B, plan and execute", (32.00, 35.91), (36.11, 66.15)),
    ("Qwen2.5-7B, ReAct", (31.92, 34.43), (11.76, 19.35)),
    ("Llama-3.1-8B, plan and execute", (28.92, 33.89), (38.23, 52.38)),
    ("Llama-3.1-8B, ReAct", (27.00, 30.07), (22.58, 30.55)),
)
_NOT_COMPARABLE = (
    "not comparable with the above: their overall is relative to a reference report and by another judge; their valid "
    "citations leave out unknown ones, as the row 'of known ones' does, but are by another judge and over pages of the "
    "web"
)


def print_agreement(judge: str, agreement: JudgeAgreement) -> None:
    """Print the judge's accuracy on good and corrupted reports; it comes before any score."""
    console = wide_console(160)
    console.print(Text(printable(f"judge accuracy of {judge!r}: {agreement.world}")))
    citations, grades = agreement.citations, agreement.grades
    summary = {
        "good citations called supported (sensitivity)": citations.sensitivity,
        "spoiled citations not called supported (specificity)": citations.specificity,
        "both (balanced; 50 is chance)": citations.balanced,
    }
    console.print(
        share_table("citation check", "right %", summary | {f"  {one.kind}": one.right for one in citations.by_kind})
    )
    if free := citations.free:
        told = {"true, called supported": free.sensitivity, "false, not called supported": free.specificity}
        told |= {"both (balanced; 50 is chance)": free.balanced}
        console.print(share_table("statements in free words, by hand", "right %", told))
    if rules := agreement.rules:
        rows = [("planted errors", between(citations.balanced), between(rules.balanced))]
        if citations.free and rules.free:
            rows.append(("free words", between(citations.free.balanced), between(rules.free.balanced)))
        whole = ("this judge", "the rules")
        console.print(plain_table("citation check, balanced %", *whole, rows=rows, whole=whole))
    preferred = {"good report graded above the spoiled one (50 is chance)": grades.preferred}
    console.print(share_table("grades", "right %", preferred | {f"  {one.kind}": one.right for one in grades.by_kind}))
    _warn_chance(console, agreement)
    for num, what in ((citations.num_unread, "verdicts"), (grades.num_unread, "reports' grades")):
        if num:
            console.print(f"{num} {what} could not be read", style="yellow", markup=False)
    console.print()


def _warn_chance(console: Console, agreement: JudgeAgreement) -> None:
    if agreement.citations_trusted and not agreement.meaning_trusted:
        told = (
            "in free words this judge has not been shown to be better than chance: its verdicts tell how close "
            "a report keeps to its sources' words, not whether it is true to them"
        )
        console.print(told, style="yellow", markup=False)
    trusted = {"verdicts on citations": agreement.citations_trusted, "grades": agreement.grades_trusted}
    for what, is_trusted in trusted.items():
        if not is_trusted:
            told = f"this judge has not been shown to be better than chance at {what}: do not rely on them"
            console.print(told, style="yellow", markup=False)


def print_evaluations(evaluations: list[ReportEvaluation], is_bench: bool) -> None:
    """Print grades, citations, paired differences with the last input, and the published figures."""
    console = wide_console(160)
    _print_grades(console, evaluations)
    _print_citations(console, evaluations)
    _print_knowing(console, evaluations)
    *others, last = evaluations
    differences = [compare_reports(last, other) for other in others]
    for other, difference in zip(others, differences, strict=True):
        console.print(Text(printable(_difference_line(last, other, difference))))
    if any(differences):
        console.print(_LEGEND, style="dim", markup=False)
    for one in evaluations:
        _print_remarks(console, one)
    if is_bench:
        _print_published(console)
    else:
        console.print("no published figures: they are for --bench", style="dim", markup=False)
    repeats = last.settings["repeats"]
    spread = "" if repeats > 1 else "; --repeats N shows how far the judge agrees with itself"
    console.print(f"judged {count(repeats, 'time')} by {last.judge}{spread}", style="dim", markup=False)


def _print_grades(console: Console, evaluations: list[ReportEvaluation]) -> None:
    names = list(dict.fromkeys(name for one in evaluations for name in one.score.measures if name not in scores.SHARES))
    if not names:
        return
    is_counted = evaluations[0].judge == "checks"
    title = "counted, 0-10 (proxies, no judgement of quality)" if is_counted else "grades, 0-10"
    measures = {
        name.replace("_", " "): [_measure(one.score.measures.get(name)) for one in evaluations] for name in names
    }
    console.print(_result_table(title, evaluations, measures))


def _print_citations(console: Console, evaluations: list[ReportEvaluation]) -> None:
    if not any(scores.VALID in one.score.measures for one in evaluations):
        return
    by_rules = evaluations[0].judge == "checks"
    title = "citations, by rules about words" if by_rules else "citations"
    rows = {
        "valid %, mean of reports": [_measure(one.score.measures.get(scores.VALID), 100) for one in evaluations],
        "valid %, of all citations": [_share(one.score.pooled) for one in evaluations],
        "valid %, of known ones": [_share(one.score.pooled_known) for one in evaluations],
        "citations": [str(one.score.num_citations) for one in evaluations],
        "supported / unsupported / unknown": [
            " / ".join(str(number) for number in one.score.verdicts.values()) for one in evaluations
        ],
        "leading nowhere": [str(one.score.num_unresolved) for one in evaluations],
    }
    console.print(_result_table(title, evaluations, rows))


def _result_table(title: str, evaluations: list[ReportEvaluation], rows: dict[str, list[str]]) -> Table:
    names = [one.name for one in evaluations]
    return plain_table(title, *names, rows=[(name, *row) for name, row in rows.items()], whole=names)


def _print_knowing(console: Console, evaluations: list[ReportEvaluation]) -> None:
    """Print how many known facts the reports state, and how far the citation check agrees with the facts."""
    if not any(scores.TOLD in one.score.measures for one in evaluations):
        return
    known = [[score.knowing for score in one.reports if score.knowing] for one in evaluations]
    rows = {f"{name} %": [_measure(one.score.measures.get(name), 100) for one in evaluations]
            for name in (scores.TOLD, scores.PROVEN, scores.ADMITTED)}  # fmt: skip
    rows["facts / gaps / reports"] = [
        f"{sum(len(one.facts) for one in each)} / {sum(one.num_gaps for one in each)} / {len(each)}" for each in known
    ]
    console.print(_result_table("known facts, by names and spans (no judge)", evaluations, rows))
    for one in evaluations:
        if one.truth:
            console.print(Text(printable(f"{one.name}: {_truth_line(one.judge, one.truth)}")))


def _truth_line(judge: str, truth: JudgeTruth) -> str:
    """The agreement of the judge's citation check with the known facts, in one line."""
    proving = (truth.proving, truth.num_proving, "prove what is said")
    others = (truth.others, truth.num_others, "do not even name it")
    found = (f"{between(share)} % of {num} citations that {what}" for share, num, what in (proving, others) if share)
    return f"{judge} agrees with the facts on {', '.join(found)}"


def _print_remarks(console: Console, one: ReportEvaluation) -> None:
    for num, what, told in (
        (one.num_unfinished, "report", "never finished: 0 everywhere"),
        (one.score.num_unread_verdicts, "verdict", "could not be read: unknown"),
        (one.score.num_unread_grades, "grade", "could not be read: left out"),
    ):
        if num:
            console.print(printable(f"{one.name}: {count(num, what)} {told}"), style="yellow", markup=False)


def _print_published(console: Console) -> None:
    rows = [(name, *(f"{before:.2f} -> {after:.2f}" for before, after in figures)) for name, *figures in _PUBLISHED]
    columns = ("overall %", "valid citations %")
    console.print(plain_table("published (SCORE): before -> after", *columns, rows=rows, whole=columns))
    console.print(_NOT_COMPARABLE, style="dim", markup=False)


def _difference_line(ours: ReportEvaluation, theirs: ReportEvaluation, difference: ReportDifference | None) -> str:
    if difference is None:
        return f"{ours.name} and {theirs.name} share no question, so no paired difference can be given"
    num = next(iter(difference.measures.values())).num
    found = []
    for name, interval in difference.measures.items():
        scale = 100 if name in scores.SHARES else 1
        smallest = scale * difference.smallest[name]
        fewer = "" if interval.num == num else f" over {interval.num}"  # not every question has every measure
        mean = between(interval, "+", scale, 1 if scale == 100 else 2)
        found.append(f"{name.replace('_', ' ')} {mean} ({smallest:.1f}){fewer}")
    return f"{ours.name} - {theirs.name}, over {num} shared questions: {', '.join(found)}"


def _measure(measure: scores.Measure | None, scale: float = 1) -> str:
    """`6.1 [5.8, 6.4]`; with repeats also the standard deviation between repeats: `, s 0.2`."""
    if measure is None:
        return ""
    spread = "" if measure.variance is None else f", s {scale * measure.variance**0.5:.2f}"
    return between(measure.value, "", scale, 1 if scale == 100 else 2) + spread


def _share(interval: Interval | None) -> str:
    return between(interval) if interval else ""


def results_json(evaluations: list[ReportEvaluation]) -> str:
    """The judge's accuracy and every result as JSON; single reports are in --out."""
    *others, last = evaluations
    names = ("name", "score", "num_unfinished", "truth")
    found = {name: getattr(last, name) for name in ("judge", "agreement", "settings")}
    found["results"] = [{name: getattr(one, name) for name in names} for one in evaluations]
    return as_json({**found, "differences": [compare_reports(last, other) for other in others]})
