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
    """A map of a store: a persistent dictionary, ordered by key.

    Each write is a transaction of its own, durable when it returns. An iterator continues while others write, and gives
    each record as it was at some moment of the iteration; through a snapshot or a transaction (`at`), all records are
    of one moment. It raises `Closed` when the map, the snapshot or the transaction ends.

    Any number of threads may use a map. Other Python threads continue during a write and while an iterator reads from
    the medium.
    """

    def __class_getitem__(cls, types: Any) -> GenericAlias: ...
    @property
    def name(self) -> str: ...
    @property
    def types(self) -> tuple[str, str]:
        """The types of keys and values, by their names in Rust: `("i64", "str")`."""

    def at(self, moment: Snapshot | Transaction) -> Map[_K, _V]:
        """Returns the map as a snapshot or transaction sees it. A transaction can write to it."""

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
        """Adds or replaces a record; returns the old value, or None."""

    def try_insert(self, key: _K, value: _V) -> bool:
        """Adds a record unless the key exists; returns whether it was added."""

    def update(self, records: _Items[_K, _V] | Iterable[tuple[_K, _V]]) -> None:
        """Writes the records of a mapping or of pairs, some hundred at a time. Each record is atomic, all are durable
        when it returns, and new ones need far fewer waits for a disk than single writes. To write all or none, use a
        transaction."""

    def load(self, records: _Items[_K, _V] | Iterable[tuple[_K, _V]]) -> int:
        """Fills an empty map from records in ascending order of their keys, faster than single writes; returns their
        number."""

    def keys(
        self, start: _K | None = None, stop: _K | None = None, *, prefix: Any = None, reverse: bool = False
    ) -> Records[_K]:
        """Iterates over the keys from `start` to `stop`, excluding `stop`; or over those that begin with `prefix`:
        text, bytes, or the first parts of a tuple. In descending order if `reverse`."""

    def values(
        self, start: _K | None = None, stop: _K | None = None, *, prefix: Any = None, reverse: bool = False
    ) -> Records[_V]:
        """Iterates over values, by the range of their keys: see `keys`."""

    def items(
        self, start: _K | None = None, stop: _K | None = None, *, prefix: Any = None, reverse: bool = False
    ) -> Records[tuple[_K, _V]]:
        """Iterates over (key, value) pairs, by the range of their keys: see `keys`."""

    def first(self) -> tuple[_K, _V] | None:
        """Returns the record with the least key."""

    def last(self) -> tuple[_K, _V] | None:
        """Returns the record with the greatest key."""

    def pop_first(self) -> tuple[_K, _V] | None:
        """Removes and returns the record with the least key."""

    def pop_last(self) -> tuple[_K, _V] | None:
        """Removes and returns the record with the greatest key."""

    def remove_many(self, keys: Iterable[_K]) -> int:
        """Removes the records of these keys, one by one; returns how many of them there were. If a key is of another
        type, none is removed."""

    def remove_range(self, start: _K | None = None, stop: _K | None = None, *, prefix: Any = None) -> int:
        """Removes the records of a range of keys, one by one; returns their number. See `keys`."""

    def clear(self) -> None:
        """Removes all records, one by one."""

@final
class ExpiringMap(Generic[_K, _V]):
    """A map whose records expire: reads do not find an expired record.

    An expired record takes space until its key is written again or `sweep` removes it. Times are those of the system's
    clock, to the millisecond. `ttl` is in seconds, or a `timedelta`.
    """

    def __class_getitem__(cls, types: Any) -> GenericAlias: ...
    @property
    def name(self) -> str: ...
    def at(self, moment: Snapshot | Transaction) -> ExpiringMap[_K, _V]:
        """Returns the map as a snapshot or transaction sees it. A transaction can write to it."""

    def put(self, key: _K, value: _V, ttl: float | timedelta) -> None:
        """Adds or replaces a record that lives for `ttl`."""

    def try_insert(self, key: _K, value: _V, ttl: float | timedelta) -> bool:
        """Adds a record if the key has none or an expired one; returns whether it was added."""

    def renew(self, key: _K, ttl: float | timedelta) -> bool:
        """Lets a record live for `ttl` from now; returns False if the key has no record or an expired one."""

    def expires(self, key: _K) -> float | None:
        """Returns the time at which a record expires, as `time.time()` would tell it."""

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
        """Iterates over the records that are not expired: see `Map.keys`."""

    def sweep(self) -> int:
        """Removes expired records; returns their number. Call it from time to time: no thread does it for you."""

@final
class Savepoint:
    """A point of a transaction to which it can roll back. As a context manager it rolls back if the body raises an
    exception."""

    def rollback(self) -> None:
        """Takes back the changes since the savepoint. Reads since then still count for conflicts."""

    def __enter__(self) -> Self: ...
    def __exit__(
        self, error: type[BaseException] | None, value: BaseException | None, traceback: TracebackType | None, /
    ) -> Literal[False]: ...

