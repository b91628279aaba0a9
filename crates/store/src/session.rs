//! Sessions: each opening of a store for writing gives its commits numbers of their own.
//!
//! Within a session the number is incremented only in memory. Two commits with the same number would be one
//! to a [watch](crate::Watch), which continues after a number and reads the log by numbers.

use pmindex_core::{Medium, PmError};

use crate::layout::COMMIT_BITS;
use crate::redo::Redo;

impl<M: Medium> Redo<M> {
    /// Begins a session; returns a number below those of all its commits, and above those of all earlier
    /// ones.
    pub(crate) fn begin_session(&self) -> Result<u64, PmError> {
        let (pool, root) = self.root()?;
        let session = pool.pm().load(&root.session) + 1;
        pool.pm().store(&root.session, session);
        let flushed = pool.pm().flush(&root.session);
        pool.pm().fence(flushed)?; // durable before: any commit has a number of the session
        Ok(session << COMMIT_BITS)
    }
}
