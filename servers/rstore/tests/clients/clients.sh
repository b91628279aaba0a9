#!/bin/sh
# Other people's clients and servers against this server: redis-cli, redis-benchmark, redis-py (with its
# cluster client), pymemcache, ioredis where they are installed, and random commands compared with
# Debian's redis-server and memcached. What is missing is named and skipped.
#
# Usage: clients.sh RSTORE [SECONDS]      RSTORE: the program; SECONDS: of each random run (default 10)
set -eu
rstore=$1
seconds=${2:-10}
here=$(cd "$(dirname "$0")" && pwd)
work=$(mktemp -d)
pids=""
cleanup() {
    for pid in $pids; do kill "$pid" 2>/dev/null || true; done
    rm -rf "$work"
}
trap cleanup EXIT INT TERM

# Starts a server and prints the port of a kind: redis, memcached.
start() {
    name=$1
    shift
    RUST_LOG=warn "$rstore" serve --dir "$work/$name" --listen 127.0.0.1:0 --memcached 127.0.0.1:0 \
        --durability process "$@" >"$work/$name.out" &
    pids="$pids $!"
    for _ in $(seq 100); do
        grep -q '^ready' "$work/$name.out" && break
        sleep 0.1
    done
    port=$(sed -n 's/^ready on [^ ]*:\([0-9]*\) after.*/\1/p' "$work/$name.out")
    memcached_port=$(sed -n 's/.*memcached on [^ ]*:\([0-9]*\).*/\1/p' "$work/$name.out")
    [ -n "$port" ] || { echo "the server $name does not start"; exit 1; }
}

# Starts another server on a port that is free, and waits until it answers: a port may be taken in between, and
# then it is another one. The command gets the port where it says PORT.
other() {
    for _ in 1 2 3 4 5 6 7 8; do
        other=$(free_port)
        sh -c "exec $(echo "$*" | sed "s/PORT/$other/")" >/dev/null 2>&1 &
        pid=$!
        for _ in $(seq 50); do
            kill -0 "$pid" 2>/dev/null || break
            if answers "$other" && kill -0 "$pid" 2>/dev/null; then
                pids="$pids $pid"
                return
            fi
            sleep 0.1
        done
        kill "$pid" 2>/dev/null || true
    done
    echo "no port is free for: $*"
    exit 1
}

answers() {
    python3 -c "import socket; socket.create_connection(('127.0.0.1', $1), 1)" 2>/dev/null
}

free_port() {
    python3 -c 'import socket; s = socket.socket(); s.bind(("127.0.0.1", 0)); print(s.getsockname()[1])'
}

skipped() {
    echo "skipped: $1 is not installed"
}

start one
one=$port
one_memcached=$memcached_port
start three --partitions 3
three=$port
three_memcached=$memcached_port

if command -v redis-server >/dev/null; then
    other redis-server --port PORT --save "''" --appendonly no --dir "$work"
    redis=$other
    python3 "$here/fuzz.py" redis "$one" "$redis" --seconds "$seconds"
    python3 "$here/fuzz.py" redis "$three" "$redis" --parted --resp3 --seconds "$seconds"
else
    skipped redis-server
fi
if command -v memcached >/dev/null; then
    other memcached -u nobody -p PORT -l 127.0.0.1
    memcached=$other
    python3 "$here/fuzz.py" memcached "$one_memcached" "$memcached" --seconds "$seconds"
    python3 "$here/fuzz.py" memcached "$three_memcached" "$memcached" --seconds "$seconds"
else
    skipped memcached
fi
if command -v redis-cli >/dev/null; then
    [ "$(redis-cli -p "$three" set cli yes)" = OK ]
    [ "$(redis-cli -p "$three" get cli)" = yes ]
    [ "$(redis-cli -3 -p "$three" hset clihash a 1)" = 1 ]
    redis-cli -p "$three" --bigkeys >/dev/null
    echo "redis-cli: good"
    redis-benchmark -p "$three" -q -n 5000 -r 1000 -P 16 \
        -t ping,set,get,incr,lpush,rpush,lpop,rpop,sadd,hset,spop,zadd,zpopmin,lrange_100,mset >"$work/benchmark" 2>&1 || true
    # MSET of keys of several slots is refused where there are several partitions, as in a cluster.
    grep -v -e MSET -e CROSSSLOT "$work/benchmark" | grep -i -e err -e fail && exit 1
    echo "redis-benchmark: good"
else
    skipped redis-cli
fi
if command -v redis-cli >/dev/null && command -v openssl >/dev/null; then
    openssl req -x509 -newkey rsa:2048 -nodes -keyout "$work/key.pem" -out "$work/cert.pem" -days 2 \
        -subj /CN=localhost -addext "subjectAltName=IP:127.0.0.1" 2>/dev/null
    start secure --tls-listen 127.0.0.1:0 --tls-cert "$work/cert.pem" --tls-key "$work/key.pem"
    tls=$(sed -n 's/.*tls on [^ ]*:\([0-9]*\).*/\1/p' "$work/secure.out")
    [ "$(redis-cli --tls --cacert "$work/cert.pem" -p "$tls" set secret 1)" = OK ]
    head -c 3000000 /dev/zero | tr '\0' x | redis-cli --tls --cacert "$work/cert.pem" -p "$tls" -x set big >/dev/null
    [ "$(redis-cli --tls --cacert "$work/cert.pem" -p "$tls" get big | wc -c)" = 3000001 ]
    echo "TLS: good"
else
    skipped openssl
fi
if python3 -c 'import redis' 2>/dev/null; then
    # Each node takes a port that is free; clients learn the others from the first.
    start cluster --partitions 3 --cluster
    python3 "$here/redis_py.py" "$three" "$port"
else
    skipped redis-py
fi
if python3 -c 'import pymemcache' 2>/dev/null; then
    python3 "$here/pymemcache_client.py" "$three_memcached"
else
    skipped pymemcache
fi
if [ -d "$here/node_modules/ioredis" ] || node -e 'require("ioredis")' 2>/dev/null; then
    node "$here/ioredis_client.js" "$three"
else
    skipped ioredis
fi
