"""What can go wrong. Every exception of the library is an `Error`; texts say what, where and what to do.

A missing key is a `KeyError`, a key or value of a wrong type a `TypeError`, and a number out of range an
`OverflowError`, as everywhere in Python.
"""


class Error(Exception):
    """The base of all exceptions of `pmindex`. Unless an exception says otherwise, nothing was changed."""


class Conflict(Error):
    """Another commit changed what the transaction had read. Begin again (`Store.transact` does)."""


class SnapshotEnded(Error):
    """The snapshot or transaction kept more of the past in memory than `past_bytes` allows. Begin again."""


class WatchEnded(Error):
    """The log has not all commits after the position of the watch: read the maps, then watch from now on."""


class Unfinished(Error):
    """The transaction is durable and has taken place, but its changes found no room yet: do not do it
    again, make room."""


class NoSpace(Error):
    """The pool is full and may not grow, or its device is."""


class TooLong(Error, ValueError):
    """The key or value is longer than possible, or a transaction changes too much for the log."""


class InUse(Error):
    """Another process has the file open, or a snapshot, transaction or watch has the map."""


class WrongType(Error, TypeError):
    """The map has keys or values of other types, or is of a kind that this build does not know."""


class NoSuchMap(Error, LookupError):
    """The store has no map of this name."""


class NoSuchFile(Error, FileNotFoundError):
    """There is no such file or folder."""


class AlreadyExists(Error, FileExistsError):
    """The file is there already."""


class Permission(Error, PermissionError):
    """Permission denied."""


class System(Error, OSError):
    """The operating system refused."""


class NotAPool(Error):
    """The file is no pool, or one of a format that this version does not know."""


class Damaged(Error):
    """The file is damaged: restore a backup."""


class DurabilityLost(Error):
    """A write to the disk failed: nothing becomes durable any more, reads stay possible."""


class TooWeak(Error):
    """The medium gives less durability than was asked for."""


class ReadOnly(Error):
    """The store is open for reading only, or this is a snapshot, which is never written."""


class Closed(Error, ValueError):
    """The store is closed, the map was dropped, or the snapshot, transaction or watch has ended."""


class Forked(Error):
    """The process was forked after the store was opened: open it in the child alone, or spawn."""


class BadOption(Error, ValueError):
    """An option, a name or an argument that is not possible."""


class Internal(Error):
    """A bug in pmindex: please report it with its text."""
