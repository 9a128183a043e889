"""`quaere view`: run directories as web pages, each with a JSON twin.

run_folder    the runs that are shown, found by name only; server-sent events when a run's files change
page_formats  parses a page's settings from its URL; renders records as HTML (Jinja2, everything escaped) or as JSON
app           the URLs, the headers of every response, and the server, behind the request checks of `serving/guard.py`
page_files    the pages as files that open without a server
ask_queue     questions to one agent, answered one at a time, and their history

The other modules read a record from a run for each page, and the templates only lay out this record. Each page has a
JSON twin with the same record, at `/json` followed by the page's path. The viewer writes only verdicts on curriculum
items and, if a history file is named, questions with their answers.
"""
