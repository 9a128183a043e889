"""The samplers that are compared: ours, transformers' three ways to generate, and vLLM.

A workload is a list of `Plan`s, episodes whose lengths are known in advance, so that every sampler does the same work.
Each sampler is a class with `flags` (how it was tuned, printed beside its figure), `run(plans)` and `close()`.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable, Iterable, Sequence
from contextlib import ExitStack
from functools import partial
from typing import Any, NamedTuple

Finished = tuple[str, Sequence[int], Sequence[float]]  # key, token ids, log-probs


class Plan(NamedTuple):
    """An episode laid out in advance: per turn, how many tokens are sampled and what the environment says then.

    Plan(prompt=[5, 9, 2], turns=[(64, [7, 7]), (40, [])])
    """

    prompt: list[int]
    turns: list[tuple[int, list[int]]]


class Outcome(NamedTuple):
    """What a run gave: how many tokens, and the sum of their log-probs."""

    num_tokens: int
    logprobs: float


def load_peer_model(spec: dict[str, Any]) -> Any:
    import torch
    from transformers import AutoModelForCausalLM

    model = AutoModelForCausalLM.from_pretrained(
        spec["path"], dtype=getattr(torch, spec["dtype"]), attn_implementation="sdpa"
    )
    return model.to(spec["device"]).eval()


def longest_context(plans: Sequence[Plan]) -> int:
    return max(len(plan.prompt) + sum(new + len(said) for new, said in plan.turns) for plan in plans)


def play(
    plans: Sequence[Plan], submit: Callable[[str, list[int], int], None], collect: Callable[[], Iterable[Finished]]
) -> Outcome:
    """Play all episodes over an engine that takes requests at any time; each goes on as soon as its turn is done."""
    contexts = {f"e{number}": list(plan.prompt) for number, plan in enumerate(plans)}
    turns = {f"e{number}": list(plan.turns) for number, plan in enumerate(plans)}
    num_tokens, total, num_open = 0, 0.0, len(plans)
    for name, context in contexts.items():
        submit(f"{name}/1", context, turns[name][0][0])
    while num_open:
        for key, ids, logprobs in collect():
            name, number = key.rsplit("/", 1)
            new, said = turns[name][int(number) - 1]
            check_turn(ids, logprobs, new)
            num_tokens, total = num_tokens + new, total + sum(logprobs)
            if int(number) == len(turns[name]):
                num_open -= 1
                continue
            contexts[name] += [*ids, *said]
            submit(f"{name}/{int(number) + 1}", contexts[name], turns[name][int(number)][0])
    return Outcome(num_tokens, total)


def check_turn(ids: Sequence[int], logprobs: Sequence[float], new: int) -> None:
    """A sampler that stopped early or forgot its log-probs has not done the work."""
    if len(ids) != new or len(logprobs) != new:
        raise RuntimeError(f"{new} tokens were wanted; {len(ids)} came, with {len(logprobs)} log-probs")


# --------------------------------------------------------------------------------------------------------------- ours


class Ours:
    """The native engine as users get it: every episode is a coroutine over one `NativeSampler`."""

    def __init__(self, spec: dict[str, Any], plans: Sequence[Plan]) -> None:
        from quaere.policies.native.bridge import load_model
        from quaere.policies.native.sampler import NativeSampler

        model = load_model(spec["path"], spec["device"], spec["dtype"])
        self.flags: dict[str, Any] = {"mode": "fast", "max_rows": len(plans), **spec["flags"]}
        self.sampler = NativeSampler.over(model, lambda ids: "", name="ours", **self.flags)
        self.loop = asyncio.new_event_loop()
        self.num_runs = 0

    def run(self, plans: Sequence[Plan]) -> Outcome:
        self.num_runs += 1
        return self.loop.run_until_complete(self._run(plans))

    async def _run(self, plans: Sequence[Plan]) -> Outcome:
        found = await asyncio.gather(*(self._episode(number, plan) for number, plan in enumerate(plans)))
        return Outcome(sum(each.num_tokens for each in found), sum(each.logprobs for each in found))

    async def _episode(self, number: int, plan: Plan) -> Outcome:
        from quaere.policies.sampler import SamplingParams

        session, context = f"r{self.num_runs}-e{number}", list(plan.prompt)
        num_tokens, total = 0, 0.0
        self.sampler.open(session)
        for turn, (new, said) in enumerate(plan.turns):
            params = SamplingParams(max_tokens=new, seed=self.num_runs << 32 | number << 8 | turn)
            sampled = await self.sampler.sample(session, context, params)
            check_turn(sampled.token_ids, sampled.logprobs, new)
            num_tokens, total = num_tokens + new, total + sum(sampled.logprobs)
            context = [*context, *sampled.token_ids, *said]
        self.sampler.close(session)
        return Outcome(num_tokens, total)

    def close(self) -> None:
        self.loop.run_until_complete(self.sampler.stop())


class OurEngine(Ours):
    """The same engine stepped in a plain loop, without coroutines or a thread: what the asynchronous face costs."""

    def run(self, plans: Sequence[Plan]) -> Outcome:
        from quaere.policies.native.engine import Request
        from quaere.policies.sampler import SamplingParams

        self.num_runs += 1
        engine = self.sampler.engine

        def submit(key: str, context: list[int], new: int) -> None:
            seed = self.num_runs << 32 | hash(key) & 0xFFFFFFFF
            engine.add(Request(key, list(context), SamplingParams(max_tokens=new, seed=seed)))

        def collect() -> list[Finished]:
            done = [(request.key, request.sampled()) for request in engine.step()]
            return [(key, sampled.token_ids, sampled.logprobs) for key, sampled in done]

        return play(plans, submit, collect)


class OursWithoutReuse(Ours):
    """Ours, with every prompt computed from its first token and nothing kept between turns."""

    def __init__(self, spec: dict[str, Any], plans: Sequence[Plan]) -> None:
        super().__init__(spec, plans)
        self.sampler.engine.reuse = False
        self.sampler.engine.reset()


# ------------------------------------------------------------------------------------------------------- transformers


class Generate:
    """`model.generate` on a left-padded batch. Turns are taken together, as it can start nobody in between.

    With `cache_implementation="static"`, transformers compiles the decoding step by itself on a GPU.
    """

    def __init__(self, spec: dict[str, Any], plans: Sequence[Plan], **tuned: Any) -> None:
        self.model = load_peer_model(spec)
        self.flags: dict[str, Any] = {**tuned, **spec["flags"]}
        shared = {"do_sample": True, "temperature": 1.0, "top_k": 0, "top_p": 1.0, "pad_token_id": 0}
        self.model.generation_config.update(**shared, bos_token_id=None, eos_token_id=None)

    def run(self, plans: Sequence[Plan]) -> Outcome:
        contexts = [list(plan.prompt) for plan in plans]
        num_tokens, total = 0, 0.0
        for turn in range(max(len(plan.turns) for plan in plans)):
            rows = [number for number, plan in enumerate(plans) if turn < len(plan.turns)]
            ids, logprobs = self._generate(
                [contexts[row] for row in rows], max(plans[row].turns[turn][0] for row in rows)
            )
            for place, row in enumerate(rows):
                new, said = plans[row].turns[turn]
                num_tokens, total = num_tokens + new, total + sum(logprobs[place][:new])
                contexts[row] += [*ids[place][:new], *said]
        return Outcome(num_tokens, total)

    def _generate(self, prompts: list[list[int]], new: int) -> tuple[list[list[int]], list[list[float]]]:
        import torch
        from transformers import LogitsProcessorList

        width = max(map(len, prompts))
        padded = torch.tensor([[0] * (width - len(prompt)) + prompt for prompt in prompts])
        mask = torch.tensor([[0] * (width - len(prompt)) + [1] * len(prompt) for prompt in prompts])
        recorder = LogprobRecorder()
        with torch.inference_mode():
            sequences = self.model.generate(
                padded.to(self.model.device),
                attention_mask=mask.to(self.model.device),
                max_new_tokens=new,
                logits_processor=LogitsProcessorList([recorder]),
                **self.flags,
            )
        return sequences[:, width:].tolist(), recorder.finish(sequences)

    def close(self) -> None:
        pass


class LogprobRecorder:
    """Notes the log-prob of each sampled token one step later, when it is the last of the ids.

    Keeping all scores (`output_scores=True`) would hold rows x tokens x vocabulary; this holds one step's.
    """

    def __init__(self) -> None:
        self.scores: Any = None
        self.found: list[Any] = []

    def __call__(self, input_ids: Any, scores: Any) -> Any:
        self._note(input_ids)
        self.scores = scores
        return scores

    def _note(self, input_ids: Any) -> None:
        if self.scores is not None:
            self.found.append(self.scores.gather(1, input_ids[:, -1:])[:, 0] - self.scores.logsumexp(-1))

    def finish(self, sequences: Any) -> list[list[float]]:
        import torch

        self._note(sequences)
        found: list[list[float]] = torch.stack(self.found, 1).tolist()
        return found


class ContinuousBatching:
    """transformers' own continuous batching: paged, with its scheduler in a thread."""

    def __init__(self, spec: dict[str, Any], plans: Sequence[Plan]) -> None:
        from transformers import GenerationConfig
        from transformers.generation.configuration_utils import ContinuousBatchingConfig

        page = 256
        self.flags: dict[str, Any] = {"return_logprobs": True, "max_requests_per_batch": len(plans)}
        if spec["device"] == "cpu":
            # By default it takes most of the machine's memory.
            longest = longest_context(plans)
            self.flags |= {"num_blocks": len(plans) * (-(-longest // page) + 1), "max_batch_tokens": 2048}
        self.flags |= spec["flags"]
        generation = GenerationConfig(
            do_sample=True, temperature=1.0, top_k=0, top_p=1.0, eos_token_id=-1, pad_token_id=0, max_new_tokens=1
        )
        self.stack = ExitStack()
        model = load_peer_model(spec)
        self.manager = self.stack.enter_context(
            model.continuous_batching_context_manager(
                generation_config=generation, continuous_batching_config=ContinuousBatchingConfig(**self.flags)
            )
        )
        self.num_runs = 0

    def run(self, plans: Sequence[Plan]) -> Outcome:
        self.num_runs += 1

        def submit(key: str, context: list[int], new: int) -> None:
            self.manager.add_request(list(context), request_id=f"r{self.num_runs}/{key}", max_new_tokens=new)

        def collect() -> list[Finished]:
            while (result := self.manager.get_result(timeout=1)) is None:
                if not self.manager.is_running():
                    raise RuntimeError("its thread has ended")
            if result.error:
                raise RuntimeError(result.error)
            return [(result.request_id.split("/", 1)[1], result.generated_tokens, result.logprobs)]

        return play(plans, submit, collect)

    def close(self) -> None:
        self.stack.close()


# --------------------------------------------------------------------------------------------------------------- vLLM


class VLLM:
    """vLLM's engine fed request by request, so that a turn goes on as soon as it can.

    Log-probs are flat lists and text is never made, which spares it Python objects; no seed per request, which it
    would sample one by one.
    """

    def __init__(self, spec: dict[str, Any], plans: Sequence[Plan]) -> None:
        from vllm import EngineArgs, SamplingParams
        from vllm.sampling_params import RequestOutputKind
        from vllm.usage.usage_lib import UsageContext
        from vllm.v1.engine.llm_engine import LLMEngine

        is_cpu = spec["device"] == "cpu"
        self.flags: dict[str, Any] = {
            "max_num_seqs": len(plans),
            "max_num_batched_tokens": 4096 if is_cpu else 16384,
            "max_model_len": longest_context(plans) + 1,
            # Prompts of the plain mixes share nothing; hashing their blocks would only cost.
            "enable_prefix_caching": spec["mix"]["kind"] == "turns",
        }
        if not is_cpu:
            # By itself it captures no graph for more than 512 rows.
            self.flags |= {"gpu_memory_utilization": 0.85, "max_cudagraph_capture_size": max(512, len(plans))}
        self.flags |= spec["flags"]
        arguments = EngineArgs(
            model=spec["path"],
            dtype=spec["dtype"],
            skip_tokenizer_init=True,
            generation_config="vllm",
            disable_log_stats=True,
            **self.flags,
        )
        self.engine = LLMEngine.from_engine_args(arguments, usage_context=UsageContext.LLM_CLASS)
        self.params = lambda new: SamplingParams(
            max_tokens=new,
            temperature=1.0,
            ignore_eos=True,
            logprobs=0,
            flat_logprobs=True,
            detokenize=False,
            output_kind=RequestOutputKind.FINAL_ONLY,
        )
        self.num_runs = 0

    def run(self, plans: Sequence[Plan]) -> Outcome:
        from vllm.inputs import tokens_input

        self.num_runs += 1

        def submit(key: str, context: list[int], new: int) -> None:
            self.engine.add_request(f"r{self.num_runs}/{key}", tokens_input(list(context)), self.params(new))

        def collect() -> list[Finished]:
            done = [output for output in self.engine.step() if output.finished]
            return [
                (output.request_id.split("/", 1)[1], output.outputs[0].token_ids, output.outputs[0].logprobs.logprobs)
                for output in done
            ]

        return play(plans, submit, collect)

    def close(self) -> None:
        self.engine.engine_core.shutdown()


class Sampler(NamedTuple):
    """A sampler to be measured: what it is called in the table, the package it needs, how it is made."""

    title: str
    package: str
    make: Callable[[dict[str, Any], Sequence[Plan]], Any]


SAMPLERS = {
    "ours": Sampler("ours", "quaere", Ours),
    "ours-engine": Sampler("ours, plain engine loop", "quaere", OurEngine),
    "ours-no-reuse": Sampler("ours, no reuse of K and V", "quaere", OursWithoutReuse),
    "generate": Sampler("transformers generate", "transformers", Generate),
    "static": Sampler(
        "transformers generate, static cache", "transformers", partial(Generate, cache_implementation="static")
    ),
    "continuous": Sampler("transformers continuous batching", "transformers", ContinuousBatching),
    "vllm": Sampler("vLLM", "vllm", VLLM),
}


def read_flags(given: Sequence[str], owner: str) -> dict[str, Any]:
    """What `--flag OWNER.NAME=VALUE` says of this owner; values are JSON, or else text.

    read_flags(["vllm.max_num_seqs=512"], "vllm") == {"max_num_seqs": 512}
    """
    found: dict[str, Any] = {}
    for item in given:
        name, _, value = item.partition("=")
        whose, _, flag = name.partition(".")
        if whose != owner:
            continue
        try:
            found[flag] = json.loads(value)
        except ValueError:
            found[flag] = value
    return found
