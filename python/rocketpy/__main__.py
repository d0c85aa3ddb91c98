"""`python -m rocketpy`: the command `rocketpy` of this interpreter."""

import sys

from rocketpy.cli import main

if __name__ == "__main__":
    sys.exit(main())
