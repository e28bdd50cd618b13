"""The policy: a small GPT that runs over whole sequences or, with a cache, token by token."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor, nn
from torch.nn import functional

Layer = tuple[Tensor, Tensor]


@dataclass(frozen=True, slots=True)
class Shape:
    """How large a policy is."""

    vocabulary: int = 96
    width: int = 128
    layers: int = 4
    heads: int = 4
    positions: int = 96


class Cache:
    """The keys and values of every position seen so far, per layer."""

    def __init__(self) -> None:
        self._layers: dict[int, Layer] = {}
        self.length = 0

    def extend(self, layer: int, keys: Tensor, values: Tensor) -> Layer:
        """Append new positions to one layer and return all of its keys and values."""
        if layer in self._layers:
            old_keys, old_values = self._layers[layer]
            keys, values = torch.cat((old_keys, keys), 2), torch.cat((old_values, values), 2)
        self._layers[layer] = keys, values
        return keys, values


class Attention(nn.Module):
    """Causal self-attention over several heads."""

    def __init__(self, shape: Shape, layer: int) -> None:
        super().__init__()
        self.heads, self.layer = shape.heads, layer
        self.project = nn.Linear(shape.width, 3 * shape.width, bias=False)
        self.out = nn.Linear(shape.width, shape.width, bias=False)

    def forward(self, x: Tensor, cache: Cache | None) -> Tensor:
        """Let each position of x look at itself and at those before it."""
        rows, steps, _ = x.shape
        query, keys, values = (
            part.view(rows, steps, self.heads, -1).transpose(1, 2)
            for part in self.project(x).chunk(3, dim=-1)
        )
        if cache is not None:
            keys, values = cache.extend(self.layer, keys, values)
        # A single new position may look at everything before it: only a longer x needs a mask.
        mixed = functional.scaled_dot_product_attention(query, keys, values, is_causal=steps > 1)
        return self.out(mixed.transpose(1, 2).flatten(2))  # type: ignore[no-any-return]


class Block(nn.Module):
    """One pre-norm layer: attention, then a GELU perceptron, each beside a residual."""

    def __init__(self, shape: Shape, layer: int) -> None:
        super().__init__()
        self.before_attention = nn.LayerNorm(shape.width)
        self.attention = Attention(shape, layer)
        self.perceptron = nn.Sequential(
            nn.LayerNorm(shape.width),
            nn.Linear(shape.width, 4 * shape.width),
            nn.GELU(),
            nn.Linear(4 * shape.width, shape.width),
        )

    def forward(self, x: Tensor, cache: Cache | None) -> Tensor:
        """Return x after this layer."""
        x = x + self.attention(self.before_attention(x), cache)
        return x + self.perceptron(x)  # type: ignore[no-any-return]


class Policy(nn.Module):
    """A GPT with learned positions whose head shares the token embedding's weights."""

    def __init__(self, shape: Shape) -> None:
        super().__init__()
        self.shape = shape
        self.tokens = nn.Embedding(shape.vocabulary, shape.width)
        self.positions = nn.Embedding(shape.positions, shape.width)
        self.blocks = nn.ModuleList(Block(shape, layer) for layer in range(shape.layers))
        self.norm = nn.LayerNorm(shape.width)
        # Unit-variance logits from the start, as a trained model has: near-uniform ones would
        # hide the differences in the last bits that the demo is about.
        nn.init.normal_(self.tokens.weight, std=shape.width**-0.5)
        nn.init.normal_(self.positions.weight, std=shape.width**-0.5)

    def forward(self, tokens: Tensor, cache: Cache | None = None) -> Tensor:
        """Return the logits [rows, steps, vocabulary] of what follows each token.

        Args:
            tokens: ids [rows, steps]; after the first call with a cache, one step at a time.
            cache: what was seen before; it is extended by this call.
        """
        start = 0 if cache is None else cache.length
        steps = tokens.shape[1]
        x = self.tokens(tokens) + self.positions.weight[start : start + steps]
        for block in self.blocks:
            x = block(x, cache)
        if cache is not None:
            cache.length += steps
        return functional.linear(self.norm(x), self.tokens.weight)


def build_policy(shape: Shape, seed: int) -> Policy:
    """Return a policy whose weights depend on the seed only, and so agree on every rank."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        return Policy(shape)
