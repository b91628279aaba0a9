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
///
/// BzTree's new values become durable in their words in batches, at other operations' fences: these are
/// the lines of an operation that has no batch to flush.
/// Buffered SPTree's are those of a log entry; what absorbing its buffers costs is in the means printed.
const COSTS: &[(&str, [Golden; 6])] = &[
    ("hart", writes((1, 1), (1, 1), (1, 1))),
    ("bztree", writes((3, 2), (3, 2), (2, 2))),
    ("nvtree", writes((1, 1), (1, 1), (1, 1))),
    ("wbtree", writes((3, 1), (1, 1), (1, 1))),
    ("sptree-buffered", writes((1, 1), (1, 1), (1, 1))),
];

/// Lines flushed and fences of an operation.
pub(super) type Golden = (Phase, u64, u64);

/// What is read is not written; and lines and fences of an insert, an update, a removal.
const fn writes(insert: (u64, u64), update: (u64, u64), delete: (u64, u64)) -> [Golden; 6] {
    [
        (Phase::Get, 0, 0),
        (Phase::GetMiss, 0, 0),
        (Phase::Scan, 0, 0),
        (Phase::Insert, insert.0, insert.1),
        (Phase::Update, update.0, update.1),
        (Phase::Delete, delete.0, delete.1),
    ]
}

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
        assert!(golden.contains(&(Phase::Insert, 2, 1)), "{golden:?}");
        assert!(golden.contains(&(Phase::GetMiss, 0, 0)), "{golden:?}");
        for kind in Kind::ALL {
            let golden = of(kind.name());
            assert!(golden.iter().any(|cost| cost.0 == Phase::Get), "{kind}: {golden:?}");
        }
        assert_eq!(of("btreemap"), [], "nothing is flushed");
    }
}
