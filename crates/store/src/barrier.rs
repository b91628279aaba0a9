//! A barrier that one thread passes for all threads of the process.
//!
//! A frequent side that stores one word and loads another needs an atomic instruction between the two, or an
//! earlier store may become visible after the load. If a rare side can have all threads pass a barrier
//! (`membarrier` of Linux), the frequent side only has to keep the compiler from exchanging the two.

use std::sync::OnceLock;

/// Whether [`for_all`] can be called. The same answer each time.
pub(crate) fn is_available() -> bool {
    static AVAILABLE: OnceLock<bool> = OnceLock::new();
    *AVAILABLE.get_or_init(register)
}

#[cfg(target_os = "linux")]
fn register() -> bool {
    use rustix::thread::MembarrierCommand::{PrivateExpedited, RegisterPrivateExpedited};
    use rustix::thread::{membarrier, membarrier_query};
    membarrier_query().contains_command(PrivateExpedited)
        && membarrier(RegisterPrivateExpedited).is_ok()
        && membarrier(PrivateExpedited).is_ok()
}

/// Has all threads of this process pass a full barrier: what each stored before is visible when it returns, and what each
/// loads afterwards is what others stored before this was called. It is [available](is_available).
///
/// # Cost
/// A call of the system, and an interrupt of each processor that runs a thread of this process: about a microsecond.
///
/// # Panics
/// If the process forbade itself the call (by a filter of system calls) after it had been available.
#[cfg(target_os = "linux")]
pub(crate) fn for_all() {
    use rustix::io::Errno;
    use rustix::thread::{MembarrierCommand, membarrier};

    while let Err(error) = membarrier(MembarrierCommand::PrivateExpedited) {
        // Without memory for a moment: the one error of a registered process.
        assert!(error == Errno::NOMEM, "the system allowed membarrier and refuses it now: {error}");
        std::thread::yield_now();
    }
}

#[cfg(not(target_os = "linux"))]
fn register() -> bool {
    false
}

#[cfg(not(target_os = "linux"))]
pub(crate) fn for_all() {}
