"""Random commands to this server and to Debian's redis-server or memcached: the replies must be equal.

Usage: fuzz.py redis|memcached OURS THEIRS [--seconds N] [--seed N] [--parted] [--resp3]     (ports on 127.0.0.1)

With --parted OURS may have several partitions: all keys are in one slot.
Prints the seed; a difference ends the run with the command, both replies, and the commands before it
that named the same keys. Only the standard library is needed.
"""

import argparse
import math
import random
import re
import socket
import sys
import time


class Error(Exception):
    def __eq__(self, other):
        return isinstance(other, Error) and str(self) == str(other)

    def __hash__(self):
        return hash(str(self))


class Wire:
    def __init__(self, port):
        self.socket = socket.create_connection(("127.0.0.1", port))
        self.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self.file = self.socket.makefile("rb")

    def send(self, data):
        self.socket.sendall(data)

    def line(self):
        line = self.file.readline()
        if not line.endswith(b"\r\n"):
            raise EOFError(f"the server closed the connection: {line!r}")
        return line[:-2]

    def reply(self):
        line = self.line()
        kind, rest = line[:1], line[1:]
        if kind == b"+":
            return rest
        if kind == b"-":
            return Error(rest.decode())
        if kind == b":":
            return int(rest)
        if kind in (b"$", b"="):
            if int(rest) < 0:
                return None
            data = self.file.read(int(rest) + 2)
            return data[:-2]
        if kind in (b"*", b"~", b">"):
            return None if int(rest) < 0 else [self.reply() for _ in range(int(rest))]
        if kind == b"%":
            return [self.reply() for _ in range(2 * int(rest))]
        if kind == b"_":
            return None
        if kind == b",":
            return float(rest)
        raise ValueError(f"no reply: {line!r}")


def encode(words):
    parts = [b"*%d\r\n" % len(words)]
    for word in words:
        word = word if isinstance(word, bytes) else str(word).encode()
        parts.append(b"$%d\r\n%s\r\n" % (len(word), word))
    return b"".join(parts)


