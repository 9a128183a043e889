"""The routes: chat, completions, embeddings, models, health, and with an index its retriever and its pages.

    app = make_app(Service(name="smollm2-135m", policy=policy, embedder=HashEmbedder()))

With a search agent, chat with model `NAME` (the service's name) is answered by the agent, which searches the documents;
`NAME:model` is the agent's model alone.

Every error of a request is returned in the API's error format; no request can end the server. When a client
disconnects, its generation is cancelled and its rows of the engine's batch are free at the next step.
"""

import asyncio
import base64
import contextlib
import secrets
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine, Sequence
from functools import partial
from typing import Any, TypeVar

from msgspec import structs
from starlette.applications import Starlette
from starlette.convertors import PathConvertor, register_url_convertor
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect, Request
from starlette.responses import JSONResponse, PlainTextResponse, Response, StreamingResponse
from starlette.routing import Route

from quaere import __version__
from quaere.errors import BadInput
from quaere.policies.native.sampler import NativeSampler, OnTokens
from quaere.rollout.policy import TokenPolicy, derive_seed
from quaere.serving.model.generation import Growing, Prompt, Prompter, Writer, Written
from quaere.serving.model.replies import MODEL, Answerer, ChatForm, Reply, TextForm, as_event, read_question, usage_of
from quaere.serving.model.retriever import Documents, SearchRequest, TextEmbedder
from quaere.serving.model.wire import (
    ChatRequest,
    CompletionRequest,
    EmbeddingRequest,
    Refused,
    WriteRequest,
    as_refusal,
    read_body,
    refuse_if,
)

MAX_TEXTS = 2048
# Suffix of the model's name under which it writes a JSON list of strings. Some agents ask for a list only in their
# prompt and fail if a model too small to follow it answers in prose.
LIST = ":list"
_Result = TypeVar("_Result")
_Handler = Callable[[Request], Awaitable[Response]]
_Write = Callable[[OnTokens | None], Coroutine[Any, Any, Written]]


