"""What README shows is run, and its tables are complete."""

from __future__ import annotations

import inspect
import os
import re
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest

import latchkey
from latchkey import aio, errors
from tests.rig import Broker

README = (Path(__file__).resolve().parents[1] / "README.md").read_text(encoding="utf-8")
BLOCKS = re.findall(r"```python\n(.*?)```", README, re.DOTALL)
PROGRAMS = [b for b in BLOCKS if b.startswith("import")]


@pytest.mark.parametrize("program", PROGRAMS, ids=range(len(PROGRAMS)))
def test_programs_run(program: str, shared: Broker) -> None:
    environment = {**os.environ, "LATCHKEY_SERVER": shared.address}
    environment["PYTHONPATH"] = str(Path(latchkey.__file__).parents[1])
    done = subprocess.run(
        [sys.executable, "-c", program], env=environment, capture_output=True, text=True, timeout=60, check=False
    )
    assert done.returncode == 0, done.stderr
    assert "token" in done.stdout


@pytest.mark.parametrize("block", [b for b in BLOCKS if b not in PROGRAMS])
def test_fragments_compile(block: str) -> None:
    compile("async def body():\n" + textwrap.indent(block, "    "), "README.md", "exec")


def test_every_option_is_in_the_table() -> None:
    for name in latchkey.AcquireOptions.__annotations__:
        assert f"`{name}`" in README, name
    for client in (latchkey.Client, aio.Client):
        for name in inspect.signature(client).parameters:
            assert f"`{name}`" in README, name


def test_every_error_is_in_the_table() -> None:
    for name in errors.__all__:
        assert f"`{name}`" in README or name == "LatchkeyError", name


@pytest.mark.parametrize("module", [latchkey, aio, errors])
def test_every_public_name_is_described(module: object) -> None:
    names: list[str] = module.__all__  # type: ignore[attr-defined]
    for name in names:
        value = getattr(module, name)
        if inspect.isclass(value) or inspect.isfunction(value) or inspect.ismodule(value):
            assert inspect.getdoc(value), name
        if inspect.isclass(value):
            for attribute, member in vars(value).items():
                if not attribute.startswith("_") and (inspect.isfunction(member) or isinstance(member, property)):
                    assert inspect.getdoc(member), f"{name}.{attribute}"


def test_both_fronts_offer_the_same() -> None:
    for a, b in ((latchkey.Client, aio.Client), (latchkey.Hold, aio.Hold)):
        public = [{n for n in dir(c) if not n.startswith("_")} for c in (a, b)]
        assert public[0] == public[1]
    for name in ("hold", "acquire", "watch", "list_keys", "force"):
        ours, theirs = (list(inspect.signature(getattr(c, name)).parameters) for c in (latchkey.Client, aio.Client))
        assert ours == theirs
