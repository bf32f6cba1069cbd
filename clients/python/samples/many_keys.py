"""many-keys: several keys at once, all or none, so that crossed requests cannot block each other."""

import asyncio

from say import claim

from latchkey import aio


async def main() -> None:
    a, b = "sample-many/alice", "sample-many/bob"
    transfers = 0

    async def transfer(client: aio.Client, keys: list[str]) -> None:
        nonlocal transfers
        async with client.hold(keys, wait=10) as hold:
            print(", ".join(f"{key} has token {token}" for key, token in hold.tokens.items()))
            transfers += 1

    async with aio.Client(name="many-keys") as client:
        await asyncio.gather(*(transfer(client, [a, b] if i % 2 else [b, a]) for i in range(10)))
        claim("ten transfers in crossed order are done", transfers == 10)
        listing = await client.list_keys(prefix="sample-many/")
        claim("nothing is left behind", not listing.keys)


if __name__ == "__main__":
    asyncio.run(main())
