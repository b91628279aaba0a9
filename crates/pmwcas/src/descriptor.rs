//! Building an operation.

use pmindex_core::{Flushed, Medium, Op, PPtr, PmCell, PmError, PmPtr, PmType, PmU64, Word};

use crate::entry::{Entry, Policy};
use crate::error::MwcasError;
use crate::recycle::RecyclerId;
use crate::session::{Later, Prepared, Session, Shown};
use crate::word::MAX_VALUE;

/// An operation under construction: its words with their expected and new values.
///
/// Nothing of it is on the medium before [`execute`](Self::execute). Dropping it discards it and frees its
/// blocks.
#[derive(Debug)]
#[must_use = "an operation does nothing unless executed"]
pub struct Descriptor<'s, 'm, M: Medium> {
    session: &'s mut Session<'m, M>,
    prepared: Prepared<'m, M>,
}

/// Marks a reserved entry without a new value; no user value is this large.
const UNSET: u64 = u64::MAX;

impl<'s, 'm, M: Medium> Descriptor<'s, 'm, M> {
    pub(crate) fn new(
        session: &'s mut Session<'m, M>,
        entries: Vec<Entry>,
        recycler: RecyclerId,
    ) -> Self {
        let (blocks, filled, later) = (Vec::new(), Vec::new(), Vec::new());
        let prepared = Prepared { entries, op: None, blocks, filled, later, shown: None, recycler };
        Self { session, prepared }
    }

    /// Adds a word that must hold `expected` and is to hold `new`. If both are the same, the word stays as it
    /// is, and the operation succeeds only if the word has that value.
    ///
    /// # Errors
    /// [`MwcasError::Duplicate`], [`MwcasError::TooManyWords`], [`MwcasError::ValueTooLarge`]; the operation
    /// is unchanged then.
    ///
    /// # Panics
    /// If the word is not in the pool.
    #[inline]
    pub fn add_word<W: Word>(
        &mut self,
        cell: &PmCell<W>,
        expected: W,
        new: W,
    ) -> Result<(), MwcasError> {
        let (old, new) = (checked(expected)?, checked(new)?);
        self.add(cell.as_word(), Entry { old, new, ..Entry::EMPTY })
    }

    /// As [`add_word`](Self::add_word), for a word that another word of the operation *covers*: every
    /// operation that changes this word also has that other word, added by `add_word`. (A node's version
    /// covers the node's words, say.) A covered word needs no claim of its own.
    ///
    /// # Errors
    /// As [`add_word`](Self::add_word).
    ///
    /// # Panics
    /// If the word is not in the pool.
    #[inline]
    pub fn add_covered_word<W: Word>(
        &mut self,
        cell: &PmCell<W>,
        expected: W,
        new: W,
    ) -> Result<(), MwcasError> {
        let (old, new) = (checked(expected)?, checked(new)?);
        self.add(cell.as_word(), Entry { old, new, covered: true, ..Entry::EMPTY })
    }

    /// Adds a word that shows a record: `cell` has held `expected` since this thread reserved it, and is to
    /// hold `new`. `record` are the words that readers look at from then on; this thread has filled them, and
    /// no other thread has read them. They need not be flushed. An operation shows at most one record.
    ///
    /// The word must be covered ([`add_covered_word`](Self::add_covered_word)). It must never hold `expected`
    /// again before every thread that is pinned now has left. Readers may see its change before that of the
    /// other words, but never before it is durable.
    ///
    /// # Cost
    /// Only the flush of the record, if the record has at most two words and the operation one other word,
    /// less than 2048 words before `record` and `cell`. Otherwise as a word, and the operation's first fence.
    ///
    /// # Errors
    /// As [`add_word`](Self::add_word).
    ///
    /// # Panics
    /// If the words are not in the pool, or the operation shows a record already.
    #[inline]
    pub fn show(
        &mut self,
        cell: &PmU64,
        expected: u64,
        new: u64,
        record: &[PmU64],
    ) -> Result<(), MwcasError> {
        assert!(self.prepared.shown.is_none(), "one record for each operation");
        let (old, new, target) = (checked(expected)?, checked(new)?, self.offset_of(cell));
        if self.position(target).is_ok() {
            return Err(MwcasError::Duplicate { offset: target });
        }
        self.check_room()?;
        let word = Entry { target, old, new, covered: true, ..Entry::EMPTY };
        let at = record.first().map_or(0, |first| self.offset_of(first));
        self.prepared.shown = Some(Shown { word, record: at, words: record.len() });
        Ok(())
    }

