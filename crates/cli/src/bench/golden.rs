//! What operations must cost for the rows of `bench` to count: lines flushed and fences of those that
//! neither split nor merge a node.

use pmindex_pibench::Phase;

/// Golden files of indexes: what their operations must cost for their rows to count.
const GOLDEN_FILES: &[(&str, &str)] = &[
    ("fptree", include_str!("../../../../tests/golden/fptree.txt")),
    ("fastfair", include_str!("../../../../tests/golden/fastfair.txt")),
    ("sptree", include_str!("../../../../tests/golden/sptree.txt")),
];

/// Besides what golden files say.
const COSTS: &[(&str, &[Golden])] = &[
    ("hart", &HART),
    ("bztree", &BZTREE),
    ("nvtree", &NVTREE),
    ("wbtree", &WBTREE),
    ("sptree-buffered", &BUFFERED_SPTREE),
];

/// Lines flushed and fences of an operation.
pub(super) type Golden = (Phase, u64, u64);

const HART: [Golden; 6] = [
    (Phase::Get, 0, 0),
    (Phase::GetMiss, 0, 0),
    (Phase::Scan, 0, 0),
    (Phase::Insert, 1, 1),
    (Phase::Update, 1, 1),
    (Phase::Delete, 1, 1),
];

/// New values become durable in their words in batches, at other operations' fences: the lines of
/// one that has no batch to flush. The means printed count all of them. An update is in place if the
/// value has 62 bits at most, and else a new record, whose line is flushed too; values here are
/// random.
const BZTREE: [Golden; 7] = [
    (Phase::Get, 0, 0),
    (Phase::GetMiss, 0, 0),
    (Phase::Scan, 0, 0),
    (Phase::Insert, 3, 2),
    (Phase::Update, 2, 2),
    (Phase::Update, 3, 2),
    (Phase::Delete, 2, 2),
];

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

/// What the operations of an index must cost: of its golden file's those that have whole lines and
/// fences (what differs from key to key has a mean there).
pub(super) fn of(index: &str) -> Vec<Golden> {
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
    let files = GOLDEN_FILES.iter().filter(|(name, _)| *name == index);
    let from_file = files.flat_map(|(_, file)| file.lines()).filter_map(cost).flatten();
    let listed = COSTS.iter().filter(|(name, _)| *name == index);
    listed.flat_map(|(_, costs)| costs.iter().copied()).chain(from_file).collect()
}

#[cfg(test)]
mod tests {
    use pmindex::Kind;

    use super::*;

    #[test]
    fn golden_files_say_what_bench_checks() {
        let golden = of("fptree");
        assert!(golden.contains(&(Phase::Insert, 2, 2)), "{golden:?}");
        assert!(golden.contains(&(Phase::GetMiss, 0, 0)), "{golden:?}");
        for kind in Kind::ALL {
            let golden = of(kind.name());
            assert!(golden.iter().any(|cost| cost.0 == Phase::Get), "{kind}: {golden:?}");
        }
        assert_eq!(of("btreemap"), [], "nothing is flushed");
    }
}
