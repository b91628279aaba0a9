"""Measures one operation of `pmindex` beside Python's `sqlite3`, `dbm` and `shelve`, and beside `lmdb`.

    pip install lmdb
    python benches/beside.py [--records N] [--rounds N] [--disk FOLDER]

Keys are text of 12 characters, values 100 bytes, in random order. Each store is durable against a kill of the
process alone, in memory (/dev/shm): `pmindex` as it is there, SQLite with `synchronous=OFF`, LMDB with `sync=False`;
`dbm` and `shelve` promise nothing. With `--disk` writes are measured too that are durable on a disk when they return.
Rounds take turns; a figure is the median of its rounds: the microseconds of a loop divided by its operations, the
loop of Python included; of the processor in memory, where nothing waits, and of the clock on a disk. Prints a table.
"""

import argparse
import dbm
import gc
import os
import random
import shelve
import shutil
import sqlite3
import statistics
import sys
import tempfile
import time

import pmindex

try:
    import lmdb
except ImportError:
    lmdb = None

VALUE = b"v" * 100
IN_ONE = 100


class Pmindex:
    name = "pmindex"

    def __init__(self, folder, durable):
        options = {"durability": "journal"} if durable else {}
        self.store = pmindex.Store(os.path.join(folder, "pool"), size=256 << 20, **options)
        self.map = self.store.map("records", key=str, value=bytes)

    def put(self, keys):
        records = self.map
        for key in keys:
            records[key] = VALUE

    def put_in_transactions(self, keys):
        for at in range(0, len(keys), IN_ONE):
            with self.store.transaction() as tx:
                records = self.map.at(tx)
                for key in keys[at : at + IN_ONE]:
                    records[key] = VALUE

    def get(self, keys):
        records = self.map
        for key in keys:
            records[key]

    def scan(self):
        return sum(1 for _ in self.map.items())

    def close(self):
        self.store.close()


class Twin(Pmindex):
    """In memory, with a twin on the disk, for which each commit waits."""

    name = "pmindex, twin"

    def __init__(self, folder, durable):
        self.memory = tempfile.mkdtemp(prefix="pmindex-beside-", dir="/dev/shm")
        pool, twin = os.path.join(self.memory, "pool"), os.path.join(folder, "twin")
        self.store = pmindex.Store(pool, size=256 << 20, twin=twin)
        self.map = self.store.map("records", key=str, value=bytes)
        self.store.sync()  # the twin is made in the background

    def put(self, keys):
        for key in keys:
            self.map[key] = VALUE
            self.store.sync()

    def put_in_transactions(self, keys):
        for at in range(0, len(keys), IN_ONE):
            super().put_in_transactions(keys[at : at + IN_ONE])
            self.store.sync()

    def close(self):
        self.store.close()
        shutil.rmtree(self.memory)


class Sqlite:
    name = "sqlite3"

    def __init__(self, folder, durable):
        path = os.path.join(folder, "sqlite")
        self.base = sqlite3.connect(path, isolation_level=None)
        self.base.execute("pragma journal_mode=wal").fetchall()
        self.base.execute(f"pragma synchronous={'full' if durable else 'off'}")
        self.base.execute("create table records (key text primary key, value blob) without rowid")

    def put(self, keys):
        execute = self.base.execute
        for key in keys:
            execute("insert or replace into records values (?, ?)", (key, VALUE))

    def put_in_transactions(self, keys):
        execute = self.base.execute
        for at in range(0, len(keys), IN_ONE):
            execute("begin")
            for key in keys[at : at + IN_ONE]:
                execute("insert or replace into records values (?, ?)", (key, VALUE))
            execute("commit")

    def get(self, keys):
        execute = self.base.execute
        for key in keys:
            execute("select value from records where key = ?", (key,)).fetchone()[0]

    def scan(self):
        return sum(1 for _ in self.base.execute("select key, value from records order by key"))

    def close(self):
        self.base.close()


class Lmdb:
    name = "lmdb"

    def __init__(self, folder, durable):
        path = os.path.join(folder, "lmdb")
        self.base = lmdb.open(path, map_size=1 << 30, sync=durable, metasync=durable)

    def put(self, keys):
        begin = self.base.begin
        for key in keys:
            with begin(write=True) as tx:
                tx.put(key.encode(), VALUE)

    def put_in_transactions(self, keys):
        for at in range(0, len(keys), IN_ONE):
            with self.base.begin(write=True) as tx:
                for key in keys[at : at + IN_ONE]:
                    tx.put(key.encode(), VALUE)

    def get(self, keys):
        begin = self.base.begin
        for key in keys:
            with begin() as tx:
                tx.get(key.encode())

    def scan(self):
        with self.base.begin() as tx:
            return sum(1 for _ in tx.cursor())

    def close(self):
        self.base.close()


