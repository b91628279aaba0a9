//! `cargo xtask release VERSION`: changes the tree to a version. CONTRIBUTING.md has a checklist of the later
//! steps.
//!
//! It needs a clean tree. It changes the versions in every manifest, including those of the other workspaces
//! and of dependencies by path, and the lock file; in CHANGELOG.md it moves *Unreleased* to a section with
//! the version and the date. (The lock files of the other workspaces follow with their next build.) It
//! commits and publishes nothing, so that the change can be reviewed.

use std::time::{SystemTime, UNIX_EPOCH};

use crate::shell::{output, root, run_cargo};

/// Options of the command.
#[derive(clap::Args)]
pub(crate) struct Args {
    /// The new version: MAJOR.MINOR.PATCH
    version: String,
    /// The date, YYYY-MM-DD [default: today]
    #[arg(long)]
    date: Option<String>,
}

/// The manifest of the workspace, which has the version of all crates.
const MANIFEST: &str = "Cargo.toml";
const CHANGES: &str = "CHANGELOG.md";
const UNRELEASED: &str = "## Unreleased\n";

/// Changes the files.
pub(crate) fn run(args: &Args) -> Result<(), String> {
    let changed = output("git", &["status", "--porcelain"])?;
    if !changed.is_empty() {
        return Err(format!("the tree has changes; commit them first:\n{}", changed.trim_end()));
    }
    let read =
        |path: &str| std::fs::read_to_string(root().join(path)).map_err(|e| format!("{path}: {e}"));
    let date = args.date.clone().map_or_else(today, Ok)?;
    let old = version_of(&read(MANIFEST)?)?;
    // The version of the tree may be unreleased; an existing section of it is found below.
    if parse(&args.version)? < parse(&old)? {
        return Err(format!("{} comes before {old}", args.version));
    }
    let mut files =
        vec![(CHANGES.to_owned(), with_section(&read(CHANGES)?, &args.version, &date)?)];
    for path in output("git", &["ls-files", "*Cargo.toml"])?.lines() {
        files.push((path.into(), with_version(&read(path)?, &old, &args.version)));
    }
    for (path, text) in files {
        std::fs::write(root().join(&path), text).map_err(|e| format!("{path}: {e}"))?;
    }
    run_cargo(&["update", "--workspace", "--offline"], &[])?;
    println!("{} it is. Next: the checklist in CONTRIBUTING.md, \"A release\".", args.version);
    Ok(())
}

/// The numbers of a version.
fn parse(version: &str) -> Result<[u64; 3], String> {
    let numbers: Vec<u64> = version.split('.').filter_map(|part| part.parse().ok()).collect();
    let canonical = numbers.iter().map(u64::to_string).collect::<Vec<_>>().join(".");
    <[u64; 3]>::try_from(numbers)
        .ok()
        .filter(|_| canonical == version)
        .ok_or_else(|| format!("{version:?} is no version MAJOR.MINOR.PATCH"))
}

/// Returns the version in the manifest of the workspace.
fn version_of(manifest: &str) -> Result<String, String> {
    let package = manifest.split_once("[workspace.package]\n").map(|(_, rest)| rest);
    let line = package.and_then(|rest| rest.lines().find(|line| line.starts_with("version = ")));
    let version = line.and_then(|line| line.split('"').nth(1));
    version.map(str::to_owned).ok_or_else(|| format!("{MANIFEST}: no version of the workspace"))
}

/// Changes the version in a manifest: of its package, of the workspace, and of dependencies by path.
fn with_version(manifest: &str, old: &str, new: &str) -> String {
    let (old, new) = (format!("version = \"{old}\""), format!("version = \"{new}\""));
    let mut is_package = false;
    let lines = manifest.lines().map(|line| {
        if line.starts_with('[') {
            is_package = ["[package]", "[workspace.package]"].contains(&line);
        }
        let is_ours = is_package && line == old || line.contains("{ path = \"");
        if is_ours { line.replace(&old, &new) } else { line.to_owned() }
    });
    lines.flat_map(|line| [line, "\n".into()]).collect()
}

