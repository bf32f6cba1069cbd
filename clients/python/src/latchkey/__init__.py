"""Leases with fencing tokens from a Latchkey broker.

:class:`Client` is the blocking client, :mod:`latchkey.aio` the one for asyncio. Both
behave alike: a lease is renewed by itself, its loss is told before anybody else can have
it, a broken connection is made anew and the session taken up again.
"""

import logging

from latchkey import aio, errors
from latchkey._blocking import Client, Hold, LostEvent, Watch
from latchkey._clock import clock
from latchkey._hold import AcquireOptions
from latchkey.errors import (
    Busy,
    Cancelled,
    Closed,
    Deadlock,
    Expired,
    FencingUnknown,
    Forced,
    HoldClosed,
    HoldReleased,
    InternalError,
    LatchkeyError,
    LeaseLost,
    NotHeld,
    Over,
    ProtocolError,
    Refused,
    ServiceGone,
    SessionLost,
    Unavailable,
    UnknownOutcome,
    WaitTimeout,
)
from latchkey.types import (
    FOREVER,
    Event,
    ForceResult,
    Holder,
    KeyState,
    Listing,
    Mode,
    Queued,
    ServerInfo,
    Ttl,
    Wait,
    Waiter,
)

__version__ = "0.1.0"

# What is logged is for programs that set up logging; others see nothing of it.
logging.getLogger("latchkey").addHandler(logging.NullHandler())

__all__ = [
    "FOREVER",
    "AcquireOptions",
    "Busy",
    "Cancelled",
    "Client",
    "Closed",
    "Deadlock",
    "Event",
    "Expired",
    "FencingUnknown",
    "ForceResult",
    "Forced",
    "Hold",
    "HoldClosed",
    "HoldReleased",
    "Holder",
    "InternalError",
    "KeyState",
    "LatchkeyError",
    "LeaseLost",
    "Listing",
    "LostEvent",
    "Mode",
    "NotHeld",
    "Over",
    "ProtocolError",
    "Queued",
    "Refused",
    "ServerInfo",
    "ServiceGone",
    "SessionLost",
    "Ttl",
    "Unavailable",
    "UnknownOutcome",
    "Wait",
    "WaitTimeout",
    "Waiter",
    "Watch",
    "aio",
    "clock",
    "errors",
]
