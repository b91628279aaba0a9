//! A forked child does not touch the pool of its parent.

use crate::error::{OpenError, PmError};
use crate::media::Medium;
use crate::pool::Pool;
use crate::ptr::PPtr;

use super::{Block, Place, add, tiny, value_of};

unsafe extern "C" {
    safe fn fork() -> i32;
    safe fn _exit(code: i32) -> !;
}

#[test]
fn a_forked_child_finds_its_pool_unusable_and_leaves_the_parents_alone() {
    let place = Place::new();
    let pool = Pool::create(place.path(), &tiny()).unwrap();
    let entry = add(&pool, "a", 1).unwrap();
    let root = PPtr::<Block>::new(entry.block());
    let child = fork();
    if child == 0 {
        // Call only functions that take no lock of the test harness.
        let refused = matches!(pool.get(root), Err(PmError::Forked))
            && matches!(pool.words(64, 1), Err(PmError::Forked))
            && matches!(pool.op(), Err(PmError::Forked))
            && matches!(pool.grow(1 << 20), Err(PmError::Forked))
            && matches!(pool.sync(), Err(PmError::Forked))
            && matches!(pool.close(), Err(PmError::Forked));
        _exit(if refused { 7 } else { 1 });
    }
    let pid = rustix::process::Pid::from_raw(child).expect("forked");
    let (_, status) = rustix::process::waitpid(Some(pid), rustix::process::WaitOptions::empty())
        .unwrap()
        .unwrap();
    assert_eq!(status.exit_status(), Some(7));
    let second = Pool::open(place.path(), &tiny());
    assert!(matches!(second, Err(OpenError::Locked { .. })), "the child left the lock");
    add(&pool, "b", 2).unwrap();
    assert_eq!(pool.pm().load(&pool.get(root).unwrap()[0]), 1);
    pool.close().unwrap();
    let pool = Pool::open(place.path(), &tiny()).unwrap();
    assert!(pool.was_clean(), "the child's end did not mark or release anything");
    assert_eq!(value_of(&pool, "b"), Some(2));
}