/// Moves the unreleased changes in the change log to a section of their own.
fn with_section(changes: &str, version: &str, date: &str) -> Result<String, String> {
    let (before, rest) =
        changes.split_once(UNRELEASED).ok_or("CHANGELOG.md: no section `## Unreleased`")?;
    let end = rest.find("\n## ").unwrap_or(rest.len());
    let (section, older) = rest.split_at(end);
    if section.trim().is_empty() {
        return Err("CHANGELOG.md: nothing is unreleased".into());
    }
    if changes.contains(&format!("\n## {version} ")) {
        return Err(format!("CHANGELOG.md: has a section {version} already"));
    }
    let section = section.trim_end();
    Ok(format!("{before}{UNRELEASED}\n## {version} - {date}\n{section}\n{older}"))
}

/// Today, in UTC.
fn today() -> Result<String, String> {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).map_err(|e| e.to_string())?;
    Ok(day(since.as_secs() / 86_400))
}

/// The date of a day since 1970-01-01.
fn day(mut days: u64) -> String {
    let is_leap = |year: u64| {
        year.is_multiple_of(4) && (!year.is_multiple_of(100) || year.is_multiple_of(400))
    };
    let mut year = 1970;
    while days >= 365 + u64::from(is_leap(year)) {
        days -= 365 + u64::from(is_leap(year));
        year += 1;
    }
    let february = 28 + u64::from(is_leap(year));
    let mut month = 1;
    for length in [31, february, 31, 30, 31, 30, 31, 31, 30, 31, 30, 31] {
        if days < length {
            break;
        }
        days -= length;
        month += 1;
    }
    format!("{year:04}-{month:02}-{:02}", days + 1)
}

#[cfg(test)]
mod tests {
    use super::*;

    const MANIFEST: &str = "[workspace.package]\nversion = \"0.1.0\"\n\n[workspace.dependencies]\n\
        ours = { path = \"crates/ours\", version = \"0.1.0\", default-features = false }\n\
        other = { version = \"0.1.0\" }\n\n[dependencies.third]\nversion = \"0.1.0\"\n";

    #[test]
    fn the_workspace_and_its_crates_have_the_new_version_and_others_theirs() {
        assert_eq!(version_of(MANIFEST).as_deref(), Ok("0.1.0"));
        assert!(version_of("[package]\nversion = \"1.0.0\"\n").is_err());
        let text = with_version(MANIFEST, "0.1.0", "0.2.0");
        assert_eq!(version_of(&text).as_deref(), Ok("0.2.0"));
        assert!(text.contains("path = \"crates/ours\", version = \"0.2.0\", default-features"));
        assert!(text.contains("other = { version = \"0.1.0\" }\n"));
        assert!(text.ends_with("[dependencies.third]\nversion = \"0.1.0\"\n"));
    }

    #[test]
    fn a_version_has_three_numbers() {
        for wrong in ["0.2", "0.2.0.0", "0.02.0", "v0.2.0", "0.2.0-rc1", ""] {
            assert!(parse(wrong).is_err(), "{wrong}");
        }
        assert!(parse("0.1.10") > parse("0.1.9"));
    }

    #[test]
    fn what_was_unreleased_has_a_version_and_a_day() {
        let log = "# Change log\n\n## Unreleased\n\n### Added\n\n- One.\n\n## 0.1.0 - 2020-01-01\n\n- Old.\n";
        let released = with_section(log, "0.2.0", "2020-02-02").expect("a change log");
        let wanted = "# Change log\n\n## Unreleased\n\n## 0.2.0 - 2020-02-02\n\n### Added\n\n- One.\n\n\
            ## 0.1.0 - 2020-01-01\n\n- Old.\n";
        assert_eq!(released, wanted);
        assert!(with_section(&released, "0.3.0", "2020-02-03").is_err(), "nothing is unreleased");
        assert!(with_section(log, "0.1.0", "2020-02-03").is_err(), "it is there");
        assert!(with_section("# Change log\n", "0.2.0", "2020-02-02").is_err());
    }

    #[test]
    fn days_are_dates() {
        assert_eq!(day(0), "1970-01-01");
        assert_eq!(day(59), "1970-03-01");
        assert_eq!(day(11_016), "2000-02-29");
        assert_eq!(day(20_453), "2025-12-31");
        assert_eq!(day(20_454), "2026-01-01");
    }
}
