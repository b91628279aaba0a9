//! The tables and figures of the papers: their claims, and the measurements that test them.

/// A paper.
pub(super) struct Paper {
    /// The name of its page.
    pub(super) name: &'static str,
    pub(super) title: &'static str,
    pub(super) figures: &'static [Figure],
    /// The figures that are not reproduced, with the reasons; empty if none.
    pub(super) left_out: &'static str,
}

impl Paper {
    /// Returns `true` if a measurement is part of it.
    pub(super) fn needs(&self, measurement: &str) -> bool {
        self.figures.iter().any(|figure| {
            figure.from == measurement
                || figure.columns.iter().any(|column| column.from == Some(measurement))
        })
    }
}

/// A table or figure of a paper, or several that one table answers.
pub(super) struct Figure {
    pub(super) name: &'static str,
    /// The claim of the paper.
    pub(super) claim: &'static str,
    /// The differences of our measurement, and their reasons.
    pub(super) word: &'static str,
    /// The measurement of the figures.
    pub(super) from: &'static str,
    /// The distribution of the runs that count.
    pub(super) distribution: &'static str,
    /// Indexes.
    pub(super) rows: &'static [&'static str],
    pub(super) columns: &'static [Column],
}

/// A column: one figure of each index.
#[derive(Clone, Copy)]
pub(super) struct Column {
    pub(super) head: &'static str,
    pub(super) show: Show,
    pub(super) threads: u64,
    /// A measurement other than that of the table.
    pub(super) from: Option<&'static str>,
}

