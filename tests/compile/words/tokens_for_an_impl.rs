//! The macro's inner rules take no tokens that could turn its impl into another one.
#![forbid(unsafe_code)]
use pmindex_core::{PmU64, pm_struct};

struct NotSend(*const u8);

pm_struct! { @struct
    [] [8] [pub] [Bad] [] [> core::marker::Send for NotSend {} impl<] [8] { one: PmU64 }
}

fn main() {
    let _ = NotSend(core::ptr::null());
}