class Redis:
    """Random commands of Redis's clients."""

    KEYS = [f"k{n}" for n in range(6)]
    UNORDERED = {"SMEMBERS", "SINTER", "SUNION", "SDIFF", "HKEYS", "HVALS", "KEYS", "SPOP"}
    CHANNELS = ["c1", "c2", "other"]

    def __init__(self, rng, parted):
        self.rng = rng
        # Inside MULTI some commands are refused here that Redis takes.
        self.alone = {"FLUSHALL", "PUBSUB"}
        self.parted = parted
        if parted:
            self.alone |= {"KEYS", "DBSIZE"}
            self.KEYS = ["{slot}" + key for key in self.KEYS]

    def one(self, *choices):
        return self.rng.choice(choices)

    def key(self):
        return self.rng.choice(self.KEYS)

    def value(self):
        return self.one("", "a", "hello", "12", "-7", "3.5", "x" * 50, b"\x00\xff\r\n", "9223372036854775807", "1e3",
                        b"y" * self.rng.choice([10, 3000]), " 1", "nan", "0", "-0", "00")

    def number(self):
        return self.one(0, 1, -1, 2, 5, 10, -3, 100, "x", "1.5", "9223372036854775807", "-9223372036854775808", "+1",
                        self.rng.randrange(-20, 20))

    def float(self):
        # Sums of these are exact in binary, too: of others Redis replies what its long double makes of them.
        return self.one("1.5", "0.5", "-2", "inf", "-inf", "nan", "x", "3", "1e2", "0.25", "10.50")

    def field(self):
        return self.one("f1", "f2", "f3", "f4", "", "12")

    def seconds(self):
        # Far from now, so that nothing expires while the two servers are asked one after the other; and seldom the
        # same, since GT and LT compare with a time that was set some milliseconds earlier.
        return self.one(self.rng.randrange(10**3, 10**6), 0, -1, "x", 9223372036854775807)

    def case(self, word):
        return self.rng.choice([word, word.lower(), word.capitalize()])

    def expiry(self):
        kind = self.one("EX", "PX", "EXAT", "PXAT", "KEEPTTL", "")
        if kind == "":
            return []
        if kind == "KEEPTTL":
            return [kind]
        number = {
            "EX": self.one(1000, 0, -5, "x", 9223372036854775807),
            "PX": self.one(10**6, 0, -1, "x"),
            # Not in the past: there Redis keeps, and DBSIZE counts, keys that no command can see any more.
            "EXAT": self.one(int(time.time()) + 5000, 0, "x"),
            "PXAT": self.one(int(time.time() + 5000) * 1000, -2),
        }[kind]
        return [self.case(kind), number]

    def command(self):
        k, v, n, f, o = self.key, self.value, self.number, self.field, self.one
        many = lambda make: [make() for _ in range(self.rng.randrange(1, 4))]
        pairs = lambda one, two: [w for _ in range(self.rng.randrange(1, 4)) for w in (one(), two())]
        bound = lambda: o("-inf", "+inf", "(1", "2", "1.5", "(x", "", "3", "(2")
        lex = lambda: o("-", "+", "[a", "(f1", "[f2", "[f3", "x", "(")
        limit = lambda: o([], [], ["LIMIT", n(), n()], ["LIMIT", 0, 2], ["LIMIT", 1])
        scores = lambda: o([], ["WITHSCORES"])
        table = [
            lambda: ["GET", k()],
            lambda: ["SET", k(), v()],
            lambda: ["SET", k(), v()] + o([], ["NX"], ["XX"], ["GET"], ["NX", "XX"], ["nope"]) + self.expiry(),
            lambda: ["SET", k(), v()] + self.expiry() + o([], ["NX"], ["XX", "GET"], ["PERSIST"]),
            lambda: ["SETNX", k(), v()], lambda: ["SETEX", k(), self.seconds(), v()],
            lambda: ["PSETEX", k(), o(10**6, 0, -1, "x"), v()],
            lambda: ["GETSET", k(), v()], lambda: ["GETDEL", k()],
            lambda: ["GETEX", k()] + o([], ["PERSIST"], self.expiry(), ["EX"], ["EX", 1000, "x"]),
            lambda: ["MGET"] + many(k), lambda: ["MSET"] + pairs(k, v), lambda: ["MSETNX"] + pairs(k, v),
            lambda: ["MSET", k()], lambda: ["APPEND", k(), v()], lambda: ["STRLEN", k()],
            lambda: ["SETRANGE", k(), o(0, 1, 5, 20, -1, "x", 2**31 * 10), v()],
            lambda: ["GETRANGE", k(), n(), n()], lambda: ["SUBSTR", k(), 0, n()],
            lambda: ["INCR", k()], lambda: ["DECR", k()], lambda: ["INCRBY", k(), n()], lambda: ["DECRBY", k(), n()],
            lambda: ["INCRBYFLOAT", k(), self.float()],
            lambda: ["EXPIRE", k(), self.seconds()] + o([], ["NX"], ["XX"], ["GT"], ["LT"], ["NX", "GT"], ["GT", "LT"], ["Q"]),
            lambda: ["PEXPIRE", k(), o(self.rng.randrange(10**6, 10**9), 0, "x")] + o([], ["NX"], ["XX"], ["GT"], ["LT"]),
            lambda: ["EXPIREAT", k(), o(int(time.time()) + 3000, 1, -1)], lambda: ["PEXPIREAT", k(), o(10**13, 1)],
            lambda: ["PERSIST", k()], lambda: ["TTL", k()], lambda: ["EXPIRETIME", k()], lambda: ["PTTL", k()],
            lambda: ["DEL"] + many(k), lambda: ["UNLINK"] + many(k), lambda: ["EXISTS"] + many(k),
            lambda: ["TOUCH"] + many(k), lambda: ["TYPE", k()], lambda: ["RENAME", k(), k()],
            lambda: ["RENAMENX", k(), k()], lambda: ["COPY", k(), k()] + o([], ["REPLACE"], ["DB", 0], ["x"]),
            lambda: ["DBSIZE"], lambda: ["KEYS", o("*", "*k?", "*k[0-2]", "k1", "nope")],
            lambda: ["HSET", k()] + pairs(f, v), lambda: ["HSET", k(), f()], lambda: ["HMSET", k()] + pairs(f, v),
            lambda: ["HSETNX", k(), f(), v()], lambda: ["HGET", k(), f()], lambda: ["HMGET", k()] + many(f),
            lambda: ["HDEL", k()] + many(f), lambda: ["HLEN", k()], lambda: ["HEXISTS", k(), f()],
            lambda: ["HKEYS", k()], lambda: ["HVALS", k()], lambda: ["HGETALL", k()], lambda: ["HSTRLEN", k(), f()],
            lambda: ["HINCRBY", k(), f(), n()], lambda: ["HINCRBYFLOAT", k(), f(), self.float()],
            lambda: ["HSCAN", k(), 0], lambda: ["SSCAN", k(), 0, "MATCH", "f*"],
            lambda: ["SADD", k()] + many(f), lambda: ["SREM", k()] + many(f), lambda: ["SMEMBERS", k()],
            lambda: ["SISMEMBER", k(), f()], lambda: ["SMISMEMBER", k()] + many(f), lambda: ["SCARD", k()],
            lambda: ["SMOVE", k(), k(), f()], lambda: [o("SINTER", "SUNION", "SDIFF")] + many(k),
            lambda: [o("SINTERSTORE", "SUNIONSTORE", "SDIFFSTORE"), k()] + many(k),
            lambda: ["ZADD", k()] + o([], ["NX"], ["XX"], ["GT"], ["LT"], ["CH"], ["INCR"], ["NX", "GT"], ["XX", "CH"])
            + pairs(lambda: o(1, 2, 3, "1.5", "-inf", "x", 0.1, 3.1, "nan"), f),
            lambda: ["ZADD", k(), 1], lambda: ["ZINCRBY", k(), self.float(), f()], lambda: ["ZREM", k()] + many(f),
            lambda: ["ZSCORE", k(), f()], lambda: ["ZMSCORE", k()] + many(f), lambda: ["ZCARD", k()],
            lambda: [o("ZRANK", "ZREVRANK"), k(), f()], lambda: ["ZCOUNT", k(), bound(), bound()],
            lambda: ["ZRANGE", k(), n(), n()] + scores(), lambda: ["ZREVRANGE", k(), n(), n()] + scores(),
            lambda: ["ZRANGE", k(), bound(), bound(), "BYSCORE"] + o([], ["REV"]) + limit() + scores(),
            lambda: [o("ZRANGEBYSCORE", "ZREVRANGEBYSCORE"), k(), bound(), bound()] + limit() + scores(),
            lambda: [o("ZPOPMIN", "ZPOPMAX"), k()] + o([], [n()]),
            lambda: ["ZREMRANGEBYRANK", k(), n(), n()], lambda: ["ZREMRANGEBYSCORE", k(), bound(), bound()],
            lambda: [o("LPUSH", "RPUSH", "LPUSHX", "RPUSHX"), k()] + many(v), lambda: [o("LPOP", "RPOP"), k()],
            lambda: [o("LPOP", "RPOP"), k(), n()], lambda: ["LLEN", k()], lambda: ["LRANGE", k(), n(), n()],
            lambda: ["LINDEX", k(), n()], lambda: ["LSET", k(), n(), v()], lambda: ["LTRIM", k(), n(), n()],
            lambda: ["LREM", k(), n(), v()], lambda: ["LINSERT", k(), o("BEFORE", "AFTER", "x"), v(), v()],
            lambda: ["RPOPLPUSH", k(), k()], lambda: ["LMOVE", k(), k(), o("LEFT", "RIGHT", "UP"), o("LEFT", "RIGHT")],
            # More than there are, none, or some of which only the number is compared.
            lambda: ["SRANDMEMBER", k()] + o([], [o(10, 0, 1, 2, -1, -3, "x", "-9223372036854775808")], [1, 2]),
            lambda: ["HRANDFIELD", k()] + o([], [o(10, 0, 1, 2, -1, -3, "x", "-9223372036854775808")], [1, 2]),
            lambda: ["HRANDFIELD", k(), o(10, 0, 2, -3, "x", "-9223372036854775808", "9223372036854775807"), self.case("WITHVALUES")],
            lambda: ["SPOP", k()] + o([10], [0], [-1], ["x"], ["-9223372036854775808"], [10, 1]),
            lambda: ["SCAN", o(0, 0, "x"), "COUNT", o(100, 100, 0)] + o([], ["MATCH", "*k[0-2]"], ["TYPE", o("hash", "string")])
            if not self.parted else ["PING"],
            lambda: ["PING"], lambda: ["PING", v()], lambda: ["ECHO", v()], lambda: ["SELECT", o(0, "x", -1, 99)],
            lambda: ["PUBLISH", o(*self.CHANNELS), v()], lambda: ["PUBLISH", o(*self.CHANNELS), v()], lambda: ["PUBLISH", "c1"],
            lambda: ["PUBSUB"] + o(["CHANNELS"], ["CHANNELS", "c*"], ["NUMPAT"], ["NUMSUB"], ["NUMSUB", "c1", "none", "c1"]),
            lambda: [o("EXEC", "DISCARD", "MULTI", "RESET"), "x"], lambda: ["WATCH"],
            lambda: [o("SAVE", "RESET")] if self.rng.random() < 0.1 else ["MULTI"],
            lambda: ["GET"], lambda: ["GET", k(), k()], lambda: ["NOSUCH", k(), v()], lambda: ["SET", k()],
            lambda: ["MULTI"], lambda: ["EXEC"], lambda: ["DISCARD"], lambda: ["WATCH"] + many(k), lambda: ["UNWATCH"],
            lambda: ["EXEC"], lambda: ["FLUSHALL"] + o([], [], ["ASYNC"], ["sync"], ["x"], ["SYNC", "x"]) if self.rng.random() < 0.1 else ["DBSIZE"],
        ]
        return self.rng.choice(table)()

    def watched(self):
        """A key to watch, what another connection does to it meanwhile, and a transaction."""
        key, changes = self.key(), []
        while len(changes) < self.rng.randrange(1, 4):
            words = self.command()
            if key in words[1:] and words[0] not in ("WATCH", "UNWATCH"):
                changes.append(words)
            elif self.rng.random() < 0.02:
                changes.append(["FLUSHALL"])
        return key, changes

    def queued(self, words):
        """Returns whether a command may be queued."""
        return words[0] not in self.alone

    def lex_commands(self):
        lex = lambda: self.one("-", "+", "[a", "(f1", "[f2", "[f3", "(")
        return ["ZRANGEBYLEX", "lex", lex(), lex()]

    def normal(self, words, reply):
        """What may differ without being wrong is made the same."""
        name = str(words[0]).upper()
        if isinstance(reply, list):
            if name in ("HSCAN", "SSCAN", "SCAN"):
                return [reply[0], sorted(reply[1])] if len(reply) == 2 else reply
            if name in ("SRANDMEMBER", "HRANDFIELD"):
                return self.chosen(words, reply)
            if name in self.UNORDERED:
                return sorted(reply, key=repr)
            if name == "HGETALL":
                return sorted(zip(reply[::2], reply[1::2]))
            if name == "HELLO":
                return reply[:7] + reply[8:]  # without the number of the connection
            if name == "PUBSUB" and words[1] == "CHANNELS":
                return sorted(reply)
        if name in ("SRANDMEMBER", "HRANDFIELD") and len(words) == 2 and isinstance(reply, bytes):
            return "one of them"
        return reply

    def chosen(self, words, reply):
        """What is the same whichever members were chosen: all of them, or their number."""
        if len(words) == 4 and not (reply and isinstance(reply[0], list)):
            reply = list(zip(reply[::2], reply[1::2]))
        if int(words[2]) < 10:
            return [isinstance(item, bytes) or len(item) for item in reply]
        return sorted(reply, key=repr)