    /// Adds a word whose new value is given later, by [`set`](Self::set) or [`allocate`](Self::allocate). Its
    /// old and new values may point to blocks; `policy` says which outcome frees which.
    ///
    /// # Errors
    /// As [`add_word`](Self::add_word).
    ///
    /// # Panics
    /// If the word is not in the pool.
    pub fn reserve_entry<W: Word>(
        &mut self,
        cell: &PmCell<W>,
        expected: W,
        policy: Policy,
    ) -> Result<(), MwcasError> {
        let old = checked(expected)?;
        self.add(cell.as_word(), Entry { old, new: UNSET, policy, ..Entry::EMPTY })
    }

    /// Gives a reserved entry its new value. It is no block of the operation, so the policy must not free it.
    ///
    /// # Errors
    /// [`MwcasError::NoSuchWord`], [`MwcasError::WrongPolicy`], [`MwcasError::ValueTooLarge`].
    pub fn set<W: Word>(&mut self, cell: &PmCell<W>, new: W) -> Result<(), MwcasError> {
        let new = checked(new)?;
        let entry = self.reserved(cell.as_word(), false)?;
        entry.new = new;
        Ok(())
    }

    /// Gives a reserved entry a new block, which `init` fills. The block is flushed and belongs to the
    /// operation, durably, before the operation can succeed; if it succeeds, the block belongs to the
    /// structure.
    ///
    /// The entry's policy must free the new value on failure.
    ///
    /// # Errors
    /// [`MwcasError::NoSuchWord`], [`MwcasError::WrongPolicy`]; those of the allocator.
    pub fn allocate<T: PmType>(
        &mut self,
        cell: &PmPtr<T>,
        init: impl FnOnce(&T),
    ) -> Result<PPtr<T>, MwcasError> {
        self.reserved(cell.as_word(), true)?;
        let ptr = self.reserve::<T>(init)?;
        self.reserved(cell.as_word(), true)?.new = ptr.offset();
        Ok(ptr)
    }

    /// As [`allocate`](Self::allocate), for a block of `size` bytes at a multiple of `align`. `init` fills
    /// words at the block's start and returns how many.
    ///
    /// # Errors
    /// As [`allocate`](Self::allocate).
    pub fn allocate_bytes<T>(
        &mut self,
        cell: &PmPtr<T>,
        size: u64,
        align: u64,
        init: impl FnOnce(&[PmU64]) -> usize,
    ) -> Result<PPtr<T>, MwcasError> {
        self.reserved(cell.as_word(), true)?;
        let offset = self.reserve_bytes(size, align, init)?;
        self.reserved(cell.as_word(), true)?.new = offset;
        Ok(PPtr::new(offset))
    }

    /// Allocates a block that no word of the operation will point to, but another new block does
    /// (a node of a subtree that is installed as a whole). It is freed if the operation fails.
    ///
    /// # Errors
    /// [`MwcasError::TooManyWords`]; those of the allocator.
    pub fn allocate_extra<T: PmType>(
        &mut self,
        init: impl FnOnce(&T),
    ) -> Result<PPtr<T>, MwcasError> {
        self.check_room()?;
        let ptr = self.reserve::<T>(init)?;
        let new = ptr.offset();
        self.prepared.entries.push(Entry { new, policy: Policy::FreeNewOnFailure, ..Entry::EMPTY });
        Ok(ptr)
    }

