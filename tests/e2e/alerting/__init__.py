"""The way of one mismatch to whoever is woken by it, through the real programs."""
