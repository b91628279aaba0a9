//! Nothing is aligned more strongly than the first byte of a pool or an arena is.
#![forbid(unsafe_code)]
use pmindex_core::trace::Space;
use pmindex_core::{Arena, PPtr, PmU64, Pool, pm_struct};

pm_struct! {
    #[align(8192)]
    struct Strict: size 8192 { words: [PmU64; 1024] }
}

fn main() {
    let pool = Pool::volatile(1 << 20).unwrap();
    let _ = pool.get(PPtr::<[Strict; 2]>::new(8192)).map(|strict| &strict[0].words);
    let _ = Space::new(1 << 16, 1 << 16).get(PPtr::<Strict>::new(8192)).is_ok();
    let _ = Arena::<Strict>::new(1).unwrap().get(0);
}