# How far the clocks of two answers may lie apart, in the unit of the command's reply.
APART = {"TTL": 10, "EXPIRETIME": 10, "PTTL": 10_000}


def aligned(make, words, one, two):
    """Both replies, without what may differ although both are right: an order, and time that went by in between."""
    one, two = make.normal(words, one), make.normal(words, two)
    apart = APART.get(str(words[0]).upper())
    if apart and isinstance(one, int) and isinstance(two, int) and min(one, two) >= 0 and abs(one - two) <= apart:
        one = two
    return one, two


def ends(words):
    """The command ends a transaction, also if it is refused."""
    return words[0] == "EXEC" or words in (["DISCARD"], ["RESET"])


def executed(make, queue, one, two):
    """The replies of a transaction, each aligned as its command's."""
    if not (isinstance(one, list) and isinstance(two, list) and len(one) == len(two) == len(queue)):
        return one, two
    pairs = [aligned(make, words, *replies) for words, *replies in zip(queue, one, two)]
    return [pair[0] for pair in pairs], [pair[1] for pair in pairs]


def rounded(words, one, two, history):
    """A sum of floats that differs by less than a float can tell; in a transaction, if there was any."""
    if words[0] == "EXEC":
        return any(past[0].endswith("INCRBYFLOAT") for past in history[-64:])
    try:
        # Redis's long double goes on where a double ends.
        if words[0].endswith("INCRBYFLOAT") and isinstance(one, Error) and float(two) in (math.inf, -math.inf):
            return True
        return words[0].endswith("INCRBYFLOAT") and abs(float(one) - float(two)) <= 1e-9 * max(1, abs(float(two)))
    except (TypeError, ValueError, ZeroDivisionError):
        return False


