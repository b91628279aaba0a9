//! rusty-leveldb over files of a pool: wherever its tests have files in memory, they are in a pool of their
//! own.

use std::path::Path;

use super::copy::Sources;
use crate::shell::root;

/// Prepares the copy.
pub(super) fn prepare(manifest: &str, to: &Path) -> Result<(), String> {
    let mut sources = Sources::of(manifest, "rusty-leveldb")?;
    let ours = root().join("crates/pm-env/src/leveldb.rs");
    let adapter = std::fs::read_to_string(&ours).map_err(|e| format!("{}: {e}", ours.display()))?;
    let adapter = adapter
        .replace("use crate::{Env, EnvError", "use pmindex_env::{Env, EnvError")
        .replace("EnvError::Pool(_) =>", "_ =>") // the error of another crate may get variants
        .replace("use rusty_leveldb::", "use crate::")
        .replace("impl<M: Medium> rusty_leveldb::", "impl<M: Medium> crate::");
    sources.set("src/in_a_pool.rs", adapter + FOR_TESTS);
    let crates = root().join("crates").display().to_string();
    let dependencies = format!(
        "[workspace]\n\n[dependencies.pmindex-env]\npath = \"{crates}/pm-env\"\n\n[dependencies.pmindex-core]\n\
         path = \"{crates}/pm-core\"\n\n[dependencies.parking_lot]\nversion = \"0.12\"\n\n[dependencies.bytes]\n"
    );
    sources.change("Cargo.toml", &[("[dependencies.bytes]\n", &dependencies)])?;
    let library = sources.text("src/lib.rs")?;
    sources.set("src/lib.rs", library + "\nmod in_a_pool;\n");
    let in_memory = ("MemEnv::new()", "crate::in_a_pool::files()");
    let import = ("use crate::mem_env::MemEnv;\n", "");
    for file in ["src/options.rs", "src/db_impl.rs", "src/table_cache.rs"] {
        sources.change(file, &[import, in_memory])?;
    }
    sources.write(to)
}

/// What the copy has beside the adapter.
const FOR_TESTS: &str = r#"
/// Files in a pool of their own.
pub(crate) fn files() -> LevelEnv {
    let pool = pmindex_core::Pool::emulated(16 << 20).expect("memory");
    LevelEnv::new(Env::open_or_create(&std::sync::Arc::new(pool), "db").expect("room"))
}

/// A database writes its catalog, log and tables to a pool.
#[test]
fn what_is_written_is_in_a_pool() {
    let pool = std::sync::Arc::new(pmindex_core::Pool::emulated(16 << 20).expect("memory"));
    let env = || Env::open_or_create(&pool, "db").expect("room");
    let options = || crate::Options {
        env: std::rc::Rc::new(Box::new(LevelEnv::new(env()))),
        ..crate::Options::default()
    };
    let mut db = crate::DB::open("db", options()).expect("a database");
    db.put(b"key", b"value").expect("written");
    db.close().expect("closed");
    drop(db);
    assert!(env().list("db/").iter().any(|name| name.ends_with("CURRENT")));
    let mut db = crate::DB::open("db", options()).expect("the database");
    assert_eq!(db.get(b"key").as_deref(), Some(&b"value"[..]));
}
"#;
