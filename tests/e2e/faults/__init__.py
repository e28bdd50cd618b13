"""Real reporters against a real aggregator while everything between and below them fails."""
