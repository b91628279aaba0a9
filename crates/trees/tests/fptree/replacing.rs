//! Runs in which values are replaced in place and their blocks go every way that there is: for the crash explorer, also
//! for that of all indexes.

use pmindex_testkit::crash::{IndexOp, Plan};

use IndexOp::{Background, BulkLoad, Insert, PutMany, Remove, Reopen, Update, Upsert};

/// Replaces a value by another one of the same length.
fn same(key: u64, n: u64) -> IndexOp {
    Update(key, 1 + 3 * n)
}

/// Begins with so many records, and continues after a crash by freeing a block that the log may name.
fn plan(records: u64, threads: Vec<Vec<IndexOp>>) -> Plan<IndexOp> {
    Plan {
        setup: (0..records).map(|key| Insert(key, 1)).collect(),
        threads,
        tail: vec![Remove(1), same(2, 5), Remove(2), Insert(1, 4), same(1, 6), Insert(2, 4)],
    }
}

/// Returns the runs. Values of numbers that are equal modulo 3 must have the same length: that of 1 and that of 2 is not
/// 0. Keys 0 to 8, four records to a leaf. From a step of background work on a thread takes the second ring of the log.
pub(crate) fn plans() -> Vec<Plan<IndexOp>> {
    [of_one_thread(), of_several_threads()].concat()
}

fn of_one_thread() -> Vec<Plan<IndexOp>> {
    vec![
        // Removed, and its block given to another record.
        plan(
            6,
            vec![vec![
                same(0, 1),
                same(1, 1),
                Remove(0),
                Insert(6, 4),
                Insert(7, 4),
                same(1, 2),
                same(6, 2),
                Remove(1),
                Insert(0, 1),
                same(7, 3),
            ]],
        ),
        // Replaced by another block, alone and in a batch.
        plan(
            6,
            vec![vec![
                same(0, 1),
                same(1, 2),
                PutMany(vec![(0, 2), (1, 7)]),
                Insert(6, 1),
                same(1, 3),
                Update(1, 2),
                Insert(7, 1),
                same(7, 2),
            ]],
        ),
        // The leaf splits and merges.
        plan(
            4,
            vec![vec![
                same(0, 1),
                same(3, 1),
                Insert(4, 1),
                Insert(5, 1),
                same(3, 2),
                Remove(4),
                Remove(5),
                Remove(0),
                same(3, 3),
            ]],
        ),
        // All are removed, and others loaded.
        plan(
            4,
            vec![vec![
                same(0, 1),
                same(1, 1),
                Remove(0),
                Remove(1),
                Remove(2),
                Remove(3),
                BulkLoad(6),
                Update(0, 4),
                Update(1, 5),
                Update(3, 7),
            ]],
        ),
        // Closed and opened.
        plan(
            4,
            vec![vec![
                same(0, 1),
                same(1, 1),
                Reopen,
                Remove(0),
                Insert(6, 1),
                same(1, 2),
                Reopen,
                same(1, 3),
            ]],
        ),
    ]
}

fn of_several_threads() -> Vec<Plan<IndexOp>> {
    vec![
        // Two threads at one ring, which have different leaves.
        plan(9, vec![vec![same(0, 1), same(1, 1)], vec![same(8, 1), Remove(8), Insert(8, 4)]]),
        // The same value.
        plan(4, vec![vec![same(2, 1), same(2, 2)], vec![same(2, 3), Upsert(2, 2), Upsert(2, 5)]]),
        // One thread's entries overwrite those of blocks that the other frees and takes again.
        plan(
            6,
            vec![
                vec![same(3, 1), same(4, 1), same(5, 1)],
                vec![same(0, 1), Remove(0), Insert(0, 4), Insert(7, 7)],
            ],
        ),
        // A block is freed, and so the ring void that names another one, too, which goes to another ring: recovery
        // stores what that ring says before what this one said.
        plan(
            6,
            vec![vec![Background, same(0, 1), same(5, 1), Remove(0)], vec![same(5, 2), same(4, 1)]],
        ),
        plan(6, vec![vec![Background, same(0, 1), same(5, 1), Update(0, 2)], vec![same(5, 2)]]),
        plan(
            6,
            vec![
                vec![same(0, 1), same(5, 1)],
                vec![same(0, 2), Remove(1)],
                vec![Remove(0), Insert(0, 4), Insert(1, 4)],
            ],
        ),
    ]
}
