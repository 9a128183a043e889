"""Exchanges with a real Tinker server, recorded once and replayed without network.

    python tests/tinker_exchanges.py http://127.0.0.1:8000 MODEL      # writes fixtures/tinker-VERSION.json

`play` is one conversation with a server through our own classes: adapters of one base, samples, scores, updates,
states, downloads and what is deleted. `Recorder` stands between it and a server and keeps every request and answer;
`Replayer` gives the answers again. Answers are found by the request's path, and its prompt, request id or place in the
order.

SDKs from 0.26 on want an id for every sample, which SkyRL 0.4.0 does not send. For them the recorder adds the ids, and
only these: everything else in a recording is the server's.
"""

import asyncio
import base64
import hashlib
import json
import sys
import tempfile
import threading
from collections import defaultdict
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

FIXTURES = Path(__file__).parent / "training" / "fixtures"
# What the SDK sends in its own time; every server answers it in the same way.
ANSWERED = {
    "/api/v1/session_heartbeat": {"type": "session_heartbeat"},
    "/api/v1/telemetry": {"status": "accepted"},
    "/api/v1/healthz": {"status": "ok"},
}
# Of these the requests are kept as well: what they ask for is ours, not the SDK's.
SHOWN = ("create_model", "asample", "optim_step", "save_weights", "save_weights_for_sampler", "load_weights")
VOLATILE = ("sdk_version", "session_id", "sampling_session_id", "user_metadata", "type")
KEPT_HEADERS = ("content-type", "location", "expires")


class _Server:
    """An HTTP server on the loopback, whose answers come from `answer(method, path, body, headers)`."""

    def __init__(self):
        outer = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def handle_one(self):
                body = self.rfile.read(int(self.headers.get("content-length") or 0))
                status, headers, content = outer.answer(self.command, self.path, body, dict(self.headers))
                self.send_response(status)
                for name, value in headers.items():
                    self.send_header(name, value.replace("http://SERVER", outer.url))
                self.send_header("content-length", str(len(content)))
                self.end_headers()
                self.wfile.write(content)

            do_GET = do_POST = do_DELETE = handle_one  # noqa: N815

            def log_message(self, *_):
                pass

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self._server.daemon_threads = True
        self.url = f"http://127.0.0.1:{self._server.server_port}"

    def __enter__(self):
        threading.Thread(target=self._server.serve_forever, daemon=True).start()
        return self

    def __exit__(self, *_):
        self._server.shutdown()
        self._server.server_close()


def key_of(method, path, body):
    """What an answer is found by: a request id, or the prompt of a sample, which may overtake another."""
    said = _as_json(body)
    if path.endswith("/retrieve_future"):
        return f"{method} {path} {said.get('request_id')}"
    if path.endswith("/asample"):
        prompt = json.dumps(said.get("prompt"), sort_keys=True)
        return f"{method} {path} {hashlib.sha256(prompt.encode()).hexdigest()[:12]}"
    return f"{method} {path}"


def _as_json(body):
    try:
        said = json.loads(body)
    except ValueError:
        return {}
    return said if isinstance(said, dict) else {}


def asked_for(path, body):
    """What of a request is ours to decide; None if nothing is."""
    if path.rpartition("/")[2] not in SHOWN:
        return None
    return {name: value for name, value in _as_json(body).items() if name not in VOLATILE and value is not None}


class Recorder(_Server):
    """Passes requests on to a server and keeps them with their answers."""

    def __init__(self, url, *, adds_ids=False):
        super().__init__()
        self._to = url.rstrip("/")
        self._adds_ids = adds_ids
        self._lock = threading.Lock()
        self.exchanges = []

    def answer(self, method, path, body, headers):
        import httpx

        passed = {name: value for name, value in headers.items() if name.lower() not in ("host", "content-length")}
        passed["accept-encoding"] = "identity"
        reply = httpx.request(method, self._to + path, content=body, headers=passed, timeout=600)
        kept = {
            name: value.replace(self._to, "http://SERVER").replace(self.url, "http://SERVER")
            for name, value in reply.headers.items()
            if name in KEPT_HEADERS
        }
        content = reply.content
        if self._adds_ids and path.endswith("/asample") and reply.is_success:
            num_samples = json.loads(body)["num_samples"]
            ids = [f"sequence-{number}" for number in range(num_samples)]
            content = json.dumps({**reply.json(), "sample_sequence_ids": ids}).encode()
        if path not in ANSWERED:
            with self._lock:
                self.exchanges.append(
                    {
                        "key": key_of(method, path, body),
                        "asked": asked_for(path, body),
                        "status": reply.status_code,
                        "headers": kept,
                        "body": base64.b64encode(content).decode(),
                    }
                )
        return reply.status_code, kept, content


