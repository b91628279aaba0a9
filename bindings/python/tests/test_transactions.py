"""Transactions, savepoints, snapshots, watches, expiry."""

import datetime
import threading
import time

import pytest

import pmindex


@pytest.fixture
def bank(store):
    bank = store.map("bank", key=str, value=int)
    bank.update({"Ada": 70, "Bob": 30})
    return bank


def test_a_transaction_takes_place_wholly_or_not_at_all(store, bank):
    log = store.map("log", key=int, value=str)
    with store.transaction() as tx:
        accounts, entries = bank.at(tx), log.at(tx)
        accounts["Ada"] -= 20
        accounts["Bob"] += 20
        entries[1] = "20"
        assert (accounts["Ada"], bank["Ada"], "Bob" in accounts) == (50, 70, True)
        assert dict(accounts) == {"Ada": 50, "Bob": 50} and len(accounts) == 2
        del accounts["Bob"]
        assert list(accounts) == ["Ada"] and accounts.insert("Bob", 50) is None
        assert accounts.setdefault("Eve", 0) == 0 and accounts.pop("Eve") == 0
        assert accounts.last() == ("Bob", 50)
    assert dict(bank) == {"Ada": 50, "Bob": 50} and log[1] == "20"
    with pytest.raises(ZeroDivisionError):
        with store.transaction() as tx:
            bank.at(tx)["Ada"] = 0
            log.at(tx).clear()
            1 / 0
    assert dict(bank) == {"Ada": 50, "Bob": 50} and len(log) == 1
    with store.transaction() as tx:
        bank.at(tx)["Ada"] = 0
        tx.rollback()
    assert bank["Ada"] == 50
    with pytest.raises(pmindex.Closed, match="has ended"):
        bank.at(tx)
    with pytest.raises(pmindex.Closed, match="has ended"):
        accounts["Ada"]
    with pytest.raises(pmindex.Closed):
        tx.commit()
    tx.rollback()
    assert repr(tx) == "<pmindex.Transaction, ended>"


def test_what_others_changed_is_a_conflict(store, bank):
    with pytest.raises(pmindex.Conflict, match="conflicts with others"):
        with store.transaction() as tx:
            bank.at(tx)["Ada"] -= 1
            bank["Ada"] = 0
    assert bank["Ada"] == 0
    with pytest.raises(pmindex.Conflict):
        with store.transaction() as tx:  # a phantom
            bank.at(tx)["sum"] = sum(bank.at(tx).values())
            bank["Eve"] = 1
    with store.transaction() as tx:  # writes without reading
        bank.at(tx)["Ada"] = 5
        bank["Ada"] = 6
    assert bank["Ada"] == 5


def test_transact_runs_again(store, bank):
    runs = []

    def body(tx):
        accounts = bank.at(tx)
        runs.append(accounts["Ada"])
        if len(runs) < 3:
            bank["Ada"] += 1
        accounts["Ada"] += 100
        return "done"

    assert store.transact(body) == "done"
    assert runs == [70, 71, 72] and bank["Ada"] == 172

    def fails(tx):
        bank.at(tx)["Ada"] = 0
        raise LookupError("no")

    with pytest.raises(LookupError, match="no"):
        store.transact(fails)
    assert bank["Ada"] == 172


def test_transact_gives_up(path):
    with pmindex.Store(path, size=8 << 20, tries=3) as store:
        bank = store.map("bank", key=str, value=int)
        bank["Ada"] = 0

        def body(tx):
            bank.at(tx)["Bob"] = bank.at(tx)["Ada"]
            bank["Ada"] += 1

        with pytest.raises(pmindex.Conflict, match="3 tries"):
            store.transact(body)
        assert dict(bank) == {"Ada": 3} and store.report().conflicts == 3


def test_savepoints(store, bank):
    with store.transaction() as tx:
        accounts = bank.at(tx)
        accounts["Ada"] = 1
        point = tx.savepoint()
        accounts["Ada"] = 2
        accounts["Eve"] = 3
        point.rollback()
        assert dict(accounts) == {"Ada": 1, "Bob": 30}
        with pytest.raises(ValueError):
            with tx.savepoint():
                accounts.clear()
                raise ValueError
        with tx.savepoint():
            accounts["Bob"] = 5
    assert dict(bank) == {"Ada": 1, "Bob": 5}
    with pytest.raises(pmindex.Closed):
        point.rollback()


def test_a_snapshot_is_one_moment(store, bank):
    others = store.map("others", key=int, value=int)
    with store.snapshot() as view:
        then = bank.at(view)
        bank["Ada"] = 0
        del bank["Bob"]
        others[1] = 1
        assert dict(then) == {"Ada": 70, "Bob": 30} and len(then) == 2
        assert len(others.at(view)) == 0 and "Bob" in then and then.get("Eve") is None
        assert list(then.items("B", reverse=True)) == [("Bob", 30)]
        with pytest.raises(pmindex.ReadOnly, match="snapshot"):
            then["Ada"] = 1
        for change in (then.clear, lambda: then.pop("Ada"), lambda: then.update({"x": 1})):
            with pytest.raises(pmindex.ReadOnly):
                change()
        records = iter(then)
        next(records)
    assert dict(bank) == {"Ada": 0}
    for use in (lambda: then["Ada"], lambda: next(records), lambda: bank.at(view)):
        with pytest.raises(pmindex.Closed, match="snapshot has ended"):
            use()
    view.close()


