"""The demo's policy: its two paths compute one function, and only rounding tells them apart."""

from __future__ import annotations

import pytest
import torch

from rankfold_client.demo.model import Cache, Policy, Shape, build_policy
from rankfold_client.demo.rollout import END, Samples, rollout_policy, sample
from rankfold_client.demo.trainer import (
    FIRST_PRINTABLE,
    policy_loss,
    rewards,
    score,
    score_like_trainer,
)

SHAPE = Shape(vocabulary=96, width=32, layers=2, heads=2, positions=32)
PROMPT, RESPONSE, ROWS = 8, 24, 12


@pytest.fixture
def policy() -> Policy:
    """A policy small enough for tests."""
    return build_policy(SHAPE, seed=3)


@pytest.fixture
def samples(policy: Policy) -> Samples:
    """Responses of that policy."""
    return draw(policy)


def draw(policy: Policy, seed: int = 5) -> Samples:
    """Return responses to prompts that depend on the seed only."""
    generator = torch.Generator().manual_seed(seed)
    prompts = torch.randint(1, SHAPE.vocabulary, (ROWS, PROMPT), generator=generator)
    return sample(policy, prompts, RESPONSE, generator)


def test_cached_decoding_equals_the_full_forward_within_rounding(policy: Policy) -> None:
    """Token by token with a cache gives the logits of one forward over the whole sequence."""
    tokens = torch.randint(SHAPE.vocabulary, (3, 20), generator=torch.Generator().manual_seed(1))
    cache = Cache()
    with torch.no_grad():
        parts = [policy(tokens[:, :6], cache)]
        parts += [policy(tokens[:, at : at + 1], cache) for at in range(6, 20)]
        torch.testing.assert_close(torch.cat(parts, 1), policy(tokens), rtol=1e-5, atol=1e-5)


def test_policy_attends_to_nothing_ahead(policy: Policy) -> None:
    """Padding behind a position changes none of its logits by more than rounding."""
    tokens = torch.randint(SHAPE.vocabulary, (2, 16), generator=torch.Generator().manual_seed(1))
    changed = tokens.clone()
    changed[:, 10:] = END
    with torch.no_grad():
        torch.testing.assert_close(policy(tokens)[:, :10], policy(changed)[:, :10])


def test_build_policy_depends_on_the_seed_only() -> None:
    """Ranks that build with one seed start from the same weights; another seed gives others."""
    torch.manual_seed(1)
    first = build_policy(SHAPE, seed=3).tokens.weight
    torch.manual_seed(2)
    assert torch.equal(first, build_policy(SHAPE, seed=3).tokens.weight)
    assert not torch.equal(first, build_policy(SHAPE, seed=4).tokens.weight)


def test_sample_masks_each_response_up_to_its_end(samples: Samples) -> None:
    """The mask covers a response with its END, and nothing behind it; lengths really vary."""
    for tokens, mask in zip(samples.responses.tolist(), samples.mask.tolist(), strict=True):
        length = tokens.index(END) + 1 if END in tokens else len(tokens)
        assert mask == [True] * length + [False] * (len(tokens) - length)
    assert len(set(samples.mask.sum(1).tolist())) > 1


def test_sample_repeats_with_the_same_generator(policy: Policy, samples: Samples) -> None:
    """One seed gives the same tokens and the same bits of log-probs."""
    again = draw(policy)
    assert torch.equal(samples.responses, again.responses)
    assert torch.equal(samples.log_probs, again.log_probs)


def test_microbatches_hold_every_sampled_token_once(samples: Samples) -> None:
    """Sorting and cutting loses no row, no token and no log-prob."""
    found = {}
    for part in samples.microbatches(5):
        assert part.mask.any(0).all()
        for row, name in enumerate(part.names):
            mask = part.mask[row]
            found[name] = (part.responses[row][mask].tolist(), part.log_probs[row][mask].tolist())
    expected = {
        name: (samples.responses[row][mask].tolist(), samples.log_probs[row][mask].tolist())
        for row, (name, mask) in enumerate(zip(samples.names, samples.mask, strict=True))
    }
    assert found == expected


def test_rollout_differs_from_the_trainer_by_rounding_only(
    policy: Policy, samples: Samples
) -> None:
    """The two paths differ somewhere, and nowhere by more than float32 rounding."""
    trained = score(policy, samples).detach()[samples.mask]
    rolled_out = samples.log_probs[samples.mask]
    assert (trained != rolled_out).any()
    torch.testing.assert_close(trained, rolled_out, rtol=1e-5, atol=1e-5)


def test_exact_scores_equal_the_trainers_to_the_last_bit(policy: Policy, samples: Samples) -> None:
    """With and without gradients, the same kernels and shapes give the same bits."""
    for microbatch in samples.microbatches(4):
        trained = score(policy, microbatch)
        rolled_out = score_like_trainer(policy, microbatch)
        assert trained.requires_grad
        assert torch.equal(trained.detach().view(torch.int32), rolled_out.view(torch.int32))


def test_rollout_policy_copies_for_another_dtype_only(policy: Policy) -> None:
    """A bfloat16 rollout leaves the trainer's weights alone and still reports float32."""
    assert rollout_policy(policy, torch.float32) is policy
    low = rollout_policy(policy, torch.bfloat16)
    assert low.tokens.weight.dtype == torch.bfloat16
    assert policy.tokens.weight.dtype == torch.float32
    assert draw(low).log_probs.dtype == torch.float32


def test_rewards_are_the_share_of_vowels_under_the_mask() -> None:
    """Vowels count, other letters and everything behind the end do not."""
    text = torch.tensor([[ord(letter) - FIRST_PRINTABLE for letter in "aXea"]])
    mask = torch.tensor([[True, True, True, False]])
    samples = Samples(text, text, torch.zeros(1, 4), mask, ["one"])
    assert rewards(samples).tolist() == [pytest.approx(2 / 3)]


def test_policy_loss_averages_over_the_mask() -> None:
    """Masked positions carry no loss, even where their log-prob is infinite."""
    log_probs = torch.tensor([[-1.0, -2.0], [-4.0, -torch.inf]])
    mask = torch.tensor([[True, True], [True, False]])
    loss = policy_loss(log_probs, torch.tensor([1.0, -0.5]), mask)
    assert loss.item() == pytest.approx((1 + 2 - 2) / 3)
