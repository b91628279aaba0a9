//! Which process this is. A forked child is another one, even if it has the same number, as the first process of a
//! namespace (a container) and its child in a namespace of its own do.

use core::ptr::NonNull;
use core::sync::atomic::Ordering::{AcqRel, Acquire, Relaxed};
use core::sync::atomic::{AtomicPtr, AtomicU64};

use rustix::mm::{MapFlags, ProtFlags};

use crate::sys;

/// A process.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Process {
    number: u32,
    mark: u64,
}

impl Process {
    /// Returns the process of the caller.
    pub(crate) fn current() -> Self {
        Self { number: std::process::id(), mark: mark() }
    }

    /// Returns `true` if the caller is in this process.
    pub(crate) fn is_current(self) -> bool {
        self == Self::current()
    }
}

/// Returns a number that a child does not have from its parent; 0 if the system has no memory for it. Takes no lock,
/// which another thread could hold at the moment of the fork.
fn mark() -> u64 {
    /// A word that a forked child finds zero.
    static WORD: AtomicPtr<AtomicU64> = AtomicPtr::new(core::ptr::null_mut());
    static NEXT: AtomicU64 = AtomicU64::new(1);
    let mut word = WORD.load(Acquire);
    if word.is_null() {
        let Some(new) = new_word() else { return 0 };
        // The word of a thread that was slower stays mapped.
        word = match WORD.compare_exchange(word, new.as_ptr(), AcqRel, Acquire) {
            Ok(_) => new.as_ptr(),
            Err(first) => first,
        };
    }
    // SAFETY: mapped for good by `new_word`, and only used as this.
    let word = unsafe { &*word };
    match word.load(Acquire) {
        0 => {
            let mine = NEXT.fetch_add(1, Relaxed);
            word.compare_exchange(0, mine, AcqRel, Acquire).map_or_else(|first| first, |_| mine)
        }
        mark => mark,
    }
}

/// Maps a word that is zero, here and in each forked child.
fn new_word() -> Option<NonNull<AtomicU64>> {
    let access = ProtFlags::READ | ProtFlags::WRITE;
    // SAFETY: a fresh anonymous mapping at an address the kernel chooses.
    let page = unsafe {
        rustix::mm::mmap_anonymous(core::ptr::null_mut(), sys::page(), access, MapFlags::PRIVATE)
    };
    let page = NonNull::new(page.ok()?)?;
    // SAFETY: just mapped, anonymous and private, and nothing uses it yet.
    unsafe { sys::wipe_on_fork(page.cast(), sys::page()) }
    Some(page.cast())
}
