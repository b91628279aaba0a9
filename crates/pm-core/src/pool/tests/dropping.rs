//! Dropping indexes with all their blocks.

use std::sync::Arc;
use std::sync::mpsc::channel;

use parking_lot::Mutex;

use crate::alloc::Owner;
use crate::media::Traced;
use crate::trace::{ThreadControl, run_as};

use super::*;

/// Several sizes, and more blocks than one operation can free.
const SIZES: [u64; 6] = [16, 64, 100, 4096, 40_000, 300];
const EACH: usize = 150;

type Root = [PmU64; SIZES.len() * EACH];

/// Creates an index with many blocks.
pub(super) fn add_large<M: Medium>(pool: &Pool<M>, name: &str) -> Result<(), PmError> {
    let pm = pool.pm();
    let open = pool.create_index::<Root>(name, *b"large   ", 7, |root| {
        for word in root {
            pm.store(word, 0);
        }
        pm.flush(root)
    })?;
    let root = pool.get(open.root::<Root>())?;
    for (at, word) in root.iter().enumerate() {
        let mut op = pool.op()?;
        let block = op.reserve_bytes(SIZES[at % SIZES.len()], 16)?;
        let offset = block.ptr().offset();
        op.allocate(&block, Owner { word, mask: u64::MAX, expect: offset })?;
        op.prepare(crate::Flushed::nothing())?;
        pm.store(word, offset);
        let durable = pm.fence(op.seal().and(pm.flush(word)))?;
        op.finish(durable);
    }
    Ok(())
}

/// Returns the blocks of an index of either kind.
pub(super) fn blocks_of<M: Medium>(pool: &Pool<M>, name: &str) -> Result<Vec<u64>, PmError> {
    let open = pool.open_index(name)?.expect("there");
    let mut blocks = vec![open.block()];
    if open.kind == *b"large   " {
        let root = pool.get(open.root::<Root>())?;
        blocks.extend(root.iter().map(|word| pool.pm().load(word)).filter(|&word| word != 0));
    }
    Ok(blocks)
}

pub(super) fn all_blocks<M: Medium>(pool: &Pool<M>) -> Vec<u64> {
    let names = pool.indexes().unwrap();
    names.iter().flat_map(|entry| blocks_of(pool, &entry.name).unwrap()).collect()
}

pub(super) fn large() -> PoolOptions {
    PoolOptions::new().size(24 << 20).zone_bytes(2 << 20).slots(4).slot_bytes(512)
}

#[test]
fn every_block_of_a_dropped_index_is_free() {
    for volatile in [false, true] {
        let pool = if volatile {
            Pool::volatile(24 << 20).unwrap()
        } else {
            Pool::create_in_memory(&large().emulate_pm(true), |medium| medium).unwrap()
        };
        add(&pool, "other", 5).unwrap();
        pool.trim().unwrap();
        let before = pool.used_bytes();
        for _ in 0..3 {
            add_large(&pool, "large").unwrap();
            assert!(pool.used_bytes() > before + 2_000_000);
            assert!(pool.drop_index("large", |name| blocks_of(&pool, name)).unwrap());
            assert!(!pool.drop_index("large", |name| blocks_of(&pool, name)).unwrap());
            pool.audit(all_blocks(&pool).into_iter()).unwrap();
        }
        pool.trim().unwrap();
        assert_eq!(pool.used_bytes(), before, "volatile: {volatile}");
        assert_eq!(value_of(&pool, "other"), Some(5));
    }
}

