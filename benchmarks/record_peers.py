"""Record what other libraries' own functions give, for tests/objectives and tests/rewards/test_scorers.py to replay.

    pip install --target PEERS --no-deps verl==0.9.1 trl==1.16.0   # and what they import
    PYTHONPATH=PEERS python benchmarks/record_peers.py verl trl --out tests/objectives/fixtures
    pip install --target PEERS --no-deps flashrag-dev==0.1.2 verl==0.9.1 torchmetrics==1.9.0 lightning-utilities
    PYTHONPATH=PEERS python benchmarks/record_peers.py scorers --out tests/rewards/fixtures

Everything is in float64 so that a difference is one of formula. verl's functions are called as they are. TRL's loss is
a method of DPOTrainer, called here on a stand-in that hands it the log-probs, in which the first half of the batch is
chosen and the second rejected. GRPO's advantages are worked out in the midst of the method that generates completions,
cannot be called alone, and are not recorded.

Scorers of answers are called on the cases of answer_cases.py, of which only the hash is stored. Search-R1's is the copy
that verl ships, torchmetrics' follows SQuAD's script.
"""

from __future__ import annotations

import argparse
import gzip
import importlib.util
import json
from collections import defaultdict
from contextlib import nullcontext
from importlib.metadata import distribution, version
from pathlib import Path
from types import SimpleNamespace
from unittest.mock import patch

import torch
from answer_cases import Case, draw_cases, hash_cases

SEED = 20
NUM_SEQUENCES, NUM_TOKENS, NUM_WORDS = 6, 7, 11
DPO_BETA = 0.1


def draw_inputs() -> dict[str, torch.Tensor]:
    """A batch of sequences of different lengths with holes in their masks, and tokens clipped on both sides."""
    generator = torch.Generator().manual_seed(SEED)

    def normal(*shape: int) -> torch.Tensor:
        return torch.randn(*shape, generator=generator, dtype=torch.float64)

    shape = (NUM_SEQUENCES, NUM_TOKENS)
    logprobs = -normal(*shape).abs()
    lengths = torch.tensor([7, 1, 4, 6, 3, 5])
    mask = torch.arange(NUM_TOKENS) < lengths[:, None]
    mask[[0, 0, 3, 5], [2, 3, 1, 3]] = False
    return {
        "logprobs": logprobs,
        "old_logprobs": logprobs + 0.5 * normal(*shape),
        "ref_logprobs": logprobs + 0.5 * normal(*shape),
        "advantages": normal(NUM_SEQUENCES),
        "mask": mask.double(),
        "rewards": normal(12),
        "groups": torch.tensor([3, 1, 3, 2, 1, 2, 2, 3, 1, 3, 9, 2]),
        "logits": 3 * normal(2, 3, NUM_WORDS),
        "token_ids": torch.randint(NUM_WORDS, (2, 3), generator=generator),
    }


def with_gradient(loss_of, logprobs: torch.Tensor) -> dict[str, object]:
    logprobs = logprobs.clone().requires_grad_()
    loss, rest = loss_of(logprobs)
    loss.backward()
    return {"loss": loss.item(), "gradient": logprobs.grad.tolist(), **rest}


def record_verl(given: dict[str, torch.Tensor]) -> dict[str, object]:
    from verl.trainer.ppo import core_algos
    from verl.utils import torch_functional
    from verl.workers.config import ActorConfig

    config = ActorConfig(
        strategy="fsdp",
        rollout_n=1,
        use_dynamic_bsz=True,
    )
    per_token = given["advantages"][:, None].expand_as(given["mask"])
    one_token = torch.ones(len(given["rewards"]), 1, dtype=torch.float64)
    as_tokens = given["rewards"][:, None]
    modes = {
        "token_mean": "token-mean",
        "sequence_mean": "seq-mean-token-mean",
        "token_sum": "seq-mean-token-sum",
    }

    def reinforce(mode: str):
        def loss_of(logprobs):
            loss, _ = core_algos.compute_policy_loss_reinforce(
                given["old_logprobs"], logprobs, per_token, given["mask"], mode, config
            )
            return loss, {}

        return with_gradient(loss_of, given["logprobs"])

    def advantages(estimate, **more) -> list[float]:
        return estimate(as_tokens.clone(), one_token, **more)[0][:, 0].tolist()

    groups = given["groups"].numpy()
    return {
        "grpo": advantages(core_algos.compute_grpo_outcome_advantage, index=groups),
        "reinforce_global": advantages(
            core_algos.compute_reinforce_plus_plus_outcome_advantage, config=SimpleNamespace(gamma=1.0)
        ),
        "policy_gradient_loss": {ours: reinforce(theirs) for ours, theirs in modes.items()},
        "kl": {
            kind: core_algos.kl_penalty(given["logprobs"], given["ref_logprobs"], kind).tolist()
            for kind in ("k1", "k2", "k3")
        },
        "token_logprobs": torch_functional.logprobs_from_logits_naive(given["logits"], given["token_ids"]).tolist(),
        "token_entropy": torch_functional.entropy_from_logits(given["logits"]).tolist(),
    }