@final
class Transaction:
    """A transaction: all of its changes happen, or none.

    It reads the moment of its first read, and its own changes; `map.at(transaction)` is a map within it. It is
    serializable: if another commit changes what it has read, its commit raises `Conflict`. As a context manager it
    commits at the end, or rolls back if the body raises an exception.
    """

    def commit(self) -> None:
        """Commits; the changes are durable when it returns. The transaction has ended, also after an error."""

    def rollback(self) -> None:
        """Ends the transaction without its changes."""

    def savepoint(self) -> Savepoint:
        """Makes a savepoint."""

    def __enter__(self) -> Self: ...
    def __exit__(
        self, error: type[BaseException] | None, value: BaseException | None, traceback: TracebackType | None, /
    ) -> Literal[False]: ...

@final
class Snapshot:
    """One moment of all maps of a store, while writers continue. `map.at(snapshot)` is a map at that moment.

    While it is open, each write keeps the old value in memory, up to the store's `past_bytes`. Above that the oldest
    snapshot ends, and reading through it raises `SnapshotEnded`.
    """

    def close(self) -> None:
        """Ends the snapshot."""

    def __enter__(self) -> Self: ...
    def __exit__(self, *error: object) -> None: ...

@final
class Commit:
    """The changes of one commit."""

    @property
    def position(self) -> int:
        """The position behind the commit: see `Store.watch`."""

    @property
    def maps(self) -> list[str]:
        """The names of the changed maps."""

    def changes(self, map: Map[_K, _V]) -> list[tuple[_K, _V | None]]:
        """Returns the changed records of a map, by key: the new value, or None if the record was removed."""

    def is_loaded(self, map: str) -> bool:
        """`True` for a `Map.load`, whose records are not listed."""

@final
class Watch(Iterator[Commit]):
    """A stream of commits, in their order. As an iterator it waits for the next one without a limit."""

    @property
    def position(self) -> int:
        """The position behind the last commit that was returned."""

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
    """The state of a store at about one moment. `str()` of it is text for people."""

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

    Opens the file, or creates it unless `create` is false. After a crash it recovers the store. One process at a time
    can open a file; any number of its threads share the store. A forked child gets `Forked`: it has to open the store
    itself.

    `durability` is what an acknowledged write survives:

    - None: the strongest mode that the medium gives by itself;
    - "process": a crash or kill of the process, on a file in memory (tmpfs) or of the page cache;
    - "journal", "msync": power failure, on a disk; by a journal beside the file, or by `msync`;
    - "persistent": power failure, on persistent memory (DAX), else `TooWeak`;
    - "periodic": as "process"; a power failure takes only the last moments: `twin` is a file on a disk that
      follows the one in memory, `twin_every` seconds behind (0.1).

    `size` is the size of a new file in bytes (64 MiB), `max_size` the limit of its growth, `writers` the number of
    threads that may write to a new one at once. `past_bytes` limits the memory in which snapshots and transactions keep
    old values (256 MiB); `keep_commits` is about the number of bytes of the newest commits that are kept for
    `watch(after=...)`; `tries` is the number of times that `transact` runs a body that conflicts.
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
        """Opens the map of this name, or creates it. Types are `int` (64 bits), `str`, `bytes`, `float`, `bool`, None,
        tuples of them (`(str, int)`, `tuple[str, int]`), and the names of Rust's numbers (`"u64"`). Without a type of
        values it is a set, whose values are None. Without any type, it is the existing map with its own types;
        `NoSuchMap` if there is none.

        `kind` is the kind of its index, one of `KINDS`; an existing map keeps its own.
        """

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
        """Opens the map of this name whose records expire, or creates it."""

    @overload
    def expiring_map(self, name: str, key: Any, value: Any = None, *, kind: str | None = None) -> ExpiringMap[Any, Any]: ...
    def maps(self) -> list[str]:
        """Returns the names of the maps, sorted."""

    def drop_map(self, name: str) -> bool:
        """Removes a map; returns whether it existed. Objects that hold it raise `Closed` from then on. Raises `InUse`
        while a snapshot or transaction reads it."""

    def transaction(self) -> Transaction:
        """Begins a transaction: `with store.transaction() as tx`. After a `Conflict` the caller begins again."""

    def transact(self, body: Callable[[Transaction], _R]) -> _R:
        """Runs a body in a transaction and commits it. The body runs again if the transaction conflicts with others. If
        it raises an exception, nothing is changed."""

    def snapshot(self) -> Snapshot:
        """Begins a snapshot: the current moment of all maps."""

    def watch(self, *, after: int | None = None) -> Watch:
        """Watches commits from now on, or from a position of an earlier watch on (`WatchEnded` if the log no longer has
        all commits since)."""

    def backup(self, path: str | PathLike[str]) -> int:
        """Writes one moment of all maps to a new store in a new file, while writers continue; returns the number of
        records."""

    def report(self) -> Report:
        """Returns a report on the store."""

    def check(self) -> int:
        """Verifies all maps; returns the number of records."""

    def sync(self) -> None:
        """Waits until everything acknowledged so far survives as much as the medium allows."""

    def describe(self) -> str:
        """Describes the medium and what writes survive, as text."""

    @property
    def durability(self) -> str: ...
    @property
    def path(self) -> PathLike[str]: ...
    @property
    def closed(self) -> bool: ...
    def close(self) -> None:
        """Ends all open objects of the store and closes it. A second call does nothing."""

    def __enter__(self) -> Self: ...
    def __exit__(self, *error: object) -> None: ...
