"""Text for a terminal: untrusted text whose control characters are made visible, and short numbers.

Documents, models, servers and file names may contain escape sequences that recolour, overwrite or hide other output,
and marks that reverse its direction.
"""

import re

# Control characters except newline and tab; the marks that reverse or hide the direction of text; lone surrogates.
UNPRINTABLE = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069\ud800-\udfff\ufeff]")


def printable(text: str) -> str:
    r"""The text with every character that could control a terminal replaced by a visible one.

    printable("\x1b[31mred\r\n") == "␛[31mred\n"
    """
    return UNPRINTABLE.sub(lambda match: _picture(match.group()), text.replace("\r\n", "\n"))


def printable_line(text: str) -> str:
    r"""As `printable`, on one line: line breaks are shown as symbols. For messages with text that a user typed.

    printable_line("no file a\nb") == "no file a␊b"
    """
    return printable(text).replace("\n", "␊").replace("\t", " ")


def _picture(character: str) -> str:
    """A visible replacement: Unicode's symbol for an old control code, else the character's number."""
    code = ord(character)
    if code < 0x20:
        return chr(0x2400 + code)
    return "␡" if code == 0x7F else f"\\u{code:04x}"


def shorten_number(value: float) -> str:
    """A number with one decimal below 10, else none: "4.2", "41"."""
    return f"{value:.1f}" if round(value, 1) < 10 else f"{value:.0f}"
