"""redis-py and its cluster client. Usage: redis_py.py PORT CLUSTER_PORT"""

import sys

import redis
from redis.cluster import RedisCluster


def plain(port, protocol):
    r = redis.Redis(port=port, protocol=protocol, decode_responses=True)
    r.flushall()
    assert r.ping() and r.set("a", "1", ex=100, nx=True) and r.get("a") == "1" and 0 < r.ttl("a") <= 100
    assert r.incrby("n", 5) == 5 and r.incrbyfloat("n", 0.5) == 5.5
    assert r.mget("a", "n", "none") == ["1", "5.5", None]
    assert r.hset("h", mapping={"x": 1, "y": 2}) == 2 and r.hgetall("h") == {"x": "1", "y": "2"}
    assert r.sadd("s", *"abc") == 3 and r.smembers("s") == set("abc")
    assert r.zadd("z", {"one": 1, "two": 2.5}) == 2
    assert r.zrange("z", 0, -1, withscores=True) == [("one", 1.0), ("two", 2.5)] or protocol == 3
    assert r.rpush("l", *"xyz") == 3 and r.lrange("l", 0, -1) == list("xyz")
    assert sorted(r.scan_iter(count=2)) == ["a", "h", "l", "n", "s", "z"] and r.dbsize() == 6
    assert list(r.hscan_iter("h")) == [("x", "1"), ("y", "2")]
    with r.pipeline() as pipe:
        pipe.watch("{t}1")
        pipe.multi()
        pipe.set("{t}1", "v").get("{t}1").incr("{t}2")
        assert pipe.execute() == [True, "v", 1]
        pipe.watch("{t}1")
        r.set("{t}1", "other")
        pipe.multi()
        pipe.get("{t}1")
        try:
            pipe.execute()
            raise SystemExit("a watched key changed")
        except redis.WatchError:
            pass
    p = r.pubsub()
    p.subscribe("channel")
    assert p.get_message(timeout=5)["type"] == "subscribe"
    assert r.publish("channel", "hello") == 1
    assert p.get_message(timeout=5)["data"] == "hello"
    p.close()
    try:
        r.lpush("a", "x")
        raise SystemExit("a wrong type passed")
    except redis.ResponseError as error:
        assert str(error).startswith("WRONGTYPE")
    assert r.info()["redis_version"] == "7.0.15" and r.client_id() > 0 and r.config_get("maxclients")
    big = "x" * (10 << 20)
    assert r.set("big", big) and r.get("big") == big and r.delete("big", "a", "none") == 2
    assert r.execute_command("RANGE", "h", "l", "KEYSONLY") == ["h", "l"]


def cluster(port):
    r = RedisCluster(host="127.0.0.1", port=port, decode_responses=True)
    assert len(r.get_nodes()) == 3
    for number in range(300):
        assert r.set(f"key:{number}", number)
    assert all(r.get(f"key:{number}") == str(number) for number in range(300))
    assert r.mget_nonatomic([f"key:{number}" for number in range(50)]) == [str(number) for number in range(50)]
    assert sum(1 for _ in r.scan_iter("key:*")) == 300 and r.dbsize(target_nodes=RedisCluster.PRIMARIES) == 300
    with r.pipeline() as pipe:
        for number in range(50):
            pipe.incr(f"key:{number}")
        assert pipe.execute() == [number + 1 for number in range(50)]
    r.mset_nonatomic({"{u}a": 1, "{u}b": 2})
    assert r.mget("{u}a", "{u}b") == ["1", "2"] and r.cluster_keyslot("foo") == 12182


plain(int(sys.argv[1]), 2)
plain(int(sys.argv[1]), 3)
cluster(int(sys.argv[2]))
print("redis-py: good, and its cluster client")
