//! A copy of an engine's published sources, changed to stand on ours, and its tests.

use std::collections::BTreeMap;
use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use crate::shell::cargo;

/// A test program that runs longer than this is killed.
const LIMIT: Duration = Duration::from_secs(1200);

/// The files of a crate, by their paths in it.
pub(super) struct Sources(BTreeMap<PathBuf, Vec<u8>>);

fn failed(what: &Path, error: &std::io::Error) -> String {
    format!("{}: {error}", what.display())
}

impl Sources {
    /// Reads the locked version of a dependency of a manifest.
    pub(super) fn of(manifest: &str, name: &str) -> Result<Self, String> {
        let folder = folder_of(manifest, name)?;
        let mut files = Self(BTreeMap::new());
        files.read(&folder, Path::new(""))?;
        Ok(files)
    }

    fn read(&mut self, root: &Path, under: &Path) -> Result<(), String> {
        let folder = root.join(under);
        for entry in std::fs::read_dir(&folder).map_err(|e| failed(&folder, &e))? {
            let entry = entry.map_err(|e| failed(&folder, &e))?;
            let name = under.join(entry.file_name());
            if entry.file_type().map_err(|e| failed(&entry.path(), &e))?.is_dir() {
                self.read(root, &name)?;
            } else {
                let bytes = std::fs::read(entry.path()).map_err(|e| failed(&entry.path(), &e))?;
                self.0.insert(name, bytes);
            }
        }
        Ok(())
    }

    /// Adds or replaces a file.
    pub(super) fn set(&mut self, file: &str, text: String) {
        self.0.insert(file.into(), text.into_bytes());
    }

    /// Returns the text of a file.
    pub(super) fn text(&self, file: &str) -> Result<String, String> {
        let bytes = self.0.get(Path::new(file)).ok_or_else(|| format!("{file} is missing"))?;
        String::from_utf8(bytes.clone()).map_err(|_| format!("{file} is no UTF-8"))
    }

    /// Replaces pieces of a file, each of which it has.
    pub(super) fn change(&mut self, file: &str, changes: &[(&str, &str)]) -> Result<(), String> {
        let mut text = self.text(file)?;
        for (old, new) in changes {
            if !text.contains(old) {
                return Err(format!("{file}: no {old:?}: another version?"));
            }
            text = text.replace(old, new);
        }
        self.set(file, text);
        Ok(())
    }

    /// Writes the files that differ, so that only those are compiled again, and removes others.
    pub(super) fn write(&self, to: &Path) -> Result<(), String> {
        let mut there = Self(BTreeMap::new());
        std::fs::create_dir_all(to).map_err(|e| failed(to, &e))?;
        there.read(to, Path::new(""))?;
        for name in there.0.keys().filter(|name| !self.0.contains_key(*name)) {
            std::fs::remove_file(to.join(name)).map_err(|e| failed(&to.join(name), &e))?;
        }
        for (name, bytes) in self.0.iter().filter(|&(name, bytes)| there.0.get(name) != Some(bytes))
        {
            let path = to.join(name);
            let folder = path.parent().unwrap_or(to);
            std::fs::create_dir_all(folder).map_err(|e| failed(folder, &e))?;
            std::fs::write(&path, bytes).map_err(|e| failed(&path, &e))?;
        }
        Ok(())
    }
}

/// Returns the folder of the sources of the locked version.
fn folder_of(manifest: &str, name: &str) -> Result<PathBuf, String> {
    let args = ["metadata", "--format-version", "1", "--locked", "--all-features"];
    let out = Command::new(cargo()).args(args).args(["--manifest-path", manifest]).output();
    let out = out.map_err(|e| format!("cargo metadata: {e}"))?;
    if !out.status.success() {
        return Err(format!("cargo metadata: {}", String::from_utf8_lossy(&out.stderr).trim()));
    }
    let metadata: serde_json::Value =
        serde_json::from_slice(&out.stdout).map_err(|e| format!("cargo metadata: {e}"))?;
    let packages = metadata["packages"].as_array().ok_or("cargo metadata lists no packages")?;
    let package = packages.iter().find(|package| package["name"] == name);
    let path = package.and_then(|package| package["manifest_path"].as_str());
    let path = path.ok_or_else(|| format!("{name} is not among the dependencies"))?;
    Path::new(path).parent().map(Path::to_path_buf).ok_or_else(|| "a manifest in no folder".into())
}

