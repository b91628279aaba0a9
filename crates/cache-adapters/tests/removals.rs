//! A removal while the block is being loaded: what was loaded before it is not served after it.

use std::convert::Infallible;
use std::sync::Arc;
use std::time::Duration;

use pmindex_cache::{Block, BlockCache, CacheOptions, Key, Prefix};
use pmindex_cache_adapters::{FoyerFront, MokaFront};
use pmindex_core::Pool;
use tokio::sync::oneshot;

const KEY: Key = Key { instance: 1, file: 2, offset: 3 };

fn back() -> Arc<BlockCache> {
    let pool = Arc::new(Pool::emulated(32 << 20).expect("memory"));
    Arc::new(BlockCache::create(&pool, "blocks", &CacheOptions::new(16 << 20)).expect("room"))
}

fn block(version: u8) -> Block {
    Block { kind: 7, bytes: vec![version; 100] }
}

/// Makes a load that says when it begins, and ends when it is told to.
macro_rules! slow {
    ($version:expr, $began:expr, $may_end:expr) => {
        move || async move {
            $began.send(()).expect("it waits");
            $may_end.await.expect("it ends");
            Ok::<_, Infallible>(block($version))
        }
    };
}

/// What ends the block.
#[derive(Clone, Copy)]
enum Ends {
    Removal,
    Invalidation,
}

macro_rules! races {
    ($name:ident, $front:expr, $remove:expr) => {
        #[tokio::test(flavor = "multi_thread")]
        async fn $name() {
            for ends in [Ends::Removal, Ends::Invalidation] {
                let front = $front;
                let (began, begins) = oneshot::channel();
                let (end, may_end) = oneshot::channel();
                let first = tokio::spawn({
                    let front = front.clone();
                    async move { front.get_or_load(KEY, slow!(1, began, may_end)).await }
                });
                begins.await.expect("it loads");
                match ends {
                    Ends::Removal => $remove(&front).await,
                    Ends::Invalidation => {
                        drop(front.invalidate(Prefix::File(1, 2)).expect("whole"))
                    }
                }
                // A call that begins after the removal may wait for the load that began before.
                let second = tokio::spawn({
                    let front = front.clone();
                    let load = || async { Ok::<_, Infallible>(block(2)) };
                    async move { front.get_or_load(KEY, load).await }
                });
                tokio::time::sleep(Duration::from_millis(50)).await;
                end.send(()).expect("it waits");
                assert_eq!(*first.await.expect("no panic").expect("loaded"), block(1));
                assert_eq!(*second.await.expect("no panic").expect("loaded"), block(2));
                for _ in 0..3 {
                    let load = || async { Ok::<_, Infallible>(block(2)) };
                    assert_eq!(*front.get_or_load(KEY, load).await.expect("loaded"), block(2));
                }
            }
        }
    };
}

async fn remove_from_moka(front: &MokaFront) {
    front.remove(&KEY).await.expect("whole");
}

async fn remove_from_foyer(front: &FoyerFront) {
    front.remove(&KEY).expect("whole");
}

races!(moka_serves_nothing_that_was_removed, MokaFront::new(10_000, back()), remove_from_moka);
races!(foyer_serves_nothing_that_was_removed, FoyerFront::new(10_000, back()), remove_from_foyer);
