//! Sessions: each opening of a store for writing gives its commits numbers of their own.
//!
//! Within a session the number is incremented only in memory. Two commits with the same number would be one
//! to a [watch](crate::Watch), which continues after a number and reads the log by numbers; and after a crash the
//! changes of interrupted commits are made in the order of their numbers. An opening with more commits than a session
//! has numbers enters the next session.

use std::sync::atomic::Ordering::{Acquire, Release};

use pmindex_core::{Medium, PmError};

use crate::layout::COMMIT_BITS;
use crate::redo::Redo;

/// The greatest number of a session: commits after it would have the numbers of earlier ones.
const LAST: u64 = (1 << (u64::BITS - COMMIT_BITS)) - 1;

impl<M: Medium> Redo<M> {
    /// Begins a session; returns a number below those of all its commits, and above those of all earlier
    /// ones.
    pub(crate) fn begin_session(&self) -> Result<u64, PmError> {
        let (pool, root) = self.root()?;
        let session = pool.pm().load(&root.session).saturating_add(1);
        self.enter_session(session)?; // durable before: any commit has a number of the session
        Ok(session << COMMIT_BITS)
    }

    /// Enters the session of a commit's number, if it is a later one.
    #[inline]
    pub(crate) fn enter_session_of(&self, number: u64) -> Result<(), PmError> {
        let session = number >> COMMIT_BITS;
        if session <= self.session.load(Acquire) { Ok(()) } else { self.enter_session(session) }
    }

    /// Enters a session, durably. The number of the session grows only: two threads may enter the same one.
    #[cold]
    fn enter_session(&self, session: u64) -> Result<(), PmError> {
        let (pool, root) = self.root()?;
        if session > LAST {
            // A damaged word, or one opening a second for half a year.
            let offset = self.block();
            return Err(PmError::Corrupt { what: "the number of openings of a store", offset });
        }
        pool.pm().store(&root.session, session);
        let flushed = pool.pm().flush(&root.session);
        pool.pm().fence(flushed)?;
        self.session.store(session, Release);
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use pmindex_core::Pool;

    use super::*;

    /// A session of more commits than have numbers of their own takes those of the next sessions.
    #[test]
    fn numbers_ascend_after_a_session_of_many_commits() {
        let pool = Arc::new(Pool::counting(1 << 20).unwrap());
        let mut last = 0;
        for _ in 0..3 {
            let redo = Redo::open(&pool).unwrap();
            assert!(redo.last() > last, "{:x} after {last:x}", redo.last());
            for number in [redo.last() + 1, redo.last() + (3 << COMMIT_BITS)] {
                let mut record = crate::record::Record::default();
                record.add("map", std::iter::once((&1u64, &Some(2u64))));
                let logged = redo.put(number, &record).unwrap();
                redo.retire(logged).unwrap();
                last = number;
            }
        }
    }

    #[test]
    fn sessions_end_before_their_numbers_would_come_again() {
        let pool = Arc::new(Pool::emulated(1 << 20).unwrap());
        for (word, is_sound) in
            [(1, true), (LAST - 1, true), (LAST, false), (LAST + 1, false), (u64::MAX, false)]
        {
            let redo = Redo::open(&pool).unwrap();
            let (_, root) = redo.root().unwrap();
            pool.pm().store(&root.session, word);
            match redo.begin_session() {
                Ok(number) => assert!(is_sound && number >> COMMIT_BITS == word + 1, "{word:x}"),
                Err(error) => assert!(!is_sound, "{word:x}: {error}"),
            }
            pool.pm().store(&root.session, 1);
        }
    }
}
