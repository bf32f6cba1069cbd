"""What the samples have in common: they say what they claim, and exit 1 if it is not so."""

import sys


def claim(what: str, so: bool) -> None:
    """Print a claim, and end the program if it is not so."""
    print(("ok: " if so else "NOT SO: ") + what, flush=True)
    if not so:
        sys.exit(1)
