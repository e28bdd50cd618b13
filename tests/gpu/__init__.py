"""What only a machine with an accelerator can show; `make test-gpu` runs it there."""
