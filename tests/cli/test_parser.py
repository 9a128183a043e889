"""What is mistyped gets one line, the name that was probably meant, and exit code 2."""

import pytest

from quaere.cli.main import Parser, build_parser, main


def refused(words, capsys):
    with pytest.raises(SystemExit) as ended:
        main(words)
    assert ended.value.code == 2
    return capsys.readouterr().err.splitlines()


@pytest.mark.parametrize(
    ("words", "said"),
    [
        # --index is missing too, which argparse alone would say instead.
        (["search", "Halm", "--indx", "DIR"], "there is no option --indx: did you mean --index?"),
        (["eval", "--Max_Turns=3"], "there is no option --Max_Turns: did you mean --max-turns?"),
        (["curriculum", "RUN", "reject", "ID", "--noet", "why"], "there is no option --noet: did you mean --note?"),
        (["--verson"], "there is no option --verson: did you mean --version?"),
        (["runs", "shw", "RUN"], "argument ACTION: invalid choice: 'shw': did you mean show?"),
        (["evolve", "drzro"], "argument recipe: invalid choice: 'drzro': did you mean drzero?"),
        (["ask", "Who?", "--device", "CUDA"], "argument --device: invalid choice: 'CUDA': did you mean cuda?"),
    ],
)
def test_the_nearest_name_is_suggested_in_one_line(words, said, capsys):
    assert refused(words, capsys) == [f"quaere: {said}"]


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["search", "Halm", "--xyzzy", "3"], "there is no option --xyzzy"),
        (["search", "Halm", "--index", "DIR", "-k", "3"], "there is no option -k"),
        (["search", "-k3", "Halm"], "there is no option -k"),
        (["search", "Halm"], "the following arguments are required: --index/--search"),
    ],
)
def test_where_nothing_is_near_the_hint_is_the_help(words, said, capsys):
    assert refused(words, capsys) == [f"quaere: {said}", "  try: quaere search --help"]


def test_several_servers_are_searched_together_but_not_several_indexes(capsys):
    assert main(["search", "Halm", "--index", "notes", "--search", "mails"]) == 2
    said, hint = capsys.readouterr().err.splitlines()
    assert said == "quaere: --search mails with notes: only URLs can be searched together"
    assert "quaere index FOLDER OTHER-FOLDER --out DIR" in hint
    urls = ["--search", "http://a", "--search", "http://b", "--index", "https://c"]
    assert build_parser().parse_args(["search", "Halm", *urls]).index == "http://a,http://b,https://c"


def test_a_question_without_quotes_is_told_of_them(capsys):
    said = [
        "quaere: unrecognized arguments: do I back up",
        "  try: put a question of several words in quotes, or: quaere ask --help",
    ]
    assert refused(["ask", "How", "do", "I", "back", "up", "--index", "I"], capsys) == said


@pytest.mark.parametrize(
    ("words", "left", "command"),
    [(["doctor", "x"], "x", "doctor"), (["runs", "list", "a", "b"], "a b", "runs list")],
)
def test_words_too_many_are_told_of_quotes_only_where_there_is_a_question(words, left, command, capsys):
    assert refused(words, capsys) == [f"quaere: unrecognized arguments: {left}", f"  try: quaere {command} --help"]


@pytest.mark.parametrize(
    ("words", "said", "command"),
    [
        (["--json", "ask", "Who?"], "--json is an option of what follows: put it after COMMAND", "quaere"),
        (["runs", "--runs", "R", "list"], "--runs is an option of what follows: put it after ACTION", "quaere runs"),
        (["ask", "--no-ff?"], "there is no option --no-ff?", "quaere ask"),
    ],
)
def test_an_option_at_the_wrong_place(words, said, command, capsys):
    assert refused(words, capsys) == [f"quaere: {said}", f"  try: {command} --help"]


@pytest.mark.parametrize("words", [["search", ""], ["search", "Halm", " "], ["ask", ""], ["report", " "]])
def test_an_empty_question_is_refused(words, capsys):
    assert main([*words, "--index", "DIR"]) == 2
    said, hint = capsys.readouterr().err.splitlines()
    assert said == "quaere: the question is empty" and hint.startswith(f"  try: quaere {words[0]} ")


@pytest.mark.parametrize("command", ["ask", "report"])
def test_what_answers_from_documents_needs_an_index(command, capsys):
    said = "quaere: the following arguments are required: --index/--search"
    assert refused([command, "Who built Halm?"], capsys) == [said, f"  try: quaere {command} --help"]


@pytest.mark.parametrize("words", [["search", "Halm"], ["report"], ["ask", "--model", "M"]])
def test_a_question_in_another_encoding_is_one_line(words, capsys):
    assert main([*words, "caf\udce9", "--index", "DIR"]) == 2  # what Python has for the Latin-1 of café
    said = "quaere: the question is not UTF-8 text"
    assert capsys.readouterr().err.splitlines() == [said, "  try: LC_ALL=C.UTF-8, or the same words typed anew"]


def make_parser():
    parser = Parser(prog="tool")
    parser.add_argument("--verbose", action="store_true")
    command = parser.add_subparsers().add_parser("find")
    command.add_argument("text", nargs="*")
    command.add_argument("--limit", type=int)
    return parser


@pytest.mark.parametrize(
    ("words", "text", "limit"),
    [
        (["find", "a", "--limit", "3"], ["a"], 3),
        (["find", "a", "--lim=3"], ["a"], 3),
        (["--verb", "find", "-5"], ["-5"], None),
        (["find", "--", "--limmit"], ["--limmit"], None),
        (["find", "--a text with spaces"], ["--a text with spaces"], None),
        (["find", "--", "-a"], ["-a"], None),
    ],
)
def test_what_argparse_takes_is_taken(words, text, limit):
    args = make_parser().parse_args(words)
    assert (args.text, args.limit) == (text, limit)
