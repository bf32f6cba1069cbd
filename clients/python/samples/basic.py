"""basic: hold a lease for the length of a block, with a token for what it protects."""

from say import claim

import latchkey


def main() -> None:
    with latchkey.Client(name="basic") as client, latchkey.Client(name="other") as other:
        with client.hold("sample-basic/report", ttl=10) as hold:
            print(f"held with token {hold.token}, safe for {hold.safe_for:.1f} s")
            claim("it is safe to act", hold.is_safe)
            try:
                other.acquire("sample-basic/report", wait=0)
                claim("nobody else gets it meanwhile", False)
            except latchkey.Busy as e:
                claim("nobody else gets it meanwhile", e.holders[0].session == "basic")
        with other.hold("sample-basic/report", wait=5) as later:
            claim("the next holder has a higher token", later.token > hold.token)


if __name__ == "__main__":
    main()
