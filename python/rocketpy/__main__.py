"""`python -m rocketpy`: the command `rocketpy` of this interpreter."""

import sys

if __name__ == "__main__":
    try:
        from rocketpy_mq import main
    except KeyboardInterrupt:
        sys.exit(130)
    sys.exit(main())
