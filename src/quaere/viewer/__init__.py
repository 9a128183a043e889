"""`quaere view`: run directories as web pages, each with a JSON twin.

run_folder    the runs that are shown, found by name only
page_settings settings of a page, out of its address
page_formats  records as HTML (Jinja2, everything escaped) or as JSON
app           the addresses, and the headers of every response
page_files    the pages as files that open without a server
live          server-sent events: a page learns that its run was written to
viewer_server the application behind the checks that all servers share
ask_queue     questions to one agent, answered one at a time

What a page shows is a record that one of the other modules reads out of a run; the templates only lay it out, so the
twin of a page, at `/json` and the page's path, has the same content. Only verdicts are written,
and questions with their answers into a file of their own if one is named.
"""
