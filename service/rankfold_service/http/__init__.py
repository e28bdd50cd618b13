"""The aggregator's HTTP edge: raw bytes in, problem documents and plain JSON out."""
