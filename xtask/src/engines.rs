//! `cargo xtask engines`: tests the block cache under existing storage engines.
//!
//! Builds `crates/cache-adapters` and runs its tests and examples; or, with `--own-tests`, SlateDB's own
//! tests, in a copy of its published sources whose default cache is ours, in a pool, under SlateDB's in DRAM.

use std::path::{Path, PathBuf};
use std::process::Command;

use crate::shell::{cargo, root, run_cargo};

/// Options of the command.
#[derive(clap::Args)]
pub(crate) struct Args {
    /// Run instead the tests of `SlateDB` itself over our cache, which take long to build
    #[arg(long)]
    own_tests: bool,

    /// With --own-tests: only tests whose names contain one of these words
    #[arg(long, value_delimiter = ',', requires = "own_tests")]
    only: Vec<String>,
}

/// Runs the command.
pub(crate) fn run(args: &Args) -> Result<(), String> {
    let manifest = root().join("crates/cache-adapters/Cargo.toml").display().to_string();
    let named = std::env::var_os("CARGO_TARGET_DIR").map(PathBuf::from);
    let folder = root().join(named.unwrap_or_else(|| "target".into())).join("engines");
    let folder_text = folder.display().to_string();
    // Without debug information, which would be most of the build.
    let env = [("CARGO_TARGET_DIR", folder_text.as_str()), ("CARGO_PROFILE_DEV_DEBUG", "0")];
    if args.own_tests {
        return own_tests(&manifest, &folder, &args.only, &env);
    }
    run_cargo(&["test", "--manifest-path", &manifest], &env)?;
    for example in ["moka", "foyer", "slatedb"] {
        run_cargo(&["run", "--manifest-path", &manifest, "--example", example], &env)?;
    }
    Ok(())
}

/// Runs SlateDB's tests without the clients of clouds, which none of them needs.
fn own_tests(
    manifest: &str,
    folder: &Path,
    only: &[String],
    env: &[(&str, &str)],
) -> Result<(), String> {
    let copy = folder.join("slatedb");
    copy_of_slatedb(manifest, &copy)?;
    let manifest = copy.join("Cargo.toml").display().to_string();
    let line = ["test", "--lib", "--tests", "--no-fail-fast", "--manifest-path", &manifest];
    let features = ["--no-default-features", "--features", "foyer,moka,test-util"];
    let only: Vec<&str> = only.iter().map(String::as_str).collect();
    run_cargo(&[&line[..], &features, &["--"], &only].concat(), env).map(drop)
}

/// Copies the locked sources, with our cache in place of those of the tests.
fn copy_of_slatedb(manifest: &str, to: &Path) -> Result<(), String> {
    let from = sources(manifest)?;
    let failed = |what: &Path, e: std::io::Error| format!("{}: {e}", what.display());
    if to.exists() {
        std::fs::remove_dir_all(to).map_err(|e| failed(to, e))?;
    }
    copy(&from, to)?;
    let change = |file: &str, changes: &[(&str, &str)]| {
        let path = to.join(file);
        let mut text = std::fs::read_to_string(&path).map_err(|e| failed(&path, e))?;
        for (old, new) in changes {
            if !text.contains(old) {
                return Err(format!("{}: no {old:?}: another version?", path.display()));
            }
            text = text.replace(old, new);
        }
        std::fs::write(&path, text).map_err(|e| failed(&path, e))
    };
    let adapters = root().join("crates/cache-adapters");
    let ours = adapters.join("src/slatedb.rs");
    let adapter = std::fs::read_to_string(&ours).map_err(|e| failed(&ours, e))?;
    let adapter = adapter
        .replace(
            "use crate::{Source, get_or_load, note};",
            "use pmindex_cache_adapters::{Source, get_or_load, note};",
        )
        .replace("use slatedb::", "use crate::");
    std::fs::write(to.join("src/db_cache/in_a_pool.rs"), adapter + FOR_TESTS)
        .map_err(|e| failed(to, e))?;
    let crates = root().join("crates").display().to_string();
    let dependencies = format!(
        "[workspace]\n\n[dependencies.pmindex-cache]\npath = \"{crates}/cache\"\n\n[dependencies.pmindex-core]\n\
         path = \"{crates}/pm-core\"\n\n[dependencies.pmindex-cache-adapters]\npath = \
         \"{crates}/cache-adapters\"\ndefault-features = false\n\n[dependencies.postcard]\nversion = \"1\"\n\
         features = [\"use-std\"]\n\n[dependencies.serde]\n"
    );
    change("Cargo.toml", &[("[dependencies.serde]\n", &dependencies)])?;
    without_benches(&to.join("Cargo.toml"))?;
    let cases = [
        ("FoyerCache::new()", "crate::db_cache::in_a_pool::over(FoyerCache::new())"),
        ("MokaCache::new()", "crate::db_cache::in_a_pool::over(MokaCache::new())"),
    ];
    let own = [
        (
            "case::test_cache(Arc::new(TestCache::new())",
            "case::test_cache(crate::db_cache::in_a_pool::arc(TestCache::new())",
        ),
        (
            "let shared_cache: Arc<dyn DbCache> = Arc::new(TestCache::new())",
            "let shared_cache: Arc<dyn DbCache> = crate::db_cache::in_a_pool::arc(TestCache::new())",
        ),
        ("mod serde;", "mod serde;\n#[allow(missing_docs)]\npub(crate) mod in_a_pool;"),
    ];
    change("src/db_cache/mod.rs", &[&cases[..], &own].concat())?;
    change("src/tablestore.rs", &cases)?;
    // The default for a database without a cache, as in nearly all tests.
    let default = "Some(Arc::new(crate::db_cache::foyer::FoyerCache::new_with_opts(";
    let ours =
        "Some(crate::db_cache::in_a_pool::arc(crate::db_cache::foyer::FoyerCache::new_with_opts(";
    change("src/db/builder.rs", &[(default, ours)])
}

