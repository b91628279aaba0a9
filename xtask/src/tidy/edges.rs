//! Rule: dependencies between the crates of the workspace point downward only.
//!
//! Every crate has a layer, and depends on crates of lower layers only; two crates of one layer
//! are siblings and share what they need further down. Dev-dependencies may point anywhere but at
//! the layer of the programs: cargo itself refuses real cycles.

use crate::shell;

/// The layers, lowest first.
const LAYERS: &[&[&str]] = &[
    &["pmindex-error", "pmindex-bwtree"],
    &["pmindex-pmem-rs", "pmindex-derive", "pmindex-wal"],
    &["pmindex-core"],
    &["pmindex-index", "pmindex-log"],
    &["pmindex-record"],
    &[
        "pmindex-pmwcas",
        "pmindex-art",
        "pmindex-fastfair",
        "pmindex-cceh",
        "pmindex-woart",
        "pmindex-skiplist",
    ],
    &[
        "pmindex-trees",
        "pmindex-hart",
        "pmindex-sptree",
        "pmindex-pactree",
        "pmindex-boc",
        "pmindex-store",
        "pmindex-rstore",
        "pmindex-replica",
        "pmindex-cache",
        "pmindex-env",
        "pmindex-pibench",
        "pmindex-testkit",
    ],
    &["pmindex-buffer"],
    &["pmindex-btree"],
    &["pmindex"],
    &["pmindex-named"],
    &[
        "pmindex-cli",
        "pmindex-capi",
        "pmindex-orders-service",
        "pmindex-rstore-server",
        "pmindex-compile",
        "pmindex-crash",
        "pmindex-disks",
        "pmindex-hostile",
        "xtask",
    ],
];

/// A dependency of one crate of the workspace on another.
pub(super) struct Edge {
    from: String,
    to: String,
    dev: bool,
}

/// The workspace's crates and the edges between them, as cargo sees them.
pub(super) fn read() -> Result<Vec<Edge>, String> {
    let args = ["metadata", "--no-deps", "--format-version", "1", "--offline"];
    let json = shell::output(&shell::cargo(), &args)?;
    let metadata: serde_json::Value =
        serde_json::from_str(&json).map_err(|e| format!("cargo metadata: {e}"))?;
    let none = Vec::new();
    let packages = metadata["packages"].as_array().unwrap_or(&none);
    let mut edges = Vec::new();
    for package in packages {
        for dependency in package["dependencies"].as_array().unwrap_or(&none) {
            if dependency["path"].is_string() {
                edges.push(Edge {
                    from: package["name"].as_str().unwrap_or_default().into(),
                    to: dependency["name"].as_str().unwrap_or_default().into(),
                    dev: dependency["kind"] == "dev",
                });
            }
        }
    }
    if edges.is_empty() {
        return Err("tidy: cargo metadata shows no edges between crates".into());
    }
    Ok(edges)
}

pub(super) fn check(edges: &[Edge]) -> Vec<String> {
    let mut complaints = Vec::new();
    for edge in edges {
        let (Some(from), Some(to)) = (layer(&edge.from), layer(&edge.to)) else {
            complaints.push(format!(
                "{} -> {}: not in the table of layers (xtask/src/tidy/edges.rs)",
                edge.from, edge.to
            ));
            continue;
        };
        if edge.dev {
            if to + 1 == LAYERS.len() {
                complaints.push(format!("{} -> {}: a program is no library", edge.from, edge.to));
            }
        } else if to >= from {
            let how = if to == from { "sideways" } else { "upward" };
            complaints.push(format!("{} -> {}: points {how}", edge.from, edge.to));
        }
    }
    complaints
}

fn layer(name: &str) -> Option<usize> {
    LAYERS.iter().position(|layer| layer.contains(&name))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn edge(from: &str, to: &str, dev: bool) -> Edge {
        Edge { from: from.into(), to: to.into(), dev }
    }

    #[test]
    fn downward_is_fine_sideways_and_upward_are_not() {
        assert!(check(&[edge("pmindex-trees", "pmindex-core", false)]).is_empty());
        assert_eq!(check(&[edge("pmindex-trees", "pmindex-hart", false)]).len(), 1);
        assert_eq!(check(&[edge("pmindex-core", "pmindex-index", false)]).len(), 1);
        assert_eq!(check(&[edge("pmindex-core", "pmindex-unheard-of", false)]).len(), 1);
    }

    #[test]
    fn tests_may_use_the_kit_but_no_program() {
        assert!(check(&[edge("pmindex-trees", "pmindex-testkit", true)]).is_empty());
        assert_eq!(check(&[edge("pmindex-trees", "pmindex-cli", true)]).len(), 1);
    }
}
