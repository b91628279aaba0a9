//! Operations that one word commits: their ends, and the whole of those that many indexes have. The steps of the latter
//! ([`remove`], [`replace`]) are persistence sites of this file, each with its own mutants.

use pmindex_core::{
    Durable, Flushed, Medium, Op, Owner, PPtr, PmError, PmU64, Pool, Reserved, words_of,
};

use crate::block::RecordBlock;

/// Stores, flushes and fences the word that is the whole of an operation (LIN, DUR).
///
/// # Errors
/// Those of the medium.
#[inline(always)]
#[track_caller]
pub fn set<M: Medium>(pm: &M, cell: &PmU64, word: u64) -> Result<(), PmError> {
    pm.store_word(cell, word); // LIN
    let stored = pm.flush_words(words_of(cell));
    pm.fence(stored)?; // DUR
    Ok(())
}

/// Removes a record: stores `word` where its owner is, and frees its block, if it has one.
///
/// Step P1 is the block's ticket. `named`: a word that points to the block, which an earlier ticket may name.
///
/// # Errors
/// The pool's.
#[inline(always)]
pub fn remove<M: Medium>(
    pool: &Pool<M>,
    owner: Owner<'_>,
    word: u64,
    block: Option<u64>,
    named: Option<&PmU64>,
) -> Result<(), PmError> {
    let Some(block) = block else { return set(pool.pm(), owner.word, word) };
    let mut op = pool.op()?;
    op.free(PPtr::<PmU64>::new(block), owner)?;
    if let Some(named) = named {
        op.changes(named);
    }
    op.prepare(Flushed::nothing())?;
    link(pool, op, owner.word, word)
}

/// Replaces the block of a record, to which `cell` points, by one with this key and value. Step P1 is the new block,
/// and the tickets of both.
///
/// # Errors
/// The pool's.
pub fn replace<M: Medium>(
    pool: &Pool<M>,
    cell: &PmU64,
    key: &[u8],
    value: &[u8],
) -> Result<(), PmError> {
    let old = pool.pm().load_word(cell);
    let owner = |expect| Owner { word: cell, mask: u64::MAX, expect };
    let mut op = pool.op()?;
    let (block, words) = reserve(pool, &mut op, key, value)?;
    let new = block.ptr().offset();
    op.allocate(&block, owner(new))?;
    op.free(PPtr::<PmU64>::new(old), owner(old))?;
    op.prepare(pool.pm().flush_words(words))?;
    link(pool, op, cell, new)
}

/// Reserves and fills the block of a record; returns its words, which the caller flushes.
///
/// # Errors
/// The pool's.
#[track_caller]
pub fn reserve<'p, M: Medium>(
    pool: &'p Pool<M>,
    op: &mut Op<'_, M>,
    key: &[u8],
    value: &[u8],
) -> Result<(Reserved<PmU64>, &'p [PmU64]), PmError> {
    let block = op.reserve_bytes(RecordBlock::size_for(key.len(), value.len()), 8)?;
    let words = RecordBlock::fill(pool, block.ptr(), key, value)?;
    Ok((block, words))
}

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
