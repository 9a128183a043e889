"""Composed reports: how long they are, what they cite, what they prove, and whether their files open.

    quaere world --seed 7 --articles 400 --out world
    quaere index world/corpus.jsonl --out index
    quaere questions --world world --num 30 --out known.jsonl
    python benchmarks/report_product.py --index index --questions known.jsonl --out files

On one's own documents, such as those of the manuals (seed 6; the rules were adjusted on the questions of seeds 0 to 5):

    quaere index manuals --out index; quaere questions --index index --num 30 --seed 6 --out open.jsonl
    python benchmarks/report_product.py --index index --questions open.jsonl --rows reports-manuals.tsv

Questions with answers, of which a report should have one:

    python benchmarks/report_product.py --index index --questions exam.jsonl --digits 5-f

With `--model`, it joins sentences where the rules of `checks` agree; otherwise no model is used. With `--read`, 150
sentences drawn by seed are written to a file, each with the passages that it cites, for a reader who says whether they
support it. With questions that have known facts (`quaere questions --world`), the share that each report proves is
measured by rules; with others, only the rest. With `--out`, the first report is written in all formats and, where they
are installed, opened by LibreOffice (Word) and pdftoppm (PDF), which leave pictures there.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import random
import re
import shutil
import subprocess
import time
from pathlib import Path
from statistics import fmean

from results_table import first_digit, parse_digits

from quaere.api.agent import open_agent
from quaere.api.composer import read_sentences
from quaere.api.report import choose_author, find_queries
from quaere.api.report_files import FORMATS, report_place, write_report
from quaere.chat.statements import strip_citations
from quaere.dialects.report.report_writer import bind_report
from quaere.errors import BadInput
from quaere.evaluation.reports.fact_coverage import know_report
from quaere.evaluation.reports.report_sources import read_facts
from quaere.records import ReportTask
from quaere.rewards.answers import contains
from quaere.rollout.question_files import read_questions
from quaere.search.searcher import open_searcher


async def compose(args):
    searcher = open_searcher(args.index)
    agent = await open_agent(args.model, searcher, limits={}, engine={"device": args.device}) if args.model else None
    composer = choose_author(searcher, agent, args.model, compose=True)
    written = []
    questions = read_questions(args.questions, args.limit)
    for question in (one for one in questions if first_digit(one.id) in parse_digits(args.digits)):
        start = time.monotonic()
        episode = await composer.play(ReportTask(question))
        written.append((question, episode, bind_report(episode), time.monotonic() - start))
    await composer.close()
    return written


def words_of(text):
    return tuple(re.findall(r"\w+", strip_citations(text).casefold()))


def count_quoted(report):
    """Statements that have the words of a sentence of a passage that they cite, and no others; marks do not count."""
    told = {source.number: {words_of(one.text) for one in read_sentences(source.passage)} for source in report.sources}
    return sum(any(words_of(one.text) in told.get(each, ()) for each in one.citations) for one in report.statements)


def show(written, facts):
    reports = [report for _, _, report, _ in written if report]
    documents = [len({source.passage.doc_id for source in report.sources}) for report in reports]
    num_citations = sum(len(report.citations) for report in reports)
    num_quoted = sum(map(count_quoted, reports))
    print(f"{len(written)} questions, {len(reports)} reports, {len(written) - len(reports)} with code 3")
    counted = {"sentences": [len(report.statements) for report in reports], "documents": documents}
    counted["seconds"] = [seconds for *_, seconds in written]
    for name, values in counted.items():
        print(f"{name}: mean {fmean(values):.1f}, least {min(values):.1f}, most {max(values):.1f}")
    num_lost = sum(len(report.unresolved) for report in reports)
    num_sentences = sum(counted["sentences"])
    print(f"{num_citations} citations, {num_lost} unresolved")
    print(f"{num_quoted} of {num_sentences} sentences ({num_quoted / num_sentences:.0%}) word for word in a passage")
    num_whole = sum(len(one.statements) >= 6 and many >= 3 for one, many in zip(reports, documents, strict=True))
    print(f"{num_whole} reports of 6 or more sentences from 3 or more documents")
    show_answers(written)
    known = [(report, facts.find(question.text)) for question, _, report, _ in written] if facts else []
    proven = [know_report(report, line).proven_share if report else 0.0 for report, line in known if line]
    if proven := [share for share in proven if share is not None]:
        enough = sum(share >= 0.6 for share in proven)
        print(f"facts proven: mean {fmean(proven):.1%}, least {min(proven):.1%}; {enough} reports prove 60 % or more")


def find_answer(question, report):
    """The number of the first sentence with an accepted answer; None if no sentence has one."""
    said = [one.text for one in report.statements] if report else []
    has = (number for number, text in enumerate(said, start=1) if any(contains(text, one) for one in question.answers))
    return next(has, None)


def show_answers(written):
    """How many reports on questions with answers have one, and how many of these questions have no report."""
    answerable = [(question, report) for question, _, report, _ in written if question.answers]
    if answerable:
        found = [place for question, report in answerable if (place := find_answer(question, report))]
        early = sum(place <= 10 for place in found)
        print(f"answers: in {len(found)} of {len(answerable)} reports, in the first ten sentences of {early}")
        print(f"answerable questions without a report: {sum(not report for _, report in answerable)}")


def write_rows(written, path):
    columns = ["question", "sentences", "documents", "citations", "unresolved", "word_for_word", "first_answer"]
    lines = ["\t".join(columns)]
    for question, _, report, _ in written:
        counts = [0] * 5
        if report:
            documents = {source.passage.doc_id for source in report.sources}
            counts = [*map(len, (report.statements, documents, report.citations, report.unresolved))]
            counts.append(count_quoted(report))
        place = find_answer(question, report) if question.answers else "no answer known"
        lines.append("\t".join(map(str, [question.text, *counts, place])))
    path.write_text("\n".join(lines) + "\n", encoding="utf-8")


def draw(written, path):
    """150 sentences that cite something, drawn from all reports, with the passages that they cite."""
    cited = []
    for question, _, report, _ in written:
        shown = {source.number: source.passage.titled_text for source in report.sources} if report else {}
        for one in report.statements if report else ():
            if passages := [shown[number] for number in one.citations if number in shown]:
                cited.append({"question": question.text, "sentence": one.text, "passages": passages})
    rows = random.Random(0).sample(cited, min(150, len(cited)))
    path.write_text("".join(json.dumps(row, ensure_ascii=False) + "\n" for row in rows), encoding="utf-8")


def write(written, index, out):
    """The first report in all formats, and pictures of two of them."""
    _, episode, report, _ = next(one for one in written if one[2])
    opened = getattr(open_searcher(index), "index", None)
    files = write_report(report, report_place(out, to=FORMATS), "report", opened, index, find_queries(episode))
    print("\n".join(map(str, files)))
    word = ["soffice", "--headless", "--convert-to", "pdf", "--outdir", str(out / "word"), str(out / "report.docx")]
    pictures = [["pdftoppm", "-r", "60", "-png", str(file), str(file.with_suffix(""))]
                for file in (out / "report.pdf", out / "word" / "report.pdf")]  # fmt: skip
    for command in (word, *pictures):
        if shutil.which(command[0]):
            done = subprocess.run(command, capture_output=True, check=False)
            print(f"{command[0]}: {'opened' if done.returncode == 0 else done.stderr.decode()}")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--index", required=True)
    parser.add_argument("--questions", required=True, type=Path)
    parser.add_argument("--limit", type=int)
    parser.add_argument("--digits", default="0-f", help="first hex digits of the SHA-256 of the ids asked")
    parser.add_argument("--out", type=Path)
    parser.add_argument("--rows", type=Path, help="a table with a line for each question")
    parser.add_argument("--read", type=Path, help="a file of sentences to read")
    parser.add_argument("--model", help="a model that joins sentences")
    parser.add_argument("--device", default="auto")
    args = parser.parse_args()
    try:
        facts = read_facts(args.questions)
    except BadInput:  # questions without known facts
        facts = None
    written = asyncio.run(compose(args))
    show(written, facts)
    if args.rows:
        write_rows(written, args.rows)
    if args.read:
        draw(written, args.read)
    if args.out:
        write(written, args.index, args.out)


if __name__ == "__main__":
    main()
