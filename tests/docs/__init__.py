"""Documentation and examples, run."""
