//! Pools that earlier versions wrote open for ever.

use pmindex_pactree::PacTree;
use pmindex_testkit::fixture::Fixture;

type Written = Fixture<PacTree<u64, i64>, PacTree<String, Vec<u8>>>;

#[test]
fn pactree_v1_closed_opens() {
    Written::of().opens(true);
}

#[test]
fn pactree_v1_killed_opens() {
    Written::of().opens(false);
}
