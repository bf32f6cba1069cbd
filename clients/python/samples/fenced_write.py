"""fenced-write: a holder that was overtaken without noticing is shut out by its token."""

from say import claim

import latchkey


class Ledger:
    """What the lease protects.

    With SQL: UPDATE ... SET value = %s, token = %s WHERE id = %s AND token <= %s
    """

    def __init__(self) -> None:
        self.value = ""
        self.highest = 0

    def write(self, value: str, token: int) -> bool:
        """Write, unless a later holder was here."""
        if token < self.highest:
            return False
        self.highest, self.value = token, value
        return True


def main() -> None:
    with latchkey.Client(name="fenced-write") as client:
        ledger = Ledger()
        early = client.acquire("sample-fence/ledger")
        token = early.token  # what a holder that is frozen in the middle of a write has in its hands
        claim("the first holder writes", ledger.write("early", token))
        client.force("sample-fence/ledger", by="fenced-write", reason="the holder hangs")
        with client.hold("sample-fence/ledger", wait=10) as late:
            claim("the later holder has a higher token", late.token > token)
            claim("the later holder writes", ledger.write("late", late.token))
            claim("the early holder is refused: its token is stale", not ledger.write("early again", token))
            claim("nothing was overwritten", ledger.value == "late")


if __name__ == "__main__":
    main()
