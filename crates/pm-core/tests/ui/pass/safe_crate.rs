//! A crate without unsafe code declares every kind of struct.
#![forbid(unsafe_code)]
#![deny(missing_docs)]

use pmindex_core::{PPtr, PmPtr, PmU64, pm_struct};

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
#[allow(unused_macros)]
macro_rules! assert { ($($anything:tt)*) => { compile_error!("the caller's assert") } }

pm_struct! {
    #[align(8)]
    struct Shadowed: size 8 { word: PmU64 }
}

fn main() {
    let pool = pmindex_core::Pool::volatile(1 << 20).expect("memory");
    let _ = pool.get(PPtr::<Leaf>::new(4096)).map(|leaf| &leaf.nodes[3].next);
    let _ = pool.get(PPtr::<Pair<Node>>::new(4096)).map(|pair| (&pair.first.value, &pair.second.key));
    let _ = pool.get(PPtr::<Leaf<9, 1>>::new(8192)).map(|leaf| &leaf.records[8][0]);
    let _ = pool.get(PPtr::<Shadowed>::new(8192)).map(|s| &s.word);
}
