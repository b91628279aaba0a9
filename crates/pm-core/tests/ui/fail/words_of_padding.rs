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
    let padded = Padded { lock: VersionLock::new() };
    let _ = words_of(&padded.lock); // has none
    let _ = Mapped::dram().load(&words_of(&padded)[1]);
    let outer = Outer { inner: [padded, Padded { lock: VersionLock::new() }] };
    let _ = Mapped::dram().flush(&outer);
}
