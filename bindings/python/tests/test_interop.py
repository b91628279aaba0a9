"""Maps that Python writes and Rust opens, and the other way round.

`PMINDEX_INTEROP` is the program of `examples/interop.rs`; `cargo xtask python` builds it.
"""

import math
import os
import subprocess

import pytest

import pmindex

PROGRAM = os.environ.get("PMINDEX_INTEROP")

needs_rust = pytest.mark.skipif(not PROGRAM, reason="PMINDEX_INTEROP names no program")

# As in examples/interop.rs.
MAPS = {
    "users": (int, str, [(-(2**63), "least"), (-1, ""), (7, "é\0")]),
    "raw": (bytes, float, [(b"", -0.0), (b"\0\xff", 1.5), (b"\1", -math.inf)]),
    "pairs": (
        (int, int),
        (bool, "u32"),
        [((-1, 2), (True, 3)), ((-1, 3), (False, 0)), ((0, 0), (True, 9))],
    ),
    "orders": (
        (str, int),
        (None, bytes, float),
        [
            (("Ada", 1), (None, b"\0\1\0", 0.5)),
            (("Ada", 2), (None, b"", -1.0)),
            (("Ada\0", -5), (None, b"\xff\0", 0.0)),
        ],
    ),
    "numbers": (
        (float, "u8", ("u16", "i64", "u64")),
        "i8",
        [
            ((-1.5, 1, (2, 3, 4)), -128),
            ((-0.0, 0, (0, 0, 2**64 - 1)), 127),
            ((0.0, 0, (0, -(2**63), 0)), -1),
        ],
    ),
}


@needs_rust
def test_rust_opens_what_python_wrote(path):
    with pmindex.Store(path, size=16 << 20) as store:
        for name, (key, value, records) in MAPS.items():
            store.map(name, key, value).update(records)
        sessions = store.expiring_map("sessions", str, str)
        sessions.put("a", "Ada", 3600)
        sessions.put("b", "over", 0)
    subprocess.run([PROGRAM, "check", path], check=True)


@needs_rust
def test_python_opens_what_rust_wrote(path):
    subprocess.run([PROGRAM, "write", path], check=True)
    with pmindex.Store(path, create=False) as store:
        for name, (key, value, records) in MAPS.items():
            assert list(map(repr, store.map(name, key, value).items())) == list(map(repr, records))
        sessions = store.expiring_map("sessions", str, str)
        assert sessions["a"] == "Ada" and "b" not in sessions
        assert set(store.maps()) == {*MAPS, "sessions"}
    subprocess.run([PROGRAM, "check", path], check=True)  # as it was
