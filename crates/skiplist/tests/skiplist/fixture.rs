//! Opens pools that earlier versions wrote.

use pmindex_skiplist::SkipList;
use pmindex_testkit::fixture::Fixture;

type Written = Fixture<SkipList<u64, i64>, SkipList<String, Vec<u8>>>;

#[test]
fn skiplist_v1_closed_opens() {
    Written::of().opens(true);
}

#[test]
fn skiplist_v1_killed_opens() {
    Written::of().opens(false);
}