def test_a_snapshot_of_too_much_ends(path):
    with pmindex.Store(path, size=8 << 20, past_bytes=4096) as store:
        texts = store.map("texts", key=int, value=str)
        texts.update((n, "x" * 100) for n in range(200))
        with store.snapshot() as view:
            texts.update((n, "y" * 100) for n in range(200))
            with pytest.raises(pmindex.SnapshotEnded, match="4096 bytes"):
                texts.at(view)[0]

        def slow(tx, times=[]):
            times.append(texts.at(tx)[0])
            if len(times) == 1:
                texts.update((n, "z" * 100) for n in range(200))
                texts.at(tx)[1]  # ended: this run is not the last one
            return len(times)

        assert store.transact(slow) == 2
        assert store.report().ended_readers == 2


@pytest.mark.parametrize("own", [KeyboardInterrupt, SystemExit, LookupError])
def test_transact_runs_no_body_again_that_raised_its_own(path, own):
    with pmindex.Store(path, size=8 << 20, past_bytes=4096) as store:
        texts = store.map("texts", key=int, value=str)
        texts.update((n, "x" * 100) for n in range(200))

        def ended(tx):
            texts.at(tx)[0]
            texts.update((n, "y" * 100) for n in range(200))
            texts.at(tx)[1]

        runs = []

        def body(tx):
            runs.append(1)
            try:
                ended(tx)
            except pmindex.SnapshotEnded:
                pass
            raise own

        with pytest.raises(own):
            store.transact(body)
        assert len(runs) == 1

        def wraps(tx):
            runs.append(1)
            try:
                if len(runs) == 2:
                    ended(tx)
            except pmindex.SnapshotEnded as error:
                raise own from error

        if issubclass(own, Exception):
            store.transact(wraps)
        else:
            with pytest.raises(own):
                store.transact(wraps)
        assert len(runs) == (3 if issubclass(own, Exception) else 2)


def test_maps_and_moments_of_other_stores(store, bank, folder):
    with pmindex.Store(folder + "/other.pool", size=8 << 20) as other:
        with other.transaction() as tx, pytest.raises(ValueError, match="another store"):
            bank.at(tx)
        with other.snapshot() as view, pytest.raises(ValueError, match="another store"):
            bank.at(view)
    with pytest.raises(TypeError, match="snapshot or a transaction"):
        bank.at(store)


def test_a_watch_has_every_commit(store, bank):
    log = store.map("log", key=int, value=str)
    with store.watch() as watch:
        start = watch.position
        assert watch.next(timeout=0) is None
        bank["Ada"] = 1
        with store.transaction() as tx:
            bank.at(tx)["Bob"] = 2
            del bank.at(tx)["Ada"]
            log.at(tx)[7] = "seven"
        first, second = watch.next(), watch.next(timeout=10)
        assert first.maps == ["bank"] and first.changes(bank) == [("Ada", 1)]
        assert second.maps == ["bank", "log"] and second.changes(log) == [(7, "seven")]
        assert second.changes(bank) == [("Ada", None), ("Bob", 2)]
        assert start < first.position < second.position == watch.position
        assert not second.is_loaded("bank")
        with store.watch(after=first.position) as later:
            assert next(later).position == second.position
        writer = threading.Timer(0.05, lambda: bank.insert("Eve", 3))
        writer.start()
        assert next(watch).changes(bank) == [("Eve", 3)]
        writer.join()
    with pytest.raises(pmindex.Closed):
        watch.next(timeout=0)
    with pytest.raises(pmindex.WatchEnded):
        store.watch(after=0)


def test_expiring_maps(store, path):
    sessions = store.expiring_map("sessions", key=str, value=str)
    sessions.put("a", "Ada", 3600)
    sessions.put("b", "Bob", datetime.timedelta(hours=1))
    sessions.put("c", "over", 0)
    assert sessions["a"] == "Ada" and sessions.get("c") is None and "c" not in sessions
    assert 0 < sessions.expires("a") - time.time() <= 3600 and sessions.expires("c") is None
    with pytest.raises(KeyError):
        sessions["c"]
    assert list(sessions) == ["a", "b"] and dict(sessions.items()) == {"a": "Ada", "b": "Bob"}
    assert not sessions.try_insert("a", "Eve", 3600) and sessions.try_insert("c", "Eve", 3600)
    before = sessions.expires("b")
    assert sessions.renew("b", 7200) and not sessions.renew("d", 1)
    assert sessions.expires("b") > before
    with store.transaction() as tx:
        mine = sessions.at(tx)
        mine.put("d", "Dan", 3600)
        assert mine.renew("a", 0) and "a" not in mine and mine["d"] == "Dan"
    assert sessions.pop("d") == "Dan" and sessions.pop("d") is None
    assert sessions.sweep() == 1 and sessions.sweep() == 0
    assert list(sessions) == ["b", "c"]
    del sessions["c"]
    for key in range(1000):
        sessions.put(f"{key:04}", "", 0 if key % 2 else float("inf"))
    assert sessions.sweep() == 500 and len(list(sessions)) == 501
    with pytest.raises(ValueError, match="ttl"):
        sessions.put("a", "", -1)
    counts = store.expiring_map("counts", key=int, value=int)
    counts.put(1, 2, 3600)
    assert counts[1] == 2
    store.close()
    with pmindex.Store(path) as again:
        assert again.map("counts").types == ("i64", "(u64, i64)")
        assert again.expiring_map("sessions", str, str)["b"] == "Bob"
