//! Buffers over CCEH and FAST&FAIR, with a log, in place and out of place: which types, and where their persistence
//! steps are.

use std::panic::Location;

use pmindex::FastFair;
use pmindex_boc::{Buffered, ByHash, ByKey};
use pmindex_cceh::Cceh;
use pmindex_core::Traced;

use pmindex_testkit::Unordered;
use pmindex_testkit::crash::{CrashIndex, IndexOp, Plan};

/// Those of the log are explored with others, as are those of the indexes but for their writes out of place.
fn owns(site: &Location<'static>, anew: bool) -> bool {
    site.file().contains("boc/src/") || anew && site.file().ends_with("/rewrite.rs")
}

/// Buffers that go to the index, keys that are in several entries of the log, and openings, which end these.
fn plans() -> Vec<Plan<IndexOp>> {
    let inserts: Vec<IndexOp> = (0..9).map(|key| IndexOp::Insert(key, key + 1)).collect();
    let again: Vec<IndexOp> = (0..9)
        .flat_map(|key| {
            [IndexOp::Update(key, 20 + key), IndexOp::Remove(key), IndexOp::Upsert(key, 41)]
        })
        .collect();
    // Records 0, 1 and 4 share a lane of the log and, while these are all, a buffer. The entry of record 0 is in
    // the first segment; the insert of record 4 writes the buffer to the index, which frees that segment.
    let updates = (2..26).map(|value| IndexOp::Upsert(1, value));
    let full = std::iter::once(IndexOp::Insert(0, 1)).chain(updates).collect();
    let reopened = |ops: &[IndexOp]| [ops, &[IndexOp::Reopen]].concat();
    vec![
        Plan {
            setup: vec![],
            threads: vec![[inserts.clone(), again.clone()].concat()],
            tail: inserts.clone(),
        },
        Plan { setup: inserts.clone(), threads: vec![reopened(&again[..9])], tail: again.clone() },
        Plan {
            setup: inserts.clone(),
            threads: vec![again[..6].to_vec(), [&again[6..12], &[IndexOp::Get(1)]].concat()],
            tail: reopened(&inserts),
        },
        Plan {
            setup: full,
            threads: vec![vec![IndexOp::Insert(4, 1), IndexOp::Upsert(1, 40)]],
            tail: again,
        },
    ]
}

/// Implements a subject over words.
macro_rules! subject {
    ($(#[$doc:meta])* $subject:ident, $name:literal, $anew:literal, $index:ty) => {
        $(#[$doc])*
        pub(crate) struct $subject;

        impl CrashIndex for $subject {
            type Key = u64;
            type Value = u64;
            type Index = $index;
            const NAME: &'static str = $name;

            fn key(n: u64) -> u64 {
                n
            }

            fn value(n: u64) -> u64 {
                n
            }

            fn plans() -> Vec<Plan<IndexOp>> {
                plans()
            }

            fn owns(site: &Location<'static>) -> bool {
                owns(site, $anew)
            }
        }
    };
}

type Hash<const ANEW: bool> = ByHash<Cceh<u64, u64, Traced, 2, 2>, ANEW>;
type Tree<const ANEW: bool> = ByKey<FastFair<u64, u64, Traced, 4, 4>, ANEW, ANEW>;

subject! {
    /// Buffers of two records over segments of two lines.
    BufferedCceh, "buffered-cceh", false, Unordered<Buffered<Hash<false>, Traced, true, 2>>
}

subject! {
    /// The same; a batch writes a segment anew.
    AnewCceh, "anew-cceh", true, Unordered<Buffered<Hash<true>, Traced, true, 2>>
}

subject! {
    /// Buffers of two records over leaves of four.
    BufferedFastFair, "buffered-fastfair", false, Buffered<Tree<false>, Traced, true, 2>
}

subject! {
    /// The same; a batch writes a leaf anew, and searches read a copy of the inner nodes.
    AnewFastFair, "anew-fastfair", true, Buffered<Tree<true>, Traced, true, 2>
}
