//! Sessions: each opening of a store for writing gives its commits numbers of their own.
//!
//! Within a session numbers ascend in memory alone. Two commits of the same number would be one to whoever
//! [watches](crate::Watch): it goes on behind a number, and reads the log by numbers.

use pmindex_core::{Medium, PmError};

use crate::layout::COMMIT_BITS;
use crate::redo::Redo;

impl<M: Medium> Redo<M> {
    /// Begins a session; all its commits have greater numbers than this, and none before has.
    pub(crate) fn begin_session(&self) -> Result<u64, PmError> {
        let (pool, root) = self.root()?;
        let session = pool.pm().load(&root.session) + 1;
        pool.pm().store(&root.session, session);
        let flushed = pool.pm().flush(&root.session);
        pool.pm().fence(flushed)?; // durable before: any commit has a number of it
        Ok(session << COMMIT_BITS)
    }
}
