"""E-mail messages (.eml): who wrote to whom, when, and what."""

from __future__ import annotations

import re
from email import message_from_bytes, policy
from email.headerregistry import HeaderRegistry
from email.message import EmailMessage

from quaere.search.extracted import FileText, TextBuilder, Unreadable
from quaere.search.formats.text import decode, find_encoding
from quaere.search.pages import read_page
from quaere.search.titles import choose_title

_SHOWN = ("From", "To", "Cc", "Date", "Subject")
# The standard library reads addresses with nested functions, one call or more a character, and parameters in
# quadratic time.
_MAX_HEADER = 2000
_MAX_NAMED = 8
# The standard library holds every line against the boundaries of all parts that are open.
_NESTING = re.compile(rb"content-type:\s*+(?:multipart|message)/", re.IGNORECASE)
_MAX_NESTED = 100


def read_eml(data: bytes, limit: int) -> FileText:
    """The headers a reader sees and the body; attachments are not read, and named as a problem."""
    if len(_NESTING.findall(data)) > _MAX_NESTED:
        raise Unreadable(f"holds more than {_MAX_NESTED} messages and parts inside one another")
    message = message_from_bytes(data, policy=_POLICY)
    assert isinstance(message, EmailMessage)
    headers = _read_headers(message)
    if not headers:
        raise Unreadable("has none of the headers of a message")
    texts, attachments = _split(message)
    plain = [part for part in texts if part.get_content_subtype() != "html"]
    paragraphs = ["\n".join(f"{name}: {value}" for name, value in headers.items())]
    for part in plain or texts:
        paragraphs += _read_body(part).replace("\r\n", "\n").split("\n\n")
    text = TextBuilder(limit)
    text.add_paragraphs([paragraph for paragraph in paragraphs if paragraph.strip()])
    problems = []
    if attachments:
        more = f" and {len(attachments) - _MAX_NAMED} more" if len(attachments) > _MAX_NAMED else ""
        problems.append(f"attachments are not read: {', '.join(attachments[:_MAX_NAMED])}{more}")
    return text.build(choose_title(headers.get("Subject", "")), problems=problems)


_registry = HeaderRegistry()
_POLICY = policy.default.clone(header_factory=lambda name, value: _registry(name, value[:_MAX_HEADER]))


def _read_headers(message: EmailMessage) -> dict[str, str]:
    """The decoded headers of `_SHOWN` that the message has, the first of each."""
    return {name: " ".join(str(message[name]).split()) for name in _SHOWN if name in message}


def _split(message: EmailMessage) -> tuple[list[EmailMessage], list[str]]:
    """The parts that are text to be read, and the names of the others."""
    texts, attachments = [], []
    for part in message.walk():
        if part.is_multipart():
            continue
        assert isinstance(part, EmailMessage)
        is_text = part.get_content_type() in ("text/plain", "text/html") and not part.is_attachment()
        if is_text:
            texts.append(part)
        else:
            attachments.append(part.get_filename() or part.get_content_type())
    return texts, attachments


def _read_body(part: EmailMessage) -> str:
    payload = part.get_payload(decode=True)
    data = payload if isinstance(payload, bytes) else b""
    try:
        # What is declared comes first: the encodings of Japanese mail look like ASCII.
        text = data.decode(find_encoding(part.get_content_charset()))
    except (UnicodeError, LookupError):
        text, _ = decode(data)
    return read_page(text).text if part.get_content_subtype() == "html" else text
