"""Stores: opening, closing, options, errors, other processes, threads."""

import multiprocessing
import os
import signal
import subprocess
import sys
import threading
import time

import pytest

import pmindex


def test_what_was_written_is_there_again(path):
    with pmindex.Store(path, size=8 << 20) as store:
        store.map("users", key=int, value=str)[1] = "Ada"
        assert str(store.path) == store.report().path == path
        assert not store.closed and repr(store) == f"<pmindex.Store {path}>"
    assert store.closed and repr(store) == "<pmindex.Store, closed>"
    with pmindex.Store(path) as store:
        assert store.map("users", key=int, value=str)[1] == "Ada"
        assert store.check() == 1
    store.close()  # again: nothing


def test_a_closed_store_refuses_everything(path):
    store = pmindex.Store(path, size=8 << 20)
    users = store.map("users", key=int, value=str)
    users.update((n, "") for n in range(1000))
    records, view, tx, watch = iter(users), store.snapshot(), store.transaction(), store.watch()
    then, mine = users.at(view), users.at(tx)
    mine[1] = "not committed"
    next(records)
    store.close()
    uses = [
        lambda: users[1],
        lambda: users.get(1),
        lambda: 1 in users,
        lambda: users.update({1: "a"}),
        lambda: len(users),
        lambda: next(records),
        lambda: list(users.items()),
        lambda: then[1],
        lambda: mine[1],
        lambda: users.at(view),
        tx.commit,
        lambda: watch.next(timeout=0),
        lambda: store.map("users", key=int, value=str),
        store.snapshot,
        store.transaction,
        lambda: store.transact(print),
        store.watch,
        store.sync,
        store.report,
        store.maps,
        lambda: store.backup(path + ".copy"),
        lambda: store.durability,
    ]
    for use in uses:
        with pytest.raises(pmindex.Closed):
            use()
    with pytest.raises(pmindex.Closed):
        users[1] = "a"
    assert not os.path.exists(path + ".copy")
    with pmindex.Store(path) as store:
        users = store.map("users", key=int, value=str)
        assert users[1] == "" and len(users) == 1000


def test_what_is_let_go_of_is_closed(path):
    users = pmindex.Store(path, size=8 << 20).map("users", key=int, value=str)
    users[1] = "Ada"  # the map keeps the store open
    with pytest.raises(pmindex.InUse, match="in use"):
        pmindex.Store(path)
    del users
    with pmindex.Store(path) as store:
        assert store.map("users")[1] == "Ada"


def test_an_iterator_and_a_savepoint_keep_their_store_open(path):
    with pmindex.Store(path, size=8 << 20) as store:
        store.map("users", key=int, value=str).update((n, str(n)) for n in range(1000))
        store.expiring_map("tokens", key=int, value=str).put(1, "one", ttl=1000)
    users = pmindex.Store(path).map("users", key=int, value=str).items()
    with pytest.raises(pmindex.InUse, match="in use"):
        pmindex.Store(path)
    assert [key for key, _ in users] == list(range(1000))
    del users
    assert list(pmindex.Store(path).map("users").keys()) == list(range(1000))
    tokens = pmindex.Store(path).expiring_map("tokens", key=int, value=str)
    assert list(tokens.items()) == [(1, "one")]
    del tokens
    point = pmindex.Store(path).transaction().savepoint()
    point.rollback()
    del point
    pmindex.Store(path).close()


def test_what_begins_while_a_store_is_closed_ends_with_it(path):
    """An object that is not closed would keep the file locked."""
    for _ in range(100):
        store = pmindex.Store(path, size=8 << 20)
        begun, ready = [], threading.Barrier(4)

        def begin(what):
            ready.wait()
            try:
                while True:
                    begun.append(what())
            except pmindex.Closed:
                pass

        whats = [store.transaction, store.snapshot, store.watch]
        threads = [threading.Thread(target=begin, args=(what,)) for what in whats]
        for thread in threads:
            thread.start()
        ready.wait()
        time.sleep(0.001)
        store.close()
        for thread in threads:
            thread.join()
        pmindex.Store(path).close()


