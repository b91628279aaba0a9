//! A lock-free, durable, doubly linked list on two- to five-word compare-and-swaps: four threads
//! insert and remove, then the pool is opened again.
//!
//! `cargo run --release -p pmindex-pmwcas --example list`

mod structure;

use std::error::Error;
use std::sync::Arc;

use pmindex_core::Pool;
use pmindex_pmwcas::Config;
use structure::List;

fn main() -> Result<(), Box<dyn Error>> {
    let pool = Arc::new(Pool::emulated(16 << 20)?);
    let list = List::create(&pool, "list", Config::default())?;
    std::thread::scope(|scope| {
        for thread in 0..4u64 {
            let list = &list;
            scope.spawn(move || {
                for i in 0..500 {
                    let key = i * 4 + thread;
                    assert!(list.insert(key, i).expect("room"), "a key of this thread alone");
                    if i % 2 == 1 {
                        assert_eq!(list.remove(key - 4).expect("intact"), Some(i - 1));
                    } else {
                        assert!(list.update(key, i).expect("intact"));
                    }
                }
            });
        }
    });
    drop(list); // like a crash: all operations are durable

    let list = List::open(&pool, "list", Config::default())?.ok_or("the list is gone")?;
    let (front, mut back) = (list.nodes(true)?, list.nodes(false)?);
    back.reverse();
    assert_eq!(front, back);
    assert_eq!(list.get(1999)?, Some(499));
    println!("{} keys, the same in both directions; {:?}", front.len(), list.mwcas().recovery());
    Ok(())
}
