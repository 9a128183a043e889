"""The two servers: an index behind `POST /retrieve`, and a model behind the chat API.

Each application's dependencies are imported when it is served: a search server does not load torch.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from msgspec import structs

from quaere.serving.server import Server, ServerSettings, make_server

if TYPE_CHECKING:
    from quaere.search.index import Index
    from quaere.serving.connections import Listener
    from quaere.serving.model.app import Service
    from quaere.serving.search_app import ServerLimits


def make_search_server(
    index: Index, settings: ServerSettings, *, key: str = "", limits: ServerLimits | None = None
) -> Server:
    """A server of an index."""
    from quaere.serving.search_app import ServerLimits, error_form, make_app

    limits = limits or ServerLimits()
    app = make_app(index, limits)
    index.engine  # noqa: B018  (loads the index now, so that the first request does not wait for it)
    settings = structs.replace(settings, max_body_bytes=limits.max_body_bytes)
    return make_server(app, settings, as_error=error_form, key=key)


def make_model_server(
    service: Service, settings: ServerSettings, *, key: str = "", listener: Listener | None = None
) -> Server:
    """A server of a model; `listener` may have been bound before the model was loaded."""
    from quaere.serving.model.app import make_app
    from quaere.serving.model.wire import error_form

    return make_server(make_app(service), settings, as_error=error_form, key=key, listener=listener)