def test_files_that_are_no_stores(path, folder):
    with pytest.raises(pmindex.NoSuchFile, match="no such file") as error:
        pmindex.Store(path, create=False)
    assert isinstance(error.value, FileNotFoundError)
    with pytest.raises(pmindex.NoSuchFile, match="no directory"):
        pmindex.Store(folder + "/none/test.pool")
    with open(path, "wb") as file:
        file.write(b"something else" * 1000)
    with pytest.raises(pmindex.NotAPool, match="not a pmindex pool"):
        pmindex.Store(path)
    with pytest.raises(pmindex.NotAPool):
        pmindex.Store(folder)
    os.remove(path)
    pmindex.Store(path, size=8 << 20).close()
    with open(path, "r+b") as file:
        file.truncate(4 << 20)
    with pytest.raises(pmindex.Damaged, match="truncated"):
        pmindex.Store(path)


def test_options(path, folder):
    for options, error in [
        ({"durability": "forever"}, "one of"),
        ({"durability": "periodic"}, "twin"),
        ({"twin_every": 1}, "twin"),
        ({"size": 1 << 62}, "size"),
    ]:
        with pytest.raises(ValueError, match=error):
            pmindex.Store(path, **options)
    with pytest.raises(OverflowError):
        pmindex.Store(path, size=-1)
    with pytest.raises(TypeError):
        pmindex.Store(path, colour="red")
    assert not os.path.exists(path)
    with pmindex.Store(path, size=4 << 20, grow=False) as store:
        texts = store.map("texts", key=int, value=bytes)
        with pytest.raises(pmindex.NoSpace, match="pool full"):
            for n in range(10_000):
                texts[n] = b"x" * 1000
        assert 1000 < len(texts) < 4200 and texts[0] == b"x" * 1000
        del texts[0]
    with pmindex.Store(path, read_only=True) as store:
        texts = store.map("texts")
        assert 1 in texts
        with pytest.raises(pmindex.ReadOnly):
            texts[1] = b""


def test_durability(path, folder):
    on_disk = os.path.join(os.path.dirname(os.path.abspath(__file__)), f"{os.getpid()}.pool")
    try:
        with pmindex.Store(on_disk, size=8 << 20, durability="journal") as store:
            assert store.durability == "journal" and "journal" in store.describe()
            store.map("users", key=int, value=str)[1] = "Ada"
            store.sync()
        with pmindex.Store(on_disk, durability="process") as store:
            assert store.durability == "process"
            assert store.map("users")[1] == "Ada"
        with pytest.raises(pmindex.TooWeak):
            pmindex.Store(on_disk, durability="persistent")
    except pmindex.Error as error:  # a checkout in memory has no disk to wait for
        if "tmpfs" not in str(error):
            raise
    finally:
        for file in (on_disk, on_disk + ".journal"):
            if os.path.exists(file):
                os.remove(file)


@pytest.mark.skipif(not os.access("/dev/shm", os.W_OK), reason="a twin is of a file in memory")
def test_a_twin_follows(path):
    twin = os.path.join(os.path.dirname(os.path.abspath(__file__)), f"{os.getpid()}.twin")
    try:
        with pmindex.Store(path, size=8 << 20, twin=twin, twin_every=0.01) as store:
            assert store.durability == "periodic"
            store.map("users", key=int, value=str)[1] = "Ada"
            store.sync()
        os.remove(path)  # a power failure
        with pmindex.Store(path, twin=twin) as store:
            assert store.map("users")[1] == "Ada"
    finally:
        if os.path.exists(twin):
            os.remove(twin)


