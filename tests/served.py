"""A small model behind `quaere serve`, on the loopback, in a thread of its own."""

import json
import threading
import time
from contextlib import contextmanager

import httpx

import tiny
from quaere.chat.renderer import Renderer
from quaere.policies.native.bridge import use_packed_attention
from quaere.policies.native.sampler import NativeSampler
from quaere.rollout.policy import TokenPolicy
from quaere.serving.model.app import Service
from quaere.serving.server import ServerSettings, make_model_server


def make_policy(template="qwen", max_rows=4, model=None):
    """A model nobody has trained, in one of the styles of template."""
    renderer = Renderer(tiny.tokenizer(template))
    made = use_packed_attention(model or tiny.model())
    return TokenPolicy(NativeSampler.over(made, renderer.decode, name="tiny", max_rows=max_rows), renderer)


JSON = {"content-type": "application/json"}


class Client:
    """Speaks to a server the way programs do, with nothing but HTTP."""

    def __init__(self, url, service):
        self.url = url
        self.service = service
        self.engine = service.policy.sampler.engine
        self._http = httpx.Client(base_url=url, timeout=60, trust_env=False)

    def get(self, path, **options):
        return self._http.get(path, **options)

    def post(self, path, body, **options):
        content = body if isinstance(body, bytes) else json.dumps(body).encode()
        return self._http.post(path, content=content, headers={**JSON, **options.pop("headers", {})}, **options)

    def chat(self, *texts, **fields):
        messages = [{"role": "user", "content": text} for text in texts]
        body = {"model": "tiny", "messages": messages, "max_tokens": 16, "seed": 7, **fields}
        return self.post("/v1/chat/completions", body)

    def stream(self, path, body):
        """The events of a stream, and whether it ended as it should."""
        reply = self.post(path, {"model": "tiny", "max_tokens": 16, "seed": 7, "stream": True, **body})
        assert reply.status_code == 200 and reply.headers["content-type"].startswith("text/event-stream"), reply.text
        lines = [line.removeprefix("data: ") for line in reply.text.split("\n\n") if line]
        assert lines.pop() == "[DONE]"
        return [json.loads(line) for line in lines]

    def wait_until_idle(self):
        deadline = time.monotonic() + 20
        while self.engine.busy:
            assert time.monotonic() < deadline, "rows are still taken"
            time.sleep(0.01)


@contextmanager
def serving(policy=None, key="", **options):
    """A client of a real server on a free port."""
    service = Service(name="tiny", policy=policy or make_policy(), **options)
    server = make_model_server(service, ServerSettings(port=0), key=key)
    thread = threading.Thread(target=server.run, daemon=True)
    thread.start()
    while not server.started:
        time.sleep(0.01)
    try:
        yield Client(server.url, service)
    finally:
        server.should_exit = True
        thread.join(timeout=20)
        assert not thread.is_alive()


def text_of(reply):
    """What the model said, of a reply that is a chat."""
    assert reply.status_code == 200, reply.text
    return reply.json()["choices"][0]["message"]["content"]
