"""The aggregator: takes reports over HTTP, folds them exactly once and durably, answers reads."""
