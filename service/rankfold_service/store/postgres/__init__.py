"""The shared store: PostgreSQL, which any number of aggregators write to at once."""
