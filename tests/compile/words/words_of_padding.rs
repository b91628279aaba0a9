//! A struct with padding, built where nobody zeroed it, does not show the padding as words.
#![forbid(unsafe_code)]
use pmindex_core::sync::VersionLock;
use pmindex_core::{Mapped, Medium, pm_struct, words_of};

pm_struct! {
    #[align(64)]
    struct Padded { lock: VersionLock }
}

pm_struct! {
    #[align(64)]
    struct Outer { inner: [Padded; 2] }
}

fn main() {
    let padded = || Padded { lock: VersionLock::new() };
    let _ = words_of(&padded()); // its lock
    let _ = words_of(&[padded(), padded()]);
    let outer = Outer { inner: [padded(), padded()] };
    let _ = Mapped::dram().flush(&outer);
}
