//! Opens pools that earlier versions wrote.

use pmindex_testkit::fixture::Fixture;
use pmindex_woart::{ArtCow, Woart};

type Written = Fixture<Woart<u64, i64>, Woart<String, Vec<u8>>>;
type Copied = Fixture<ArtCow<u64, i64>, ArtCow<String, Vec<u8>>>;

#[test]
fn woart_v1_closed_opens() {
    Written::of().opens(true);
}

#[test]
fn woart_v1_killed_opens() {
    Written::of().opens(false);
}

#[test]
fn artcow_v1_closed_opens() {
    Copied::of().opens(true);
}

#[test]
fn artcow_v1_killed_opens() {
    Copied::of().opens(false);
}
