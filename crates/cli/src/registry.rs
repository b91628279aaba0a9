//! Indexes by name: who adds an index adds one line to [`ENTRIES`].

use pmindex::core::{Counting, Mapped};
use pmindex::{
    BufferedSpTree, BzTree, FastFair, FpTree, Hart, NvTree, PmIndex, SharedWbTree, SpTree,
};
use pmindex_pibench::{Phase, Yardstick};

use crate::bench::bed::{AnyKind, Makers, Typed, in_memory_makers, pool_makers, yardstick_makers};
use crate::error::CliError;

/// Every index that can be measured, the yardstick last.
const ENTRIES: &[Entry] = &[
    in_pool::<FpTree<u64, u64>, FpTree<u64, u64, Counting>>(&[]),
    in_pool::<FastFair<u64, u64>, FastFair<u64, u64, Counting>>(&[]),
    in_pool::<Hart<u64, u64>, Hart<u64, u64, Counting>>(&HART),
    in_pool::<BzTree<u64, u64>, BzTree<u64, u64, Counting>>(&BZTREE),
    in_memory::<BzTree<u64, u64>>(VOLATILE_BZTREE),
    in_pool::<NvTree<u64, u64>, NvTree<u64, u64, Counting>>(&NVTREE),
    in_pool::<SharedWbTree<u64, u64>, SharedWbTree<u64, u64, Counting>>(&WBTREE),
    in_pool::<SpTree<u64, u64>, SpTree<u64, u64, Counting>>(&[]),
    in_pool::<BufferedSpTree<u64, u64>, BufferedSpTree<u64, u64, Counting>>(&BUFFERED_SPTREE),
    YARDSTICK,
];

/// Golden files of indexes: what their operations must cost for their rows to count.
const GOLDEN_FILES: &[(&str, &str)] = &[
    ("fptree", include_str!("../../../tests/golden/fptree.txt")),
    ("fastfair", include_str!("../../../tests/golden/fastfair.txt")),
    ("sptree", include_str!("../../../tests/golden/sptree.txt")),
];

/// Lines flushed and fences of an operation that neither splits nor merges a node.
pub(crate) type Golden = (Phase, u64, u64);

const HART: [Golden; 6] = [
    (Phase::Get, 0, 0),
    (Phase::GetMiss, 0, 0),
    (Phase::Scan, 0, 0),
    (Phase::Insert, 1, 1),
    (Phase::Update, 1, 1),
    (Phase::Delete, 1, 1),
];

/// New values become durable in their words in batches, at other operations' fences: the lines of
/// one that has no batch to flush. The means printed count all of them.
const BZTREE: [Golden; 6] = [
    (Phase::Get, 0, 0),
    (Phase::GetMiss, 0, 0),
    (Phase::Scan, 0, 0),
    (Phase::Insert, 3, 2),
    (Phase::Update, 2, 2),
    (Phase::Delete, 2, 2),
];

/// BzTree in its volatile mode.
const VOLATILE_BZTREE: &str = "bztree-volatile";

/// A write's log entry. What absorbing its buffer costs is in the means printed.
const BUFFERED_SPTREE: [Golden; 6] = [
    (Phase::Get, 0, 0),
    (Phase::GetMiss, 0, 0),
    (Phase::Scan, 0, 0),
    (Phase::Insert, 1, 1),
    (Phase::Update, 1, 1),
    (Phase::Delete, 1, 1),
];

const NVTREE: [Golden; 6] = [
    (Phase::Get, 0, 0),
    (Phase::GetMiss, 0, 0),
    (Phase::Scan, 0, 0),
    (Phase::Insert, 1, 1),
    (Phase::Update, 1, 1),
    (Phase::Delete, 1, 1),
];

const WBTREE: [Golden; 6] = [
    (Phase::Get, 0, 0),
    (Phase::GetMiss, 0, 0),
    (Phase::Scan, 0, 0),
    (Phase::Insert, 3, 1),
    (Phase::Update, 1, 1),
    (Phase::Delete, 1, 1),
];