def record_trl(given: dict[str, torch.Tensor]) -> dict[str, object]:
    from trl.trainer import dpo_trainer
    from trl.trainer.utils import entropy_from_logits, selective_log_softmax

    def preferred():
        """The first half of the batch is chosen, the second rejected."""
        mask = given["mask"]
        padded = torch.nn.functional.pad(mask, (1, 0))  # the log-prob of a token is that of the one before it

        def speaking(logprobs):
            def speak(**_):
                zero = torch.zeros_like(logprobs)
                return SimpleNamespace(log_probs=logprobs * mask, entropy=zero, mean_logits=zero, is_top1=zero.bool())

            return speak

        def loss_of(logprobs):
            trainer = SimpleNamespace(
                accelerator=SimpleNamespace(
                    device="cpu", gather=lambda values: values, gather_for_metrics=lambda values: values
                ),
                model=torch.nn.Module().eval(),
                ref_model=speaking(given["ref_logprobs"]),
                args=SimpleNamespace(gradient_checkpointing_kwargs=None),
                aux_loss_enabled=False,
                ld_alpha=None,
                precompute_ref_logps=False,
                f_divergence_type="reverse_kl",
                loss_types=["sigmoid"],
                loss_weights=[1.0],
                beta=DPO_BETA,
                use_weighting=False,
                _total_train_tokens=0,
                _metrics=defaultdict(lambda: defaultdict(list)),
            )
            inputs = {"input_ids": torch.zeros(padded.shape, dtype=torch.long), "completion_mask": padded}
            with patch.object(dpo_trainer, "disable_gradient_checkpointing", lambda *_: nullcontext()):
                return dpo_trainer.DPOTrainer._compute_loss(trainer, speaking(logprobs), inputs, False), {}

        return with_gradient(loss_of, given["logprobs"])

    return {
        "dpo": preferred(),
        "token_logprobs": selective_log_softmax(given["logits"], given["token_ids"]).tolist(),
        "token_entropy": entropy_from_logits(given["logits"]).tolist(),
    }


# ------------------------------------------------------------------------------------------------ scorers of answers


def score_flashrag(cases: list[Case]) -> dict[str, object]:
    from flashrag.evaluator.metrics import ExactMatch, F1_Score

    exact, f1 = ExactMatch({"dataset_name": "nq"}), F1_Score({"dataset_name": "nq"})
    return {
        "em": [exact.calculate_em(answer, list(accepted)) for answer, accepted in cases],
        "f1": [f1.token_level_scores(answer, list(accepted))["f1"] for answer, accepted in cases],
    }


def score_search_r1(cases: list[Case]) -> dict[str, object]:
    # The file alone: the package around it imports a training framework.
    path = distribution("verl").locate_file("verl/utils/reward_score/search_r1_like_qa_em.py")
    spec = importlib.util.spec_from_file_location("search_r1_like_qa_em", path)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return {"em": [module.em_check(answer, list(accepted)) for answer, accepted in cases]}


def score_torchmetrics(cases: list[Case]) -> dict[str, object]:
    from torchmetrics.functional.text import squad

    found = [
        squad(
            [{"prediction_text": answer, "id": "1"}],
            [{"answers": {"answer_start": [0] * len(accepted), "text": list(accepted)}, "id": "1"}],
        )
        for answer, accepted in cases
    ]
    return {
        "em": [one["exact_match"].item() / 100 for one in found],
        "f1": [round(one["f1"].item() / 100, 6) for one in found],
    }


SCORERS = {
    "flashrag-dev": score_flashrag,
    "verl": score_search_r1,
    "torchmetrics": score_torchmetrics,
}


def record_scorers(out: Path) -> None:
    """Write the scores of every scorer into one small file."""
    cases = draw_cases()
    fixture = {
        "cases": hash_cases(cases),
        "scores": {peer: {"version": version(peer), **score(cases)} for peer, score in SCORERS.items()},
    }
    path = out / "scorers.json.gz"
    path.write_bytes(gzip.compress(json.dumps(fixture).encode(), mtime=0))
    print(f"{path}: {len(cases):,} cases, {path.stat().st_size:,} bytes")


def main() -> None:
    parser = argparse.ArgumentParser(description="Record fixtures from peer libraries.")
    parser.add_argument("peers", nargs="+", choices=("verl", "trl", "scorers"))
    parser.add_argument("--out", type=Path, required=True)
    options = parser.parse_args()
    for peer in options.peers:
        if peer == "scorers":
            record_scorers(options.out)
            continue
        given = draw_inputs()
        fixture = {
            "package": peer,
            "version": version(peer),
            "torch": torch.__version__,
            "seed": SEED,
            "settings": {"dpo_beta": DPO_BETA},
            "inputs": {name: values.tolist() for name, values in given.items()},
            "outputs": {"verl": record_verl, "trl": record_trl}[peer](given),
        }
        path = options.out / f"{peer}.json"
        path.write_text(json.dumps(fixture) + "\n", encoding="utf-8")
        print(f"{path}: {peer} {fixture['version']}, {path.stat().st_size:,} bytes")


if __name__ == "__main__":
    main()
