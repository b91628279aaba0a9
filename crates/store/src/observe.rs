//! Spans and events of `tracing`, with the feature of that name; without it they do nothing. Reads have none.
//!
//! | span or event | level | when |
//! | --- | --- | --- |
//! | `open` | info | a store is opened; `path` |
//! | `finish` | info | what interrupted commits change in a map is made; `map` |
//! | `commit` | debug | a transaction commits; `changes` |
//! | `backup` | info | a backup is written; `target` |
//! | event "a transaction runs again" | debug | it conflicted with others; `tries` |
//! | event "a reader is ended" | warn | it kept too much of the past; `moment`, `limit` |
//! | event "a watch is too far behind" | warn | the log does not have what it wants; `after` |

/// A span that is entered while this exists.
#[cfg(feature = "tracing")]
pub(crate) type Entered = tracing::span::EnteredSpan;
/// Nothing.
#[cfg(not(feature = "tracing"))]
pub(crate) struct Entered;

macro_rules! spans {
    ($($(#[$doc:meta])* $name:ident ($($field:ident: $type:ty = $value:expr),*) $level:ident;)+) => { $(
        $(#[$doc])*
        #[inline]
        pub(crate) fn $name($($field: $type),*) -> Entered {
            #[cfg(feature = "tracing")]
            return tracing::span!(
                target: "pmindex_store", tracing::Level::$level, stringify!($name), $($field = $value),*
            )
            .entered();
            #[cfg(not(feature = "tracing"))]
            {
                $(let _ = $field;)*
                Entered
            }
        }
    )+ };
}

macro_rules! events {
    ($($(#[$doc:meta])* $name:ident ($($field:ident: $type:ty),*) $level:ident $text:literal;)+) => { $(
        $(#[$doc])*
        #[cold]
        pub(crate) fn $name($($field: $type),*) {
            #[cfg(feature = "tracing")]
            tracing::event!(target: "pmindex_store", tracing::Level::$level, $($field,)* $text);
            #[cfg(not(feature = "tracing"))]
            {
                $(let _ = $field;)*
            }
        }
    )+ };
}

spans! {
    /// A store is opened.
    open(path: &std::path::Path = tracing::field::display(path.display())) INFO;
    /// The changes of interrupted commits to a map are made.
    finish(map: &str = map) INFO;
    /// A transaction commits.
    commit(changes: usize = changes) DEBUG;
    /// A backup is written.
    backup(target: &std::path::Path = tracing::field::display(target.display())) INFO;
}

events! {
    /// A transaction conflicted with others.
    runs_again(tries: u32) DEBUG "a transaction runs again";
    /// A reader kept too much of the past.
    reader_ended(moment: u64, limit: u64) WARN "a reader is ended";
    /// The log no longer has the commits that a watch needs.
    watch_ended(after: u64) WARN "a watch is too far behind";
}

#[cfg(all(test, feature = "tracing"))]
mod tests {
    use std::fmt::{Debug, Write};
    use std::sync::Arc;

    use parking_lot::Mutex;

    use pmindex_core::Pool;
    use tracing::field::{Field, Visit};
    use tracing::span::{Attributes, Id, Record};
    use tracing::{Event, Metadata, Subscriber};

    use crate::Store;
    use crate::tests::store::Small;
    use crate::{StoreError, StoreOptions};

    /// Collects spans and events.
    #[derive(Clone, Default)]
    struct Notes(Arc<Mutex<Vec<String>>>);

    struct Line(String);

    impl Visit for Line {
        fn record_debug(&mut self, field: &Field, value: &dyn Debug) {
            let _ = write!(self.0, " {field}={value:?}");
        }
    }

    impl Notes {
        fn note(&self, of: &Metadata<'_>, visit: impl FnOnce(&mut Line)) {
            assert_eq!(of.target(), "pmindex_store");
            let mut line =
                Line(format!("{} {}", of.level(), if of.is_span() { of.name() } else { "!" }));
            visit(&mut line);
            self.0.lock().push(line.0);
        }
    }

    impl Subscriber for Notes {
        fn enabled(&self, _: &Metadata<'_>) -> bool {
            true
        }
        fn new_span(&self, span: &Attributes<'_>) -> Id {
            self.note(span.metadata(), |line| span.record(line));
            Id::from_u64(1)
        }
        fn record(&self, _: &Id, _: &Record<'_>) {}
        fn record_follows_from(&self, _: &Id, _: &Id) {}
        fn event(&self, event: &Event<'_>) {
            self.note(event.metadata(), |line| event.record(line));
        }
        fn enter(&self, _: &Id) {}
        fn exit(&self, _: &Id) {}
    }

    #[test]
    fn who_observes_is_told_of_commits_conflicts_and_ends() {
        let notes = Notes::default();
        tracing::subscriber::with_default(notes.clone(), || {
            // Another test may meet an event just before this subscriber exists, and note that no subscriber
            // wants it: so meet each event first, and then rebuild the interest.
            let pool = Arc::new(Pool::emulated(1 << 20).unwrap());
            let store = Store::<Small>::in_pool(&pool, &StoreOptions::new()).unwrap();
            let map = store.map::<u64, u64>("numbers").unwrap();
            store.transaction(|tx| tx.put(&map, &1, &1)).unwrap();
            tracing::callsite::rebuild_interest_cache();
            notes.0.lock().clear();

            let pool = Arc::new(Pool::emulated(1 << 20).unwrap());
            let store =
                Store::<Small>::in_pool(&pool, &StoreOptions::new().past_bytes(2000)).unwrap();
            let map = store.map::<u64, u64>("numbers").unwrap();
            let mut is_first = true;
            let done: Result<(), StoreError> = store.transaction(|tx| {
                let was = tx.get(&map, &1)?.unwrap_or(0);
                if std::mem::take(&mut is_first) {
                    store.transaction(|other| other.put(&map, &1, &7))?;
                }
                tx.put(&map, &1, &(was + 1))
            });
            done.unwrap();
            let _view = store.snapshot().unwrap();
            for n in 0..40 {
                store.transaction(|tx| tx.put(&map, &n, &n)).unwrap();
            }
        });
        let notes = notes.0.lock();
        assert_eq!(
            notes[..5],
            [
                "INFO open path=(memory)",
                "DEBUG commit changes=1",
                "DEBUG commit changes=1",
                "DEBUG ! message=a transaction runs again tries=1",
                "DEBUG commit changes=1",
            ]
        );
        let ended =
            notes.iter().filter(|line| line.starts_with("WARN ! message=a reader is ended"));
        assert_eq!(ended.count(), 1);
        assert_eq!(notes.iter().filter(|line| line.starts_with("DEBUG commit")).count(), 43);
    }
}
