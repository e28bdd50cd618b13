"""The trainer's side of Rankfold: compare tensors exactly and report what was found."""
