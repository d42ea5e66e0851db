"""The small part of Python that the fake recognises; it executes none of it."""
