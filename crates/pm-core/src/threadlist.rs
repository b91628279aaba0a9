//! Lists of a thread that it can use to its very end.
//!
//! A program may keep the last handle of a pool in a thread-local variable. When the thread ends, that variable
//! is destroyed, and closes the pool, perhaps after the variables of this crate: an access to one of them would
//! be a panic then, which aborts the process. So each list has another one to follow it, which is never
//! destroyed and gives its memory back when nothing is in it.

use core::cell::RefCell;
use core::mem::ManuallyDrop;
use std::thread::LocalKey;

/// A list of each thread: see [`thread_list`].
pub(crate) struct ThreadList<E: 'static> {
    pub(crate) list: &'static LocalKey<RefCell<Vec<E>>>,
    /// The list of a thread whose first one is destroyed.
    pub(crate) late: &'static LocalKey<ManuallyDrop<RefCell<Vec<E>>>>,
    /// Whether an item means anything.
    pub(crate) means: fn(&E) -> bool,
}

impl<E> ThreadList<E> {
    /// Calls `use_list` with this thread's list.
    #[inline]
    pub(crate) fn with<R>(&self, use_list: impl FnOnce(&mut Vec<E>) -> R) -> R {
        if self.list.try_with(|_| ()).is_ok() {
            self.list.with_borrow_mut(use_list)
        } else {
            self.with_late(use_list)
        }
    }

    #[cold]
    fn with_late<R>(&self, use_list: impl FnOnce(&mut Vec<E>) -> R) -> R {
        self.late.with(|late| {
            let list = &mut *late.borrow_mut();
            let used = use_list(list);
            list.retain(self.means);
            if list.is_empty() {
                *list = Vec::new();
            }
            used
        })
    }
}

/// Declares a list of each thread, empty at first. The expression says which items mean anything; the others
/// need not be kept at the end of the thread.
macro_rules! thread_list {
    ($(#[$about:meta])* const $NAME:ident: $Item:ty, kept if $means:expr;) => {
        $(#[$about])*
        const $NAME: $crate::threadlist::ThreadList<$Item> = {
            thread_local! {
                static LIST: core::cell::RefCell<Vec<$Item>> =
                    const { core::cell::RefCell::new(Vec::new()) };
                static LATE: core::mem::ManuallyDrop<core::cell::RefCell<Vec<$Item>>> =
                    const { core::mem::ManuallyDrop::new(core::cell::RefCell::new(Vec::new())) };
            }
            $crate::threadlist::ThreadList { list: &LIST, late: &LATE, means: $means }
        };
    };
}

pub(crate) use thread_list;

#[cfg(test)]
mod tests {
    use std::cell::Cell;
    use std::sync::Arc;
    use std::sync::mpsc::{Sender, channel};

    thread_list! {
        /// Numbers and what shares them.
        const LIST: (u64, Arc<()>), kept if |item| item.0 != 0;
    }

    /// Uses the list when the thread has ended.
    struct Last(Arc<()>, Sender<Vec<u64>>);

    impl Drop for Last {
        fn drop(&mut self) {
            let number = |number| LIST.with(|list| list.push((number, Arc::clone(&self.0))));
            let tell = || {
                let numbers = LIST.with(|list| list.iter().map(|item| item.0).collect());
                self.1.send(numbers).unwrap();
            };
            assert!(LIST.list.try_with(|_| ()).is_err(), "destroyed");
            tell();
            [3, 0, 4].into_iter().for_each(number);
            tell();
            LIST.with(Vec::clear);
            tell();
            LIST.late.with(|late| assert_eq!(late.borrow().capacity(), 0));
        }
    }

    thread_local! {
        static LAST: Cell<Option<Last>> = const { Cell::new(None) };
    }

    #[test]
    fn a_list_can_be_used_to_the_end_of_its_thread() {
        let (shared, (tell, told)) = (Arc::new(()), channel());
        let last = Last(Arc::clone(&shared), tell);
        let thread = std::thread::spawn(move || {
            let item = Arc::clone(&last.0);
            LAST.set(Some(last));
            LIST.with(|list| list.extend([(1, Arc::clone(&item)), (2, item)]));
            LIST.with(|list| list.iter().map(|item| item.0).sum::<u64>())
        });
        assert_eq!(thread.join().unwrap(), 3);
        assert_eq!(told.iter().collect::<Vec<_>>(), [vec![], vec![3, 4], vec![]]);
        assert_eq!(Arc::strong_count(&shared), 1, "nothing stays behind");
        assert!(LIST.with(|list| list.is_empty()), "of another thread");
    }
}