def redis(ours, theirs, args):
    rng = random.Random(args.seed)
    make = Redis(rng, args.parted)
    us, them = Wire(ours), Wire(theirs)
    others = Wire(ours), Wire(theirs)
    listeners = Wire(ours), Wire(theirs)

    def ask(wires, words):
        for wire in wires:
            wire.send(encode(words))
        return [wire.reply() for wire in wires]

    def heard():
        """The messages that each listener got since the last time."""
        ask(others, ["PUBLISH", "c2", "that is all"])
        messages = [[], []]
        for wire, all in zip(listeners, messages):
            while not all or all[-1][-1] != b"that is all" or all[-1][0] != b"pmessage":
                all.append(wire.reply())
        return messages

    ask((us, them), ["FLUSHALL"])
    greeting = [["HELLO", "3"]] if args.resp3 else []
    for words in greeting:
        ask((us, them), words)
    for words in (["SUBSCRIBE", "c1"], ["PSUBSCRIBE", "c*"]):
        ask(listeners, words)
    history, queue, count, found = [], None, 0, set()
    # The commands that the servers said they queued.
    queued = []
    deadline = time.time() + args.seconds
    while time.time() < deadline and len(found) < args.differences:
        if queue is None and rng.random() < 0.1:
            key, changes = make.watched()
            replies = [ask((us, them), ["WATCH", key])] + [ask(others, words) for words in changes]
            replies += [ask((us, them), words) for words in (["MULTI"], ["PING"], ["EXEC"])]
            count += len(replies)
            if replies[-1][0] != replies[-1][1]:
                print(f"seed {args.seed}, command {count}: a transaction that watches {key}, while another connection sends")
                for words, (one, two) in zip(changes, replies[1:]):
                    print(f"  {words!r}"[:150], "ours:", repr(one)[:60], "theirs:", repr(two)[:60])
                print(f"  EXEC: ours: {replies[-1][0]!r}, theirs: {replies[-1][1]!r}")
                found.add(tuple(words[0] for words in changes))
                ask((us, them), ["FLUSHALL"])
        batch, differs = [], False
        for _ in range(rng.choice([1, 1, 4, 16])):
            words = make.command()
            if queue is not None and not make.queued(words):
                continue
            if words == ["MULTI"] and queue is None:
                queue = []
            elif ends(words):
                queue = None
            batch.append(words)
            if words == ["RESET"]:
                batch += greeting
        data = b"".join(map(encode, batch))
        for wire in (us, them):
            wire.send(data)
        for words in batch:
            history.append(words)
            one, two = us.reply(), them.reply()
            count += 1
            if words[0] == "EXEC":
                one, two = executed(make, queued, one, two)
            elif one != two:
                one, two = aligned(make, words, one, two)
            if ends(words):
                queued = []
            elif one == two == b"QUEUED":
                queued.append(words)
            if one != two and not differs and rounded(words, one, two, history):
                # Redis's long double has rounded: begin anew.
                differs = True
            if one != two and not differs:
                differs, name = True, (words[0], repr(one)[:30], repr(two)[:30])
                if name in found:
                    continue
                found.add(name)
                keys = [word for word in words[1:] if word in make.KEYS]
                related = [past for past in history[-2000:] if not keys or set(past) & set(keys) or past[0] in ("MULTI", "EXEC", "DISCARD", "FLUSHALL", "WATCH")]
                print(f"seed {args.seed}, command {count}: {words}\n  ours:   {one!r}\n  theirs: {two!r}\nbefore it:")
                for past in related[-8 if args.differences > 1 else -25:]:
                    print("  ", repr(past)[:150])
        if {"PUBLISH", "EXEC"} & {words[0] for words in batch}:
            one, two = heard()
            if one != two and not differs:
                differs = True
                found.add("messages")
                print(f"seed {args.seed}, command {count}: messages\n  ours:   {one!r}\n  theirs: {two!r}\nafter:")
                for past in history[-25:]:
                    print("  ", repr(past)[:150])
        if differs:
            # What follows from a difference is none: begin anew.
            for wire in (us, them):
                for words in (["DISCARD"], ["UNWATCH"], ["FLUSHALL"]):
                    wire.send(encode(words))
                    wire.reply()
            queue, queued, history = None, [], []
    if found:
        return 1
    print(f"redis: {count} commands, seed {args.seed}: equal")
    return 0


