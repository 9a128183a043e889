"""Registers the closed-book dialect: `eval --closed-book`, and EVE's verifier with a span of evidence."""

from __future__ import annotations

from quaere.dialects.closed_book.protocol import ClosedBook
from quaere.dialects.roles import OpenVerifier, RoleDialect

VERIFIER: RoleDialect[OpenVerifier] = RoleDialect(ClosedBook)