class Service:
    """The model, agent, embedder and documents served, with their limits.

    `max_tokens` bounds every response, and every turn of the agent. `temperature` is that of requests without one; by
    default 1 for the model and 0 for the agent.
    """

    def __init__(
        self,
        *,
        name: str,
        policy: TokenPolicy,
        embedder: TextEmbedder | None = None,
        documents: Documents | None = None,
        agent: Answerer | None = None,
        max_tokens: int = 2048,
        max_waiting: int = 256,
        temperature: float | None = None,
    ) -> None:
        if not isinstance(policy.sampler, NativeSampler) or policy.lockstep:
            raise BadInput("only the native engine in fast mode can serve a model")
        if max_tokens < 1 or max_waiting < 0 or not 0 <= (temperature or 0) <= 2:
            raise BadInput("max_tokens must be at least 1, max_waiting at least 0, and temperature 0 to 2")
        self.name = name
        self.model_name = name if agent is None else f"{name}{MODEL}"
        self.policy = policy
        self.agent = agent
        self.embedder = embedder
        self.documents = documents
        self.temperature = temperature
        self.started = int(time.time())
        self._prompter = Prompter(policy.renderer)
        self._writer = Writer(
            policy.sampler,
            policy.renderer,
            max_tokens=max_tokens,
            max_waiting=max_waiting,
            temperature=1.0 if temperature is None else temperature,
        )

    # --------------------------------------------------------------------------------------------------- the routes

    async def chat(self, http: Request) -> Response:
        """POST /v1/chat/completions: a chat response of the model or, under its name, of the search agent."""
        request = read_body(await http.body(), ChatRequest)
        if self.agent is not None and request.model == self.name:
            return await self._ask(http, request, self.agent)
        if request.model == f"{self.name}{LIST}":
            request = structs.replace(request, model=self.model_name, response_format={"type": "json_list"})
        self._check(request, request.num_chars)
        with self._writer.admit(request.num_choices):  # tokenising counts towards the limit as well
            prompt = await asyncio.to_thread(self._prompter.of_chat, request)
        return await self._answer(http, request, [prompt], ChatForm(self.model_name, bool(request.logprobs)))

    async def complete(self, http: Request) -> Response:
        """POST /v1/completions: continuations of plain text prompts."""
        request = read_body(await http.body(), CompletionRequest)
        self._check(request, request.num_chars)
        with self._writer.admit(len(request.prompts) * request.num_choices):
            prompts = [await asyncio.to_thread(self._prompter.of_text, prompt) for prompt in request.prompts]
        return await self._answer(http, request, prompts, TextForm(self.model_name, request.logprobs is not None))

    async def embed(self, http: Request) -> Response:
        """POST /v1/embeddings: one vector per text."""
        request = read_body(await http.body(), EmbeddingRequest)
        if self.embedder is None or request.model != self.embedder.name:
            served = f"it is {self.embedder.name}" if self.embedder else "there is none: the server has no scikit-learn"
            raise _no_model(request.model, f"embedder; {served}")
        texts = request.texts
        refuse_if(len(texts) > MAX_TEXTS, f"input may contain at most {MAX_TEXTS} texts", "input")
        with self._writer.admit(1):
            rows = await asyncio.to_thread(self.embedder.embed, texts, request.dimensions)
        vectors = [_vector(row, request.encoding_format) for row in rows]
        data = [{"object": "embedding", "index": index, "embedding": vector} for index, vector in enumerate(vectors)]
        num_words = sum(len(text.split()) for text in texts)  # the hash embedder has no tokens other than words
        usage = {"prompt_tokens": num_words, "total_tokens": num_words}
        return JSONResponse({"object": "list", "data": data, "model": self.embedder.name, "usage": usage})

    async def models(self, http: Request) -> Response:
        """GET /v1/models, and /v1/models/NAME: the served models, or one of them."""
        names = [*dict.fromkeys((self.name, self.model_name)), f"{self.name}{LIST}"]
        names += [self.embedder.name] if self.embedder else []
        listed = [{"id": name, "object": "model", "created": self.started, "owned_by": "quaere"} for name in names]
        wanted = http.path_params.get("name")
        if wanted is None:
            return JSONResponse({"object": "list", "data": listed})
        if wanted not in names:
            raise _no_model(wanted, f"model; there is {', '.join(names)}")
        return JSONResponse(listed[names.index(wanted)])

    async def health(self, http: Request) -> Response:
        """GET /health: status, version, model, and the number of rows of the engine's batch in use.

        503 with the reason after the engine has ended: the process has to be started again.
        """
        sampler = self._writer.sampler
        found = {"status": "ok", "version": __version__, "model": self.name, "rows": len(sampler.engine.rows)}
        if reason := sampler.ended:
            return JSONResponse({**found, "status": "ended", "reason": reason}, status_code=503)
        return JSONResponse(found)

    async def retrieve(self, http: Request) -> Response:
        """GET /retrieve-gpt-researcher?query=...: search results in the format of GPT Researcher."""
        assert self.documents is not None
        topk = http.query_params.get("topk")
        if topk is not None and not (topk.isascii() and topk.isdecimal() and len(topk) < 9):
            raise Refused("topk must be a whole number", param="topk")
        query, root = http.query_params.get("query", ""), str(http.base_url).rstrip("/")
        found = await self.documents.find(query, int(topk) if topk else None, root)
        return JSONResponse(
            [{"url": one.url, "href": one.url, "title": one.title, "raw_content": one.raw_content} for one in found]
        )

    async def search(self, http: Request) -> Response:
        """POST /search, in the format of Tavily's clients."""
        assert self.documents is not None
        request = read_body(await http.body(), SearchRequest)
        found = await self.documents.find(request.query, request.max_results, str(http.base_url).rstrip("/"))
        return JSONResponse({"query": request.query, "results": [structs.asdict(one) for one in found]})

    async def page(self, http: Request) -> Response:
        """GET /documents/ID: always as plain text, so that no document is rendered as HTML."""
        assert self.documents is not None
        text = self.documents.page(http.path_params["doc_id"])
        return PlainTextResponse(text, headers={"X-Content-Type-Options": "nosniff"})

    # ------------------------------------------------------------------------------------------------------- answers

    def _check(self, request: WriteRequest, num_chars: int) -> None:
        """Raise `Refused` for a wrong model, invalid options or an over-long prompt, before anything is tokenised."""
        if request.model != self.model_name:
            has_agent = self.agent is not None and isinstance(request, ChatRequest)
            served = f"{self.name}, or {self.model_name} without documents" if has_agent else self.model_name
            raise _no_model(request.model, f"model; it is {served}")
        request.check()
        self._check_length(num_chars)

    def _check_length(self, num_chars: int) -> None:
        most = self._writer.sampler.max_positions * self._prompter.max_token_chars
        if num_chars > most:
            said = f"the prompt has {num_chars} characters; at most {most} can fit into this model's context"
            raise Refused(said, param="messages", code="context_length_exceeded")

    async def _ask(self, http: Request, request: ChatRequest, agent: Answerer) -> Response:
        """The agent's answer to the last message. A stream gets it in one piece: only the last turn is the answer."""
        request.check()
        question = read_question(request)
        self._check_length(len(question))
        max_tokens = min(request.wanted_tokens or self._writer.max_tokens, self._writer.max_tokens)
        params = request.sampling(max_tokens, self.temperature or 0.0, _seed_of(request))
        replies: list[Reply] = []

        async def write(on_tokens: OnTokens | None) -> Written:
            replies.append(await agent.answer(question, params))
            return replies[0].written

        growing = Growing(self.policy.renderer, held=(), opened="")
        return await self._respond(
            http, request, ChatForm(self.name), [(write, growing)], lambda: [one.num_prompt_tokens for one in replies]
        )

    async def _answer(self, http: Request, request: WriteRequest, prompts: list[Prompt], form: ChatForm) -> Response:
        seed = _seed_of(request)
        answers: list[tuple[_Write, Growing]] = []
        for prompt in prompts:
            for _ in range(request.num_choices):
                # The first answer uses the request's seed; each further answer derives its own from it.
                own = derive_seed(seed, "answer", len(answers)) if answers else seed
                params = self._writer.params_for(prompt, request, own)
                answers.append((partial(self._writer.write, prompt, params), self._writer.follow(prompt, params)))
        return await self._respond(http, request, form, answers, lambda: [len(prompt.token_ids) for prompt in prompts])

    async def _respond(
        self,
        http: Request,
        request: WriteRequest,
        form: ChatForm,
        answers: list[tuple[_Write, Growing]],
        num_prompt_tokens: Callable[[], list[int]],
    ) -> Response:
        if request.stream:
            self._writer.check_room(len(answers))  # before the stream starts: after that no status can be sent
            events = self._stream(form, answers, num_prompt_tokens if request.wants_usage else list)
            return StreamingResponse(events, media_type="text/event-stream", headers={"Cache-Control": "no-cache"})
        with self._writer.admit(len(answers)):
            written = await _unless_gone(http, _gather([write(None) for write, _ in answers]))
        return JSONResponse(form.whole(written, sum(num_prompt_tokens())))

    async def _stream(
        self, form: ChatForm, answers: Sequence[tuple[_Write, Growing]], num_prompt_tokens: Callable[[], list[int]]
    ) -> AsyncIterator[bytes]:
        """Events as the answers grow; closing the generator early, as on a disconnect, cancels them.

        Token counts are sent last, unless `num_prompt_tokens()` returns an empty list.
        """
        queue: asyncio.Queue[tuple[int, list[int] | Written | Exception]] = asyncio.Queue()
        finished: list[Written] = []

        async def write(index: int) -> None:
            try:
                queue.put_nowait((index, await answers[index][0](lambda ids: queue.put_nowait((index, ids)))))
            except Exception as error:
                queue.put_nowait((index, error))

        with contextlib.ExitStack() as held:
            try:
                held.enter_context(self._writer.admit(len(answers)))
            except Refused as refused:  # another stream took the room since it was checked
                yield as_event(refused.as_json())
                yield as_event("[DONE]")
                return
            tasks = [asyncio.create_task(write(index)) for index in range(len(answers))]
            try:
                for index in range(len(answers)):
                    if opening := form.opening():
                        yield as_event(form.chunk(index, opening))
                while len(finished) < len(answers):
                    index, news = await queue.get()
                    if isinstance(news, Exception):
                        yield as_event(as_refusal(news).as_json())
                        break
                    if isinstance(news, Written):
                        finished.append(news)
                    for piece in _pieces(index, news, answers[index][1], form):
                        yield as_event(piece)
                if counts := num_prompt_tokens():
                    yield as_event(form.last_chunk(usage_of(sum(counts), finished)))
                yield as_event("[DONE]")
            finally:
                for task in tasks:
                    task.cancel()


