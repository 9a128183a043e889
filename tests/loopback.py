"""A chat endpoint on the loopback, in a thread of its own."""

import json
import socket
import threading
import time
from contextlib import contextmanager

import uvicorn
from starlette.applications import Starlette
from starlette.responses import JSONResponse
from starlette.routing import Route


@contextmanager
def serve_chat(answer):
    """The base URL of an endpoint that says `answer(request body)`; None is an error, as of a model out of order."""

    async def complete(request):
        text = answer(json.loads(await request.body()))
        if text is None:
            return JSONResponse({"error": {"message": "out of order"}}, 500)
        choice = {"message": {"role": "assistant", "content": text}, "finish_reason": "stop"}
        return JSONResponse({"choices": [choice], "usage": {"completion_tokens": 5}})

    listening = socket.create_server(("127.0.0.1", 0))
    routes = [Route("/v1/chat/completions", complete, methods=["POST"])]
    server = uvicorn.Server(uvicorn.Config(Starlette(routes=routes), log_level="error", lifespan="off"))
    thread = threading.Thread(target=server.run, kwargs={"sockets": [listening]}, daemon=True)
    thread.start()
    while not server.started:
        time.sleep(0.01)
    yield f"http://127.0.0.1:{listening.getsockname()[1]}/v1"
    server.should_exit = True
    thread.join(timeout=10)
