"""A server that describes itself as trainers do, and nothing else."""

import json
import threading
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, HTTPServer


@contextmanager
def described_server(fields, answer=()):
    """The URL of a server that describes its optimizer, and its answer to a request, by these fields."""
    records = {"AdamParams": fields, "FutureResponse": answer}
    schemas = {record: {"properties": {name: {} for name in names}} for record, names in records.items()}
    schema = {"components": {"schemas": schemas}}

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self):
            self.send_response(200)
            self.end_headers()
            self.wfile.write(json.dumps(schema if self.path == "/openapi.json" else {"status": "ok"}).encode())

        def log_message(self, *_):
            pass

    server = HTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever, args=(0.02,), daemon=True)  # looks often whether to end
    thread.start()
    yield f"http://127.0.0.1:{server.server_port}"
    server.shutdown()
    thread.join()
    server.server_close()
