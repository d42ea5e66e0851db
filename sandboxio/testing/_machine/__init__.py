"""The virtual processes, programs and network of the fake."""
