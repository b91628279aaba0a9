//! The end of every operation that one word commits.

use pmindex_core::{Durable, Medium, Op, PmError, PmU64, Pool, words_of};

/// Stores and flushes the word that commits a prepared operation, seals and fences it (LIN, DUR).
///
/// # Errors
/// The pool's.
#[track_caller]
pub fn link<M: Medium>(
    pool: &Pool<M>,
    mut op: Op<'_, M>,
    cell: &PmU64,
    word: u64,
) -> Result<(), PmError> {
    let pm = pool.pm();
    pm.store_word(cell, word); // LIN
    let sealed = op.seal();
    let linked = pm.flush_words(words_of(cell));
    let durable: Durable = pm.fence(sealed.and(linked))?; // DUR
    op.finish(durable);
    Ok(())
}
