//! Opens pools that earlier versions wrote.

use pmindex_cceh::Cceh;
use pmindex_core::Mapped;
use pmindex_testkit::Unordered;
use pmindex_testkit::fixture::Fixture;

/// Segments of 1 KiB, so that the records of an image are in several.
type Small<K, V> = Unordered<Cceh<K, V, Mapped, 15, 4>>;
type Both = Fixture<Small<u64, i64>, Small<String, Vec<u8>>>;

#[test]
fn cceh_v1_closed_opens() {
    Both::of().opens(true);
}

#[test]
fn cceh_v1_killed_opens() {
    Both::of().opens(false);
}
