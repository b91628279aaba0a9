//! Fills an empty tree from sorted records.
//!
//! Full leaves are added, one by one, at the right edge of a separate tree, whose root is a second word of the
//! root block; so every block always belongs to the index. At the end one operation makes that tree the index
//! and freezes the old, empty leaf. An unfinished load that a crash leaves is not in the index; the next load,
//! or closing, frees it.

use pmindex_core::{Medium, PmError, Word};
use pmindex_index::{IndexError, Key, Noted, Shape, Value};
use pmindex_pmwcas::{Descriptor, Session};
use pmindex_record::{EncodedValue, Probe, Slot, bits, separator_between};

use super::inner::Target;
use super::install::{Change, Refused};
use super::layout::{Geometry, Ptr};
use super::leaf::{Item, Source};
use super::record::Raw;
use super::tree::{BzTree, pool_error};

/// The number of blocks out of line that one operation makes or frees.
const BLOCKS: usize = 12;

/// A record as it was encoded. It is encoded once, since a second encoding may differ.
type Encoded<K, V> = (Probe<'static, K>, EncodedValue<'static, V>);

/// The records of a future leaf.
struct Pending<K, V> {
    records: Vec<Encoded<K, V>>,
    words: usize,
    out: usize,
}

impl<K: Key, V: Value, M: Medium, const LEAF: usize, const INNER: usize>
    BzTree<K, V, M, LEAF, INNER>
{
    /// Fills an empty index from strictly ascending records, all or (after an error or a crash) none; returns
    /// their number. Other threads may read meanwhile; a concurrent write makes it fail.
    ///
    /// # Errors
    /// [`IndexError::NotEmpty`], [`IndexError::NotSorted`]; the index stays as it was.
    pub fn bulk_load(&self, records: &mut dyn Iterator<Item = (K, V)>) -> Result<u64, IndexError> {
        self.bulk_load_inner(records).noted(&self.pool)
    }

    fn bulk_load_inner(
        &self,
        records: &mut dyn Iterator<Item = (K, V)>,
    ) -> Result<u64, IndexError> {
        self.pool.check_writable()?;
        let _one = self.pm().lock(&self.loader);
        if !self.is_empty()? {
            return Err(IndexError::NotEmpty);
        }
        self.discard_all()?;
        let loaded = self.load(records).and_then(|count| {
            self.take_over(count)?;
            Ok(count)
        });
        if loaded.is_err() {
            self.discard_all()?;
        }
        loaded
    }

    fn load(&self, records: &mut dyn Iterator<Item = (K, V)>) -> Result<u64, IndexError> {
        let mut pending = Pending { records: Vec::with_capacity(LEAF), words: 0, out: 0 };
        let mut last: Option<Raw> = None;
        let mut edge: Option<Raw> = None;
        let mut count = 0;
        for (key, value) in records {
            let (probe, datum) =
                (Probe::<K>::new(key.borrowed())?, EncodedValue::new(value.borrowed())?);
            let form = Self::incoming(&probe, &datum).form;
            let raw = Raw::of(&probe);
            if last.as_ref().is_some_and(|last| last.compare(K::SHAPE, &raw).is_ge()) {
                return Err(IndexError::NotSorted { at: count });
            }
            let full = pending.records.len() == LEAF
                || pending.words + form.words > Geometry::<K, V, LEAF, INNER>::MOST_WORDS
                || pending.out + usize::from(form.out) > BLOCKS;
            if full {
                self.hang(&mut pending, edge.as_ref())?;
                edge = last.take();
            }
            pending.words += form.words;
            pending.out += usize::from(form.out);
            pending.records.push((probe.into_owned(), datum.into_owned()));
            last = Some(raw);
            count += 1;
        }
        if !pending.records.is_empty() {
            self.hang(&mut pending, edge.as_ref())?;
        }
        Ok(count)
    }

    /// Adds a leaf of the pending records at the right edge. `edge` is the greatest key so far.
    fn hang(&self, pending: &mut Pending<K, V>, edge: Option<&Raw>) -> Result<(), IndexError> {
        self.with_session(|session| {
            loop {
                match self.try_hang(session, &pending.records, edge) {
                    Ok(true) => return Ok(()),
                    Ok(false) | Err(Refused::Stale) => {}
                    Err(Refused::TooWide) => {
                        let path = self.path(&self.root()?.loading, &Target::Last)?;
                        self.split_above(session, &path)?;
                    }
                    Err(Refused::Failed(error)) => return Err(error.into()),
                }
            }
        })?;
        pending.records.clear();
        (pending.words, pending.out) = (0, 0);
        Ok(())
    }

    fn try_hang(
        &self,
        session: &mut Session<'_, M>,
        records: &[Encoded<K, V>],
        edge: Option<&Raw>,
    ) -> Result<bool, Refused> {
        let anchor = &self.root()?.loading;
        let mut op = session.descriptor();
        let mut items = Vec::with_capacity(records.len());
        for (probe, datum) in records {
            items.push(self.item_of(&mut op, probe, datum)?);
        }
        let leaf = self.add_leaf(&mut op, &items, true)?;
        let (Some(edge), Some(first)) = (edge, items.first()) else {
            op.add_word(anchor, 0, leaf.word())?;
            return Ok(op.execute()?);
        };
        let separator = match K::SHAPE {
            Shape::Bytes => Raw::of_bytes(&separator_between(&edge.bytes, &first.key.bytes, 0)?),
            Shape::Inline(_) => edge.clone(),
        };
        let path = self.path(anchor, &Target::Last)?;
        let depth = path.steps().len();
        let index = path.steps().last().map_or(0, |step| step.index);
        let (old, new) = (&[path.leaf], vec![path.leaf, leaf]);
        let change = Change { depth, index, old, new, separators: vec![separator] };
        self.add_change(&mut op, &path, change)?;
        Ok(op.execute()?)
    }

    /// Returns a record in its form in a leaf; adds a block out of line to the operation.
    fn item_of(
        &self,
        op: &mut Descriptor<'_, '_, M>,
        probe: &Probe<'_, K>,
        datum: &EncodedValue<'_, V>,
    ) -> Result<Item<'static>, Refused> {
        let record = Self::incoming(probe, datum);
        let mut words = vec![0; record.form.words];
        let mut changing = None;
        if record.form.out {
            let at = self.add_block(op, &record)?;
            words[..K::SHAPE.words()].copy_from_slice(&probe.words()[..K::SHAPE.words()]);
            let values = V::SHAPE.words();
            let first = Slot::<K, V>::KEY_WORDS;
            words[first..first + values].copy_from_slice(&datum.words()[..values]);
            changing = Some((Slot::<K, V>::BLOCK_WORD, at));
        } else {
            encode::<K, V>(&mut words, probe, datum);
        }
        let (key, fingerprint) = (Raw::of(probe), probe.fingerprint());
        Ok(Item { key, fingerprint, words: Source::Memory(words), place: record.form, changing })
    }

    /// Makes the loaded tree the index, if the index is still empty.
    fn take_over(&self, count: u64) -> Result<(), IndexError> {
        let _busy = self.count.begin();
        let root = self.root()?;
        let mut session = self.mwcas.session()?;
        loop {
            let loaded = self.mwcas.read(&root.loading)?;
            if loaded == 0 {
                return Ok(());
            }
            let old = Ptr::of(self.mwcas.read(&root.root)?);
            if old.level() > 0 {
                self.gather(&mut session)?;
                if Ptr::of(self.mwcas.read(&root.root)?).level() > 0 {
                    return Err(IndexError::NotEmpty);
                }
                continue;
            }
            let leaf = self.leaf(old)?;
            let status = leaf.status(&self.mwcas)?;
            if status.live() > 0 {
                return Err(IndexError::NotEmpty);
            }
            let mut op = session.descriptor();
            let mut add = || {
                Self::add_status(&mut op, leaf.status_cell(), status, status.frozen())?;
                Self::add_free(&mut op, leaf.offset())?;
                op.add_word(&root.root, old.word(), loaded)?;
                Ok(op.add_word(&root.loading, loaded, 0)?)
            };
            add().map_err(failed)?;
            if op.execute().map_err(pool_error)? {
                self.count.add(count);
                return Ok(());
            }
        }
    }

    /// Merges the leaves of an empty tree into one.
    fn gather(&self, session: &mut Session<'_, M>) -> Result<(), PmError> {
        let anchor = self.anchor()?;
        let mut merged = true;
        while merged {
            merged = false;
            let mut after: Option<Raw> = None;
            loop {
                let target =
                    after.as_ref().map_or(Target::First, |key| Target::After(key.borrowed()));
                let path = self.path(anchor, &target)?;
                let (low, high) = self.fences(&path)?;
                let key = high.clone().or(low).unwrap_or_default();
                merged |= self.merge(session, &path, key.borrowed())?;
                let stuck = after.as_ref().zip(high.as_ref());
                if high.is_none() || stuck.is_some_and(|(a, b)| b.compare(K::SHAPE, a).is_le()) {
                    break;
                }
                after = high;
            }
        }
        Ok(())
    }

    /// Frees the blocks of an unfinished load.
    pub(super) fn discard_load(&self) -> Result<(), IndexError> {
        let _one = self.pm().lock(&self.loader);
        self.discard_all()
    }

    fn discard_all(&self) -> Result<(), IndexError> {
        let anchor = &self.root()?.loading;
        while self.mwcas.read(anchor)? != 0 {
            self.discard_last(&mut self.mwcas.session()?).map_err(failed)?;
        }
        Ok(())
    }

    /// Removes the last leaf of the unfinished load, or some of its blocks.
    fn discard_last(&self, session: &mut Session<'_, M>) -> Result<(), Refused> {
        let path = self.path(&self.root()?.loading, &Target::Last)?;
        let leaf = self.leaf(path.leaf)?;
        let status = leaf.status(&self.mwcas)?;
        let live = leaf.live(&self.mwcas, status)?;
        let mut op = session.descriptor();
        let (mut dead, mut words, mut count) = (0, 0, 0usize);
        for number in bits(live.sorted) {
            let record = leaf.record(leaf.place(self.pm(), number))?;
            if let Some(cell) = record.block_cell()
                && count < BLOCKS
            {
                Self::add_free(&mut op, self.mwcas.read(cell)?)?;
                dead |= 1 << number;
                words += record.place.words;
                count += 1;
            }
        }
        if count > 0 {
            let before = self.mwcas.read(leaf.dead_cell())?;
            op.add_covered_word(leaf.dead_cell(), before, before | dead)?;
            let next = status.changed(0, (0, 0), (count, words));
            op.add_word(leaf.status_cell(), status.into_word(), next.into_word())?;
        } else {
            Self::add_status(&mut op, leaf.status_cell(), status, status.frozen())?;
            Self::add_free(&mut op, leaf.offset())?;
            let depth = path.steps().len();
            let index = path.steps().last().map_or(0, |step| step.index);
            let (old, separators) = (&[path.leaf], Vec::new());
            let change = Change { depth, index, old, new: Vec::new(), separators };
            self.add_change(&mut op, &path, change)?;
        }
        op.execute()?;
        Ok(())
    }
}

/// Writes the words of a record that has no block.
fn encode<K: Key, V: Value>(words: &mut [u64], probe: &Probe<'_, K>, datum: &EncodedValue<'_, V>) {
    let mut put = |at: usize, bytes: &[u8]| {
        for (word, chunk) in words[at..].iter_mut().zip(bytes.chunks(8)) {
            let mut padded = [0; 8];
            padded[..chunk.len()].copy_from_slice(chunk);
            *word = u64::from_le_bytes(padded);
        }
    };
    let keys = K::SHAPE.words() + probe.bytes().len().div_ceil(8);
    put(0, probe.bytes());
    put(keys, datum.bytes());
    words[..K::SHAPE.words()].copy_from_slice(&probe.words()[..K::SHAPE.words()]);
    let values = V::SHAPE.words();
    words[keys..keys + values].copy_from_slice(&datum.words()[..values]);
}

fn failed(refused: Refused) -> IndexError {
    match refused {
        Refused::Failed(error) => error.into(),
        Refused::Stale | Refused::TooWide => {
            PmError::Corrupt { what: "a bulk load's tree", offset: 0 }.into()
        }
    }
}
