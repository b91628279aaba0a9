//! Opens pools that earlier versions wrote, with three indexes under buffers with a log.
//!
//! Whether batches go out of place, and where searches go, is not in the pool: both sorts of each index open it.

use std::fs;
use std::path::Path;
use std::sync::Arc;

use pmindex_boc::{Buffered, ByHash, ByKey};
use pmindex_cceh::Cceh;
use pmindex_core::{Mapped, Pool, PoolOptions};
use pmindex_fastfair::FastFair;
use pmindex_index::{IndexError, PmIndex};
use pmindex_skiplist::SkipList;
use pmindex_testkit::Unordered;
use pmindex_testkit::fixture::{image, options as usual};

/// Over segments of 1 KiB, so that the records of an image are in several.
type Hash<const ANEW: bool> =
    Unordered<Buffered<ByHash<Cceh<u64, u64, Mapped, 15, 4>, ANEW>, Mapped, true, 60>>;
type Tree<const ANEW: bool> = Buffered<ByKey<FastFair<u64, u64>, ANEW, ANEW>, Mapped, true>;
type List = Buffered<ByKey<SkipList<u64, u64>>, Mapped, true>;

const RECORDS: u64 = 150;

fn options() -> PoolOptions {
    usual().size(512 << 10)
}

/// In an order different from the numbers'.
fn key(n: u64) -> u64 {
    (n * 37 % RECORDS) << 40
}

fn write(index: &impl PmIndex<u64, u64, Mapped>) {
    for n in 0..RECORDS {
        index.put(&key(n), &n).expect("room");
    }
    for n in (0..RECORDS).step_by(3) {
        index.put(&key(n), &(n + 1)).expect("room");
    }
    for n in (0..RECORDS).step_by(5) {
        index.remove(&key(n)).expect("sound").expect("some");
    }
}

fn wanted(n: u64) -> Option<u64> {
    (!n.is_multiple_of(5)).then_some(n + u64::from(n.is_multiple_of(3)))
}

fn make(closed: bool, path: &Path) -> Result<(), IndexError> {
    let pool = Arc::new(Pool::create(path, &options()).expect("created"));
    let hash = Hash::<false>::create(&pool, "hash")?;
    let tree = Tree::<false>::create(&pool, "tree")?;
    let list = List::create(&pool, "list")?;
    write(&hash);
    write(&tree);
    write(&list);
    if closed {
        PmIndex::close(hash)?;
        PmIndex::close(tree)?;
        PmIndex::close(list)?;
        return Ok(Arc::into_inner(pool).expect("the only one").close()?);
    }
    // The file as it is now: a killed process leaves exactly this.
    let image = fs::read(path).expect("readable");
    drop((hash, tree, list, pool));
    fs::write(path, image).expect("written");
    Ok(())
}

/// Checks an index whose records are those of an image, and continues to use it.
fn verify<I: PmIndex<u64, u64, Mapped>>(index: &I) -> Vec<u64> {
    assert_eq!(index.check(), Ok((0..RECORDS).filter_map(wanted).count() as u64), "{}", I::NAME);
    for n in 0..RECORDS {
        assert_eq!(index.get(&key(n)), Ok(wanted(n)), "{} of {}", n, I::NAME);
    }
    assert_eq!(index.try_insert(&1, &1), Ok(Ok(())));
    assert_eq!(index.remove(&1), Ok(Some(1)));
    index.blocks().expect("whole")
}

/// Opens an image as a file, twice: as it is, and as the first opening left it.
fn opens<const ANEW: bool>(closed: bool) {
    let name = format!("buffered-v1-{}", if closed { "closed" } else { "killed" });
    let image = image(&name, |path| make(closed, path).expect("made"));
    let directory = tempfile::tempdir().expect("a directory");
    let path = directory.path().join("pool");
    fs::write(&path, image).expect("written");
    for round in 0..2 {
        let pool = Arc::new(Pool::open(&path, &options()).expect("opened"));
        assert_eq!(pool.was_clean(), closed || round > 0);
        let hash = Hash::<ANEW>::open(&pool, "hash").expect("opened");
        let tree = Tree::<ANEW>::open(&pool, "tree").expect("opened");
        let list = List::open(&pool, "list").expect("opened");
        // What a kill left in buffers comes from the log.
        assert_eq!(tree.replayed() == 0, closed || round > 0, "{}", tree.replayed());
        assert_eq!(list.replayed() == 0, closed || round > 0, "{}", list.replayed());
        let blocks = [verify(&hash), verify(&tree), verify(&list)].concat();
        pool.audit(blocks.into_iter()).expect("every block once");
        PmIndex::close(hash).expect("closed");
        PmIndex::close(tree).expect("closed");
        PmIndex::close(list).expect("closed");
        Arc::into_inner(pool).expect("the only one").close().expect("closed");
    }
}

#[test]
fn buffered_v1_closed_opens() {
    opens::<false>(true);
    opens::<true>(true);
}

#[test]
fn buffered_v1_killed_opens() {
    opens::<false>(false);
    opens::<true>(false);
}