/// A way to make an index to be measured.
pub(crate) struct Entry {
    /// Its name.
    pub(crate) name: &'static str,
    /// What its operations must cost for its rows to count, besides what its golden file says.
    golden: &'static [Golden],
    /// With 8-byte integers.
    pub(crate) integers: Makers<u64, u64>,
    /// With byte strings; `None` if it is not made for them.
    pub(crate) bytes: Option<Makers<Vec<u8>, Vec<u8>>>,
}

impl Entry {
    /// What operations must cost: of the golden file's those that have whole lines and fences (what
    /// differs from key to key has a mean there).
    pub(crate) fn golden(&self) -> Vec<Golden> {
        let cost = |row: &str| {
            let cells: Vec<&str> = row.split('|').map(str::trim).collect();
            let &[name, _, lines, _, fences, ..] = cells.as_slice() else { return None };
            let phases: &[Phase] = match name {
                "get" => &[Phase::Get, Phase::GetMiss, Phase::Scan],
                "insert" => &[Phase::Insert],
                "update" => &[Phase::Update],
                "remove" => &[Phase::Delete],
                _ => return None,
            };
            let (lines, fences) = (lines.parse().ok()?, fences.parse().ok()?);
            Some(phases.iter().map(move |&phase| (phase, lines, fences)))
        };
        let files = GOLDEN_FILES.iter().filter(|(name, _)| *name == self.name);
        let from_file = files.flat_map(|(_, file)| file.lines()).filter_map(cost).flatten();
        self.golden.iter().copied().chain(from_file).collect()
    }
}

/// All entries, the peers last.
fn all() -> impl Iterator<Item = &'static Entry> {
    ENTRIES.iter().chain(peers::entries())
}

/// All names.
pub(crate) fn names() -> Vec<&'static str> {
    all().map(|entry| entry.name).collect()
}

/// The entry of this name.
pub(crate) fn find(name: &str) -> Result<&'static Entry, CliError> {
    all()
        .find(|entry| entry.name == name)
        .ok_or_else(|| CliError::UnknownIndex { name: name.into() })
}

/// The entry of an index that lives in a pool: on the real medium and on one that counts.
const fn in_pool<I, C>(golden: &'static [Golden]) -> Entry
where
    I: PmIndex<u64, u64, Mapped> + 'static,
    C: PmIndex<u64, u64, Counting> + 'static,
{
    Entry {
        name: I::NAME,
        golden,
        integers: pool_makers::<u64, u64, Typed<I>, Typed<C>>(),
        bytes: Some(pool_makers::<Vec<u8>, Vec<u8>, AnyKind, AnyKind>()),
    }
}

/// The entry of an index in volatile memory: nothing is flushed, nothing survives.
const fn in_memory<I: PmIndex<u64, u64, Mapped> + 'static>(name: &'static str) -> Entry {
    Entry { name, golden: &[], integers: in_memory_makers::<u64, u64, Typed<I>>(), bytes: None }
}

const YARDSTICK: Entry = Entry {
    name: Yardstick::NAME,
    golden: &[],
    integers: yardstick_makers(),
    bytes: Some(yardstick_makers()),
};

/// Other stores, where the program was built with them.
mod peers {
    use super::Entry;

    #[cfg(not(feature = "peers"))]
    pub(super) fn entries() -> &'static [Entry] {
        &[]
    }

    #[cfg(feature = "peers")]
    pub(super) fn entries() -> &'static [Entry] {
        use crate::bench::peer;
        static ENTRIES: std::sync::LazyLock<Vec<Entry>> = std::sync::LazyLock::new(|| {
            let entry = |name| Entry { name, golden: &[], integers: peer::makers(), bytes: None };
            peer::names().map(entry).collect()
        });
        &ENTRIES
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn golden_files_say_what_bench_checks() {
        let golden = find("fptree").expect("registered").golden();
        assert!(golden.contains(&(Phase::Insert, 2, 2)), "{golden:?}");
        assert!(golden.contains(&(Phase::GetMiss, 0, 0)), "{golden:?}");
        for name in ENTRIES.iter().map(|entry| entry.name) {
            if [Yardstick::NAME, VOLATILE_BZTREE].contains(&name) {
                continue; // nothing is flushed
            }
            let golden = find(name).expect("registered").golden();
            assert!(golden.iter().any(|cost| cost.0 == Phase::Get), "{name}: {golden:?}");
        }
    }
}
