"""`python -m gett`: hands the command line to `gett.cli`."""

import sys

from gett.cli import main

if __name__ == "__main__":
    sys.exit(main())