def test_backup_and_report(store, folder):
    users = store.map("users", key=int, value=str)
    users.update((n, str(n)) for n in range(500))
    store.expiring_map("sessions", key=str, value=bytes).put("a", b"b", 3600)
    with store.transaction() as tx:
        users.at(tx)[0] = "none"
        users.at(tx)[1] = "one"
    copy = folder + "/copy.pool"
    assert store.backup(copy) == 501
    users.clear()
    with pmindex.Store(copy) as other:
        assert dict(other.map("users", int, str).items(stop=3)) == {0: "none", 1: "one", 2: "2"}
        assert other.expiring_map("sessions", str, bytes)["a"] == b"b"
        assert other.check() == 501
    with pytest.raises(pmindex.AlreadyExists) as error:
        store.backup(copy)
    assert isinstance(error.value, FileExistsError)
    report = store.report()
    assert report.commits == 1 and report.conflicts == 0 and report.log_bytes > 0
    assert [(m.name, m.is_open) for m in report.maps] == [("sessions", True), ("users", True)]
    assert report.maps[1].kind == "fptree" and report.pool_bytes >= report.used_bytes > 0
    assert "maps       sessions (fptree)" in str(report)
    assert report.durability == store.durability


def test_a_backup_has_the_maps_that_nobody_opened(path, folder):
    with pmindex.Store(path, size=8 << 20) as store:
        store.map("users", key=int, value=str)[1] = "Ada"
        store.map("pairs", key=("u32", bool), value=float)[2, True] = 0.5
        store.expiring_map("sessions", key=bytes, value=int).put(b"a", 1, 3600)
    with pmindex.Store(path) as store:
        with pytest.raises(pmindex.WrongType, match='"pairs": say which types'):
            store.backup(folder + "/copy.pool")
        store.map("pairs", key=("u32", bool), value=float)
        assert store.backup(folder + "/copy.pool") == 3


@pytest.mark.parametrize("kind", pmindex.KINDS)
def test_every_kind(store, path, kind):
    numbers = store.map("numbers", key=int, value=str, kind=kind)
    numbers.update((n, str(n)) for n in range(500))
    store.close()
    with pmindex.Store(path) as again:
        assert again.report().maps[0].kind == kind[:8]
        assert list(again.map("numbers", int, str).values()) == [str(n) for n in range(500)]


WRITER = """
import sys, pmindex
store = pmindex.Store(sys.argv[1], size=8 << 20)
log = store.map("log", key=int, value=str)
sums = store.map("sums", key=str, value=int)
n = len(log)
while True:
    with store.transaction() as tx:
        log.at(tx)[n] = str(n)
        sums.at(tx)["sum"] = sums.at(tx).get("sum", 0) + n
    n += 1
    print(n, flush=True)
"""


def test_a_kill_loses_nothing_that_was_acknowledged(path):
    acknowledged = 0
    for kill in range(4):
        child = subprocess.Popen([sys.executable, "-c", WRITER, path], stdout=subprocess.PIPE)
        for _ in range(5 + 37 * kill):
            acknowledged = int(child.stdout.readline())
        os.kill(child.pid, signal.SIGKILL)
        rest = child.stdout.read().split()
        child.wait()
        child.stdout.close()
        acknowledged = int(rest[-1]) if rest else acknowledged
        with pmindex.Store(path) as store:
            log, sums = store.map("log", int, str), store.map("sums", str, int)
            records = len(log)
            assert acknowledged <= records <= acknowledged + 1
            assert list(log.items()) == [(n, str(n)) for n in range(records)]
            assert sums["sum"] == sum(range(records)) and store.check() == records + 1
    assert records > 5


def use_in_a_child(store, users, answers):
    try:
        users[2] = "Bob"
        answers.put("written")
    except pmindex.Forked as error:
        answers.put(str(error))


@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_a_forked_child_is_refused(store):
    fork = multiprocessing.get_context("fork")
    users = store.map("users", key=int, value=str)
    users[1] = "Ada"
    answers = fork.Queue()
    child = fork.Process(target=use_in_a_child, args=(store, users, answers))
    child.start()
    assert "forked" in answers.get(timeout=600)
    child.join()
    assert dict(users) == {1: "Ada"}