#[test]
fn an_index_that_does_not_say_its_blocks_stays() {
    let pool = Pool::create_in_memory(&large().emulate_pm(true), |medium| medium).unwrap();
    add_large(&pool, "large").unwrap();
    let unknown = PmError::BadOption { what: "a kind", value: 1 };
    let refused = pool.drop_index("large", |_| Err(unknown.clone()));
    assert_eq!(refused, Err(unknown));
    let open = pool.open_index("large").unwrap().unwrap();
    let refused = pool.drop_index("large", |name| blocks_of(&pool, name));
    assert!(matches!(refused, Err(PmError::AlreadyOpen { .. })), "{refused:?}");
    drop(open);
    // Meanwhile no thread can open it by its name or create another one, and no handle is open.
    let mut kept = None;
    let refused = pool.drop_index("large", |name| {
        assert!(matches!(pool.open_index("large"), Err(PmError::AlreadyOpen { .. })));
        assert!(matches!(add(&pool, "large", 1), Err(PmError::NameTaken { .. })));
        assert!(matches!(pool.drop_root("large"), Err(PmError::AlreadyOpen { .. })));
        kept = pool.open_index(name)?;
        Ok::<_, PmError>(Vec::new())
    });
    assert!(matches!(refused, Err(PmError::AlreadyOpen { .. })), "{refused:?}");
    drop(kept);
    // A block that the allocator does not know.
    let refused = pool.drop_index("large", |name| {
        let mut blocks = blocks_of(&pool, name)?;
        blocks[1] += 8;
        Ok::<_, PmError>(blocks)
    });
    assert!(matches!(refused, Err(PmError::Corrupt { .. })), "{refused:?}");
    pool.audit(all_blocks(&pool).into_iter()).unwrap();
    assert!(pool.drop_index("large", |name| blocks_of(&pool, name)).unwrap());
}

#[test]
fn a_pool_without_room_for_the_list_keeps_the_index() {
    let pool = Pool::create_in_memory(&large().emulate_pm(true), |medium| medium).unwrap();
    add_large(&pool, "large").unwrap();
    for left in 0..2 {
        pool.fail_allocation_after(Some(left));
        let refused = pool.drop_index("large", |name| blocks_of(&pool, name));
        assert!(matches!(refused, Err(PmError::Full { .. } | PmError::NoSpace { .. })));
        pool.fail_allocation_after(None);
        pool.audit(all_blocks(&pool).into_iter()).unwrap();
    }
    assert!(pool.drop_index("large", |name| blocks_of(&pool, name)).unwrap());
    pool.audit(std::iter::empty()).unwrap();
}

/// After a kill in the middle, the remaining blocks are known and freed by later operations, and the name is
/// free at once.
#[test]
fn what_a_killed_process_left_of_a_drop_goes_with_the_next_operations() {
    let space = Space::new(large().created_size().unwrap() as usize, 64 << 20);
    let pool = Pool::create_traced(&space, &large()).unwrap();
    add_large(&pool, "large").unwrap();
    add(&pool, "other", 5).unwrap();
    pool.trim().unwrap();
    space.fail_fences_after(Some(90));
    let dropped = pool.drop_index("large", |name| blocks_of(&pool, name));
    assert_eq!(dropped, Ok(true), "the index is gone, durably, although a slice failed");
    assert_eq!(pool.find_index("large").unwrap(), None);
    assert_eq!(pool.indexes_being_dropped().len(), 1, "within the slices");
    space.fail_fences_after(None);
    pool.kill();

    let pool = Pool::open_traced(&space, &large()).unwrap();
    assert_eq!(pool.indexes_being_dropped().len(), 1);
    assert_eq!(pool.find_index("large").unwrap(), None);
    let left = pool.live_blocks().unwrap().len();
    pool.audit(all_blocks(&pool).into_iter()).unwrap();
    assert_eq!(pool.live_blocks().unwrap().len(), left, "to look frees nothing");
    add(&pool, "large", 6).unwrap();
    drop(pool.op().unwrap());
    assert!(pool.live_blocks().unwrap().len() < left, "an operation frees a slice");
    pool.audit(all_blocks(&pool).into_iter()).unwrap();
    pool.trim().unwrap();
    assert_eq!(pool.live_blocks().unwrap().len(), 2);
    assert!(pool.indexes_being_dropped().is_empty());
    assert_eq!(value_of(&pool, "large"), Some(6));
}