    /// As [`allocate_extra`](Self::allocate_extra), for a block of `size` bytes at a multiple of `align`.
    /// `init` fills words at the block's start and returns how many.
    ///
    /// # Errors
    /// As [`allocate_extra`](Self::allocate_extra).
    pub fn allocate_extra_bytes(
        &mut self,
        size: u64,
        align: u64,
        init: impl FnOnce(&[PmU64]) -> usize,
    ) -> Result<PPtr<u64>, MwcasError> {
        self.check_room()?;
        let new = self.reserve_bytes(size, align, init)?;
        self.prepared.entries.push(Entry { new, policy: Policy::FreeNewOnFailure, ..Entry::EMPTY });
        Ok(PPtr::new(new))
    }

    /// As [`allocate_extra`](Self::allocate_extra), for a block of `size` bytes at a multiple of `align`,
    /// which `fill` fills and flushes, for example by non-temporal stores. `execute` calls `fill` before the
    /// fence that makes the block durable, unless the operation fails earlier.
    ///
    /// # Errors
    /// As [`allocate_extra`](Self::allocate_extra).
    pub fn allocate_extra_later(
        &mut self,
        size: u64,
        align: u64,
        fill: impl FnOnce(&M, &[PmU64]) -> Flushed + 'static,
    ) -> Result<PPtr<u64>, MwcasError> {
        self.check_room()?;
        let block = self.op()?.reserve_bytes(size, align)?;
        let new = block.ptr().offset();
        let words = size.div_ceil(8) as usize;
        self.prepared.blocks.push(block);
        self.prepared.later.push(Later { offset: new, words, fill: Box::new(fill) });
        self.prepared.entries.push(Entry { new, policy: Policy::FreeNewOnFailure, ..Entry::EMPTY });
        Ok(PPtr::new(new))
    }

    /// Frees a block if the operation succeeds, although no word of the operation points to it: the operation
    /// makes it unreachable by replacing its parent as a whole.
    ///
    /// # Errors
    /// [`MwcasError::TooManyWords`].
    pub fn free_on_success<T>(&mut self, block: PPtr<T>) -> Result<(), MwcasError> {
        self.check_room()?;
        let old = checked(block)?;
        self.prepared.entries.push(Entry { old, policy: Policy::FreeOldOnSuccess, ..Entry::EMPTY });
        Ok(())
    }

    /// Makes words durable before the operation can succeed: a record that it shows, say. They are flushed
    /// under the operation's first fence; the operation has two fences then.
    ///
    /// # Panics
    /// If the words are not in the pool.
    pub fn flush_first(&mut self, words: &[PmU64]) {
        if let Some(first) = words.first() {
            self.prepared.filled.push((self.offset_of(first), words.len()));
        }
    }

    /// Takes a word out again. A block allocated for it is freed when the operation ends.
    ///
    /// # Errors
    /// [`MwcasError::NoSuchWord`].
    pub fn remove_word<W>(&mut self, cell: &PmCell<W>) -> Result<(), MwcasError> {
        let offset = self.offset_of(cell.as_word());
        let at = self.position(offset)?;
        let entry = self.prepared.entries.remove(at);
        if entry.policy.frees_new() {
            self.prepared.blocks.retain(|block| block.ptr().offset() != entry.new);
            self.prepared.filled.retain(|filled| filled.0 != entry.new);
        }
        Ok(())
    }

    /// Executes the operation. Returns `true` if every word had its expected value and now has its new one;
    /// `false` if one had not, and then nothing has changed. The outcome is durable on return.
    ///
    /// # Cost
    /// With one or two words, on `w` lines: 1 line for descriptor and outcome, `w` for the new values
    /// (flushed in batches, with at most one line more for each batch), 1 fence. With more words: another
    /// `ceil((16 + 24 w) / 64)` lines for the descriptor, 2 fences. One fence more if it allocates; freeing
    /// takes 2 fences for each batch. An operation that finds an unexpected value at its start flushes
    /// nothing.
    ///
    /// # Errors
    /// [`MwcasError::Unset`]; those of the pool. After [`DurabilityLost`](PmError::DurabilityLost) readers
    /// still see the old values; what a crash will leave is undetermined.
    #[inline]
    pub fn execute(mut self) -> Result<bool, MwcasError> {
        let prepared = &mut self.prepared;
        if let Some(entry) = prepared.entries.iter().find(|e| e.new == UNSET) {
            return Err(MwcasError::Unset { offset: entry.target });
        }
        if prepared.entries.is_empty() {
            return Ok(true);
        }
        if prepared.blocks.is_empty() {
            prepared.op = None; // without new blocks the allocator is not needed
        }
        Ok(self.session.execute(prepared)?)
    }

