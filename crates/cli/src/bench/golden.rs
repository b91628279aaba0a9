//! The cost that operations must have for a row of `bench` to be accepted: lines flushed and fences of
//! operations that neither split nor merge a node.

use pmindex_pibench::Phase;

/// Lines flushed and fences of an insert, an update and a removal; golden files give the rest.
///
/// FAST&FAIR's insert has no fixed cost, because the number of shifted lines varies; the cost of a write to
/// WOART or ART+CoW depends on the kind of the node. BzTree makes new values durable in batches, at the
/// fences of other operations: the table has the cost of an operation that flushes no batch. For SPTree
/// with write buffers the table has the cost of a log entry; the printed means include moving buffers to
/// leaves.
const COSTS: &[(&str, [Option<Cost>; 3])] = &[
    ("fptree", [Some((2, 1)), Some((1, 1)), Some((1, 1))]),
    ("fastfair", [None, Some((1, 1)), Some((1, 1))]),
    ("sptree", [Some((3, 1)), Some((1, 1)), Some((1, 1))]),
    ("sptree-buffered", [Some((1, 1)), Some((1, 1)), Some((1, 1))]),
    ("hart", [Some((1, 1)), Some((1, 1)), Some((1, 1))]),
    ("bztree", [Some((1, 1)), Some((1, 1)), Some((1, 1))]),
    ("nvtree", [Some((1, 1)), Some((1, 1)), Some((1, 1))]),
    ("wbtree", [Some((3, 1)), Some((1, 1)), Some((1, 1))]),
    ("woart", [None, Some((1, 1)), None]),
    ("artcow", [None, None, None]),
    ("pactree", [Some((3, 2)), Some((1, 1)), Some((1, 1))]),
    ("cceh", [Some((1, 1)), Some((1, 1)), Some((1, 1))]),
    ("skiplist", [Some((1, 1)), Some((1, 1)), Some((1, 1))]),
];

/// Lines and fences.
type Cost = (u64, u64);

/// Lines flushed and fences of an operation.
pub(super) type Golden = (Phase, u64, u64);

/// What the operations of an index must cost.
pub(super) fn of(index: &str) -> Vec<Golden> {
    let Some((_, writes)) = COSTS.iter().find(|(name, _)| *name == index) else {
        return Vec::new();
    };
    let reads = [Phase::Get, Phase::GetMiss, Phase::Scan].map(|phase| (phase, 0, 0));
    let phases = [Phase::Insert, Phase::Update, Phase::Delete].into_iter();
    let writes = phases.zip(writes).filter_map(|(phase, cost)| {
        let (lines, fences) = (*cost)?;
        Some((phase, lines, fences))
    });
    reads.into_iter().chain(writes).collect()
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use pmindex::Kind;

    use super::*;

    /// Reads the whole numbers of a golden file. (Where the cost differs from key to key, the file has a
    /// mean.)
    fn of_file(file: &str) -> Vec<Golden> {
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
        file.lines().filter_map(cost).flatten().collect()
    }

    #[test]
    fn golden_files_say_what_bench_checks() {
        let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/golden");
        let indexes =
            ["fptree", "fastfair", "sptree", "woart", "artcow", "pactree", "cceh", "skiplist"];
        for index in indexes {
            let file = std::fs::read_to_string(folder.join(format!("{index}.txt")));
            let (mut want, mut checked) = (of_file(&file.expect("a golden file")), of(index));
            want.sort_unstable_by_key(|golden| golden.0 as usize);
            checked.sort_unstable_by_key(|golden| golden.0 as usize);
            assert_eq!(checked, want, "{index}");
        }
    }

    #[test]
    fn every_index_is_checked() {
        for kind in Kind::ALL {
            let golden = of(kind.name());
            assert!(golden.iter().any(|cost| cost.0 == Phase::Get), "{kind}: {golden:?}");
        }
        assert_eq!(of("btreemap"), [], "nothing is flushed");
    }
}
