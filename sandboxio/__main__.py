"""`python -m sandboxio`."""

from sandboxio.cli.main import run

if __name__ == "__main__":
    run()