/// An operation that finds every slot taken cannot free a slice; a later one can.
#[test]
fn a_slice_that_waits_in_vain_for_a_slot_does_not_end_the_freeing() {
    let space = Space::new(large().created_size().unwrap() as usize, 64 << 20);
    let pool = Pool::create_traced(&space, &large()).unwrap();
    add_large(&pool, "large").unwrap();
    space.fail_fences_after(Some(90));
    pool.drop_index("large", |name| blocks_of(&pool, name)).unwrap();
    space.fail_fences_after(None);
    pool.kill();
    let pool = Pool::open_traced(&space, &large()).unwrap();
    let ops = [(); 4].map(|()| pool.op().unwrap());
    let busy = pool.op().map(drop);
    assert!(matches!(busy, Err(PmError::Busy { .. })), "{busy:?}");
    drop(ops);
    let left = pool.live_blocks().unwrap().len();
    drop(pool.op().unwrap());
    assert!(pool.live_blocks().unwrap().len() < left, "an operation frees a slice");
    pool.trim().unwrap();
    assert!(pool.live_blocks().unwrap().is_empty() && pool.indexes_being_dropped().is_empty());
}

/// Runs `then` once, at the first point where the index at place 0 is gone and the directory is not locked.
struct WhenGone {
    pool: Arc<Pool<Traced>>,
    then: Mutex<Option<Box<dyn FnOnce() + Send>>>,
}

impl ThreadControl for WhenGone {
    fn yield_point(&self, _: u16) {
        let Some(places) = self.pool.directory.0.try_lock() else { return };
        let is_gone = matches!(places[0], super::super::directory::Place::Free);
        drop(places);
        if let Some(then) = is_gone.then(|| self.then.lock().take()).flatten() {
            then();
        }
    }

    fn spin(&self, _: u16) {}
}

/// A thread that drops an index stops just before its end. Meanwhile another index gets the place, and a
/// second thread begins to drop that one.
#[test]
fn the_late_end_of_a_drop_does_not_disturb_the_next_index_at_its_place() {
    type Add = fn(&Pool<Traced>, &str) -> Result<(), PmError>;
    let few: Add = |pool, name| add(pool, name, 1).map(drop);
    let kinds = [few, add_large::<Traced>];
    for (first, next, same_name) in [(0, 0, false), (1, 0, false), (0, 1, true), (1, 1, true)] {
        let space = Space::new(large().created_size().unwrap() as usize, 64 << 20);
        let pool = Arc::new(Pool::create_traced(&space, &large()).unwrap());
        kinds[first](&pool, "first").unwrap();
        let name = if same_name { "first" } else { "next" };
        let (go, gone) = channel();
        let (begun, has_begun) = channel();
        let then = Box::new(move || {
            go.send(()).unwrap();
            has_begun.recv().unwrap();
        });
        let control = WhenGone { pool: Arc::clone(&pool), then: Mutex::new(Some(then)) };
        std::thread::scope(|scope| {
            let one = Arc::clone(&pool);
            let one = scope.spawn(move || {
                let dropped = || one.drop_index("first", |name| blocks_of(&one, name));
                run_as(1, Arc::new(control), dropped)
            });
            gone.recv().unwrap();
            kinds[next](&pool, name).unwrap();
            let dropped = pool.drop_index(name, |leaving| {
                begun.send(()).unwrap();
                assert_eq!(one.join().unwrap(), Ok(true));
                let there = pool.indexes().unwrap();
                assert_eq!(there.iter().map(|entry| &entry.name[..]).collect::<Vec<_>>(), [name]);
                let refused = pool.open_index(name);
                assert!(matches!(refused, Err(PmError::AlreadyOpen { .. })), "{refused:?}");
                blocks_of(&pool, leaving)
            });
            assert_eq!(dropped, Ok(true));
        });
        assert!(pool.indexes().unwrap().is_empty());
        pool.audit(std::iter::empty()).unwrap();
    }
}

/// At every point where thread 1 may stop after it has removed an index, another thread takes and gives back a block.
struct Beside {
    pool: Arc<Pool<Traced>>,
    root: u64,
    /// How often that was the root block of the removed index, and what claiming it then said otherwise.
    seen: Mutex<(u32, Option<PmError>)>,
}

