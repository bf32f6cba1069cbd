"""What a watch keeps for a reader who is slower than the broker."""

from __future__ import annotations

from collections import deque

from latchkey.errors import Closed, LatchkeyError
from latchkey.types import Event


class EventBuffer:
    """Events in order, up to a number; beyond it one ``gap`` stands for what was dropped."""

    def __init__(self, size: int) -> None:
        self._size = size
        self._events: deque[Event] = deque()
        self._gap = False
        self._error: LatchkeyError | None = None

    def put(self, event: Event) -> None:
        """Keep an event, unless it is behind a gap that was not read yet or behind the end."""
        if self._error is not None or self._gap:
            return
        if len(self._events) < self._size:
            self._events.append(event)
        else:
            self._gap = True

    def end(self, error: LatchkeyError) -> None:
        """Note why no more events come; the first reason counts."""
        if self._error is None:
            self._error = error

    @property
    def ready(self) -> bool:
        """Whether :meth:`take` has something to tell."""
        return bool(self._events) or self._gap or self._error is not None

    def take(self) -> Event | None:
        """Return the next event, or None: there is none yet, or the watch was closed. Raise what else ended it."""
        if self._events:
            return self._events.popleft()
        if self._gap:
            self._gap = False
            return Event("gap")
        if self._error is None or (isinstance(self._error, Closed) and not self._error.reason):
            return None
        raise self._error