class Replayer(_Server):
    """Gives recorded answers again, and keeps what it was asked."""

    def __init__(self, exchanges):
        super().__init__()
        self._answers = defaultdict(list)
        for one in exchanges:
            self._answers[one["key"]].append(one)
        self.asked = []
        self.deleted = []
        self.unknown = []

    def answer(self, method, path, body, headers):
        if path in ANSWERED:
            return 200, {"content-type": "application/json"}, json.dumps(ANSWERED[path]).encode()
        key = key_of(method, path, body)
        found = self._answers.get(key)
        if not found:
            self.unknown.append(key)
            return 404, {"content-type": "application/json"}, b'{"detail": "not recorded"}'
        if method == "DELETE":
            self.deleted.append(path.partition("/checkpoints/")[2])
        one = found.pop(0) if len(found) > 1 else found[0]
        if (asked := asked_for(path, body)) is not None:
            self.asked.append((one["asked"], asked))
        return one["status"], one["headers"], base64.b64decode(one["body"])


def play(url, tokenizer_decode, folder):
    """The conversation: returns everything our classes made of the server's answers."""
    from quaere.policies.sampler import SamplingParams
    from quaere.policies.tinker import TinkerSampler, TinkerService
    from quaere.training import remote_actors
    from quaere.training.batches import Sample
    from quaere.training.remote_actors import RemoteRole
    from quaere.training.settings import LearnerSettings
    from quaere.training.tinker_learner import TinkerLearner

    numbers = iter(range(100))
    named, remote_actors._new_name = remote_actors._new_name, lambda: f"quaere-{next(numbers)}"
    try:
        service = TinkerService(url, patience_s=30)
        (base,) = service.models()
        role = RemoteRole(service, base, rank=4, seed=3)
        sampler = TinkerSampler(service, tokenizer_decode, name="m")
        reference = TinkerSampler(service, tokenizer_decode, name="base")
        reference.use(service.call(lambda: service.sdk.create_sampling_client(base_model=base)))
        sampler.use(role.open_sampler())
        prompt, params = [5, 9, 11, 40], SamplingParams(max_tokens=8, seed=7, stop_token_ids=(3,))
        drawn = asyncio.run(sampler.sample("e", prompt, params))
        ids = (*prompt, *drawn.token_ids)
        scored = asyncio.run(sampler.score_many([ids], [len(prompt)]))
        mask = (False,) * len(prompt) + (True,) * len(drawn.token_ids)
        logprobs = (0.0,) * len(prompt) + drawn.logprobs
        advantages = tuple((1.0 + place / 8) * flag for place, flag in enumerate(mask))
        sample = Sample(ids, mask, logprobs, advantages)
        other = Sample(ids[::-1], mask, logprobs, tuple(-value for value in advantages))
        settings = LearnerSettings(learning_rate=1e-3, max_grad_norm=0, kl_beta=0.1, aggregation="sequence_mean")
        learner = TinkerLearner(role, settings, reference=reference)
        first = learner.step([sample, other])
        role.download(folder / "adapter", "base")
        role.go_back(role.save_state())
        role.keep_moments()
        second = learner.step([sample, other])
        for _ in range(2):  # the weights of the first are deleted
            sampler.use(role.open_sampler())
        again = asyncio.run(sampler.score_many([ids], [len(prompt)]))
        role.drop_moments()
        third = learner.step([sample, other])
        return {
            "tokens": list(drawn.token_ids),
            "logprobs": list(drawn.logprobs),
            "stop": drawn.stop_reason,
            "scored": scored,
            "first": first,
            "second": second,
            "again": again,
            "third": third,
            "adapter": sorted(_adapter_norms(folder / "adapter").items()),
        }
    finally:
        remote_actors._new_name = named


def _adapter_norms(folder):
    from safetensors.numpy import load_file

    return {name: float((value**2).sum()) for name, value in load_file(folder / "adapter_model.safetensors").items()}


def main():
    import tinker
    from transformers import AutoTokenizer

    url, model = sys.argv[1:]
    newer = tuple(map(int, tinker.__version__.split(".")[:2])) >= (0, 26)
    decode = AutoTokenizer.from_pretrained(model).decode
    with tempfile.TemporaryDirectory() as folder, Recorder(url, adds_ids=newer) as recorder:
        made = play(recorder.url, decode, Path(folder))
    FIXTURES.mkdir(exist_ok=True)
    path = FIXTURES / f"tinker-{tinker.__version__}.json"
    lines = ",\n".join(json.dumps(one) for one in recorder.exchanges)
    path.write_text(f'{{"sdk": "{tinker.__version__}", "made": {json.dumps(made)}, "exchanges": [\n{lines}\n]}}\n')
    print(f"{path}: {len(recorder.exchanges)} exchanges, {path.stat().st_size:,} bytes")


if __name__ == "__main__":
    main()
