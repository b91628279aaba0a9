//! `SlateDB` over a block cache in a pool.

use std::path::Path;

use super::copy::Sources;
use crate::shell::root;

/// Prepares the copy: our cache is in place of those of the tests.
pub(super) fn prepare(manifest: &str, to: &Path) -> Result<(), String> {
    let mut sources = Sources::of(manifest, "slatedb")?;
    let adapters = root().join("crates/cache-adapters");
    let ours = adapters.join("src/slatedb.rs");
    let adapter = std::fs::read_to_string(&ours).map_err(|e| format!("{}: {e}", ours.display()))?;
    let adapter = adapter
        .replace(
            "use crate::{Source, get_or_load, note};",
            "use pmindex_cache_adapters::{Source, get_or_load, note};",
        )
        .replace("use slatedb::", "use crate::");
    sources.set("src/db_cache/in_a_pool.rs", adapter + FOR_TESTS);
    let crates = root().join("crates").display().to_string();
    let dependencies = format!(
        "[workspace]\n\n[dependencies.pmindex-cache]\npath = \"{crates}/cache\"\n\n[dependencies.pmindex-core]\n\
         path = \"{crates}/pm-core\"\n\n[dependencies.pmindex-cache-adapters]\npath = \
         \"{crates}/cache-adapters\"\ndefault-features = false\n\n[dependencies.postcard]\nversion = \"1\"\n\
         features = [\"use-std\"]\n\n[dependencies.serde]\n"
    );
    sources.change("Cargo.toml", &[("[dependencies.serde]\n", &dependencies)])?;
    let manifest = without_benches(&sources.text("Cargo.toml")?);
    sources.set("Cargo.toml", manifest);
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
        (
            "mod serde;",
            "mod serde;\n#[allow(missing_docs, dead_code, unreachable_pub)]\npub(crate) mod in_a_pool;",
        ),
    ];
    sources.change("src/db_cache/mod.rs", &[&cases[..], &own].concat())?;
    sources.change("src/tablestore.rs", &cases)?;
    // The default for a database without a cache, as in nearly all tests.
    let default = "Some(Arc::new(crate::db_cache::foyer::FoyerCache::new_with_opts(";
    let ours =
        "Some(crate::db_cache::in_a_pool::arc(crate::db_cache::foyer::FoyerCache::new_with_opts(";
    sources.change("src/db/builder.rs", &[(default, ours)])?;
    sources.write(to)
}

/// Removes the benches from a manifest, and the dependencies that only they need.
fn without_benches(text: &str) -> String {
    let of_benches = |table: &str| {
        let head = table.lines().next().unwrap_or_default();
        head == "[bench]]" || head.contains(".criterion]") || head.contains(".pprof]")
    };
    let kept: Vec<&str> = text.split("\n[").filter(|table| !of_benches(table)).collect();
    kept.join("\n[")
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
