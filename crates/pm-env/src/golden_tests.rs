//! Golden costs of files.

use std::sync::Arc;

use pmindex_core::Pool;
use pmindex_testkit::golden::{self, Row};

use crate::{Env, EnvOptions};

const OPERATIONS: u64 = 100;

#[test]
fn golden_env() {
    let pool = Arc::new(Pool::counting(16 << 20).expect("memory"));
    let env = Env::create(&pool, "files", &EnvOptions::new()).expect("room");
    let (pm, mut rows) = (pool.pm(), Vec::<Row>::new());
    let mut row = |name: &str, operations: u64, run: &dyn Fn(u64)| {
        rows.push(golden::measure(pm, name, operations, || (0..operations).for_each(run)));
    };
    let name = |n: u64| format!("{n:06}.ldb");
    row("create a file", OPERATIONS, &|n| drop(env.create_file(&name(n)).expect("room")));
    for bytes in [128, 4096] {
        let log = env.create_file(&format!("{bytes}.log")).expect("room");
        let record = vec![7; bytes];
        log.append(&record).expect("room"); // allocates the first extent
        row(&format!("append of {bytes} bytes"), OPERATIONS, &|_| {
            log.append(&record).expect("room");
        });
        row(&format!("append of {bytes} bytes and sync"), OPERATIONS, &|_| {
            log.append(&record).expect("room");
            log.sync().expect("sound");
        });
        row(&format!("read of {bytes} bytes"), OPERATIONS, &|n| {
            let mut piece = vec![0; bytes];
            assert_eq!(log.read_at(n * bytes as u64, &mut piece).expect("sound"), bytes);
        });
    }
    row("rename", OPERATIONS / 2, &|n| {
        env.rename(&name(n), &format!("{n:06}.sst")).expect("room");
    });
    row("rename over another file", OPERATIONS / 2, &|n| {
        env.rename(&format!("{n:06}.sst"), &name(n + OPERATIONS / 2)).expect("room");
    });
    row("delete", OPERATIONS / 2, &|n| env.delete(&name(n + OPERATIONS / 2)).expect("there"));
    golden::check("env", &rows);
}
