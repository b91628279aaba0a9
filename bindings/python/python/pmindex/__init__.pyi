"""Key-value maps that survive a crash: ordered, typed, with transactions and snapshots."""

from collections.abc import Callable, Iterable, Iterator
from datetime import timedelta
from os import PathLike
from types import GenericAlias, TracebackType
from typing import Any, Generic, Literal, Protocol, TypeVar, final, overload

from typing_extensions import Self

from ._errors import (
    AlreadyExists as AlreadyExists,
    BadOption as BadOption,
    Closed as Closed,
    Conflict as Conflict,
    Damaged as Damaged,
    DurabilityLost as DurabilityLost,
    Error as Error,
    Forked as Forked,
    InUse as InUse,
    Internal as Internal,
    NoSpace as NoSpace,
    NoSuchFile as NoSuchFile,
    NoSuchMap as NoSuchMap,
    NotAPool as NotAPool,
    Permission as Permission,
    ReadOnly as ReadOnly,
    SnapshotEnded as SnapshotEnded,
    System as System,
    TooLong as TooLong,
    TooWeak as TooWeak,
    Unfinished as Unfinished,
    WatchEnded as WatchEnded,
    WrongType as WrongType,
)

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

_K = TypeVar("_K")
_V = TypeVar("_V")
_D = TypeVar("_D")
_R = TypeVar("_R")
_K_co = TypeVar("_K_co", covariant=True)
_V_co = TypeVar("_V_co", covariant=True)

__version__: str
KINDS: tuple[str, ...]
"""The kinds of index that a map can be, in this build."""

class _Items(Protocol[_K_co, _V_co]):
    def items(self) -> Iterable[tuple[_K_co, _V_co]]: ...

@final
class Records(Iterator[_R]):
    """An iterator over the records of a map, in the order of their keys."""

    def __iter__(self) -> Self: ...
    def __next__(self) -> _R: ...

@final
class Map(Generic[_K, _V]):
    """A map of a store: a dictionary in the order of its keys, on a medium.

    A write is durable when it returns, and a transaction of its own. Reading while others write: an iterator
    goes on, and gives each record as it was at some moment of the iteration; through a snapshot or a transaction
    (`at`) it gives one moment. It ends with `Closed` when the map, the snapshot or the transaction does.

    Any number of threads may use a map. A write and an iterator's reads from the medium let other threads of
    Python go on meanwhile.
    """

    def __class_getitem__(cls, types: Any) -> GenericAlias: ...
    @property
    def name(self) -> str: ...
    @property
    def types(self) -> tuple[str, str]:
        """The types of keys and values, as Rust calls them: `("i64", "str")`."""

    def at(self, moment: Snapshot | Transaction) -> Map[_K, _V]:
        """The map as a snapshot or transaction sees it. Through a transaction it is written, too."""

    def __getitem__(self, key: _K, /) -> _V: ...
    def __setitem__(self, key: _K, value: _V, /) -> None: ...
    def __delitem__(self, key: _K, /) -> None: ...
    def __contains__(self, key: _K, /) -> bool: ...
    def __len__(self) -> int:
        """Of a map at a moment, it reads all records."""

    def __bool__(self) -> bool: ...
    def __iter__(self) -> Records[_K]: ...
    def __reversed__(self) -> Records[_K]: ...
    @overload
    def get(self, key: _K, default: None = None, /) -> _V | None: ...
    @overload
    def get(self, key: _K, default: _D, /) -> _V | _D: ...
    @overload
    def pop(self, key: _K) -> _V: ...
    @overload
    def pop(self, key: _K, default: _D) -> _V | _D: ...
    def setdefault(self, key: _K, default: _V) -> _V: ...
    def insert(self, key: _K, value: _V) -> _V | None:
        """Adds or replaces; the value that was there, or None."""

    def try_insert(self, key: _K, value: _V) -> bool:
        """Adds a record if there is none of this key; whether it did."""

    def update(self, records: _Items[_K, _V] | Iterable[tuple[_K, _V]]) -> None:
        """Puts the records of a mapping, or pairs, some hundred at a time: each wholly or not at all, all of them
        durable when it returns, and new ones with far fewer waits for a disk than one by one. All or none: in a
        transaction."""

    def load(self, records: _Items[_K, _V] | Iterable[tuple[_K, _V]]) -> int:
        """Fills an empty map from records in ascending order of their keys, faster than one by one; how many."""

    def keys(
        self, start: _K | None = None, stop: _K | None = None, *, prefix: Any = None, reverse: bool = False
    ) -> Records[_K]:
        """The keys from `start` to `stop`, the latter excluded; or those that begin with `prefix`: text, bytes,
        or the first parts of a tuple. In descending order if `reverse`."""

    def values(
        self, start: _K | None = None, stop: _K | None = None, *, prefix: Any = None, reverse: bool = False
    ) -> Records[_V]:
        """The values of the records of these keys: see `keys`."""

    def items(
        self, start: _K | None = None, stop: _K | None = None, *, prefix: Any = None, reverse: bool = False
    ) -> Records[tuple[_K, _V]]:
        """The records of these keys: see `keys`."""

    def first(self) -> tuple[_K, _V] | None:
        """The least record."""

    def last(self) -> tuple[_K, _V] | None:
        """The greatest record."""

    def pop_first(self) -> tuple[_K, _V] | None:
        """Removes the least record and returns it."""

    def pop_last(self) -> tuple[_K, _V] | None:
        """Removes the greatest record and returns it."""

    def remove_range(self, start: _K | None = None, stop: _K | None = None, *, prefix: Any = None) -> int:
        """Removes the records of these keys, one by one; how many. See `keys`."""

    def clear(self) -> None:
        """Removes all records, one by one."""

