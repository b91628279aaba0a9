"""Maps: a dictionary's protocol, order, types."""

import math

import pytest

import pmindex


def test_a_map_is_a_dictionary_in_order(store):
    stock = store.map("stock", key=str, value=int)
    stock["pear"] = 2
    stock["apple"] = 1
    stock["apple"] = 3
    assert (stock["apple"], stock.get("fig"), stock.get("fig", 7)) == (3, None, 7)
    assert "pear" in stock and "fig" not in stock
    assert len(stock) == 2 and bool(stock)
    assert list(stock) == ["apple", "pear"] and list(reversed(stock)) == ["pear", "apple"]
    assert list(stock.values()) == [3, 2]
    assert dict(stock) == {"apple": 3, "pear": 2} == dict(stock.items())
    with pytest.raises(KeyError) as error:
        stock["fig"]
    assert error.value.args == ("fig",)
    with pytest.raises(KeyError):
        del stock["fig"]
    del stock["pear"]
    assert stock.setdefault("pear", 9) == 9 and stock.setdefault("pear", 1) == 9
    assert stock.insert("pear", 4) == 9 and stock.insert("kiwi", 5) is None
    assert stock.try_insert("lime", 6) and not stock.try_insert("lime", 7)
    assert stock.pop("lime") == 6 and stock.pop("lime", None) is None
    with pytest.raises(KeyError):
        stock.pop("lime")
    assert (stock.first(), stock.last()) == (("apple", 3), ("pear", 4))
    assert (stock.pop_first(), stock.pop_last()) == (("apple", 3), ("pear", 4))
    stock.update({"a": 1, "b": 2})
    stock.update([("c", 3)])
    assert stock.remove_range("b", "c") == 1 and list(stock) == ["a", "c", "kiwi"]
    stock.clear()
    assert not stock and stock.first() is None and stock.pop_first() is None and len(stock) == 0
    assert stock.load((f"{n:03}", n) for n in range(300)) == 300
    assert list(stock.values()) == list(range(300))


def test_many_records_at_once(store):
    numbers = store.map("numbers", key=int, value=str)
    numbers[5] = "old"
    pairs = [(n % 700, str(n)) for n in range(1000)]
    numbers.update(pairs)  # later ones replace earlier ones
    assert dict(numbers) == dict(pairs)
    with store.watch() as watch:
        numbers.update([(1, "a"), (1000, "b"), (1000, "c")])
        changes = [watch.next(timeout=10).changes(numbers)[0] for _ in range(3)]
        assert sorted(changes) == [(1, "a"), (1000, "b"), (1000, "c")]
    with store.snapshot() as view:
        numbers.update([(1, "x"), (2000, "y")])
        assert (numbers[1], numbers[2000]) == ("x", "y")
        assert (numbers.at(view)[1], numbers.at(view).get(2000)) == ("a", None)
    with pytest.raises(pmindex.TooLong):
        numbers.update([(3000, "before"), (3001, "x" * (5 << 20)), (3002, "behind")])
    assert numbers[3000] == "before" and 3002 not in numbers
    with pytest.raises(TypeError, match="pair"):
        numbers.update([1, 2])
    with pytest.raises(TypeError):
        numbers.remove_many([3, "four"])
    assert numbers.remove_many(n for n in (3, 4, 4, 9000)) == 2
    assert 3 not in numbers and 4 not in numbers and 5 in numbers
    assert numbers.remove_many(numbers.keys()) == 701 and not numbers
    numbers[1] = "one"
    with store.transaction() as tx:
        assert numbers.at(tx).remove_many([1, 2]) == 1 and 1 in numbers
    assert not numbers


def test_ranges_and_prefixes(store):
    numbers = store.map("numbers", key=int, value=int)
    numbers.update((n, n * n) for n in range(-500, 1500))
    assert list(numbers) == list(range(-500, 1500))
    assert list(numbers.keys(-3, 3)) == [-3, -2, -1, 0, 1, 2]
    assert list(numbers.items(-3, 3, reverse=True))[0] == (2, 4)
    assert list(numbers.keys(stop=-498)) == [-500, -499]
    assert list(numbers.keys(start=1498)) == [1498, 1499]
    assert list(numbers.keys(5, 5)) == [] == list(numbers.keys(6, 5))
    assert list(numbers.values(reverse=True)) == [n * n for n in range(1499, -501, -1)]
    with pytest.raises(TypeError, match="prefix"):
        numbers.items(prefix=3)
    words = store.map("words", key=str, value=None)
    for word in ["", "ab", "abc", "abd", "b", "ä", "ab\uffff", "ab\U0010ffff", "abé"]:
        words[word] = None
    assert list(words.keys(prefix="ab")) == sorted(w for w in words if w.startswith("ab"))
    assert list(words.keys(prefix="abc", reverse=True)) == ["abc"]
    assert list(words.keys(prefix="")) == sorted(words)
    with pytest.raises(TypeError, match="either"):
        words.keys("a", prefix="a")
    raw = store.map("raw", key=bytes, value=bytes)
    for key in [b"", b"\xff", b"\xff\xff", b"\xff\x00", b"a"]:
        raw[key] = key * 2
    assert list(raw.keys(prefix=b"\xff")) == [b"\xff", b"\xff\x00", b"\xff\xff"]
    assert raw.remove_range(prefix=b"\xff") == 3 and list(raw.items()) == [(b"", b""), (b"a", b"aa")]


