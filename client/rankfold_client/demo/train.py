"""One rank of the job: roll out, score, compare, step, and report every microbatch of it."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import torch
from torch import Tensor, distributed

from rankfold_client import Reporter
from rankfold_client.demo.model import Policy, Shape, build_policy
from rankfold_client.demo.rollout import Samples, rollout_policy, sample
from rankfold_client.demo.trainer import (
    policy_loss,
    rewards,
    score,
    score_like_trainer,
    step,
    sum_over_ranks,
)

SERIES = "training/rollout_logprobs"


@dataclass(frozen=True, slots=True)
class Settings:
    """What a job does.

    Attributes:
        iterations: optimiser steps.
        rows: responses per rank and iteration, sampled as one batch.
        microbatch_rows: responses per forward of the trainer.
        prompt, response: tokens of a prompt, and at most of a response.
        learning_rate: of the optimiser.
        dtype: of the rollout's weights and cache; the trainer's are float32.
        exact: the rollout's log-probs come from the trainer's kernels and shapes.
        seed: of weights, prompts and draws.
        dump: where each rank writes the tensors that it compared.
    """

    iterations: int = 8
    rows: int = 48
    microbatch_rows: int = 12
    prompt: int = 16
    response: int = 64
    learning_rate: float = 1e-4
    dtype: torch.dtype = torch.float32
    exact: bool = False
    seed: int = 0
    dump: Path | None = None


class Job:
    """The loop of one rank over its own prompts, in step with the other ranks."""

    def __init__(self, settings: Settings, reporter: Reporter, rank: int) -> None:
        self.settings, self.reporter, self.rank = settings, reporter, rank
        shape = Shape(positions=settings.prompt + settings.response)
        self.policy: Policy = build_policy(shape, settings.seed)
        self.optimiser = torch.optim.AdamW(self.policy.parameters(), lr=settings.learning_rate)
        self.generator = torch.Generator().manual_seed((settings.seed << 16) + rank)

    def run(self) -> None:
        """Take every iteration."""
        for iteration in range(self.settings.iterations):
            self.iterate(iteration)

    def iterate(self, iteration: int) -> None:
        """Sample, score and compare each microbatch, then move the weights once."""
        samples = self.roll_out(iteration)
        reward = rewards(samples)
        rows = len(reward) * distributed.get_world_size()
        baseline = sum_over_ranks(float(reward.sum())) / rows
        tokens = sum_over_ranks(float(samples.mask.sum()))
        for index, microbatch in enumerate(samples.microbatches(self.settings.microbatch_rows)):
            log_probs = score(self.policy, microbatch)
            self.compare(iteration, index, microbatch, log_probs.detach())
            loss = policy_loss(log_probs, rewards(microbatch) - baseline, microbatch.mask)
            weight = int(microbatch.mask.sum())
            self.reporter.scalar("actor/pg_loss/mean", loss.item(), weight=weight, rule="mean")
            (loss * (weight / tokens)).backward()  # type: ignore[no-untyped-call]
        self.reporter.scalar("reward/mean", float(reward.mean()), weight=len(reward), rule="mean")
        step(self.policy, self.optimiser)
        self.reporter.end_iteration()

    def roll_out(self, iteration: int) -> Samples:
        """Return responses to new prompts, sampled with the weights of this iteration."""
        settings = self.settings
        shape = (settings.rows, settings.prompt)
        vocabulary = self.policy.shape.vocabulary
        prompts = torch.randint(1, vocabulary, shape, generator=self.generator)
        policy = rollout_policy(self.policy, settings.dtype)
        label = f"iteration {iteration}, rank {self.rank}"
        return sample(policy, prompts, settings.response, self.generator, label)

    def compare(self, iteration: int, index: int, samples: Samples, trained: Tensor) -> None:
        """Report how the trainer's log-probs differ from the rollout's, and dump both."""
        rolled_out = samples.log_probs
        if self.settings.exact:
            rolled_out = score_like_trainer(self.policy, samples)
        self.reporter.compare(
            SERIES,
            trained,
            rolled_out,
            mask=samples.mask,
            token_ids=samples.responses,
            sample_ids=samples.names,
        )
        if self.settings.dump is not None:
            name = f"rank{self.rank}-iteration{iteration}-microbatch{index}.pt"
            tensors = {"a": trained, "b": rolled_out, "mask": samples.mask}
            torch.save(tensors, self.settings.dump / name)