class Dbm:
    name = "dbm"

    def __init__(self, folder, durable):
        path = os.path.join(folder, "dbm")
        self.base = dbm.open(path, "n")
        module = type(self.base).__module__  # of several implementations, the one that this Python has
        Dbm.name = {"_gdbm": "dbm.gnu", "_dbm": "dbm.ndbm"}.get(module, module)

    def put(self, keys):
        for key in keys:
            self.base[key] = VALUE

    put_in_transactions = None  # it has none

    def get(self, keys):
        for key in keys:
            self.base[key]

    def scan(self):
        return sum(1 for key in self.base.keys() if self.base[key])

    def close(self):
        self.base.close()


class Shelve(Dbm):
    def __init__(self, folder, durable):
        self.base = shelve.open(os.path.join(folder, "shelve"), "n")
        Shelve.name = "shelve"


def timed(clock, work, *arguments):
    gc.collect()
    gc.disable()
    start = clock()
    work(*arguments)
    end = clock()
    gc.enable()
    return end - start


def round_of(subject, place, keys, found):
    folder = tempfile.mkdtemp(prefix="pmindex-beside-", dir=place)
    try:
        store = subject(folder, False)
        half = len(keys) // 2
        first, second = keys[:half], keys[half:]
        asked = random.Random(2).sample(keys, half)
        figures = {"a write": timed(time.process_time, store.put, first) / half}
        if store.put_in_transactions:
            figures[f"a write, {IN_ONE} in a transaction"] = timed(
                time.process_time, store.put_in_transactions, second
            ) / half
        else:
            store.put(second)
        figures["a lookup"] = timed(time.process_time, store.get, asked) / half
        figures["a record of a scan"] = timed(time.process_time, store.scan) / len(keys)
        store.close()
        for name, figure in figures.items():
            found.setdefault(name, {}).setdefault(subject.name, []).append(figure)
    finally:
        shutil.rmtree(folder)


def durable_round_of(subject, place, keys, found):
    folder = tempfile.mkdtemp(prefix="pmindex-beside-", dir=place)
    try:
        store = subject(folder, True)
        half = len(keys) // 2
        figures = {
            "a write, durable on a disk": timed(time.perf_counter, store.put, keys[:half]) / half,
            f"a write, {IN_ONE} in a transaction, durable on a disk": timed(
                time.perf_counter, store.put_in_transactions, keys[half:]
            )
            / half,
        }
        store.close()
        for name, figure in figures.items():
            found.setdefault(name, {}).setdefault(subject.name, []).append(figure)
    finally:
        shutil.rmtree(folder)


def table(found, names):
    print("| |", " | ".join(names), "|")
    print("| --- |", " | ".join("---:" for _ in names), "|")
    for operation, figures in found.items():
        own = statistics.median(figures["pmindex"])
        cells = []
        for name in names:
            if name not in figures:
                cells.append("")
                continue
            median = statistics.median(figures[name])
            ratio = f" ({median / own:.2g})" if name != "pmindex" else ""
            cells.append(f"{median * 1e6:,.2f} µs{ratio}")
        print(f"| {operation} |", " | ".join(cells), "|")


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--records", type=int, default=20_000)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--disk", help="a folder on a disk, for writes that wait for it")
    arguments = parser.parse_args()
    numbers = random.Random(1).sample(range(10**9), arguments.records)
    keys = [f"key{number:09}" for number in numbers]
    place = "/dev/shm" if os.access("/dev/shm", os.W_OK) else None
    subjects = [Pmindex, Sqlite, *([Lmdb] if lmdb else []), Dbm, Shelve]
    durable = [Pmindex, *([Twin] if place else []), *subjects[1:-2]]
    found = {}
    for _ in range(arguments.rounds):
        for subject in subjects:
            round_of(subject, place, keys, found)
        for subject in durable:
            if arguments.disk:
                durable_round_of(subject, arguments.disk, keys[: 4 * IN_ONE], found)
        print(".", end="", file=sys.stderr, flush=True)
    print(file=sys.stderr)
    names = [subject.name for subject in subjects]
    on_disk = {name: found.pop(name) for name in list(found) if "disk" in name}
    table(found, names)
    if on_disk:
        print()
        table(on_disk, [subject.name for subject in durable])


if __name__ == "__main__":
    main()
