//! Rolling back in a pool that takes no writes, and what follows if that fails.

use crate::error::PmError;
use crate::pool::{Pool, PoolOptions};

fn is_damaged<M: crate::media::Medium>(pool: &Pool<M>) -> bool {
    matches!(pool.op().map(drop), Err(PmError::Damaged { .. }))
}

#[test]
fn damage_elsewhere_does_not_stop_it() {
    let pool = Pool::emulated(1 << 20).expect("memory");
    pool.note_damage(&PmError::Corrupt { what: "elsewhere", offset: 64 });
    assert!(is_damaged(&pool));
    pool.roll_back(|| pool.op().map(drop)).expect("allowed");
    assert!(is_damaged(&pool), "on this thread, until it has returned");
    let elsewhere = || std::thread::scope(|scope| scope.spawn(|| is_damaged(&pool)).join());
    pool.roll_back(|| {
        assert!(elsewhere().expect("no panic"), "not on another thread");
        Ok(())
    })
    .expect("allowed");
}

#[test]
fn the_pool_takes_no_writes_after_one_that_failed() {
    let pool = Pool::emulated(1 << 20).expect("memory");
    let error = PmError::Corrupt { what: "a leaf", offset: 64 };
    pool.roll_back(|| Err(error.clone())).expect_err("it failed");
    let damage = pool.damage();
    assert_eq!(damage, Some(PmError::Damaged { what: "a leaf", offset: 64 }));
    assert!(is_damaged(&pool));

    let options = PoolOptions::new().size(1 << 20).slots(1).grow(false).emulate_pm(true);
    let pool = Pool::create_in_memory(&options, |mapped| mapped).expect("memory");
    let slot = pool.op().expect("free");
    let failed = pool.roll_back(|| pool.op().map(drop));
    assert!(matches!(failed, Err(PmError::Busy { .. })), "{failed:?}");
    drop(slot);
    assert!(is_damaged(&pool));
}
