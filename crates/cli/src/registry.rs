//! Indexes by name. To add an index, add a line to [`ENTRIES`].

use std::sync::LazyLock;

use clap::builder::{PossibleValue, PossibleValuesParser};
use pmindex::core::Mapped;
use pmindex::{
    BufferedSpTree, BzTree, FastFair, FpTree, Hart, NvTree, PmIndex, SharedWbTree, SpTree,
};
use pmindex_cceh::Cceh;
use pmindex_pactree::PacTree;
use pmindex_pibench::{Peer, Yardstick};
use pmindex_skiplist::SkipList;
use pmindex_woart::{ArtCow, Woart};

use crate::bench::bed::{
    AnyKind, ByHash, Maker, Makers, Typed, bwtree_makers, in_memory_makers, pool_makers,
    yardstick_makers,
};
use crate::bench::peer;
use crate::error::CliError;

/// Every index that can be measured, the yardstick last.
const ENTRIES: &[Entry] = &[
    in_pool::<FpTree<u64, u64>>(),
    in_pool::<FastFair<u64, u64>>(),
    in_pool::<Hart<u64, u64>>(),
    in_pool::<BzTree<u64, u64>>(),
    in_memory::<BzTree<u64, u64>>(VOLATILE_BZTREE),
    in_pool::<NvTree<u64, u64>>(),
    in_pool::<SharedWbTree<u64, u64>>(),
    in_pool::<SpTree<u64, u64>>(),
    in_pool::<BufferedSpTree<u64, u64>>(),
    by_type::<Typed<Woart<u64, u64>>, Typed<Woart<Vec<u8>, Vec<u8>>>>("woart"),
    by_type::<Typed<ArtCow<u64, u64>>, Typed<ArtCow<Vec<u8>, Vec<u8>>>>("artcow"),
    by_type::<Typed<PacTree<u64, u64>>, Typed<PacTree<Vec<u8>, Vec<u8>>>>("pactree"),
    by_type::<Typed<SkipList<u64, u64>>, Typed<SkipList<Vec<u8>, Vec<u8>>>>("skiplist"),
    by_type::<ByHash<Cceh<u64, u64>>, ByHash<Cceh<Vec<u8>, Vec<u8>>>>("cceh"),
    BWTREE,
    YARDSTICK,
];

/// Indexes with other node sizes than their own, and the records of a leaf. Each line here is compiled, so
/// there are only two: enough to see the effect of the size.
const SIZED: &[(&str, usize, Entry)] = &[
    ("fptree", 13, sized::<FpTree<u64, u64, Mapped, 13>>("fptree-13")),
    ("fptree", 28, sized::<FpTree<u64, u64, Mapped, 28>>("fptree-28")),
];

/// BzTree in its volatile mode.
const VOLATILE_BZTREE: &str = "bztree-volatile";

/// The functions that make an index to be measured.
pub(crate) struct Entry {
    /// Its name.
    pub(crate) name: &'static str,
    /// With 8-byte integers.
    pub(crate) integers: Makers<u64, u64>,
    /// With byte strings; `None` if the index does not support them.
    pub(crate) bytes: Option<Makers<Vec<u8>, Vec<u8>>>,
}

/// Returns all entries, the peers last.
fn all() -> impl Iterator<Item = &'static Entry> {
    ENTRIES.iter().chain(peers())
}

/// Returns all names.
pub(crate) fn names() -> Vec<&'static str> {
    all().map(|entry| entry.name).collect()
}

/// Accepts the name of any entry, and lists them in the help, without those of other node sizes.
pub(crate) fn parser() -> PossibleValuesParser {
    let all = all().map(|entry| PossibleValue::new(entry.name));
    let sized = SIZED.iter().map(|(_, _, entry)| PossibleValue::new(entry.name).hide(true));
    PossibleValuesParser::new(all.chain(sized))
}

/// Returns the entry of this name.
pub(crate) fn find(name: &str) -> Result<&'static Entry, CliError> {
    all()
        .chain(SIZED.iter().map(|(_, _, entry)| entry))
        .find(|entry| entry.name == name)
        .ok_or_else(|| CliError::UnknownIndex { name: name.into() })
}

/// Returns the entry of this name with `records` records in a leaf.
///
/// # Errors
/// [`CliError::Usage`] if the program was not built with this size.
pub(crate) fn find_sized(name: &str, records: usize) -> Result<&'static Entry, CliError> {
    find(name)?;
    let sizes = || SIZED.iter().filter(|(index, ..)| *index == name);
    if let Some((.., entry)) = sizes().find(|(_, size, _)| *size == records) {
        return Ok(entry);
    }
    let built: Vec<String> = sizes().map(|(_, size, _)| size.to_string()).collect();
    let what = if built.is_empty() {
        let mut with: Vec<&str> = SIZED.iter().map(|(index, ..)| *index).collect();
        with.dedup();
        format!(
            "--node-size: {name} has nodes of one size; these have several: {}",
            with.join(", ")
        )
    } else {
        let built = built.join(" and ");
        format!("--node-size {records}: this program has {name} with leaves of {built} records")
    };
    Err(CliError::Usage { what })
}

/// Returns the entry of an index that lives in a pool.
const fn in_pool<I: PmIndex<u64, u64, Mapped> + 'static>() -> Entry {
    let bytes = Some(pool_makers::<Vec<u8>, Vec<u8>, AnyKind>());
    Entry { name: I::NAME, integers: pool_makers::<u64, u64, Typed<I>>(), bytes }
}

/// Returns the entry of an index that is off by default, and therefore is not a [`Kind`] that can be chosen
/// at run time.
const fn by_type<N, T>(name: &'static str) -> Entry
where
    N: Maker<u64, u64>,
    T: Maker<Vec<u8>, Vec<u8>>,
{
    let bytes = Some(pool_makers::<Vec<u8>, Vec<u8>, T>());
    Entry { name, integers: pool_makers::<u64, u64, N>(), bytes }
}

/// Returns the entry of an index with nodes of another size, for integers.
const fn sized<I: PmIndex<u64, u64, Mapped> + 'static>(name: &'static str) -> Entry {
    Entry { name, integers: pool_makers::<u64, u64, Typed<I>>(), bytes: None }
}

/// Returns the entry of an index in volatile memory: nothing is flushed, nothing survives.
const fn in_memory<I: PmIndex<u64, u64, Mapped> + 'static>(name: &'static str) -> Entry {
    Entry { name, integers: in_memory_makers::<u64, u64, Typed<I>>(), bytes: None }
}

/// Volatile, lost on a crash: what the paper compares `BzTree` with.
const BWTREE: Entry =
    Entry { name: "bwtree", integers: bwtree_makers(), bytes: Some(bwtree_makers()) };

const YARDSTICK: Entry =
    Entry { name: Yardstick::NAME, integers: yardstick_makers(), bytes: Some(yardstick_makers()) };

/// Returns the peers of this program.
fn peers() -> &'static [Entry] {
    static PEERS: LazyLock<Vec<Entry>> = LazyLock::new(|| {
        let entry = |peer: &Peer| Entry {
            name: peer.name,
            integers: peer::makers(),
            bytes: peer.bytes.map(|_| peer::makers()),
        };
        peer::all().iter().map(entry).collect()
    });
    &PEERS
}