TYPES = [
    (int, [-(2**63), -1, 0, 1, 2**63 - 1]),
    ("u64", [0, 1, 2**64 - 1]),
    ("i8", [-128, 0, 127]),
    ("u16", [0, 65535]),
    (float, [-math.inf, -1.5, -0.0, 0.0, 2.0**-1074, 1.5, math.inf]),
    (bool, [False, True]),
    (str, ["", "\0", "a", "a\0", "a\0b", "ab", "é", "日本", "🦀"]),
    (bytes, [b"", b"\0", b"\0\0", b"\0\xff", b"a", b"\xff" * 4000]),
    ((int, int), [(-1, 5), (0, -1), (0, 0), (0, 7), (1, -9)]),
    ((str, int), [("", 0), ("a", -1), ("a", 1), ("a\0", 0), ("b", -5)]),
    ((int, (bytes, float)), [(1, (b"", 0.5)), (1, (b"\0", -2.0)), (2, (b"", 0.0))]),
    ((int, int, int, int, int), [(0, 0, 0, 0, 1), (0, 0, 0, 1, 0), (1, 0, 0, 0, 0)]),
    ((str,), [("a",), ("b",)]),
]


@pytest.mark.parametrize("of, keys", TYPES, ids=lambda x: str(x)[:30])
def test_every_type_comes_back_and_is_in_order(store, path, of, keys):
    by_key = store.map("by key", key=of, value=int)
    by_value = store.map("by value", key=int, value=of)
    for at, key in reversed(list(enumerate(keys))):
        by_key[key] = at
        by_value[at] = key
    assert list(map(repr, by_key)) == list(map(repr, keys))
    assert list(by_key.values()) == list(range(len(keys)))
    assert list(map(repr, by_value.values())) == list(map(repr, keys))
    for at, key in enumerate(keys):
        assert by_key[key] == at and repr(by_value[at]) == repr(key)
        assert type(by_value[at]) is type(key)
    store.close()
    with pmindex.Store(path) as again:
        assert list(again.map("by key", of, int).items()) == [(k, n) for n, k in enumerate(keys)]


def test_tuples_have_prefixes_and_annotations_are_types(store):
    orders = store.map("orders", key=tuple[str, int], value=float)
    for customer, number in [("Ada", 2), ("Ada", 10), ("Adam", 1), ("Bob", 1)]:
        orders[customer, number] = 0.5 * number
    assert list(orders.items(prefix=("Ada",))) == [(("Ada", 2), 1.0), (("Ada", 10), 5.0)]
    of_customers = store.map("of customers", key=(int, int))
    for pair in [(7, -1), (7, 3), (8, 0), (-7, 0)]:
        of_customers[pair] = None
    assert list(of_customers.keys(prefix=(7,))) == [(7, -1), (7, 3)]
    assert list(of_customers.keys(prefix=())) == [(-7, 0), (7, -1), (7, 3), (8, 0)]
    with pytest.raises(TypeError, match=r"3 parts; the map has \(str, int\)"):
        orders["Ada", 1, 2]
    with pytest.raises(TypeError, match="str; the map has int"):
        orders["Ada", "x"]
    with pytest.raises(TypeError):
        orders.items(prefix=("Ada", 1, 2))


@pytest.mark.parametrize(
    "of, bad, error",
    [
        (int, 2**63, OverflowError),
        (int, -(2**63) - 1, OverflowError),
        (int, 2**200, OverflowError),
        (int, 1.0, TypeError),
        (int, "1", TypeError),
        (int, None, TypeError),
        ("u64", -1, OverflowError),
        ("u64", 2**64, OverflowError),
        ("i8", 128, OverflowError),
        ("i8", -129, OverflowError),
        ("u16", 65536, OverflowError),
        (str, b"a", TypeError),
        (str, "\ud800", UnicodeEncodeError),
        (bytes, "a", TypeError),
        (float, "1.5", TypeError),
        (bool, 1, TypeError),
        ("()", 0, TypeError),
        ((str, int), ("a", 2**63), OverflowError),
        ((str, int), ["a", 1], TypeError),
    ],
)
def test_what_a_type_has_not_is_refused_and_nothing_is_changed(store, of, bad, error):
    as_key = store.map("as key", key=of, value=int)
    as_value = store.map("as value", key=int, value=of)
    with pytest.raises(error):
        as_key[bad] = 1
    for ask in (lambda: as_key[bad], lambda: as_key.get(bad), lambda: bad in as_key):
        with pytest.raises(error):
            ask()
    with pytest.raises(error):
        as_value[1] = bad
    with pytest.raises(error):
        as_value.update({1: bad})
    assert len(as_key) == len(as_value) == 0


