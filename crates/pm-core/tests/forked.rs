//! A forked child does not touch the pool of its parent. Alone in its process: the child has the locks of all files
//! that are open there, so another test would find its own file in use.

use pmindex_core::{FreshPool, Medium, OpenError, Owner, PPtr, PmError, PmU64, Pool, PoolOptions};

type Block = [PmU64; 8];

unsafe extern "C" {
    safe fn fork() -> i32;
    safe fn _exit(code: i32) -> !;
}

/// Adds an index whose root block holds `value`; returns the block.
fn add(pool: &Pool, name: &str, value: u64) -> PPtr<Block> {
    let open = pool.create_index::<Block>(name, *b"blocks  ", 7, |block| {
        pool.pm().store(&block[0], value);
        pool.pm().flush(block)
    });
    open.expect("room").root()
}

#[test]
fn a_forked_child_finds_its_pool_unusable_and_leaves_the_parents_alone() {
    let directory = tempfile::tempdir().expect("a directory");
    let path = directory.path().join("pool");
    let options = PoolOptions::new().size(64 << 10).zone_bytes(32 << 10);
    let pool = Pool::create(&path, &options).expect("created");
    let root = add(&pool, "a", 1);
    let target = directory.path().join("new");
    let fresh = FreshPool::create(&target).expect("created");
    add(fresh.pool(), "c", 3);
    let word = &pool.get(root).expect("sound")[7];
    let mut op = pool.op().expect("a slot");
    let block = op.reserve::<Block>().expect("room");
    op.allocate(&block, Owner::bit(word, 0)).expect("a ticket");
    let child = fork();
    if child == 0 {
        drop(op); // the parent's
        // Call only functions that take no lock of the test harness.
        let refused = matches!(pool.get(root), Err(PmError::Forked))
            && matches!(pool.words(64, 1), Err(PmError::Forked))
            && matches!(pool.op(), Err(PmError::Forked))
            && matches!(pool.grow(1 << 20), Err(PmError::Forked))
            && matches!(pool.sync(), Err(PmError::Forked))
            && matches!(pool.close(), Err(PmError::Forked));
        drop(fresh); // which removes its file, in the process that made it
        _exit(if refused { 7 } else { 1 });
    }
    let pid = rustix::process::Pid::from_raw(child).expect("forked");
    let (_, status) = rustix::process::waitpid(Some(pid), rustix::process::WaitOptions::empty())
        .expect("a child")
        .expect("its end");
    assert_eq!(status.exit_status(), Some(7));
    op.prepare(pool.pm().flush(&pool.get(block.ptr()).expect("sound")[0])).expect("durable");
    pool.pm().store(word, 1);
    let flushed = op.seal().and(pool.pm().flush(word));
    op.finish(pool.pm().fence(flushed).expect("durable"));
    let second = Pool::open(&path, &options);
    assert!(matches!(second, Err(OpenError::Locked { .. })), "the child left the lock");
    add(&pool, "b", 2);
    assert_eq!(pool.pm().load(&pool.get(root).expect("sound")[0]), 1);
    pool.close().expect("closed");
    fresh.finish().expect("the child left the file");
    let new = Pool::open(&target, &PoolOptions::new()).expect("opened");
    assert!(new.was_clean() && new.open_index("c").expect("sound").is_some());
    let pool = Pool::open(&path, &options).expect("opened");
    assert!(pool.was_clean(), "the child's end did not mark or release anything");
    let entry = pool.open_index("b").expect("sound").expect("there");
    assert_eq!(pool.pm().load(&pool.get(entry.root::<Block>()).expect("sound")[0]), 2);
    assert!(
        pool.block_size(block.ptr()).is_ok(),
        "the child's end left the parent's operation alone"
    );
}
