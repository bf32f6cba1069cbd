"""lost-lease: an administrator takes the lease, and the work that is under way is cancelled."""

import asyncio

from say import claim

import latchkey
from latchkey import aio


async def main() -> None:
    stopped = False
    async with aio.Client(name="lost-lease") as client, aio.Client(name="admin") as admin:
        try:
            async with client.hold("sample-lost/report") as hold:
                elsewhere = asyncio.create_task(admin.force(hold.key, by="alice", reason="stuck since Monday"))
                try:
                    await asyncio.sleep(60)  # any work that awaits
                finally:
                    stopped = True
                    claim("the hold is not safe any more", not hold.is_safe)
                    await elsewhere
            claim("the block tells of the loss", False)
        except latchkey.Forced as e:
            print(f"lost: {e}")
            claim("the work was stopped", stopped)
            claim("the reason names who did it", "alice" in e.reason)


if __name__ == "__main__":
    asyncio.run(main())
