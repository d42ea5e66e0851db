"""The provider-neutral core: values, errors, ports, and the one sandbox handle."""
