"""A real two-rank training job, small enough for a laptop, that reports to an aggregator.

`python -m torch.distributed.run --nproc-per-node 2 -m rankfold_client.demo` samples a small
transformer by one path, scores the same tokens by another, and reports how they differ.
"""
