//! Panics of the program under test are findings: their messages are kept, not printed.

use std::cell::{Cell, RefCell};
use std::panic;
use std::sync::Once;

thread_local! {
    static QUIET: Cell<bool> = const { Cell::new(false) };
    static MESSAGE: RefCell<String> = const { RefCell::new(String::new()) };
}

static HOOK: Once = Once::new();

/// Runs `body`; panics inside it print nothing and leave their message for [`last_message`].
pub(crate) fn quietly<R>(body: impl FnOnce() -> R) -> R {
    struct Restore(bool);
    impl Drop for Restore {
        fn drop(&mut self) {
            QUIET.set(self.0);
        }
    }
    HOOK.call_once(|| {
        let previous = panic::take_hook();
        panic::set_hook(Box::new(move |info| {
            if QUIET.get() {
                MESSAGE.with_borrow_mut(|m| *m = format!("panic: {info}"));
            } else {
                previous(info);
            }
        }));
    });
    let _restore = Restore(QUIET.replace(true));
    body()
}

/// Returns the message of this thread's last quiet panic.
pub(crate) fn last_message() -> String {
    MESSAGE.with_borrow(Clone::clone)
}