/// Builds and runs the tests of a copy; returns the number of those that passed.
pub(super) fn test(
    copy: &Path,
    features: &[&str],
    only: &[String],
    env: &[(&str, &str)],
) -> Result<u64, String> {
    let programs = build(copy, features, env)?;
    let (mut passed, mut bad) = (0, Vec::new());
    for program in &programs {
        match run(program, copy, only) {
            Ok(more) => passed += more,
            Err(error) => bad.push(error),
        }
    }
    match (bad.is_empty(), passed) {
        (true, 0) => Err("no test ran".into()),
        (true, passed) => Ok(passed),
        (false, _) => Err(format!("{passed} tests passed; {}", bad.join("; "))),
    }
}

/// Builds the test programs, and returns their paths.
fn build(copy: &Path, features: &[&str], env: &[(&str, &str)]) -> Result<Vec<PathBuf>, String> {
    let line = ["test", "--lib", "--tests", "--no-run", "--no-default-features"];
    eprintln!("\n== cargo {} {} in {}", line.join(" "), features.join(" "), copy.display());
    let mut command = Command::new(cargo());
    command.args(line).args(features).arg("--message-format=json-render-diagnostics");
    command.current_dir(copy).envs(env.iter().copied()).stderr(Stdio::inherit());
    let out = command.output().map_err(|e| format!("cargo: {e}"))?;
    if !out.status.success() {
        return Err(format!("the tests do not build ({})", out.status));
    }
    let text = String::from_utf8_lossy(&out.stdout);
    let messages =
        text.lines().filter_map(|line| serde_json::from_str::<serde_json::Value>(line).ok());
    let tests = messages.filter(|message| message["profile"]["test"] == true);
    let programs: Vec<PathBuf> =
        tests.filter_map(|message| message["executable"].as_str().map(PathBuf::from)).collect();
    if programs.is_empty() { Err("there are no test programs".into()) } else { Ok(programs) }
}

/// Runs a test program, and returns the number of tests that passed.
fn run(program: &Path, copy: &Path, only: &[String]) -> Result<u64, String> {
    let name = program.file_stem().unwrap_or_default().to_string_lossy().into_owned();
    eprintln!("\n== {name} {}", only.join(" "));
    let mut command = Command::new(program);
    command.args(only).current_dir(copy).env("CARGO_MANIFEST_DIR", copy).stdout(Stdio::piped());
    let mut child = command.spawn().map_err(|e| format!("{name} did not start: {e}"))?;
    let lines = child.stdout.take().map(|out| BufReader::new(out).lines());
    let reader = std::thread::spawn(move || {
        let mut passed = 0;
        for line in lines.into_iter().flatten().map_while(Result::ok) {
            println!("{line}");
            let result = line.strip_prefix("test result: ").and_then(|rest| rest.split_once(". "));
            let number = result.and_then(|(_, rest)| rest.split(' ').next()?.parse::<u64>().ok());
            passed += number.unwrap_or(0);
        }
        passed
    });
    let began = Instant::now();
    let status = loop {
        if let Some(status) = child.try_wait().map_err(|e| format!("{name}: {e}"))? {
            break status;
        }
        if began.elapsed() > LIMIT {
            let _ = child.kill();
            let _ = child.wait();
            return Err(format!("{name} ran longer than {} minutes", LIMIT.as_secs() / 60));
        }
        std::thread::sleep(Duration::from_millis(50));
    };
    let passed = reader.join().map_err(|_| format!("the output of {name} is unreadable"))?;
    if status.success() { Ok(passed) } else { Err(format!("{name} failed ({status})")) }
}
