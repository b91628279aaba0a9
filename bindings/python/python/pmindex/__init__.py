"""Key-value maps that survive a crash: ordered, typed, with transactions and snapshots.

    import pmindex

    with pmindex.Store("shop.pool") as store:        # creates or opens; recovers
        stock = store.map("stock", key=str, value=int)
        stock["apple"] = 3                            # durable when it returns
        with store.transaction() as tx:               # all or nothing
            stock.at(tx)["apple"] -= 1

What each class and method does is in its signature's text: `help(pmindex.Map)`, or the stubs.
"""

from ._errors import (
    AlreadyExists,
    BadOption,
    Closed,
    Conflict,
    Damaged,
    DurabilityLost,
    Error,
    Forked,
    InUse,
    Internal,
    NoSpace,
    NoSuchFile,
    NoSuchMap,
    NotAPool,
    Permission,
    ReadOnly,
    SnapshotEnded,
    System,
    TooLong,
    TooWeak,
    Unfinished,
    WatchEnded,
    WrongType,
)
from ._native import (
    KINDS,
    Commit,
    ExpiringMap,
    Map,
    MapReport,
    Records,
    Report,
    Savepoint,
    Snapshot,
    Store,
    Transaction,
    Watch,
    __version__,
)

for _error in list(vars().values()):
    if isinstance(_error, type) and issubclass(_error, Error):
        _error.__module__ = "pmindex"  # where a program finds it
del _error

__all__ = [
    "KINDS",
    "AlreadyExists",
    "BadOption",
    "Closed",
    "Commit",
    "Conflict",
    "Damaged",
    "DurabilityLost",
    "Error",
    "ExpiringMap",
    "Forked",
    "InUse",
    "Internal",
    "Map",
    "MapReport",
    "NoSpace",
    "NoSuchFile",
    "NoSuchMap",
    "NotAPool",
    "Permission",
    "ReadOnly",
    "Records",
    "Report",
    "Savepoint",
    "Snapshot",
    "SnapshotEnded",
    "Store",
    "System",
    "TooLong",
    "TooWeak",
    "Transaction",
    "Unfinished",
    "Watch",
    "WatchEnded",
    "WrongType",
    "__version__",
]