def test_messages_say_what_is_wrong(store):
    stock = store.map("stock", key=int, value=str)
    with pytest.raises(OverflowError, match=f"the key {2**63} is out of the range of int"):
        stock[2**63] = "a"
    with pytest.raises(TypeError, match="the value is of type int; the map has str"):
        stock[1] = 2
    with pytest.raises(TypeError, match="a type that a map can have"):
        store.map("bad", key=list, value=int)
    with pytest.raises(TypeError, match="type of its keys"):
        store.map("bad", value=int)
    with pytest.raises(ValueError, match="at most 2"):
        store.map("bad", key=(int, int, int), value=int)
    with pytest.raises(ValueError, match="this build has fptree"):
        store.map("bad", key=int, value=int, kind="heap")
    with pytest.raises(pmindex.BadOption, match="bytes"):
        store.map("x" * 1000, key=int)
    with pytest.raises(pmindex.TooLong, match="4097 bytes"):
        store.map("texts", key=str, value=str)["a" * 4097] = ""
    with pytest.raises(pmindex.TooLong):
        store.map("texts")["a"] = "x" * (5 << 20)


def test_numbers_of_other_types_are_taken_as_python_takes_them(store):
    numbers = store.map("numbers", key=int, value=float)
    numbers[True] = 3
    assert list(numbers.items()) == [(1, 3.0)]
    raw = store.map("raw", key=bytes, value=bytes)
    raw[bytearray(b"a")] = memoryview(b"bcd")[::2]
    assert raw[memoryview(b"a")] == b"bd"


def test_a_map_has_its_types_for_ever(store, path):
    store.map("users", key=int, value=str)[1] = "Ada"
    store.map("seen", key=str)["a"] = None
    with pytest.raises(pmindex.WrongType, match="keys of int and values of str"):
        store.map("users", key=str, value=str)
    store.close()
    with pmindex.Store(path) as again:
        with pytest.raises(pmindex.WrongType, match="keys of type i64 and values of type str"):
            again.map("users", key=int, value=bytes)
        with pytest.raises(pmindex.WrongType) as error:
            again.map("users", key=str, value=str)
        assert isinstance(error.value, (TypeError, pmindex.Error))
        users = again.map("users")  # the types that it has
        assert users.types == ("i64", "str") and users[1] == "Ada"
        assert again.map("users", key=int, value=str)[1] == "Ada"
        assert again.map("seen").types == ("str", "()")
        with pytest.raises(pmindex.NoSuchMap, match="others"):
            again.map("others")
        assert again.maps() == ["seen", "users"]
        assert repr(users) == '<pmindex.Map "users": int to str>'


def test_iteration_goes_on_while_others_write(store):
    numbers = store.map("numbers", key=int, value=int)
    numbers.update((n, n) for n in range(0, 2000, 2))
    seen = []
    for n in numbers:
        seen.append(n)
        numbers[n + 1] = n
        if n < 1000:
            del numbers[n]
    assert set(range(0, 2000, 2)) <= set(seen) and seen == sorted(seen)
    items = iter(numbers.items())
    assert next(items) == (1, 0)
    assert sum(1 for _ in items) == len(numbers) - 1
    assert list(items) == []


def test_a_dropped_map_is_gone(store):
    users = store.map("users", key=int, value=str)
    users[1] = "Ada"
    others = store.map("users")
    records = iter(users.items())
    next(records)
    assert store.drop_map("users") and not store.drop_map("users")
    for use in (lambda: users[1], lambda: others.get(1), lambda: len(users), lambda: next(records)):
        with pytest.raises(pmindex.Closed, match="dropped"):
            use()
    assert store.maps() == []
    assert len(store.map("users", key=str, value=str)) == 0


def test_a_map_that_is_read_is_not_dropped(store):
    users = store.map("users", key=int, value=str)
    with store.transaction() as tx:
        users.at(tx)[1] = "Ada"
        with pytest.raises(pmindex.InUse, match="users"):
            store.drop_map("users")
        assert users.get(1) is None  # the handle is as it was
    assert users[1] == "Ada" and store.drop_map("users")
