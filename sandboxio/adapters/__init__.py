"""Adapters: one provider each, imported on first use."""