def _pieces(index: int, news: list[int] | Written, growing: Growing, form: ChatForm) -> list[dict[str, Any]]:
    if isinstance(news, Written):
        text, last = growing.rest_of(news), [form.chunk(index, form.closing(news), form.ending(news))]
    else:
        text, last = growing.push(news), []
    return [form.chunk(index, form.piece(text)), *last] if text else last


# ------------------------------------------------------------------------------------------------------ the application


class _IdConvertor(PathConvertor):
    regex = "(?s:.*)"  # that of `path` stops at a newline, which a file's name may contain


register_url_convertor("id", _IdConvertor())


def make_app(service: Service) -> Starlette:
    """The service as an ASGI application; its shutdown stops the engine."""
    table: list[tuple[str, str, _Handler]] = [
        ("POST", "/v1/chat/completions", service.chat),
        ("POST", "/v1/completions", service.complete),
        ("POST", "/v1/embeddings", service.embed),
        ("GET", "/v1/models", service.models),
        ("GET", "/v1/models/{name:path}", service.models),
        ("GET", "/health", service.health),
    ]
    if service.documents is not None:
        table += [
            ("GET", "/retrieve-gpt-researcher", service.retrieve),
            ("POST", "/search", service.search),
            ("GET", "/documents/{doc_id:id}", service.page),
        ]
    there_is = ", ".join(f"{method} {path}" for method, path, _ in table)

    async def no_such_page(http: Request, error: Exception) -> Response:
        assert isinstance(error, HTTPException)
        return _refuse(Refused(f"there is {there_is}", status=error.status_code))

    @contextlib.asynccontextmanager
    async def lifespan(app: Starlette) -> AsyncIterator[None]:
        async with contextlib.AsyncExitStack() as held:
            held.push_async_callback(service.policy.stop)
            for opened in (service.documents, service.agent):
                if opened is not None:
                    held.push_async_callback(opened.close)
            yield

    routes = [Route(path, _guarded(handler), methods=[method]) for method, path, handler in table]
    return Starlette(routes=routes, lifespan=lifespan, exception_handlers={HTTPException: no_such_page})


