"""A server with the wire of vLLM that really samples: a native sampler for the base and one for each adapter."""

import json
import socket
import threading
import time
import uuid
from contextlib import contextmanager

import uvicorn
from starlette.applications import Starlette
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from quaere.policies.sampler import SamplingParams
from quaere.rollout.policy import open_policy

TOLD = ("max_tokens", "temperature", "top_p", "top_k", "seed")


class SamplingServer:
    """The requests it answers; `spoil(answer)` may change a completion, and it may sample from the base alone."""

    def __init__(self, model, name="base", spoil=lambda answer: None, takes_adapters=True, heeds_adapters=True):
        self.base, self.name, self.spoil, self.heeds_adapters = str(model), name, spoil, heeds_adapters
        self.policies = {name: open_policy(self.base, device="cpu", dtype="float32")}
        self.adapters = {}  # folders of those that are loaded
        self.asked = []  # every completion's request
        self.loaded = []  # names of all adapters, in order
        self.routes = [Route("/v1/models", self.list_models), Route("/v1/completions", self.complete, methods=["POST"])]
        if takes_adapters:
            self.routes.append(Route("/v1/load_lora_adapter", self.load, methods=["POST"]))
            self.routes.append(Route("/v1/unload_lora_adapter", self.unload, methods=["POST"]))

    async def list_models(self, request):
        shown = [{"id": self.name, "root": self.base, "parent": None, "max_model_len": 512}]
        shown += [{"id": name, "root": root, "parent": self.name} for name, root in self.adapters.items()]
        return JSONResponse({"object": "list", "data": shown})

    async def load(self, request):
        body = json.loads(await request.body())
        name, path = body["lora_name"], body["lora_path"]
        if name in self.policies:
            return _error(400, f"The lora adapter '{name}' has already been loaded.")
        self.policies[name] = open_policy(f"{path}@{self.base}", device="cpu", dtype="float32")
        self.adapters[name] = path
        self.loaded.append(name)
        return Response(f"Success: LoRA adapter '{name}' added successfully.")

    async def unload(self, request):
        name = json.loads(await request.body())["lora_name"]
        if name not in self.adapters:
            return _error(404, f"The lora adapter '{name}' cannot be found.")
        del self.adapters[name]
        await self.policies.pop(name).stop()
        return Response(f"Success: LoRA adapter '{name}' removed successfully.")

    async def complete(self, request):
        body = json.loads(await request.body())
        self.asked.append(body)
        if body["model"] not in self.policies:
            return _error(404, f"The model `{body['model']}` does not exist.")
        sampler = self.policies[body["model"] if self.heeds_adapters else self.name].sampler
        prompt = body["prompt"]
        how = {name: body[name] for name in TOLD} | {"stop": tuple(body["stop"])}
        params = SamplingParams(stop_token_ids=tuple(body["stop_token_ids"]), **how)
        session = str(uuid.uuid4())
        drawn = await sampler.sample(session, prompt, params)
        sampler.close(session)
        answer = {"index": 0, "text": "", "token_ids": list(drawn.token_ids), "prompt_token_ids": prompt}
        answer["finish_reason"] = "length" if drawn.stop_reason == "length" else "stop"
        answer["logprobs"] = {"token_logprobs": list(drawn.logprobs)}
        if "prompt_logprobs" in body:
            (scores,) = await sampler.score_many([prompt])
            rows = [{str(token): {"logprob": score}} for token, score in zip(prompt, scores, strict=True)]
            answer["prompt_logprobs"] = [None, *rows[1:]]
        self.spoil(answer)
        return JSONResponse({"object": "text_completion", "model": body["model"], "choices": [answer]})


def _error(status, message):
    return JSONResponse({"error": {"message": message, "code": status}}, status)


@contextmanager
def serve_samples(model, **how):
    """A server over this model on a free port: what it answers with, and its URL."""
    serving = SamplingServer(model, **how)
    with serve_routes(serving.routes) as url:
        yield serving, url


@contextmanager
def serve_routes(routes):
    """The URL of a server on a free port."""
    listening = socket.create_server(("127.0.0.1", 0))
    settings = uvicorn.Config(Starlette(routes=routes), log_level="error", lifespan="off")
    server = uvicorn.Server(settings)
    thread = threading.Thread(target=server.run, kwargs={"sockets": [listening]}, daemon=True)
    thread.start()
    while not server.started:
        time.sleep(0.01)
    try:
        yield f"http://127.0.0.1:{listening.getsockname()[1]}/v1"
    finally:
        server.should_exit = True
        thread.join(timeout=10)