@final
class ExpiringMap(Generic[_K, _V]):
    """A map whose records expire: reads do not find an expired record.

    A record that is over takes space until it is written again or `sweep` comes by. Times are those of the
    system's clock, to the millisecond. `ttl` is in seconds, or a `timedelta`.
    """

    def __class_getitem__(cls, types: Any) -> GenericAlias: ...
    @property
    def name(self) -> str: ...
    def at(self, moment: Snapshot | Transaction) -> ExpiringMap[_K, _V]:
        """The map as a snapshot or transaction sees it. Through a transaction it is written, too."""

    def put(self, key: _K, value: _V, ttl: float | timedelta) -> None:
        """Adds or replaces a record, which lives so long."""

    def try_insert(self, key: _K, value: _V, ttl: float | timedelta) -> bool:
        """Adds a record if there is none of this key that is not over; whether it did."""

    def renew(self, key: _K, ttl: float | timedelta) -> bool:
        """Lets a record live so long from now on; whether there was one that was not over."""

    def expires(self, key: _K) -> float | None:
        """When a record will be over, as `time.time()` tells it."""

    def __getitem__(self, key: _K, /) -> _V: ...
    def __delitem__(self, key: _K, /) -> None: ...
    def __contains__(self, key: _K, /) -> bool: ...
    def __iter__(self) -> Records[_K]: ...
    @overload
    def get(self, key: _K, default: None = None, /) -> _V | None: ...
    @overload
    def get(self, key: _K, default: _D, /) -> _V | _D: ...
    @overload
    def pop(self, key: _K, default: None = None, /) -> _V | None: ...
    @overload
    def pop(self, key: _K, default: _D, /) -> _V | _D: ...
    def items(
        self, start: _K | None = None, stop: _K | None = None, *, prefix: Any = None, reverse: bool = False
    ) -> Records[tuple[_K, _V]]:
        """The records that are not over: see `Map.keys`."""

    def sweep(self) -> int:
        """Removes the records that are over; how many. Nothing does so by itself: call it now and then."""

@final
class Savepoint:
    """A point of a transaction. As a context manager it goes back if the body raises something."""

    def rollback(self) -> None:
        """Takes back the changes since. What was read stays read."""

    def __enter__(self) -> Self: ...
    def __exit__(
        self, error: type[BaseException] | None, value: BaseException | None, traceback: TracebackType | None, /
    ) -> Literal[False]: ...

