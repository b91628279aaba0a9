#!/bin/sh
# Rates and latencies beside redis-server, by redis-benchmark: one thread of each, 50 connections, values of
# 64 bytes, 100,000 keys, pipelines of 1 and 16. A table in Markdown. The files go to DISK and MEMORY.
#
# Usage: measure.sh RSTORE [REQUESTS [DISK [MEMORY]]]
set -eu
rstore=$1
requests=${2:-200000}
disk=$(mktemp -d "${3:-/var/tmp}/rstore.XXXXXX")
memory=$(mktemp -d "${4:-/dev/shm}/rstore.XXXXXX")
pid=""
cleanup() {
    [ -n "$pid" ] && kill "$pid" 2>/dev/null && wait "$pid" 2>/dev/null
    rm -rf "$disk" "$memory"
}
trap cleanup EXIT INT TERM

free_port() {
    python3 -c 'import socket; s = socket.socket(); s.bind(("127.0.0.1", 0)); print(s.getsockname()[1])'
}

# Rate and 99.9th percentile of one test, from redis-benchmark's own histogram.
one() {
    redis-benchmark -p "$port" -t "$1" -n "$2" -c 50 -P "$3" -d 64 -r 100000 2>/dev/null | tr '\r' '\n' | awk '
        /^99\.9[0-9]*%/ && !p { p = $3 }
        /throughput summary/ { rate = $3 }
        END { printf " %d | %.2f ms |", rate, p }'
}

row() {
    name=$1
    count=$2
    for _ in $(seq 100); do
        redis-cli -p "$port" ping >/dev/null 2>&1 && break
        sleep 0.1
    done
    printf '| %s |' "$name"
    for pipeline in 1 16; do
        for test in set get; do one "$test" "$count" "$pipeline"; done
    done
    echo
    kill "$pid"
    wait "$pid" 2>/dev/null || true
    pid=""
}

ours() {
    port=$(free_port)
    RUST_LOG=error "$rstore" serve --dir "$2" --listen "127.0.0.1:$port" --durability "$3" >/dev/null &
    pid=$!
    row "$1" "$4"
}

theirs() {
    port=$(free_port)
    mkdir -p "$disk/redis-$2"
    redis-server --port "$port" --save "" --appendonly yes --appendfsync "$2" --dir "$disk/redis-$2" >/dev/null &
    pid=$!
    row "$1" "$3"
}

echo "| | SET/s | p99.9 | GET/s | p99.9 | SET/s, pipeline 16 | p99.9 | GET/s, pipeline 16 | p99.9 |"
echo "| --- | --- | --- | --- | --- | --- | --- | --- | --- |"
ours "rstore, memory, \`process\`" "$memory/process" process "$requests"
ours "rstore, memory, \`flush\` (emulated)" "$memory/flush" flush "$requests"
theirs "redis-server, disk, AOF \`everysec\`" everysec "$requests"
ours "rstore, disk, \`journal\`" "$disk/journal" journal "$((requests / 4))"
theirs "redis-server, disk, AOF \`always\`" always "$((requests / 4))"