@pytest.mark.filterwarnings("ignore::DeprecationWarning")
@pytest.mark.parametrize("way", ["with", "close", "drop", "watch"])
def test_a_forked_child_waits_for_no_thread_of_the_parent(path, way):
    """The thread, which holds a lock at the fork, does not exist in the child."""
    store = pmindex.Store(path, size=8 << 20)
    users = store.map("users", key=int, value=str)
    watch = store.watch()
    got = []
    waits = threading.Thread(target=lambda: got.append(next(watch)))
    waits.start()
    time.sleep(0.2)
    child = os.fork()
    if child == 0:
        code = 1
        try:
            if way == "with":
                with store:
                    pass
            elif way == "close":
                store.close()
            elif way == "watch":
                watch.close()
                users[1]
            else:
                del users, watch, waits, store
                code = 0
        except pmindex.Forked:
            code = 0
        finally:
            os._exit(code)
    code = None
    for _ in range(2000):
        ended, status = os.waitpid(child, os.WNOHANG)
        if ended:
            code = os.waitstatus_to_exitcode(status)
            break
        time.sleep(0.01)
    else:
        os.kill(child, signal.SIGKILL)
        os.waitpid(child, 0)
    users[1] = "Ada"  # the parent goes on
    waits.join()
    store.close()
    assert code == 0 and len(got) == 1


def run_all(threads):
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()


def test_threads_share_a_store(store):
    numbers = store.map("numbers", key=int, value=int)
    sums = store.map("sums", key=str, value=int)
    sums["all"] = 0
    failed = []

    def work(first):
        try:
            for n in range(first, 400, 4):
                numbers[n] = n
                assert numbers[n] == n

                def add(tx):
                    sums.at(tx)["all"] += n

                store.transact(add)
        except BaseException as error:
            failed.append(error)

    run_all([threading.Thread(target=work, args=(first,)) for first in range(4)])
    assert not failed and sums["all"] == sum(range(400)) and list(numbers) == list(range(400))


def test_threads_go_on_while_one_waits(store):
    """A wait for a commit keeps no other thread from Python."""
    numbers = store.map("numbers", key=int, value=int)
    with store.watch() as watch:
        got = []
        waiting = threading.Thread(target=lambda: got.append(watch.next(timeout=600)))
        waiting.start()
        time.sleep(0.01)
        numbers[1] = 2
        waiting.join()
        assert got[0].changes(numbers) == [(1, 2)]


def test_closing_while_threads_use_it(path):
    store = pmindex.Store(path, size=8 << 20)
    numbers = store.map("numbers", key=int, value=int)
    ends = []

    def work(first):
        n = first
        try:
            while True:
                numbers[n] = n
                numbers.get(n - 4)
                n += 4
                sum(1 for _ in numbers.items(start=n - 40))
        except pmindex.Closed:
            ends.append(n)

    threads = [threading.Thread(target=work, args=(first,)) for first in range(4)]
    for thread in threads:
        thread.start()
    time.sleep(0.1)
    store.close()
    for thread in threads:
        thread.join()
    assert len(ends) == 4
    with pmindex.Store(path) as store:
        numbers = store.map("numbers")
        for end in ends:
            assert all(n in numbers for n in range(end % 4, end - 4, 4))


def test_an_iterator_in_two_threads(store):
    numbers = store.map("numbers", key=int, value=int)
    numbers.update((n, n) for n in range(3000))
    records, seen = iter(numbers), []

    def work():
        while True:
            try:
                seen.append(next(records))
            except ValueError:  # the other one has it just now
                continue
            except StopIteration:
                return

    run_all([threading.Thread(target=work) for _ in range(2)])
    assert sorted(seen) == list(range(3000))


def test_nothing_leaks(store):
    numbers = store.map("numbers", key=int, value=int)
    for _ in range(1000):
        store.transaction()
        store.snapshot()
        list(numbers.at(store.transaction()))
    assert store.report().readers == 0
