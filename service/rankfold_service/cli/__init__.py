"""The command line: the composition root, and what people and scripts ask of an aggregator."""
