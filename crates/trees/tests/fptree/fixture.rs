//! An index with byte-string values opens for ever: the image of a killed process whose redo log says what two values
//! are.

use std::fs;
use std::sync::Arc;

use pmindex_core::Pool;
use pmindex_testkit::fixture::{image, options};
use pmindex_trees::FpTree;

type Texts = FpTree<String, Vec<u8>>;

fn key(n: u64) -> String {
    format!("key {n}")
}

#[test]
fn fptree_v2_killed_opens_and_has_what_its_redo_log_says() {
    let image = image("fptree-v2-killed", |path| {
        let pool = Arc::new(Pool::create(path, &options()).expect("created"));
        let texts = Texts::create(&pool, "texts").expect("room");
        for n in 0..60 {
            texts.put(&key(n), &[n as u8; 100]).expect("room");
        }
        for n in (0..60).step_by(7) {
            texts.put(&key(n), &[100 + n as u8; 100]).expect("room");
        }
        // A crash of the machine leaves what was flushed: not the last two values, which stand in the log.
        let durable = fs::read(path).expect("readable");
        let stale = [49, 56].map(|n: u64| ([n as u8; 100], [100 + n as u8; 100]));
        drop((texts, pool));
        let mut bytes = durable;
        for (old, new) in stale {
            let found: Vec<usize> = (0..bytes.len() - 100)
                .step_by(8)
                .filter(|&at| bytes[at..].starts_with(&new[..96]))
                .collect();
            let &[at] = &found[..] else {
                panic!("in a block whole, in the log in lines: {found:?}")
            };
            bytes[at..at + 100].copy_from_slice(&old);
        }
        fs::write(path, bytes).expect("written");
    });
    let directory = tempfile::tempdir().expect("a directory");
    let path = directory.path().join("pool");
    fs::write(&path, image).expect("written");
    for round in 0..2u64 {
        let pool = Arc::new(Pool::open(&path, &options()).expect("opened"));
        let texts = Texts::open(&pool, "texts").expect("opened");
        assert_eq!(texts.recovery_report().repaired, 1 - round);
        assert_eq!(texts.check(), Ok(60));
        for n in 0..60 {
            let byte = if n % 7 == 0 { 100 + n } else { n };
            assert_eq!(texts.get(&key(n)), Ok(Some(vec![byte as u8; 100])), "{n}");
        }
        pool.audit(texts.blocks().expect("whole").into_iter()).expect("every block once");
        texts.close().expect("closed");
        Arc::into_inner(pool).expect("the only one").close().expect("closed");
    }
}
