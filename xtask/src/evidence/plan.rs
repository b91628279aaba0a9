//! The measurements: one call of `pmindex bench` each, at sizes that together take minutes.

/// One call of `pmindex bench`.
pub(super) struct Measurement {
    /// Its name; the figures of the papers refer to it.
    pub(super) name: &'static str,
    /// The names of the indexes.
    pub(super) index: &'static str,
    /// The records loaded, and the operations of a phase.
    pub(super) size: (u64, u64),
    /// The other options.
    pub(super) options: &'static [&'static str],
}

/// Every index, the yardstick last.
const ALL: &str = "fptree,sptree,sptree-buffered,hart,fastfair,nvtree,wbtree,bztree,bztree-volatile,bwtree,btreemap";
/// The indexes that can hold byte strings.
const BYTES: &str = "fptree,sptree,hart,fastfair,nvtree,wbtree,bztree,btreemap";
/// Our fastest indexes, and all peers.
const PEERS: &str = "fptree,sptree,fastfair,btreemap,ferntree,masstree,scc,congee,skipmap,bwtree,dashmap,\
                     lmdb,redb,fjall,sled";
/// The same for byte strings, which `congee` cannot hold.
const PEERS_BYTES: &str = "fptree,sptree,hart,fastfair,btreemap,ferntree,masstree,scc,skipmap,dashmap,\
                           lmdb,redb,fjall,sled";
/// The trees and tries of SPTree's and HART's comparisons, and the hash index.
const STRUCTURES: &str =
    "sptree,sptree-buffered,fastfair,pactree,hart,woart,artcow,skiplist,cceh,fptree,btreemap";
const BZTREE: &str = "bztree,bztree-volatile,bwtree,fptree,btreemap";
const HART: &str = "hart,fptree,woart,artcow";

/// The phases that run without a mix, to name where there are mixes too.
const PHASES: &str = "get,get_miss,scan,insert,update,delete,get_many,insert_many";
const POINTS: &str = "get,insert,update,delete";
const HART_MIXES: &str = "read-intensive,read-modify-write,write-intensive";
const YCSB: &str = "ycsb-read-only,ycsb-read-mostly,ycsb-read-heavy,ycsb-balanced,\
                    scan-mostly,scan-balanced";
/// 348,454 English words, like the Dictionary of the HART paper.
const WORDS: &str = "crates/cli/data/words.txt";

const fn of(
    name: &'static str,
    index: &'static str,
    size: (u64, u64),
    options: &'static [&'static str],
) -> Measurement {
    Measurement { name, index, size, options }
}

/// All measurements. The first ones are the first chapters of the page.
pub(super) const PLAN: &[Measurement] = &[
    of(
        "indexes",
        ALL,
        (1_000_000, 100_000),
        &[
            "--threads",
            "1,2",
            "--distribution",
            "uniform,zipfian",
            "--phases",
            PHASES,
            "--mix",
            "read-heavy,balanced,write-heavy",
        ],
    ),
    of("structures", STRUCTURES, (1_000_004, 100_000), &["--threads", "1,2", "--phases", PHASES]),
    of("peers", PEERS, (500_000, 50_000), &["--threads", "1,2"]),
    of(
        "skew",
        ALL,
        (1_000_000, 100_000),
        &["--distribution", "self-similar", "--phases", POINTS, "--latency-sample", "0"],
    ),
    of("process", ALL, (1_000_001, 100_000), &["--durability", "process", "--phases", PHASES]),
    of(
        "long",
        BYTES,
        (200_000, 50_000),
        &["--key-size", "20", "--value-size", "100", "--threads", "1,2"],
    ),
    of("peers-long", PEERS_BYTES, (500_002, 50_000), &["--key-size", "20", "--value-size", "100"]),
    of("peers-words", PEERS_BYTES, (250_001, 20_000), &["--key-file", WORDS]),
    of("words", BYTES, (250_000, 20_000), &["--key-file", WORDS]),
    of("half", ALL, (500_001, 10_000), &["--phases", "get", "--latency-sample", "0"]),
    of(
        "ycsb",
        BZTREE,
        (300_000, 100_000),
        &[
            "--distribution",
            "uniform,zipfian,monotonic",
            "--threads",
            "1,2",
            "--scan-length",
            "10",
            "--mix",
            YCSB,
            "--latency-sample",
            "0",
        ],
    ),
    of("key-16", "bztree", (200_000, 50_000), &["--key-size", "16", "--mix", YCSB]),
    of("key-64", "bztree", (200_000, 50_000), &["--key-size", "64", "--mix", YCSB]),
    of("key-128", "bztree", (200_000, 50_000), &["--key-size", "128", "--mix", YCSB]),
    of("dictionary-300", HART, (200_000, 20_000), &hart("300", DICTIONARY)),
    of("dictionary-600", HART, (200_000, 20_000), &hart("600", DICTIONARY)),
    of("sequential-300", HART, (100_000, 20_000), &hart("300", SEQUENTIAL)),
    of("sequential-600", HART, (100_000, 20_000), &hart("600", SEQUENTIAL)),
    of("random-300", HART, (100_000, 20_000), &hart("300", RANDOM)),
    of("random-600", HART, (100_000, 20_000), &hart("600", RANDOM)),
    of("random-many", HART, (1_600_000, 20_000), &hart("300", RANDOM)),
    of(
        "random-threads",
        HART,
        (1_000_005, 200_000),
        &["--threads", "1,2", "--phases", POINTS, "--latency-sample", "0"],
    ),
];

/// The workloads of the HART paper, section IV: the keys.
const DICTIONARY: [&str; 4] = ["--key-file", WORDS, "--distribution", "uniform"];
const SEQUENTIAL: [&str; 4] = ["--key-size", "12", "--distribution", "monotonic"];
const RANDOM: [&str; 4] = ["--key-size", "5-16", "--distribution", "uniform"];

/// A workload of the HART paper with an emulated write latency.
const fn hart(latency: &'static str, keys: [&'static str; 4]) -> [&'static str; 12] {
    let [first, second, third, fourth] = keys;
    [
        first,
        second,
        third,
        fourth,
        "--write-latency",
        latency,
        "--phases",
        POINTS,
        "--mix",
        HART_MIXES,
        "--latency-sample",
        "0",
    ]
}