/// Removes the benches from a manifest, and the dependencies that only they need.
fn without_benches(manifest: &Path) -> Result<(), String> {
    let failed = |e: std::io::Error| format!("{}: {e}", manifest.display());
    let text = std::fs::read_to_string(manifest).map_err(failed)?;
    let of_benches = |table: &str| {
        let head = table.lines().next().unwrap_or_default();
        head == "[bench]]" || head.contains(".criterion]") || head.contains(".pprof]")
    };
    let kept: Vec<&str> = text.split("\n[").filter(|table| !of_benches(table)).collect();
    std::fs::write(manifest, kept.join("\n[")).map_err(failed)
}

/// What the copy has beside the adapter.
const FOR_TESTS: &str = r#"
/// Every cache in a pool.
static ALL: std::sync::Mutex<Vec<std::sync::Weak<BlockCache>>> = std::sync::Mutex::new(vec![]);

/// A cache of a test over one in a pool of its own.
pub(crate) fn over<C: DbCache>(front: C) -> SlateCache<C> {
    let pool = Arc::new(pmindex_core::Pool::emulated(24 << 20).expect("memory"));
    let options = pmindex_cache::CacheOptions::new(8 << 20).segment_bytes(64 << 10);
    let back = Arc::new(BlockCache::create(&pool, "blocks", &options).expect("room"));
    ALL.lock().expect("whole").push(Arc::downgrade(&back));
    SlateCache::new(front, back)
}

pub(crate) fn arc<C: DbCache + 'static>(front: C) -> Arc<dyn DbCache> {
    Arc::new(over(front))
}

/// A database that is given no cache reads its blocks through one in a pool.
#[cfg(test)]
#[tokio::test]
async fn what_is_read_is_in_a_pool() {
    let store = Arc::new(object_store::memory::InMemory::new());
    let db = crate::Db::open("read through a pool", store).await.expect("a database");
    db.put(b"key", b"value").await.expect("written");
    let options = crate::config::FlushOptions { flush_type: crate::config::FlushType::MemTable };
    db.flush_with_options(options).await.expect("flushed");
    assert_eq!(db.get(b"key").await.expect("read").as_deref(), Some(&b"value"[..]));
    let all = ALL.lock().expect("whole");
    assert!(all.iter().filter_map(std::sync::Weak::upgrade).any(|back| back.len() > 0));
}
"#;

/// Returns the folder of the sources of the locked version.
fn sources(manifest: &str) -> Result<PathBuf, String> {
    let args = ["metadata", "--format-version", "1", "--locked", "--manifest-path", manifest];
    let out =
        Command::new(cargo()).args(args).output().map_err(|e| format!("cargo metadata: {e}"))?;
    let metadata: serde_json::Value =
        serde_json::from_slice(&out.stdout).map_err(|e| format!("cargo metadata: {e}"))?;
    let packages = metadata["packages"].as_array().ok_or("cargo metadata lists no packages")?;
    let slatedb = packages.iter().find(|package| package["name"] == "slatedb");
    let path = slatedb.and_then(|package| package["manifest_path"].as_str());
    let path = PathBuf::from(path.ok_or("slatedb is not among the dependencies")?);
    path.parent().map(Path::to_path_buf).ok_or_else(|| "a manifest in no folder".into())
}

fn copy(from: &Path, to: &Path) -> Result<(), String> {
    let failed = |e: std::io::Error| format!("{} to {}: {e}", from.display(), to.display());
    std::fs::create_dir_all(to).map_err(failed)?;
    for entry in std::fs::read_dir(from).map_err(failed)? {
        let entry = entry.map_err(failed)?;
        let target = to.join(entry.file_name());
        if entry.file_type().map_err(failed)?.is_dir() {
            copy(&entry.path(), &target)?;
        } else {
            std::fs::copy(entry.path(), &target).map_err(failed)?;
        }
    }
    Ok(())
}