def _guarded(handler: _Handler) -> _Handler:

    async def answer(http: Request) -> Response:
        try:
            return await handler(http)
        except ClientDisconnect:
            return Response(status_code=499)  # the client is gone; only the log shows it
        except Exception as error:
            return _refuse(as_refusal(error))

    return answer


def _refuse(refusal: Refused) -> Response:
    headers = {"Retry-After": "1"} if refusal.status == 429 else None
    return JSONResponse(refusal.as_json(), status_code=refusal.status, headers=headers)


def _no_model(wanted: str, words: str) -> Refused:
    return Refused(f"{wanted!r} is not the served {words}", status=404, param="model", code="model_not_found")


async def _gather(writings: list[Coroutine[Any, Any, Written]]) -> list[Written]:
    async with asyncio.TaskGroup() as group:  # a failure or a cancellation ends all tasks
        tasks = [group.create_task(writing) for writing in writings]
    return [task.result() for task in tasks]


async def _unless_gone(http: Request, work: Coroutine[Any, Any, _Result]) -> _Result:
    """The result of `work`, which is cancelled when the client disconnects."""
    task = asyncio.create_task(work)
    gone = asyncio.ensure_future(http.receive())  # the body has been read, so this can only be the disconnect
    try:
        await asyncio.wait({task, gone}, return_when=asyncio.FIRST_COMPLETED)
        if not task.done():
            raise ClientDisconnect
        return task.result()
    except BaseExceptionGroup as errors:
        raise errors.exceptions[0] from None
    finally:
        gone.cancel()
        task.cancel()


def _seed_of(request: WriteRequest) -> int:
    return secrets.randbits(62) if request.seed is None else request.seed % (1 << 63)


def _vector(row: Any, form: str | None) -> list[float] | str:
    return base64.b64encode(row.astype("<f4").tobytes()).decode() if form == "base64" else row.tolist()
