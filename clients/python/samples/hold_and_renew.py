"""hold-and-renew: a lease that is held for longer than its ttl, because it is renewed by itself."""

import asyncio

from say import claim

from latchkey import aio


async def main() -> None:
    async with aio.Client(name="hold-and-renew") as client:
        async with client.hold("sample-renew/index", ttl=0.3) as hold:
            first = hold.safe_until
            await asyncio.sleep(1)  # the work: three times the ttl
            now = hold.safe_until
            assert first is not None and now is not None
            print(f"renewed: the deadline moved ahead by {now - first:.2f} s")
            claim("it was renewed", now > first + 0.5)
            claim("it is still held", hold.is_safe and not hold.lost.is_set())
        await hold.release()
        claim("a second release does no harm", True)


if __name__ == "__main__":
    asyncio.run(main())
