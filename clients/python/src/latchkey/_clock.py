"""The clock that deadlines are kept on."""

from __future__ import annotations

import sys
import time

__all__ = ["clock"]


def _choose() -> int | None:
    # A lease goes on ending while this process is stopped and while the machine
    # sleeps, so the clock must go on as well. Linux leaves sleep out of
    # CLOCK_MONOTONIC and has CLOCK_BOOTTIME for that; macOS leaves it out of
    # time.monotonic(), but not out of CLOCK_MONOTONIC. Elsewhere time.monotonic()
    # is the best there is.
    name = {"linux": "CLOCK_BOOTTIME", "darwin": "CLOCK_MONOTONIC"}.get(sys.platform)
    clock_id: int | None = getattr(time, name, None) if name else None
    if clock_id is not None:
        try:
            time.clock_gettime(clock_id)
        except OSError:
            return None
    return clock_id


_CLOCK_ID = _choose()


def clock() -> float:
    """Return seconds on the clock of :attr:`Hold.safe_until`.

    It never goes back, is not moved by setting the wall clock, and goes on while
    the process is stopped and (on Linux and macOS) while the machine sleeps. Its
    zero means nothing.
    """
    if _CLOCK_ID is None:
        return time.monotonic()
    return time.clock_gettime(_CLOCK_ID)


def now_ms() -> float:
    """Return the clock in milliseconds, the unit of the protocol and the core."""
    return clock() * 1000.0
