"""The rollout path: samples responses token by token with a cache, as an inference engine does."""

from __future__ import annotations

import copy
from collections.abc import Iterator
from dataclasses import dataclass

import torch
from torch import Tensor

from rankfold_client.demo.model import Cache, Policy

END = 0  # the token that ends a response, and the padding behind it


@dataclass(frozen=True, slots=True)
class Samples:
    """Prompts with their sampled responses.

    Attributes:
        prompts: ids [rows, prompt].
        responses: ids [rows, response]; END and padding behind the end.
        log_probs: float32 [rows, response], of the sampled tokens as the rollout saw them.
        mask: bool [rows, response], True up to and including the sampled END.
        names: one per row.
    """

    prompts: Tensor
    responses: Tensor
    log_probs: Tensor
    mask: Tensor
    names: list[str]

    @property
    def tokens(self) -> Tensor:
        """Prompts and responses in one: ids [rows, prompt + response]."""
        return torch.cat((self.prompts, self.responses), 1)

    def microbatches(self, rows: int) -> Iterator[Samples]:
        """Yield so many rows at a time, alike in length and cut to the longest of them."""
        order = self.mask.sum(1).argsort(descending=True, stable=True)
        for start in range(0, len(order), rows):
            picked = order[start : start + rows]
            longest = int(self.mask[picked].sum(1).max())
            yield Samples(
                self.prompts[picked],
                self.responses[picked, :longest],
                self.log_probs[picked, :longest],
                self.mask[picked, :longest],
                [self.names[row] for row in picked.tolist()],
            )


def rollout_policy(policy: Policy, dtype: torch.dtype) -> Policy:
    """Return what the rollout runs on: the policy, or a copy with its weights in dtype."""
    if policy.tokens.weight.dtype == dtype:
        return policy
    return copy.deepcopy(policy).to(dtype)


@torch.no_grad()
def sample(
    policy: Policy, prompts: Tensor, length: int, generator: torch.Generator, label: str = "sample"
) -> Samples:
    """Sample up to `length` tokens after each prompt.

    Args:
        policy: in the dtype to sample with.
        prompts: ids [rows, prompt], of one length.
        length: where a response that has not ended is cut off.
        generator: decides every draw.
        label: begins each row's name.
    """
    cache = Cache()
    logits = policy(prompts, cache)[:, -1]
    alive = torch.ones(len(prompts), dtype=torch.bool)
    columns: list[tuple[Tensor, Tensor, Tensor]] = []
    while alive.any() and len(columns) < length:
        if columns:
            logits = policy(columns[-1][0][:, None], cache)[:, -1]
        log_probs = logits.float().log_softmax(-1)
        drawn = torch.multinomial(log_probs.exp(), 1, generator=generator)
        token = drawn.squeeze(1).masked_fill(~alive, END)
        log_prob = log_probs.gather(1, token[:, None]).squeeze(1)
        columns.append((token, log_prob, alive))
        alive = alive & (token != END)
    responses, taken, mask = (torch.stack(parts, 1) for parts in zip(*columns, strict=True))
    names = [f"{label}/{row}" for row in range(len(prompts))]
    return Samples(prompts, responses, taken, mask, names)