impl Beside {
    fn take(&self) -> Result<(), PmError> {
        let entry = self.pool.directory_entry(super::super::directory::IndexId(0))?;
        if self.pool.pm().load(&entry.commit) != 0 {
            return Ok(());
        }
        for _ in 0..self.pool.slots() {
            // Some operation in the slot of the removal makes the block free.
            let Ok(mut op) = self.pool.op() else { return Ok(()) };
            let block = op.reserve::<[PmU64; 8]>()?;
            op.prepare(crate::Flushed::nothing())?;
            if block.ptr().offset() == self.root {
                let mut seen = self.seen.lock();
                seen.0 += 1;
                match self.pool.claim_block(self.root, "the next one") {
                    Ok(claim) => drop(claim),
                    Err(error) => seen.1 = Some(error),
                }
            }
        }
        Ok(())
    }
}

impl ThreadControl for Beside {
    fn yield_point(&self, _: u16) {}

    fn handover_point(&self, _: u16) {
        std::thread::scope(|scope| scope.spawn(|| self.take()).join().unwrap()).unwrap();
    }

    fn spin(&self, _: u16) {}
}

#[test]
fn the_claim_on_a_root_block_ends_before_another_owner_can_have_it() {
    let space = Space::new(large().created_size().unwrap() as usize, 64 << 20);
    let pool = Arc::new(Pool::create_traced(&space, &large().slots(2)).unwrap());
    let root = add(&pool, "first", 1).unwrap().block();
    let beside = Arc::new(Beside { pool: Arc::clone(&pool), root, seen: Mutex::default() });
    let dropped = run_as(1, Arc::<Beside>::clone(&beside), || pool.drop_root("first"));
    assert_eq!(dropped, Ok(true));
    let seen = beside.seen.lock();
    assert!(seen.0 > 0, "no other thread got the block");
    assert_eq!(seen.1, None);
}

/// Returns the number of bytes that a file occupies.
pub(super) fn blocks_of_file(path: &Path) -> u64 {
    use std::os::unix::fs::MetadataExt;
    std::fs::metadata(path).unwrap().blocks() * 512
}

/// Space that was given back is zero and can be used again; the other blocks are unchanged.
#[test]
fn free_runs_go_back_to_the_system_and_are_used_again() {
    for place in [Some(super::Place::new()), super::Place::tmpfs()].into_iter().flatten() {
        let path = place.path();
        let options = PoolOptions::new().size(48 << 20).zone_bytes(16 << 20).write_back(false);
        let pool = Pool::create(&path, &options).unwrap();
        add(&pool, "other", 5).unwrap();
        add_large(&pool, "large").unwrap();
        let full = blocks_of_file(&path);
        let unused = pool.compact().unwrap();
        assert!(unused > 30 << 20, "{unused}");
        assert_eq!(blocks_of_file(&path), full - unused);
        assert_eq!(pool.compact().unwrap(), 0, "once");

        assert!(pool.drop_index("large", |name| blocks_of(&pool, name)).unwrap());
        let given = pool.compact().unwrap();
        assert!(given >= 4 << 20, "{given}");
        let least = blocks_of_file(&path);
        assert_eq!(least, full - unused - given);
        pool.audit(all_blocks(&pool).into_iter()).unwrap();

        add_large(&pool, "large").unwrap();
        let again = blocks_of_file(&path);
        assert!(again > least + (4 << 20), "blocks before stores: {again} of {least}");
        assert_eq!(value_of(&pool, "other"), Some(5));
        pool.close().unwrap();

        let pool = Pool::open(&path, &options).unwrap();
        assert_eq!(blocks_of_file(&path), again, "an opening allocates nothing");
        add_large(&pool, "second").unwrap();
        assert!(blocks_of_file(&path) > again, "holes of earlier processes get their blocks");
        pool.audit(all_blocks(&pool).into_iter()).unwrap();
        pool.close().unwrap();
        let read_only = Pool::open(&path, &options.clone().read_only(true)).unwrap();
        assert_eq!(read_only.compact(), Err(PmError::ReadOnly));
    }
}
