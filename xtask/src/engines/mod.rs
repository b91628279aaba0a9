//! `cargo xtask engines`: tests the block cache and the files of pools under existing storage engines.
//!
//! Builds `crates/cache-adapters` and runs its tests and examples; or, with `--own-tests`, the engines' own
//! tests, in copies of their published sources: those of SlateDB, whose default cache is ours, in a pool,
//! under SlateDB's in DRAM; and those of rusty-leveldb, whose files are in a pool.

mod copy;
mod leveldb;
mod slatedb;

use std::path::PathBuf;

use crate::shell::{root, run_cargo};

/// Options of the command.
#[derive(clap::Args)]
pub(crate) struct Args {
    /// Run instead the tests of `SlateDB` and `rusty-leveldb` themselves over our cache and files
    #[arg(long)]
    own_tests: bool,

    /// With --own-tests: only these engines, `slatedb` and `leveldb`
    #[arg(long, value_delimiter = ',', requires = "own_tests")]
    engine: Vec<String>,

    /// With --own-tests: only tests whose names contain one of these words
    #[arg(long, value_delimiter = ',', requires = "own_tests")]
    only: Vec<String>,
}

/// Prepares a copy of an engine, given the manifest whose locked dependency it is and the copy's folder.
type Prepare = fn(&str, &std::path::Path) -> Result<(), String>;

/// The engines, and the features with which their tests are built.
const ENGINES: [(&str, Prepare, &[&str]); 2] = [
    ("leveldb", leveldb::prepare, &["--features", "fs"]),
    // Without the clients of clouds, which no test needs.
    ("slatedb", slatedb::prepare, &["--features", "foyer,moka,test-util"]),
];

/// Runs the command.
pub(crate) fn run(args: &Args) -> Result<(), String> {
    let manifest = root().join("crates/cache-adapters/Cargo.toml").display().to_string();
    let named = std::env::var_os("CARGO_TARGET_DIR").map(PathBuf::from);
    let folder = root().join(named.unwrap_or_else(|| "target".into())).join("engines");
    let folder_text = folder.display().to_string();
    // Without debug information, which would be most of the build.
    let env = [("CARGO_TARGET_DIR", folder_text.as_str()), ("CARGO_PROFILE_DEV_DEBUG", "0")];
    if !args.own_tests {
        run_cargo(&["test", "--manifest-path", &manifest], &env)?;
        for example in ["moka", "foyer", "slatedb"] {
            run_cargo(&["run", "--manifest-path", &manifest, "--example", example], &env)?;
        }
        return Ok(());
    }
    let is_known = |name: &&String| ENGINES.iter().any(|(known, ..)| known == name);
    if let Some(name) = args.engine.iter().find(|name| !is_known(name)) {
        return Err(format!("no engine {name:?}; there are `slatedb` and `leveldb`"));
    }
    let (mut found, mut failed) = (Vec::new(), Vec::new());
    for (name, prepare, features) in ENGINES {
        if !args.engine.is_empty() && !args.engine.iter().any(|wanted| wanted == name) {
            continue;
        }
        let copy = folder.join(name);
        prepare(&manifest, &copy)?;
        match copy::test(&copy, features, &args.only, &env) {
            Ok(passed) => found.push(format!("{name}: {passed} tests passed")),
            Err(error) => failed.push(format!("{name}: {error}")),
        }
    }
    eprintln!("\n== the engines' own tests\n{}", found.join("\n"));
    if failed.is_empty() { Ok(()) } else { Err(failed.join("\n")) }
}
