"""Dumps of log-probs in files, compared as a trainer would have compared the tensors."""
