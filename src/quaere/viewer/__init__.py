"""`quaere view`: run directories as web pages, each with a JSON twin.

run_folder    the runs that are shown, found by name only; server-sent events when a run's files change
page_formats  parses a page's settings from its URL; renders records as HTML (Jinja2, everything escaped) or as JSON
app           the URLs, the headers of every response, and the server, behind the request checks of `serving/guard.py`
page_files    the pages as files that open without a server
ask_queue     questions to one agent, answered one at a time, and their history

What a page shows is a record that one of the other modules reads out of a run; the templates only lay it out, so the
twin of a page, at `/json` and the page's path, has the same content. Only verdicts are written,
and questions with their answers into a file of their own if one is named.
"""
