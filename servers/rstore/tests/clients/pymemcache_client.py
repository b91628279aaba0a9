"""pymemcache. Usage: pymemcache_client.py PORT"""

import sys

from pymemcache.client.base import Client

c = Client(("127.0.0.1", int(sys.argv[1])), default_noreply=False)
assert c.flush_all() and c.set("a", "1") and c.get("a") == b"1" and c.add("a", "2") is False
assert c.replace("a", "10") and c.incr("a", 5) == 15 and c.decr("a", 20) == 0
assert c.set_many({f"k{n}": str(n) for n in range(50)}) == []
assert c.get_many([f"k{n}" for n in range(50)] + ["none"]) == {f"k{n}": str(n).encode() for n in range(50)}
value, unique = c.gets("k1")
assert value == b"1" and c.cas("k1", "new", unique) and c.cas("k1", "late", unique) is False
assert c.append("k1", "!") and c.prepend("k1", "?") and c.get("k1") == b"?new!"
assert c.touch("k1", 100) and c.delete("k1") and c.delete("k1") is False and c.get("k1") is None
assert c.set("quiet", "x", noreply=True) and c.get("quiet") == b"x"
assert c.set("big", b"x" * (10 << 20)) and len(c.get("big")) == 10 << 20
assert b"uptime" in c.stats() and c.version().startswith(b"rstore")
print("pymemcache: good")
