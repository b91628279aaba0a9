//! Kills a real process: whatever it was told is durable is present afterwards.

use std::io::{BufRead, BufReader};
use std::process::{Command, Stdio};

use pmindex_core::{Durability, Medium, OpenError, PPtr, PmU64, Pool, PoolOptions};

const CHILD: &str = "PMINDEX_TEST_KILLED_CHILD";

fn options() -> PoolOptions {
    PoolOptions::new().size(256 << 10).zone_bytes(32 << 10).require(Durability::Process)
}

/// Adds and drops indexes in an endless loop, and reports the acknowledged ones.
fn child(path: &str) -> ! {
    let pool = Pool::create(path, &options()).expect("created");
    for i in 0u64.. {
        let name = format!("{}", i % 50);
        if i >= 50 {
            pool.drop_root(&name).expect("dropped");
        }
        let fill = |block: &[PmU64; 8]| {
            pool.pm().store(&block[0], i);
            pool.pm().flush(block)
        };
        pool.create_index::<[PmU64; 8]>(&name, *b"killed  ", 0, fill).expect("created");
        println!("acknowledged {i}");
    }
    unreachable!()
}

#[test]
fn what_a_killed_process_acknowledged_is_there() {
    if let Ok(path) = std::env::var(CHILD) {
        child(&path);
    }
    for round in 0..3u64 {
        let directory = tempfile::tempdir().expect("a directory");
        let path = directory.path().join("pool");
        let mut victim = Command::new(std::env::current_exe().expect("this program"))
            .args(["what_a_killed_process_acknowledged_is_there", "--exact", "--nocapture"])
            .env(CHILD, &path)
            .stdout(Stdio::piped())
            .spawn()
            .expect("a child");
        let lines = BufReader::new(victim.stdout.take().expect("piped")).lines();
        let mut numbers = lines.map_while(Result::ok).filter_map(|line| {
            line.split("acknowledged ").nth(1).and_then(|number| number.trim().parse::<u64>().ok())
        });
        let enough = 20 + 60 * round;
        let mut last = numbers.by_ref().find(|&number| number >= enough).expect("acknowledged");
        let busy = Pool::open(&path, &options());
        assert!(matches!(busy, Err(OpenError::Locked { .. })), "another process has it");
        victim.kill().expect("killed");
        last = numbers.last().unwrap_or(last); // the rest of the pipe
        victim.wait().expect("ended");

        let pool = Pool::open(&path, &options()).expect("recovered");
        assert!(!pool.was_clean());
        // In progress: the drop of `last + 1 - 50`, or the creation of `last + 1`.
        let (in_flight, oldest) = (last + 1, (last + 1).saturating_sub(50));
        for entry in pool.indexes().expect("whole") {
            let value = pool
                .pm()
                .load(&pool.get(PPtr::<[PmU64; 8]>::new(entry.block())).expect("there")[0]);
            assert!(
                (oldest..=in_flight).contains(&value) && entry.name == (value % 50).to_string()
            );
        }
        for value in last.saturating_sub(48)..=last {
            let found = pool.find_index(&(value % 50).to_string()).expect("whole");
            assert!(found.is_some(), "{value} was acknowledged, {last} was the last");
        }
    }
}
