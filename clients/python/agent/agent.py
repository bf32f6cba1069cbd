"""Drives the asyncio client by JSON lines, for the check that holds all languages together."""

from __future__ import annotations

import asyncio
import json
import logging
import sys
import time
from typing import Any

from latchkey import FOREVER, LatchkeyError, LeaseLost, Queued, aio, clock

Command = dict[str, Any]


def say(event: str, **fields: Any) -> None:
    """Write one line."""
    sys.stdout.write(json.dumps({"event": event, **fields}, ensure_ascii=False) + "\n")
    sys.stdout.flush()


def seconds(ms: float) -> float:
    """Turn the unit of the lines into that of the client."""
    return ms / 1000


class Agent:
    """One client and what it holds, each by the ref that the commands give it."""

    def __init__(self) -> None:
        self.client: aio.Client | None = None
        self.holds: dict[str, aio.Hold] = {}
        self.acquires: dict[str, asyncio.Task[None]] = {}
        self.tasks: set[asyncio.Task[None]] = set()

    async def run(self) -> None:
        """Obey until the end of the input."""
        lines = asyncio.StreamReader(limit=1 << 20)
        loop = asyncio.get_running_loop()
        transport, _ = await loop.connect_read_pipe(lambda: asyncio.StreamReaderProtocol(lines), sys.stdin)
        try:
            while line := await lines.readline():
                if not line.strip():
                    continue
                try:
                    command = json.loads(line)
                    if command["do"] == "close":
                        break
                    await self.obey(command)
                except (LatchkeyError, ValueError, KeyError, TypeError, RuntimeError) as e:
                    say("error", text=f"{type(e).__name__}: {e}")
            if self.client is not None:
                await self.client.close()
            for task in list(self.tasks):
                task.cancel()
            await asyncio.gather(*self.tasks, return_exceptions=True)
            say("closed")
        finally:
            transport.close()

    async def obey(self, command: Command) -> None:
        """Do one command. What takes time goes on by itself."""
        do = command["do"]
        if do == "connect":
            await self.connect(command)
        elif self.client is None:
            raise RuntimeError("connect first")
        elif do == "acquire":
            ref = command["ref"]
            self.acquires[ref] = self.spawn(self.acquire(self.client, command))
            await asyncio.sleep(0)  # it begins: a task that is cancelled before that says nothing
        elif do == "cancel":
            task = self.acquires.get(command["ref"])
            if task is None:
                raise KeyError(f"no request {command['ref']!r} is pending")
            task.cancel()
        elif do == "check":
            ref = command["ref"]
            say("checked", ref=ref, safe=ref in self.holds and self.holds[ref].is_safe)
        elif do in ("release", "renew"):
            hold = self.holds.get(command["ref"])
            if hold is None:
                say("failed", ref=command["ref"], code="not_held")
            elif do == "release":
                self.spawn(self.release(command["ref"], hold))
            else:
                self.spawn(self.renew(command, hold))
        elif do == "watch":
            ready = asyncio.Event()
            self.spawn(self.watch(self.client, command.get("prefix", ""), ready))
            await ready.wait()
        elif do == "bench":
            self.spawn(self.bench(self.client, command))
        else:
            raise ValueError(f"{do!r} is not known here")

    def spawn(self, work: Any) -> asyncio.Task[None]:
        """Let something go on by itself."""
        task: asyncio.Task[None] = asyncio.get_running_loop().create_task(work)
        self.tasks.add(task)
        task.add_done_callback(self.tasks.discard)
        return task

    async def connect(self, command: Command) -> None:
        if self.client is not None:
            raise RuntimeError("connected already")
        client = aio.Client(
            command.get("addr"), name=command.get("name", ""), grace=seconds(command.get("grace", 3000))
        )
        await client.open()
        self.client = client
        say("connected")

    async def acquire(self, client: aio.Client, command: Command) -> None:
        ref = command["ref"]

        def queued(q: Queued) -> None:
            say("queued", ref=ref, position=q.position)

        def lost(error: LeaseLost) -> None:
            self.lost(ref, error)

        options: aio.AcquireOptions = {
            "mode": command.get("mode") or "exclusive",
            "label": command.get("label", ""),
            "renew": command.get("renew", True),
            "on_queued": queued,
            "on_lost": lost,
        }
        if command.get("max"):
            options["max"] = command["max"]
        if command.get("forever") or command.get("ttl", 0) < 0:
            options["ttl"] = FOREVER
        elif command.get("ttl"):
            options["ttl"] = seconds(command["ttl"])
        if command.get("try"):
            options["wait"] = 0
        elif command.get("wait"):
            options["wait"] = seconds(command["wait"])
        try:
            hold = await client.acquire(command["keys"], **options)
            self.holds[ref] = hold
            say("granted", ref=ref, tokens=hold.tokens, safe_ms=left(hold))
            if hold.lost.cause is not None:  # before this task had its turn
                self.lost(ref, hold.lost.cause)
        except asyncio.CancelledError:
            say("failed", ref=ref, code="cancelled")
        except LatchkeyError as e:
            say("failed", ref=ref, code=e.code)
        finally:
            self.acquires.pop(ref, None)

    def lost(self, ref: str, error: LeaseLost) -> None:
        hold = self.holds.get(ref)
        if hold is None or error.code == "closed":
            return
        late = 0 if hold.safe_until is None else max(clock() - hold.safe_until, 0.0)
        say("lost", ref=ref, code=error.code, late_ms=round(late * 1000), safe=hold.is_safe)

    async def release(self, ref: str, hold: aio.Hold) -> None:
        try:
            await hold.release()
            say("released", ref=ref)
        except LatchkeyError as e:
            say("failed", ref=ref, code=e.code)
        finally:
            if self.holds.get(ref) is hold:
                del self.holds[ref]

    async def renew(self, command: Command, hold: aio.Hold) -> None:
        try:
            await hold.renew(seconds(command["ttl"]) if command.get("ttl") else None)
            say("renewed", ref=command["ref"], safe_ms=left(hold))
        except LatchkeyError as e:
            say("failed", ref=command["ref"], code=e.code)

    async def watch(self, client: aio.Client, prefix: str, ready: asyncio.Event) -> None:
        try:
            async with client.watch(prefix=prefix) as events:
                say("watching")
                ready.set()
                async for e in events:
                    say("seen", kind=e.event, key=e.key, token=e.token or 0)
        except LatchkeyError as e:
            if e.code != "closed":
                say("error", text=str(e))
        finally:
            ready.set()

    async def bench(self, client: aio.Client, command: Command) -> None:
        span = command.get("ms", 250)
        end = time.monotonic() + seconds(span)

        async def loop(i: int) -> tuple[int, int]:
            pairs = errors = 0
            key = f"{command['key']}-{i}"
            while time.monotonic() < end:
                try:
                    hold = await client.acquire(key, renew=False)
                    await hold.release()
                    pairs += 1
                except LatchkeyError:
                    errors += 1
            return pairs, errors

        results = await asyncio.gather(*(loop(i) for i in range(command.get("in_flight", 1))))
        say("bench", pairs=sum(p for p, _ in results), ms=span, errors=sum(e for _, e in results))


def left(hold: aio.Hold) -> int:
    """Return for how many ms it is safe to act; -1 without end."""
    seconds_left = hold.safe_for
    return -1 if seconds_left is None else int(seconds_left * 1000)


if __name__ == "__main__":
    logging.basicConfig(level=logging.ERROR, stream=sys.stderr)
    asyncio.run(Agent().run())