@final
class Transaction:
    """A transaction: all of its changes take place, or none.

    It reads one moment, that of its first read, and its own changes; `map.at(transaction)` is a map within it. It
    is serializable: if another commit changes what it has read, committing it is a `Conflict`. As a context
    manager it commits at the end, or rolls back if the body raises something.
    """

    def commit(self) -> None:
        """Commits: durable when it returns. It has ended then, whatever comes of it."""

    def rollback(self) -> None:
        """Ends it without its changes."""

    def savepoint(self) -> Savepoint:
        """A point to go back to."""

    def __enter__(self) -> Self: ...
    def __exit__(
        self, error: type[BaseException] | None, value: BaseException | None, traceback: TracebackType | None, /
    ) -> Literal[False]: ...

@final
class Snapshot:
    """One moment of all maps of a store, while writers go on. `map.at(snapshot)` is a map then.

    While it lives, each write keeps in memory what it replaces, up to the store's `past_bytes`; beyond that the
    oldest snapshot ends, and reading through it is `SnapshotEnded`.
    """

    def close(self) -> None:
        """Ends it."""

    def __enter__(self) -> Self: ...
    def __exit__(self, *error: object) -> None: ...

@final
class Commit:
    """What one commit changed."""

    @property
    def position(self) -> int:
        """The position behind it: see `Store.watch`."""

    @property
    def maps(self) -> list[str]:
        """The names of the maps that it changed."""

    def changes(self, map: Map[_K, _V]) -> list[tuple[_K, _V | None]]:
        """The records of a map that it changed, by key: what they are since, or None if they are gone."""

    def is_loaded(self, map: str) -> bool:
        """Whether it is a `Map.load`, whose records stand in no commit."""

@final
class Watch(Iterator[Commit]):
    """A stream of what commits changed, in their order. As an iterator it waits for the next one, for ever."""

    @property
    def position(self) -> int:
        """Behind the commit that was returned last."""

    def next(self, timeout: float | None = None) -> Commit | None:
        """Returns the next commit, or None if none comes within `timeout` seconds."""

    def close(self) -> None: ...
    def __iter__(self) -> Self: ...
    def __next__(self) -> Commit: ...
    def __enter__(self) -> Self: ...
    def __exit__(self, *error: object) -> None: ...

@final
class MapReport:
    @property
    def name(self) -> str: ...
    @property
    def kind(self) -> str: ...
    @property
    def is_open(self) -> bool: ...

@final
class Report:
    """What goes on in a store, at about one moment. `str()` of it is for people."""

    @property
    def path(self) -> str: ...
    @property
    def durability(self) -> str: ...
    @property
    def maps(self) -> list[MapReport]: ...
    @property
    def pool_bytes(self) -> int: ...
    @property
    def used_bytes(self) -> int: ...
    @property
    def max_bytes(self) -> int: ...
    @property
    def commits(self) -> int: ...
    @property
    def conflicts(self) -> int: ...
    @property
    def unfinished(self) -> int: ...
    @property
    def waiting(self) -> int: ...
    @property
    def readers(self) -> int: ...
    @property
    def oldest_reader_behind(self) -> int: ...
    @property
    def ended_readers(self) -> int: ...
    @property
    def past_bytes(self) -> int: ...
    @property
    def past_bytes_max(self) -> int: ...
    @property
    def watches(self) -> int: ...
    @property
    def log_segments(self) -> int: ...
    @property
    def log_segments_max(self) -> int: ...
    @property
    def log_bytes(self) -> int: ...
    @property
    def splits(self) -> int: ...
    @property
    def fences(self) -> int | None: ...
    @property
    def group_commits(self) -> int: ...
    @property
    def syncs(self) -> int: ...
    @property
    def journal_bytes(self) -> int: ...

