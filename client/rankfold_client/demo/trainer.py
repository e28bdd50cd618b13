"""The trainer path: scores sampled tokens by a full forward and takes policy-gradient steps."""

from __future__ import annotations

import torch
from torch import Tensor, distributed

from rankfold_client.demo.model import Policy
from rankfold_client.demo.rollout import Samples

FIRST_PRINTABLE = 31  # token 1 is the space, so that a response is readable text
VOWELS = torch.tensor([ord(letter) - FIRST_PRINTABLE for letter in "aeiouAEIOU"])


def score(policy: Policy, samples: Samples) -> Tensor:
    """Return the log-probs [rows, response] of the sampled tokens, by one padded forward."""
    tokens = samples.tokens
    prompt = samples.prompts.shape[1]
    logits: Tensor = policy(tokens[:, :-1])[:, prompt - 1 :]
    log_probs = logits.float().log_softmax(-1)
    return log_probs.gather(2, samples.responses[:, :, None]).squeeze(2)


@torch.no_grad()
def score_like_trainer(policy: Policy, samples: Samples) -> Tensor:
    """Return the rollout's log-probs by the trainer's own kernels and shapes: the exact mode."""
    return score(policy, samples)


def rewards(samples: Samples) -> Tensor:
    """Return, per row, which share of the response's tokens are vowels."""
    vowels = torch.isin(samples.responses, VOWELS) & samples.mask
    return vowels.sum(1) / samples.mask.sum(1)


def policy_loss(log_probs: Tensor, advantages: Tensor, mask: Tensor) -> Tensor:
    """Return the policy-gradient loss, averaged over the tokens under the mask."""
    weighted = log_probs * advantages[:, None]
    return -weighted.masked_fill(~mask, 0).sum() / mask.sum()


def sum_over_ranks(value: float) -> float:
    """Return the sum of every rank's value."""
    total = torch.tensor(value, dtype=torch.float64)
    distributed.all_reduce(total)
    return total.item()


def step(policy: Policy, optimiser: torch.optim.Optimizer) -> None:
    """Add up the gradients of all ranks and move every copy of the weights alike."""
    gradients = [weight.grad for weight in policy.parameters() if weight.grad is not None]
    flat = torch.cat([gradient.flatten() for gradient in gradients])
    distributed.all_reduce(flat)
    start = 0
    for gradient in gradients:
        gradient.copy_(flat[start : start + gradient.numel()].view_as(gradient))
        start += gradient.numel()
    optimiser.step()
    optimiser.zero_grad()