def padded(mine, other):
    """Both are the same but for a number with a space behind it."""
    bare = lambda replies: [re.sub(rb"[\d ]", b"", reply) for reply in replies]
    number = re.compile(rb"\d +(\D|\r\n)|^ ")
    data = [reply for reply in mine + other if not reply.startswith((b"VALUE", b"VA", b"HD"))]
    return bare(mine) == bare(other) and (any(map(number.search, data)) or mine[0][:2] in (b"HD", b"VA"))


def memcached(ours, theirs, args):
    rng = random.Random(args.seed)
    us, them = Wire(ours), Wire(theirs)
    for wire in (us, them):
        wire.send(b"flush_all\r\n")
        wire.line()
    keys = [f"k{n}" for n in range(5)]
    one = lambda *choices: rng.choice(choices)
    uniques, count, history = {}, 0, []

    def storage():
        name, key, data = one("set", "add", "replace", "append", "prepend"), one(*keys), one("a", "12", "", "hello", "x" * 3000, "9")
        return f"{name} {key} {one(0, 1, 99)} {one(0, 1000, -1)} {len(data)}\r\n{data}\r\n"

    def cas():
        # The number of the last `gets`, which each server has its own of.
        key, data = one(*keys), one("c", "7")
        return ("cas", key, f"cas {key} 3 0 {len(data)} ", f"\r\n{data}\r\n")

    def command():
        key = one(*keys)
        return one(
            storage, storage, cas,
            lambda: f"get {key}\r\n", lambda: f"get {one(*keys)} {key} nope\r\n", lambda: f"gets {key}\r\n",
            lambda: f"gat 1000 {key}\r\n", lambda: f"touch {key} {one(1000, 0)}\r\n",
            lambda: f"delete {key}\r\n", lambda: f"incr {key} {one(1, 5, 18446744073709551615, 'x')}\r\n",
            lambda: f"decr {key} {one(1, 100)}\r\n", lambda: "mn\r\n", lambda: "nonsense\r\n", lambda: "get\r\n",
            lambda: f"mg {key} {one('v', 's v', 'f v s', 'k Oabc v', 't', 'v q', '')}\r\nmn\r\n",
            lambda: f"ms {key} 2 {one('', 'T0', 'F5', 'ME', 'MR', 'MA', 'MP', 'q', 'k O1')}\r\nhi\r\nmn\r\n",
            lambda: f"md {key} {one('', 'q', 'k', 'Oxy')}\r\nmn\r\n",
            lambda: f"ma {key} {one('', 'v', 'D5 v', 'MD v', 'N0 J13 v', 'N0', 'q')}\r\nmn\r\n",
            lambda: f"set {key} 0 0 x\r\n", lambda: "flush_all\r\n" if rng.random() < 0.05 else "mn\r\n",
            lambda: "get " + "k" * 300 + "\r\n", lambda: "verbosity 1\r\n",
        )()

    def run(wire, which, line):
        if isinstance(line, tuple):
            line = line[2] + str(uniques.get((which, line[1]), 1)) + line[3]
        wire.send(line.encode())
        until_mn = line.endswith("\r\nmn\r\n") and not line.startswith("mn")
        lines = []
        while True:
            lines.append(wire.line())
            last = lines[-1]
            if until_mn:
                if last == b"MN":
                    break
            elif last.startswith(b"VALUE"):
                parts = last.split()
                if len(parts) == 5:
                    uniques[which, parts[1].decode()] = int(parts[4])
                    lines[-1] = b" ".join(parts[:4])
                lines.append(wire.file.read(int(parts[3]) + 2))
            elif not (line.startswith(("get", "gat")) and last != b"END" and not last.startswith((b"ERROR", b"CLIENT"))):
                break
        return lines

    deadline = time.time() + args.seconds
    while time.time() < deadline:
        line = command()
        history.append(line)
        # Seconds that are left differ by the moment.
        mine, other = [
            [re.sub(rb" t\d+", b" t", reply) if reply.startswith((b"HD", b"VA")) else reply for reply in replies]
            for replies in (run(us, "ours", line), run(them, "theirs", line))
        ]
        count += 1
        if mine != other and padded(mine, other):
            # memcached pads a number that has become shorter only if it can write it in place: begin anew.
            for wire in (us, them):
                wire.send(b"flush_all\r\n")
                wire.line()
        elif mine != other:
            print(f"seed {args.seed}, command {count}: {line!r}\n  ours:   {mine!r}\n  theirs: {other!r}\nbefore it:")
            for past in history[-12:]:
                print("  ", repr(past)[:120])
            return 1
    print(f"memcached: {count} commands, seed {args.seed}: equal")
    return 0


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("which", choices=["redis", "memcached"])
    parser.add_argument("ours", type=int)
    parser.add_argument("theirs", type=int)
    parser.add_argument("--parted", action="store_true", help="all keys in one slot")
    parser.add_argument("--resp3", action="store_true", help="replies of version 3")
    parser.add_argument("--seconds", type=float, default=10)
    parser.add_argument("--differences", type=int, default=1, help="stop after this number")
    parser.add_argument("--seed", type=int, default=random.SystemRandom().randrange(10**6))
    args = parser.parse_args()
    return (redis if args.which == "redis" else memcached)(args.ours, args.theirs, args)


if __name__ == "__main__":
    sys.exit(main())
