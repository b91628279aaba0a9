//! What the macros accept: a crate without unsafe code declares every kind of struct of words. What they
//! refuse is in `refused.rs`.
#![forbid(unsafe_code)]
#![deny(missing_docs)]

use pmindex_core::{Medium, PPtr, PmError, PmPtr, PmU64, Pool, pm_struct};

pm_struct! {
    /// A node.
    ///
    /// Two paragraphs.
    #[align(8)]
    pub struct Node: size 24 {
        /// Next.
        pub next @ 0: PmPtr<Node>,
        pub(crate) key @ 8: PmU64,
        value @ 16: PmU64
    }

    /// A leaf.
    #[align(64)]
    pub(crate) struct Leaf<const N: usize = 4, const M: usize = 2> {
        bitmap @ 0: PmU64,
        fingerprints @ 8: [PmU64; 7],
        records @ 64: [[PmU64; M]; N],
        nodes: [Node; N],
    }

    /// Two of a type.
    #[align(8)]
    struct Pair<T: PmType> {
        first: T,
        second: T,
    }
}

// Names of the caller that the macro must not pick up.
mod core {}
#[allow(unused_macros, reason = "it is there so that nothing uses it")]
macro_rules! assert {
    ($($anything:tt)*) => {
        compile_error!("the caller's assert")
    };
}

pm_struct! {
    #[align(8)]
    struct Shadowed: size 8 { word: PmU64 }
}

/// Reads a field of each.
///
/// # Errors
/// If an offset is beyond the pool's end.
pub fn fields(pool: &Pool) -> Result<[u64; 4], PmError> {
    let pm = pool.pm();
    let leaf = pool.get(PPtr::<Leaf>::new(4096))?;
    let pair = pool.get(PPtr::<Pair<Node>>::new(4096))?;
    let wide = pool.get(PPtr::<Leaf<9, 1>>::new(8192))?;
    let shadowed = pool.get(PPtr::<Shadowed>::new(8192))?;
    Ok([
        pm.load(&leaf.nodes[3].key),
        pm.load(&pair.second.value),
        pm.load(&wide.records[8][0]),
        pm.load(&shadowed.word),
    ])
}

#[test]
fn a_safe_crate_reads_the_fields_of_every_struct() {
    let pool = Pool::volatile(1 << 20).expect("memory");
    assert_eq!(fields(&pool).expect("in bounds").len(), 4);
}