/// The content of a cell.
#[derive(Clone, Copy)]
pub(super) enum Show {
    /// Million operations a second.
    Rate(&'static str),
    /// The ratio to the rate of another index.
    Over(&'static str, &'static str),
    /// The ratio to the rate with one thread.
    Scaling(&'static str),
    /// Lines flushed and fences of an operation.
    Lines(&'static str),
    /// Bytes that the medium writes for an operation.
    Media(&'static str),
    /// A percentile of an operation's latency, in microseconds.
    Micros(&'static str, &'static str),
    /// A field of the run.
    Field(&'static str),
}

use Show::{Field, Lines, Media, Micros, Over, Rate, Scaling};

const fn column(head: &'static str, show: Show) -> Column {
    Column { head, show, threads: 1, from: None }
}

/// Returns the column with two threads.
const fn two(head: &'static str, show: Show) -> Column {
    Column { threads: 2, ..column(head, show) }
}

/// Returns the column of another measurement.
const fn from(name: &'static str, head: &'static str, show: Show) -> Column {
    Column { from: Some(name), ..column(head, show) }
}

const EVALUATED: &[&str] = &["fptree", "nvtree", "wbtree", "bztree", "btreemap"];
const TREES: &[&str] = &["fptree", "nvtree", "wbtree", "bztree"];

const RATES: &[Column] = &[
    column("get", Rate("get")),
    column("insert", Rate("insert")),
    column("update", Rate("update")),
    column("delete", Rate("delete")),
    column("scan", Rate("scan")),
];
const POINTS: &[Column] = &[
    column("get", Rate("get")),
    column("insert", Rate("insert")),
    column("update", Rate("update")),
    column("delete", Rate("delete")),
];
const SCALING: &[Column] = &[
    two("get", Scaling("get")),
    two("insert", Scaling("insert")),
    two("update", Scaling("update")),
    two("delete", Scaling("delete")),
    two("scan", Scaling("scan")),
];
const EVALUATION_MIXES: &[Column] = &[
    column("read-heavy, 1 thread", Rate("read-heavy")),
    two("2 threads", Rate("read-heavy")),
    column("balanced, 1", Rate("balanced")),
    two("2", Rate("balanced")),
    column("write-heavy, 1", Rate("write-heavy")),
    two("2", Rate("write-heavy")),
];
const YCSB: &[Column] = &[
    column("read-only", Rate("ycsb-read-only")),
    column("read-mostly", Rate("ycsb-read-mostly")),
    column("read-heavy", Rate("ycsb-read-heavy")),
    column("balanced", Rate("ycsb-balanced")),
    two("balanced, 2 threads", Rate("ycsb-balanced")),
];

const fn figure(
    name: &'static str,
    from: &'static str,
    distribution: &'static str,
    rows: &'static [&'static str],
    columns: &'static [Column],
    words: [&'static str; 2],
) -> Figure {
    let [claim, word] = words;
    Figure { name, claim, word, from, distribution, rows, columns }
}

/// All papers.
pub(super) const PAPERS: &[Paper] = &[
    Paper {
        name: "evaluation",
        title: "Evaluating Persistent Memory Range Indexes, measured again",
        figures: EVALUATION,
        left_out: "Figures 1 and 20 vary the number of Optane modules. Memory traffic and cache \
                   misses of Figures 9 and 10 need hardware counters and a PM controller; what \
                   writes send to the medium is counted above. Figure 19, the allocators, is \
                   `cargo bench --bench alloc`, and beside PMDK `cargo xtask peers`.",
    },
    Paper {
        name: "bztree",
        title: "BzTree, measured again",
        figures: BZTREE,
        left_out: "The Bw-tree is the one of this workspace: volatile, lost on a crash. Figure 8b varies \
                   the free space of a node, which is no parameter here. Figure 9 is a profile of one program's \
                   parts. Table 1, words per PMwCAS, is in `crates/trees/src/bztree/mod.rs`.",
    },
    Paper {
        name: "hart",
        title: "HART, measured again",
        figures: HART,
        left_out: "Read latency is not emulated, so the 300/300 and 600/300 settings of the paper \
                   count for writes alone; the counting medium takes a lock per flush, which all \
                   indexes pay. Sizes to 100 million and eight threads (figures 8 and 10d) do not \
                   fit the machine.",
    },
    Paper {
        name: "sptree",
        title: "SPTree, measured again",
        figures: SPTREE,
        left_out: "Bandwidth and read volume of Figures 7e to 7l need Optane's counters. Figure 2, other \
                   indexes with SPTree's write buffers, is in `buffering.md`.",
    },
];

const EVALUATION: &[Figure] = &[
    figure(
        "Table 2: flushes per operation",
        "indexes",
        "uniform",
        TREES,
        &[
            column("insert", Lines("insert")),
            column("update", Lines("update")),
            column("delete", Lines("delete")),
        ],
        [
            "FPTree 3, 3, 1; NV-Tree 2, 2, 2; wBTree 4, 3, 1; BzTree 15, 10, 7 flushes for insert, \
             update, delete, without splits.",
            "Lines flushed / fences, means with splits and allocation included. What commits \
             together lies on one line or under one fence; 8-byte values are updated in place.",
        ],
    ),
    figure(
        "Figure 7: one thread, uniform",
        "indexes",
        "uniform",
        EVALUATED,
        RATES,
        [
            "FPTree is first at lookups and inserts, BzTree last at writes, wBTree first at scans.",
            "BTreeMap is volatile and stands here as the yardstick of this machine.",
        ],
    ),
    figure(
        "Figure 8: one thread, self-similar 0.2",
        "skew",
        "self-similar",
        EVALUATED,
        POINTS,
        [
            "The same order as under uniform keys, all faster, for caches hold the hot records.",
            "80 % of the operations go to 20 % of the keys.",
        ],
    ),
    figure(
        "Figure 9: bytes written to the medium per operation",
        "indexes",
        "uniform",
        TREES,
        &[
            column("insert", Media("insert")),
            column("update", Media("update")),
            column("delete", Media("delete")),
        ],
        [
            "Device writes are up to four times the lines flushed, for the medium writes 256 bytes \
             where 64 were flushed; NV-Tree writes most at inserts, for it splits into two nodes.",
            "From the model of the medium: units of 256 bytes behind a buffer of 16 KiB. The counted \
             copy has 50 000 records, so updates of neighbours meet in the buffer more often than \
             they would at a hundred million.",
        ],
    ),
    figure(
        "Figure 11: threads, uniform (two threads against one)",
        "indexes",
        "uniform",
        TREES,
        SCALING,
        [
            "FPTree, NV-Tree and BzTree scale to 23 threads; wBTree is single-threaded.",
            "Two cores, so two threads. wBTree stands behind a lock here, one writer at a time.",
        ],
    ),
    figure(
        "Figures 12 and 13: threads under skew (two threads against one, zipfian 0.99)",
        "indexes",
        "zipfian",
        TREES,
        SCALING,
        [
            "FPTree and BzTree do not scale for updates of hot keys, for both are optimistic.",
            "Hot records are the same few leaves for both threads.",
        ],
    ),
    figure(
        "Figure 14a-c: mixes, uniform",
        "indexes",
        "uniform",
        TREES,
        EVALUATION_MIXES,
        [
            "All scale; FPTree is more than twice as fast as BzTree.",
            "90, 50 and 10 % lookups, the rest updates.",
        ],
    ),
    figure(
        "Figure 14d-f: mixes under skew",
        "indexes",
        "zipfian",
        TREES,
        EVALUATION_MIXES,
        [
            "None is best everywhere: BzTree drops as updates grow, FPTree fails to scale when most \
             are updates, NV-Tree scales and is up to three times slower than FPTree.",
            "Zipfian 0.99 in place of self-similar 0.2: a harder skew.",
        ],
    ),
    figure(
        "Figure 15: latency, one thread (microseconds)",
        "indexes",
        "uniform",
        TREES,
        &[
            column("get 50 %", Micros("get", "p50")),
            column("get 99.9 %", Micros("get", "p99_9")),
            column("insert 50 %", Micros("insert", "p50")),
            column("insert 99 %", Micros("insert", "p99")),
            column("insert 99.9 %", Micros("insert", "p99_9")),
            column("insert 99.999 %", Micros("insert", "p99_999")),
            column("update 99.9 %", Micros("update", "p99_9")),
            column("scan 99.9 %", Micros("scan", "p99_9")),
        ],
        [
            "Lookups under 0.3 microseconds at the least, 0.46 for BzTree; from 99 % on BzTree's inserts \
             take over 50 microseconds; NV-Tree has the longest tails, for it rebuilds inner nodes.",
            "Every call is timed, in a round of its own. NV-Tree rebuilds in steps here.",
        ],
    ),
    figure(
        "Figure 16: latency, two threads (microseconds)",
        "indexes",
        "uniform",
        TREES,
        &[
            two("get 50 %", Micros("get", "p50")),
            two("get 99.9 %", Micros("get", "p99_9")),
            two("insert 50 %", Micros("insert", "p50")),
            two("insert 99.9 %", Micros("insert", "p99_9")),
            two("update 99.9 %", Micros("update", "p99_9")),
        ],
        [
            "The same with steeper ends (23 threads).",
            "Both cores are taken by the threads, so the \
          system's own work shows in the last percentiles.",
        ],
    ),
    figure(
        "Figure 17: 20-byte keys and 100-byte values",
        "long",
        "uniform",
        EVALUATED,
        &[
            column("get", Rate("get")),
            column("insert", Rate("insert")),
            column("update", Rate("update")),
            column("delete", Rate("delete")),
            column("scan", Rate("scan")),
            two("insert, 2 threads against 1", Scaling("insert")),
            two("update, 2 threads against 1", Scaling("update")),
        ],
        [
            "All are slower than with 8 bytes; FPTree's writes do not scale, for its transactions \
             abort; BzTree is left out.",
            "No hardware transactions here, and BzTree keeps byte strings.",
        ],
    ),
    figure(
        "Figure 18: bytes per record after loading",
        "indexes",
        "uniform",
        EVALUATED,
        &[
            column("PM", Field("pm_bytes_per_record")),
            column("DRAM", Field("dram_bytes_per_record")),
        ],
        [
            "All take more than 1.5 times the raw 16 bytes, NV-Tree twice, BzTree ten times; NV-Tree \
             takes more DRAM than FPTree.",
            "PM is what the pool's allocator has handed out, its own tables included.",
        ],
    ),
    figure(
        "Table 3: recovery after a kill (milliseconds)",
        "indexes",
        "uniform",
        TREES,
        &[
            from("half", "500 000 records", Field("recovery_ms")),
            column("1 000 000 records", Field("recovery_ms")),
        ],
        [
            "50 and 100 million records: FPTree 1.77 and 3.56 s, NV-Tree 4.15 and 8.45 s, wBTree 36 \
             and 37 ms, BzTree 153 and 186 ms: linear where DRAM is rebuilt, constant where not.",
            "From opening the pool to a usable index after SIGKILL of a process that was writing; \
             the records are counted and the structure verified after that.",
        ],
    ),
    figure(
        "Figure 21: persistent caches (without flushes)",
        "indexes",
        "uniform",
        TREES,
        &[
            column("insert, flushed", Rate("insert")),
            from("process", "insert, not flushed", Rate("insert")),
            column("update, flushed", Rate("update")),
            from("process", "update, not flushed", Rate("update")),
            column("delete, flushed", Rate("delete")),
            from("process", "delete, not flushed", Rate("delete")),
        ],
        [
            "Writes gain most where most is flushed: BzTree; lookups gain nothing.",
            "Durability `process` against `flush`.",
        ],
    ),
];

const BZTREE: &[Figure] = &[
    figure(
        "Figure 4: random keys",
        "ycsb",
        "uniform",
        &["bztree-volatile", "bztree", "bwtree", "fptree"],
        YCSB,
        [
            "In volatile memory 28 % faster than Bw-tree when reading, 1.7 to 2.4 times when writing.",
            "Writes are upserts of existing keys.",
        ],
    ),
    figure(
        "Figure 5a, b: zipfian keys",
        "ycsb",
        "zipfian",
        &["bztree-volatile", "bztree", "bwtree", "fptree"],
        YCSB,
        ["33 % faster than Bw-tree when reading, 4.3 times in the balanced mix.", "Zipfian 0.99."],
    ),
    figure(
        "Figure 5c, d: monotonic keys",
        "ycsb",
        "monotonic",
        &["bztree-volatile", "bztree", "bwtree", "fptree"],
        YCSB,
        [
            "The caches help, and writers contend on one node: 34 million operations a second in the \
             balanced mix, Bw-tree 21 million (48 threads).",
            "Keys ascend and are visited in their order.",
        ],
    ),
    figure(
        "Figure 6: cost of persistence (persistent against volatile)",
        "ycsb",
        "uniform",
        &["bztree"],
        &[
            column("read-only", Over("ycsb-read-only", "bztree-volatile")),
            column("read-mostly", Over("ycsb-read-mostly", "bztree-volatile")),
            column("read-heavy", Over("ycsb-read-heavy", "bztree-volatile")),
            column("balanced", Over("ycsb-balanced", "bztree-volatile")),
        ],
        [
            "Persistence costs 5 % in the read-mostly and 12 % in the balanced mix.",
            "Volatile mode runs the same code without flushes.",
        ],
    ),
    figure(
        "Figure 7: scans of 10 records",
        "ycsb",
        "uniform",
        &["bztree-volatile", "bztree", "bwtree", "fptree", "btreemap"],
        &[
            column("90 % scans", Rate("scan-mostly")),
            two("2 threads", Rate("scan-mostly")),
            column("50 % scans", Rate("scan-balanced")),
            two("2 threads", Rate("scan-balanced")),
        ],
        [
            "1.8 and 2.7 times Bw-tree in the two mixes; 28.5 times one thread with 48.",
            "The rest are upserts.",
        ],
    ),
    figure(
        "Figure 8a: key sizes",
        "key-16",
        "uniform",
        &["bztree"],
        &[
            column("16 B, read-only", Rate("ycsb-read-only")),
            from("key-64", "64 B", Rate("ycsb-read-only")),
            from("key-128", "128 B", Rate("ycsb-read-only")),
            column("16 B, read-heavy", Rate("ycsb-read-heavy")),
            from("key-64", "64 B", Rate("ycsb-read-heavy")),
            from("key-128", "128 B", Rate("ycsb-read-heavy")),
        ],
        [
            "From 8 to 128 bytes throughput drops by 39 % (read-only) and 46 % (read-heavy).",
            "Byte strings as keys; 8-byte keys are integers here and stand in Figure 4.",
        ],
    ),
    figure(
        "Table 2: memory",
        "indexes",
        "uniform",
        &["bztree", "bztree-volatile", "bwtree"],
        &[
            column("PM, bytes a record", Field("pm_bytes_per_record")),
            column("DRAM", Field("dram_bytes_per_record")),
        ],
        [
            "10 million keys of 8 bytes in 228 MB, 23 bytes a record; in the Bw-tree's 365 MB 37.",
            "After loading 1 million records in random order.",
        ],
    ),
];

const HART_ROWS: &[&str] = &["hart", "fptree", "woart", "artcow"];
const HART_COLUMNS: &[Column] = &[
    column("insert", Over("insert", "fptree")),
    column("search", Over("get", "fptree")),
    column("update", Over("update", "fptree")),
    column("delete", Over("delete", "fptree")),
    column("read-intensive", Over("read-intensive", "fptree")),
    column("read-modify-write", Over("read-modify-write", "fptree")),
    column("write-intensive", Over("write-intensive", "fptree")),
];
const HART_WORDS: [&str; 2] = [
    "HART over FPTree: up to 4.0, 7.1, 4.6 and 5.4 times at insert, search, update and delete; over WOART \
     4.1, 3.3, 2.4 and 2.3 times, over ART+CoW 5.4, 4.4, 2.4 and 2.3 times; over FPTree 2.4 to 5.7 times \
     in the mixes. FPTree deletes faster under Dictionary.",
    "FPTree, WOART and ART+CoW are those of this workspace, which recover; the paper compares with \
     reimplementations of its own.",
];

const fn hart(name: &'static str, from: &'static str, distribution: &'static str) -> Figure {
    figure(name, from, distribution, HART_ROWS, HART_COLUMNS, HART_WORDS)
}

const HART: &[Figure] = &[
    hart("Figures 4 to 7 and 9: Dictionary, 300 ns", "dictionary-300", "uniform"),
    hart("Dictionary, 600 ns", "dictionary-600", "uniform"),
    hart("Sequential, 300 ns", "sequential-300", "monotonic"),
    hart("Sequential, 600 ns", "sequential-600", "monotonic"),
    hart("Random, 300 ns", "random-300", "uniform"),
    hart("Random, 600 ns", "random-600", "uniform"),
    figure(
        "Figure 8: the number of records (Random, 300 ns)",
        "random-300",
        "uniform",
        HART_ROWS,
        &[
            column("insert, 100 000", Rate("insert")),
            from("random-many", "1 600 000", Rate("insert")),
            column("search, 100 000", Rate("get")),
            from("random-many", "1 600 000", Rate("get")),
            column("update, 100 000", Rate("update")),
            from("random-many", "1 600 000", Rate("update")),
            column("delete, 100 000", Rate("delete")),
            from("random-many", "1 600 000", Rate("delete")),
        ],
        [
            "From 1 to 100 million records HART's inserts slow down least; FPTree's searches are the slowest; \
             the three tries are alike at search and update, and all but ART+CoW at removal.",
            "The caches of this machine hold the smaller number.",
        ],
    ),
    figure(
        "Figure 10a: ranges",
        "structures",
        "uniform",
        &["hart", "fptree", "woart", "artcow", "btreemap"],
        &[column("scans of 100", Rate("scan")), column("against FPTree", Over("scan", "fptree"))],
        [
            "2.3 to 2.6 times slower than FPTree, and ahead of WOART and ART+CoW where PM is read more slowly \
             than DRAM: one search per key in all three.",
            "All three walk their tries in order here.",
        ],
    ),
    figure(
        "Figure 10b, c: memory and recovery",
        "structures",
        "uniform",
        HART_ROWS,
        &[
            column("PM", Field("pm_bytes_per_record")),
            column("DRAM", Field("dram_bytes_per_record")),
            column("recovery, ms", Field("recovery_ms")),
        ],
        [
            "HART takes more DRAM and recovers 2.4 times faster than it builds; FPTree much faster. WOART and \
             ART+CoW take no DRAM and have nothing to rebuild.",
            "Bytes a record.",
        ],
    ),
    figure(
        "Figure 10d: two threads against one",
        "random-threads",
        "uniform",
        HART_ROWS,
        &[
            two("insert", Scaling("insert")),
            two("search", Scaling("get")),
            two("update", Scaling("update")),
            two("delete", Scaling("delete")),
        ],
        [
            "HART: 1.96, 1.94, 1.93 and 1.93; the others have one thread.",
            "Integers as keys. All four take several threads here.",
        ],
    ),
];

const SPTREE_ROWS: &[&str] =
    &["sptree", "sptree-buffered", "fastfair", "pactree", "fptree", "btreemap"];
const SPTREE_TREES: &[&str] = &["sptree", "sptree-buffered", "fastfair", "pactree", "fptree"];
/// The indexes whose cost the paper takes apart before it builds SPTree.
const SPTREE_STUDY: &[&str] = &["cceh", "fastfair", "skiplist"];
const SPTREE: &[Figure] = &[
    figure(
        "Figures 2 to 4: the indexes of the study, as they are",
        "structures",
        "uniform",
        SPTREE_STUDY,
        &[
            column("media bytes an insert", Media("insert")),
            column("insert", Rate("insert")),
            two("2 threads against 1", Scaling("insert")),
            column("read", Rate("get")),
            column("insert 50 %, us", Micros("insert", "p50")),
            column("insert 99.9 %", Micros("insert", "p99_9")),
            column("read 50 %", Micros("get", "p50")),
            column("read 99.9 %", Micros("get", "p99_9")),
        ],
        [
            "Buffers, out-of-place merges and cached inner nodes each make CCEH, FAST&FAIR and the skip list \
             write less and answer sooner.",
            "Without these techniques; `buffering.md` has what buffers save.",
        ],
    ),
    figure(
        "Figure 7a-d: throughput",
        "structures",
        "uniform",
        SPTREE_ROWS,
        &[
            column("insert", Rate("insert")),
            column("positive read", Rate("get")),
            column("negative read", Rate("get_miss")),
            column("scan", Rate("scan")),
            two("insert, 2 threads against 1", Scaling("insert")),
            two("positive read", Scaling("get")),
        ],
        [
            "SPTree inserts faster than FAST&FAIR and PACTree throughout; reads up to 25 % faster; \
             misses up to 4 times; scans like PACTree's, with more volume than FAST&FAIR's.",
            "DRAM is the medium here, so what pointer chasing in PM costs is smaller.",
        ],
    ),
    figure(
        "Figure 7e: bytes written to the medium per insert",
        "structures",
        "uniform",
        SPTREE_TREES,
        &[column("insert", Media("insert")), column("insert_many", Media("insert_many"))],
        ["Buffers reduce the volume by 3 times.", "From the model of the medium."],
    ),
    figure(
        "Figure 8: latency (microseconds)",
        "structures",
        "uniform",
        SPTREE_TREES,
        &[
            column("insert 50 %", Micros("insert", "p50")),
            column("insert 99.9 %", Micros("insert", "p99_9")),
            column("read 50 %", Micros("get", "p50")),
            column("read 99.9 %", Micros("get", "p99_9")),
            column("miss 50 %", Micros("get_miss", "p50")),
        ],
        ["SPTree has the lowest latency of the three trees everywhere.", "Every call is timed."],
    ),
    figure(
        "Figures 9 and 10: recovery (milliseconds)",
        "structures",
        "uniform",
        SPTREE_TREES,
        &[column("recovery", Field("recovery_ms"))],
        [
            "Service resumes at once: the structured log and the PM top layer serve while DRAM is rebuilt.",
            "From opening the pool to a usable index after SIGKILL.",
        ],
    ),
];
