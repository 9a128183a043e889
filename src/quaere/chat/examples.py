"""Few-shot examples on invented facts, for models too small to follow a protocol zero-shot."""

from __future__ import annotations

# Question, query, title, passage, answer. The facts are invented.
EXAMPLES = (
    (
        "Who painted the ceiling of the town hall in Ferrin?",
        "Ferrin town hall ceiling painted by",
        "Ferrin town hall",
        "The town hall of Ferrin was finished late. Marta Oleen painted its ceiling over three winters.",
        "Marta Oleen",
    ),
    (
        "What did the ferry Blue Heron carry?",
        "Blue Heron ferry carried",
        "Blue Heron",
        "The Blue Heron is a river ferry built of oak. For forty years she brought the mail across.",
        "mail",
    ),
)
