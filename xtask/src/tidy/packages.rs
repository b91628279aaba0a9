//! Rule: each package is ready to be published, or is marked as not for publishing.
//!
//! The metadata that a registry shows (description, documentation, readme, categories) and the licence files
//! exist; a feature that is off by default is on where the documentation is built.

use serde_json::Value;

use crate::shell;

/// The manifest of a package.
pub(super) struct Package {
    /// Its name.
    name: String,
    /// The missing metadata.
    missing: Vec<&'static str>,
}

/// The strings and lists that a manifest must have.
const WANTED: &[&str] = &["description", "documentation", "readme", "license"];
const LISTS: &[&str] = &["categories", "keywords"];
/// The licence files beside the manifest.
const LICENCES: [&str; 2] = ["LICENSE-APACHE", "LICENSE-MIT"];

/// Returns the workspace's packages that are published.
pub(super) fn read() -> Result<Vec<Package>, String> {
    let args = ["metadata", "--no-deps", "--format-version", "1", "--offline"];
    let json = shell::output(&shell::cargo(), &args)?;
    let metadata: Value =
        serde_json::from_str(&json).map_err(|e| format!("cargo metadata: {e}"))?;
    let packages = metadata["packages"].as_array().ok_or("cargo metadata has no packages")?;
    let has_file =
        |manifest: &str, name: &str| std::path::Path::new(manifest).with_file_name(name).exists();
    Ok(packages.iter().filter_map(|package| package_of(package, &has_file)).collect())
}

/// Returns one of them; `None` if it is not published.
fn package_of(package: &Value, has_file: &dyn Fn(&str, &str) -> bool) -> Option<Package> {
    if package["publish"].as_array().is_some_and(Vec::is_empty) {
        return None;
    }
    let manifest = package["manifest_path"].as_str().unwrap_or_default();
    let is_empty = |field: &str| package[field].as_array().is_none_or(Vec::is_empty);
    let mut missing: Vec<&'static str> =
        WANTED.iter().copied().filter(|field| !package[*field].is_string()).collect();
    missing.extend(LISTS.iter().copied().filter(|field| is_empty(field)));
    missing.extend(LICENCES.into_iter().filter(|name| !has_file(manifest, name)));
    if has_hidden_features(package) && package["metadata"]["docs"]["rs"]["all-features"] != true {
        missing.push("package.metadata.docs.rs.all-features");
    }
    let name = package["name"].as_str().unwrap_or_default().into();
    Some(Package { name, missing })
}

/// Returns `true` if features are off by default.
fn has_hidden_features(package: &Value) -> bool {
    let Some(features) = package["features"].as_object() else { return false };
    let defaults = features.get("default").and_then(Value::as_array);
    let on = |name: &String| defaults.is_some_and(|list| list.iter().any(|d| d == name));
    features.keys().any(|name| name != "default" && !on(name))
}

pub(super) fn check(packages: &[Package]) -> Vec<String> {
    let lacking = packages.iter().filter(|package| !package.missing.is_empty());
    lacking
        .map(|Package { name, missing }| {
            let missing = missing.join(", ");
            format!("{name}: no {missing} (or `publish = false`); crates/trees has all of it")
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn what_a_registry_shows_has_to_be_there() {
        let mut package = json!({
            "name": "one", "publish": null, "manifest_path": "one/Cargo.toml",
            "description": "One", "documentation": "x", "readme": "x", "license": "MIT",
            "categories": ["x"], "keywords": ["x"],
            "features": { "default": ["a"], "a": [] }, "metadata": null,
        });
        let complaints = |package: &Value, files: bool| {
            check(&package_of(package, &|_, _| files).into_iter().collect::<Vec<_>>())
        };
        assert_eq!(complaints(&package, true), Vec::<String>::new());
        assert!(complaints(&package, false)[0].starts_with("one: no LICENSE-APACHE, LICENSE-MIT "));
        package["features"]["b"] = json!([]);
        package["keywords"] = json!([]);
        package["readme"] = Value::Null;
        let all = "one: no readme, keywords, package.metadata.docs.rs.all-features (";
        assert!(complaints(&package, true)[0].starts_with(all));
        package["publish"] = json!([]);
        assert_eq!(complaints(&package, true), Vec::<String>::new());
    }
}
