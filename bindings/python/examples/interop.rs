//! Opens in Rust the maps that Python wrote, and writes the same for Python to open: for `test_interop.py`.
//!
//! `check FILE` looks at every record, `write FILE` makes them.
#![forbid(unsafe_code)]

use std::process::ExitCode;
use std::time::Duration;

use facade::{Index, Key, PoolOptions, Store, StoreError, StoreOptions, Total, Value};

/// What is done with a map.
enum Task {
    Check,
    Write,
}

/// One map: its records in order.
fn map<K: Key, V: Value>(
    store: &Store,
    task: &Task,
    name: &str,
    records: &[(K, V)],
) -> Result<(), StoreError> {
    let map = store.map::<K, V>(name)?;
    if let Task::Write = task {
        for (key, value) in records.iter().rev() {
            map.insert(key.borrowed(), value.borrowed())?;
        }
    }
    let found: Vec<(K, V)> = map.range(..).collect::<Result<_, _>>()?;
    assert!(found == records, "map {name:?} has {found:?}, not {records:?}");
    Ok(())
}

/// All maps; `test_interop.py` has the same.
fn maps(store: &Store, task: &Task) -> Result<(), StoreError> {
    let text = str::to_owned;
    map(store, task, "users", &[(i64::MIN, text("least")), (-1, text("")), (7, text("é\0"))])?;
    map(store, task, "raw", &[(vec![], -0.0), (vec![0, 255], 1.5), (vec![1], f64::NEG_INFINITY)])?;
    let pairs = [((-1i64, 2i64), (true, 3u32)), ((-1, 3), (false, 0)), ((0, 0), (true, 9))];
    map(store, task, "pairs", &pairs)?;
    let orders = [
        ((text("Ada"), 1i64), ((), vec![0u8, 1, 0], 0.5)),
        ((text("Ada"), 2), ((), vec![], -1.0)),
        ((text("Ada\0"), -5), ((), vec![255, 0], 0.0)),
    ];
    map(store, task, "orders", &orders)?;
    let numbers = [
        ((Total(-1.5), 1u8, (2u16, 3i64, 4u64)), -128i8),
        ((Total(-0.0), 0, (0, 0, u64::MAX)), 127),
        ((Total(0.0), 0, (0, i64::MIN, 0)), -1),
    ];
    map(store, task, "numbers", &numbers)?;
    let sessions = store.expiring_map::<String, String>("sessions")?;
    if let Task::Write = task {
        sessions.put("a", "Ada", Duration::from_secs(3_600))?;
        sessions.put("b", "over", Duration::ZERO)?;
    }
    assert_eq!(sessions.get("a")?.as_deref(), Some("Ada"));
    assert_eq!(sessions.get("b")?, None);
    Ok(())
}

fn run() -> Result<(), String> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let [task, path] = &arguments[..] else { return Err("check FILE, or write FILE".into()) };
    let task = if task == "write" { Task::Write } else { Task::Check };
    let options = StoreOptions::new().pool(PoolOptions::new().size(16 << 20));
    let store = Store::open_with(path, &options).map_err(|error| error.to_string())?;
    maps(&store, &task).map_err(|error| error.to_string())?;
    store.close().map_err(|error| error.to_string())
}

fn main() -> ExitCode {
    match run() {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("error: {error}");
            ExitCode::FAILURE
        }
    }
}