@final
class Store:
    """Named typed maps in one file, with transactions and snapshots over all of them.

    Opens the file, or creates it unless `create` is false; after a crash, recovery is part of it. One process at a
    time has a file open, and any number of its threads share the store. A child that was forked is refused
    (`Forked`): open the store there.

    `durability` is what an acknowledged write survives:

    - None: the most that the medium gives by itself;
    - "process": a crash or kill of the process, on a file in memory (tmpfs) or of the page cache;
    - "journal", "msync": power failure, on a disk; by a journal beside the file, or by `msync`;
    - "persistent": power failure, on persistent memory (DAX), else `TooWeak`;
    - "periodic": as "process", and of a power failure all but the last moments: with `twin`, a file on a disk that
      follows one in memory, `twin_every` seconds behind (0.1).

    `size` is that of a new file in bytes (64 MiB), `max_size` how far it may grow, `writers` how many threads
    may write to a new one at once. `past_bytes` is how much memory snapshots and transactions may keep of
    the past (256 MiB), `keep_commits` about how many bytes of the newest commits are kept for `watch(after=...)`,
    `tries` how often `transact` runs a body that conflicts.
    """

    def __new__(
        cls,
        path: str | PathLike[str],
        *,
        create: bool = True,
        read_only: bool = False,
        durability: Literal["process", "periodic", "msync", "journal", "persistent"] | None = None,
        twin: str | PathLike[str] | None = None,
        twin_every: float | timedelta | None = None,
        size: int | None = None,
        max_size: int | None = None,
        grow: bool = True,
        writers: int | None = None,
        past_bytes: int | None = None,
        keep_commits: int | None = None,
        tries: int = 100,
    ) -> Self: ...
    @overload
    def map(self, name: str) -> Map[Any, Any]:
        """The map of this name, made if there is none. Types are `int` (64 bits), `str`, `bytes`, `float`, `bool`,
        None, tuples of them (`(str, int)`, `tuple[str, int]`), and the names of Rust's numbers (`"u64"`). Without a
        type of values it is a set, whose values are None. Without any, it is the map that is there, with those that
        it has; `NoSuchMap` if there is none.

        `kind` is that of its index, one of `KINDS`; a map that is there keeps its own."""

    @overload
    def map(self, name: str, key: type[_K], value: type[_V], *, kind: str | None = None) -> Map[_K, _V]: ...
    @overload
    def map(self, name: str, key: type[_K], value: None = None, *, kind: str | None = None) -> Map[_K, None]: ...
    @overload
    def map(self, name: str, key: Any, value: Any = None, *, kind: str | None = None) -> Map[Any, Any]: ...
    @overload
    def expiring_map(
        self, name: str, key: type[_K], value: type[_V], *, kind: str | None = None
    ) -> ExpiringMap[_K, _V]:
        """The map of this name whose records each live for a time, made if there is none."""

    @overload
    def expiring_map(self, name: str, key: Any, value: Any = None, *, kind: str | None = None) -> ExpiringMap[Any, Any]: ...
    def maps(self) -> list[str]:
        """The names of the maps that there are, in order."""

    def drop_map(self, name: str) -> bool:
        """Removes a map; whether there was one. Those who have it find it `Closed`. `InUse` while a snapshot or
        transaction reads it."""

    def transaction(self) -> Transaction:
        """Begins a transaction: `with store.transaction() as tx`. On a `Conflict` it is for the caller to begin
        again."""

    def transact(self, body: Callable[[Transaction], _R]) -> _R:
        """Runs a body in a transaction and commits it; again if it conflicts with others, so it may run several
        times. If it raises something, nothing is changed."""

    def snapshot(self) -> Snapshot:
        """One moment of all maps: now."""

    def watch(self, *, after: int | None = None) -> Watch:
        """Watches commits from now on, or from behind a position that a watch had (`WatchEnded` if the log has
        not all since)."""

    def backup(self, path: str | PathLike[str]) -> int:
        """Writes one moment of all maps to a new store in a new file, while writers go on; how many records."""

    def report(self) -> Report:
        """What goes on."""

    def check(self) -> int:
        """Verifies all maps; how many records."""

    def sync(self) -> None:
        """Waits until everything that was acknowledged survives as much as the medium can give."""

    def describe(self) -> str:
        """What the medium is and what writes survive, in words."""

    @property
    def durability(self) -> str: ...
    @property
    def path(self) -> PathLike[str]: ...
    @property
    def closed(self) -> bool: ...
    def close(self) -> None:
        """Ends all that is open of it, and closes it. Again, that does nothing."""

    def __enter__(self) -> Self: ...
    def __exit__(self, *error: object) -> None: ...
