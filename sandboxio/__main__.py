"""`python -m sandboxio`."""

import sys

from sandboxio.cli.main import main

if __name__ == "__main__":
    sys.exit(main())