    /// Discards the operation; the same as dropping it.
    pub fn discard(self) {}

    fn offset_of(&self, cell: &PmU64) -> u64 {
        self.session.mwcas().pool().pptr(cell).offset()
    }

    fn position(&self, offset: u64) -> Result<usize, MwcasError> {
        self.prepared
            .entries
            .iter()
            .position(|e| e.target == offset)
            .ok_or(MwcasError::NoSuchWord { offset })
    }

    fn check_room(&self) -> Result<(), MwcasError> {
        let max = self.session.mwcas().config().words as usize;
        if self.prepared.entries.len() + usize::from(self.prepared.shown.is_some()) < max {
            Ok(())
        } else {
            Err(MwcasError::TooManyWords { max })
        }
    }

    /// Inserts an entry at its place: entries are always in the order of installation. Adding words in
    /// ascending order, and blocks last, moves the fewest entries.
    #[inline]
    fn add(&mut self, cell: &PmU64, entry: Entry) -> Result<(), MwcasError> {
        let target = self.offset_of(cell);
        let entry = Entry { target, ..entry };
        if self.prepared.entries.last().is_none_or(|last| last.order() < entry.order()) {
            self.check_room()?;
            self.prepared.entries.push(entry);
            return Ok(());
        }
        let entries = &self.prepared.entries;
        let later = entries.iter().rev().take_while(|e| e.order() > entry.order()).count();
        let at = entries.len() - later;
        if at > 0 && entries[at - 1].target == target {
            return Err(MwcasError::Duplicate { offset: target });
        }
        self.check_room()?;
        self.prepared.entries.insert(at, entry);
        Ok(())
    }

    /// Returns the reserved entry of a word; its policy must (or must not) free the new value.
    fn reserved(&mut self, cell: &PmU64, frees_new: bool) -> Result<&mut Entry, MwcasError> {
        let at = self.position(self.offset_of(cell))?;
        let entry = &mut self.prepared.entries[at];
        let set_already = frees_new && entry.new != UNSET;
        if entry.policy.frees_new() != frees_new || set_already {
            return Err(MwcasError::WrongPolicy);
        }
        Ok(entry)
    }

    fn op(&mut self) -> Result<&mut Op<'m, M>, PmError> {
        if self.prepared.op.is_none() {
            self.session.free_a_slot()?;
            self.prepared.op = Some(self.session.mwcas().pool().op()?);
        }
        self.prepared.op.as_mut().ok_or(PmError::Busy { slots: 0 })
    }

    fn reserve<T: PmType>(&mut self, init: impl FnOnce(&T)) -> Result<PPtr<T>, PmError> {
        let block = self.op()?.reserve_bytes(size_of::<T>() as u64, align_of::<T>() as u64)?;
        let ptr = block.ptr().cast::<T>();
        init(self.session.mwcas().pool().get(ptr)?);
        self.prepared.blocks.push(block);
        self.prepared.filled.push((ptr.offset(), size_of::<T>() / 8));
        Ok(ptr)
    }

    fn reserve_bytes(
        &mut self,
        size: u64,
        align: u64,
        init: impl FnOnce(&[PmU64]) -> usize,
    ) -> Result<u64, PmError> {
        let block = self.op()?.reserve_bytes(size, align)?;
        let offset = block.ptr().offset();
        let words = self.session.mwcas().pool().words(offset, size.div_ceil(8) as usize)?;
        let filled = init(words).min(words.len());
        self.prepared.blocks.push(block);
        self.prepared.filled.push((offset, filled));
        Ok(offset)
    }
}

fn checked<W: Word>(value: W) -> Result<u64, MwcasError> {
    let value = value.into_word();
    if value <= MAX_VALUE { Ok(value) } else { Err(MwcasError::ValueTooLarge { value }) }
}
