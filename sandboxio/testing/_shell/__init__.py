"""The virtual shell of the fake."""
