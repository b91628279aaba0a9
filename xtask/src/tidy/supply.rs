//! Rules: dependencies have the licences and the registry that `deny.toml` names, and a default build of the
//! facade has few of them.
//!
//! `cargo deny` checks more, above all vulnerabilities, but must be installed; this needs nothing.

use std::collections::BTreeSet;

use crate::shell;

/// A package with its licence expression and its source (`None`: this repository).
pub(super) struct Package {
    name: String,
    license: Option<String>,
    source: Option<String>,
}

/// Returns all packages that the workspace needs on Linux.
pub(super) fn read() -> Result<Vec<Package>, String> {
    let platform = "x86_64-unknown-linux-gnu";
    let args = ["metadata", "--format-version", "1", "--locked", "--filter-platform", platform];
    let json = shell::output(&shell::cargo(), &args)?;
    let metadata: serde_json::Value =
        serde_json::from_str(&json).map_err(|e| format!("cargo metadata: {e}"))?;
    let text = |value: &serde_json::Value| value.as_str().map(str::to_owned);
    let packages = metadata["packages"].as_array().cloned().unwrap_or_default();
    Ok(packages
        .iter()
        .map(|package| Package {
            name: text(&package["name"]).unwrap_or_default(),
            license: text(&package["license"]),
            source: text(&package["source"]),
        })
        .collect())
}

/// The number of foreign crates that a default build of the facade may have.
const MOST_FOREIGN: usize = 12;

/// Returns the foreign crates in a default build of the facade, one a line.
pub(super) fn read_foreign() -> Result<String, String> {
    let args = ["tree", "--package", "pmindex", "--edges", "normal,build", "--prefix", "none"];
    shell::output(&shell::cargo(), &[&args[..], &["--format", "{p}", "--no-dedupe"]].concat())
}

/// Checks `tree`, which has a line for each crate; lines of our crates have a path in brackets.
pub(super) fn check_foreign(tree: &str) -> Option<String> {
    let foreign: BTreeSet<&str> = tree.lines().filter(|line| !line.contains('(')).collect();
    (foreign.len() > MOST_FOREIGN).then(|| {
        format!(
            "a default build of the facade takes {} crates of others, {MOST_FOREIGN} are allowed: {}",
            foreign.len(),
            Vec::from_iter(foreign).join(", ")
        )
    })
}

/// Checks the packages against `rules`, the text of `deny.toml`.
pub(super) fn check(packages: &[Package], rules: &str) -> Vec<String> {
    let allowed = list(rules, "allow");
    let registries = list(rules, "allow-registry");
    let mut complaints = Vec::new();
    for Package { name, license, source } in packages {
        // Packages that are not published need no licence of their own.
        let Some(source) = source else { continue };
        if !registries.iter().any(|registry| source.ends_with(registry.as_str())) {
            complaints.push(format!("{name} comes from {source}: not allowed in deny.toml"));
        }
        let excepted: Vec<String> = rules
            .lines()
            .filter(|line| line.contains(&format!("crate = {name:?}")))
            .flat_map(|line| list(line, "allow"))
            .collect();
        let is_allowed = |one: &str| allowed.iter().chain(&excepted).any(|known| known == one);
        match license {
            Some(license) if permits(license, &is_allowed) => {}
            Some(license) => {
                complaints.push(format!("{name} is licensed {license}: not allowed in deny.toml"));
            }
            None => complaints.push(format!("{name} has no licence")),
        }
    }
    complaints
}

/// Returns the strings of the array `name = [..]`.
fn list(text: &str, name: &str) -> Vec<String> {
    let Some(start) = text.find(&format!("{name} = [")) else { return Vec::new() };
    let array = text[start..].split(']').next().unwrap_or_default();
    array.split('"').skip(1).step_by(2).map(str::to_owned).collect()
}

/// Returns `true` if a licence expression can be satisfied: `OR` (or `/`) of `AND`s, with brackets at most
/// around one of these.
fn permits(expression: &str, is_allowed: &impl Fn(&str) -> bool) -> bool {
    if let Some(inside) = expression.strip_prefix('(')
        && let Some((first, rest)) = inside.split_once(')')
    {
        let first = permits(first, is_allowed);
        return match rest.trim().split_once(' ') {
            Some(("AND", rest)) => first && permits(rest, is_allowed),
            Some(("OR", rest)) => first || permits(rest, is_allowed),
            _ => first && rest.trim().is_empty(),
        };
    }
    let expression = expression.replace('/', " OR ");
    let all = |part: &str| part.split(" AND ").all(|one| is_allowed(one.trim()));
    expression.split(" OR ").any(all)
}

#[cfg(test)]
mod tests {
    use super::*;

    const RULES: &str = "allow = [\n    \"MIT\",\n    \"Unicode-3.0\",\n]\n\
        exceptions = [{ crate = \"header\", allow = [\"MPL-2.0\"] }]\n\
        allow-registry = [\"https://example.org/index\"]\n";

    #[test]
    fn a_default_build_takes_few_crates_of_others() {
        let lines = |n: usize| (0..n).fold(String::new(), |all, i| all + &format!("one v{i}\n"));
        assert_eq!(check_foreign(&format!("pmindex v0.1.0 (/ours)\n{0}{0}", lines(12))), None);
        assert!(check_foreign(&lines(13)).is_some_and(|complaint| complaint.contains("13 crates")));
    }

    fn package(name: &str, license: &str, source: &str) -> Package {
        Package { name: name.into(), license: Some(license.into()), source: Some(source.into()) }
    }

    #[test]
    fn licences_and_sources_are_those_of_the_list() {
        let from = "registry+https://example.org/index";
        let complaints = |license, source| check(&[package("one", license, source)], RULES).len();
        for fine in ["MIT", "MIT OR GPL-3.0", "GPL-3.0/MIT", "(MIT OR X) AND Unicode-3.0"] {
            assert_eq!(complaints(fine, from), 0, "{fine}");
        }
        for wrong in ["GPL-3.0", "MPL-2.0", "MIT AND GPL-3.0", "(MIT OR X) AND X", ""] {
            assert_eq!(complaints(wrong, from), 1, "{wrong}");
        }
        assert_eq!(complaints("MIT", "git+https://example.org/one"), 1);
        assert!(check(&[package("header", "MPL-2.0", from)], RULES).is_empty());
        let ours = Package { name: "ours".into(), license: None, source: None };
        assert!(check(&[ours], RULES).is_empty());
    }
}
