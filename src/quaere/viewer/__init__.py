"""`quaere view`: run directories as web pages, each with a JSON twin.

run_folder    the runs that are shown, found by name only
queries       settings of a page, out of its address
pages         records as HTML (Jinja2, everything escaped) or as JSON
app           the addresses, and the headers of every response
page_files    the pages as files that open without a server
live          server-sent events: a page learns that its run was written to
server        the application behind the checks that all servers share

What a page shows is a record that one of the other modules reads out of a run; the templates only lay it out, so the
twin of a page, at `/json` and the page's path, has the same content. Only verdicts are written.
"""
