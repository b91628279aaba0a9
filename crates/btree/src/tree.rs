//! A tree of byte strings: searches, and writes as parts of a transaction.

use std::collections::BTreeMap;
use std::ops::Bound;

use pmindex_buffer::{Buffer, BufferError, Page, Tx};
use pmindex_core::Medium;

use crate::error::PagedError;
use crate::expected::Expected;
use crate::meta;
use crate::node::{Content, Node, Packed, Record, Step, StepBack, most_words, put, remove};
use crate::room::Room;

/// The maximum number of pages that a search visits; a tree has far fewer levels.
const MOST_STEPS: usize = 1 << 20;

/// A tree, identified by the page of its root, which never changes.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Tree {
    pub(crate) root: u64,
}

/// Records of a leaf, and the key from which on the next leaf has records, or before which the previous one
/// has.
pub(crate) type Batch = (Vec<Record>, Option<Packed>);

/// Pages as a search reads them: of a buffer each at a moment of its own, in a transaction all at one.
pub(crate) trait Pages<M: Medium> {
    fn read<R>(&mut self, page: u64, read: impl FnMut(Page<'_, M>) -> R) -> Result<R, BufferError>;
}

impl<M: Medium> Pages<M> for &Buffer<M> {
    fn read<R>(&mut self, page: u64, read: impl FnMut(Page<'_, M>) -> R) -> Result<R, BufferError> {
        Buffer::read(self, page, read)
    }
}

impl<M: Medium> Pages<M> for Tx<'_, M> {
    fn read<R>(&mut self, page: u64, read: impl FnMut(Page<'_, M>) -> R) -> Result<R, BufferError> {
        Tx::read(self, page, read)
    }
}

/// Pages in a transaction, which are of one moment if that is verified when all have been read.
struct Unverified<'b, M: Medium>(Tx<'b, M>);

impl<M: Medium> Pages<M> for Unverified<'_, M> {
    fn read<R>(&mut self, page: u64, read: impl FnMut(Page<'_, M>) -> R) -> Result<R, BufferError> {
        self.0.read_unverified(page, read)
    }
}

/// The number of times that pages are read while others may change them.
const TRIES: u32 = 16;

/// Reads pages at one moment: that of the last read. Nothing is committed. Each page is looked at twice, not again for
/// each one that is read after it. It ends, whatever other threads do: after some tries their commits wait, except
/// those in progress.
fn at_one_moment<M: Medium, R>(
    buffer: &Buffer<M>,
    read: impl Fn(&mut Unverified<'_, M>) -> Result<R, PagedError>,
) -> Result<R, PagedError> {
    let (mut tries, mut paused) = (0, None);
    loop {
        let mut pages = Unverified(buffer.begin());
        let found = read(&mut pages);
        match pages.0.verify() {
            Ok(()) => return found,
            Err(BufferError::Conflict) => buffer.pool().pm().spin(),
            Err(error) => return Err(error.into()),
        }
        tries += 1;
        if tries >= TRIES {
            paused.get_or_insert_with(|| buffer.pause());
        }
    }
}

/// The size of a tree: records, leaves, inner nodes, levels.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Counts {
    pub(crate) records: u64,
    pub(crate) leaves: u64,
    pub(crate) inners: u64,
    pub(crate) height: u64,
}

impl Tree {
    /// Returns the value of a key.
    pub(crate) fn get<M: Medium>(
        self,
        buffer: &Buffer<M>,
        key: &Packed,
    ) -> Result<Option<Packed>, PagedError> {
        let mut page = self.root;
        for _ in 0..MOST_STEPS {
            let (step, value) = buffer.read(page, |view| {
                let node = Node(&view);
                let step = node.search(key, 0);
                let value = matches!(step, Step::Here(_, true)).then(|| match step {
                    Step::Here(nth, _) => node.value(nth),
                    Step::To(_) => Packed::default(),
                });
                (step, value)
            })?;
            match step {
                Step::Here(..) => return Ok(value),
                Step::To(next) => page = next,
            }
        }
        Err(PagedError::Corrupt { page, what: "a search does not end" })
    }

    /// Returns the records from `from` on, `most` at most, of the leaf that contains it.
    pub(crate) fn batch<M: Medium>(
        self,
        pages: &mut impl Pages<M>,
        from: &Packed,
        most: usize,
    ) -> Result<Batch, PagedError> {
        let mut page = self.root;
        for _ in 0..MOST_STEPS {
            let found = pages.read(page, |view| {
                let node = Node(&view);
                match node.search(from, 0) {
                    Step::To(next) => Err(next),
                    Step::Here(nth, _) => {
                        let records = (nth..node.count()).take(most);
                        Ok((records.map(|nth| node.record(nth)).collect(), node.fence()))
                    }
                }
            })?;
            match found {
                Ok(batch) => return Ok(batch),
                Err(next) => page = next,
            }
        }
        Err(PagedError::Corrupt { page, what: "a search does not end" })
    }

    /// Returns the records within `upper`, the last `most` of them at most, of the leaf with the greatest of them, and
    /// the least key that the leaf can have: records before it are in other leaves.
    pub(crate) fn batch_back<M: Medium>(
        self,
        pages: &mut impl Pages<M>,
        upper: &Bound<Packed>,
        most: usize,
    ) -> Result<Batch, PagedError> {
        let (mut page, mut least) = (self.root, None);
        for _ in 0..MOST_STEPS {
            let (step, records) = pages.read(page, |view| {
                let node = Node(&view);
                let step = node.search_back(upper);
                let count = if let StepBack::Here(count) = step { count } else { 0 };
                let records = count.saturating_sub(most)..count;
                (step, records.map(|nth| node.record(nth)).collect())
            })?;
            match step {
                StepBack::Here(_) => return Ok((records, least)),
                StepBack::To(next, from) => {
                    page = next;
                    least = from.or(least);
                }
            }
        }
        Err(PagedError::Corrupt { page, what: "a search does not end" })
    }

    /// Returns the page of each level above the leaves that the search for a key passes; `None` if the key has a value of
    /// as many words as this one.
    pub(crate) fn passed<M: Medium>(
        self,
        buffer: &Buffer<M>,
        record: &Record,
    ) -> Result<Option<BTreeMap<usize, u64>>, PagedError> {
        let (mut page, mut passed) = (self.root, BTreeMap::new());
        for _ in 0..MOST_STEPS {
            let (level, step, is_same) = buffer.read(page, |view| {
                let node = Node(&view);
                let step = node.search(&record.key, 0);
                let words = record.value.words.len();
                let is_same =
                    matches!(step, Step::Here(nth, true) if node.value(nth).words.len() == words);
                (node.level(), step, is_same)
            })?;
            match step {
                Step::Here(..) => return Ok((!is_same).then_some(passed)),
                Step::To(next) => {
                    if level > 0 {
                        passed.insert(level, page); // in place of its left neighbours
                    }
                    page = next;
                }
            }
        }
        Err(PagedError::Corrupt { page, what: "a search does not end" })
    }

    /// Returns the first record. It was the first at one moment, whatever other threads did to the leaves before it.
    ///
    /// LIN: the read of the first leaf, which stays the first one, if that has a record. Otherwise the last read of a
    /// transaction, at which all leaves up to this one are as they were read.
    pub(crate) fn first<M: Medium>(
        self,
        mut buffer: &Buffer<M>,
    ) -> Result<Option<Record>, PagedError> {
        let (mut records, next) = self.batch(&mut buffer, &Packed::default(), 1)?;
        if !records.is_empty() || next.is_none() {
            return Ok(records.pop());
        }
        at_one_moment(buffer, |pages| {
            let mut from = Packed::default();
            loop {
                let (mut records, next) = self.batch(pages, &from, 1)?;
                match next {
                    Some(next) if records.is_empty() => from = next,
                    _ => return Ok(records.pop()),
                }
            }
        })
    }

    /// Returns the last record, as [`first`](Self::first) returns the first one. A leaf without a right neighbour is
    /// the last one when it is read.
    pub(crate) fn last<M: Medium>(
        self,
        mut buffer: &Buffer<M>,
    ) -> Result<Option<Record>, PagedError> {
        let (mut records, least) = self.batch_back(&mut buffer, &Bound::Unbounded, 1)?;
        if !records.is_empty() || least.is_none() {
            return Ok(records.pop());
        }
        at_one_moment(buffer, |pages| {
            let mut upper = Bound::Unbounded;
            loop {
                let (mut records, least) = self.batch_back(pages, &upper, 1)?;
                match least {
                    Some(least) if records.is_empty() => upper = Bound::Excluded(least),
                    _ => return Ok(records.pop()),
                }
            }
        })
    }

    /// Returns the page of a level that contains a key, and what `at` returns for the slot of the key there.
    fn find<M: Medium, R>(
        self,
        tx: &mut Tx<'_, M>,
        key: &Packed,
        level: usize,
        at: impl Fn(&Node<'_, Page<'_, M>>, usize, bool) -> R,
    ) -> Result<(u64, R), PagedError> {
        let mut page = self.root;
        for _ in 0..MOST_STEPS {
            let found = tx.read(page, |view| {
                let node = Node(&view);
                match node.search(key, level) {
                    Step::Here(nth, found) => Ok(at(&node, nth, found)),
                    Step::To(next) => Err(next),
                }
            })?;
            match found {
                Ok(found) => return Ok((page, found)),
                Err(next) => page = next,
            }
        }
        Err(PagedError::Corrupt { page, what: "a search does not end" })
    }

    /// Does what [`get`](Self::get) does, in a transaction.
    pub(crate) fn get_in<M: Medium>(
        self,
        tx: &mut Tx<'_, M>,
        key: &Packed,
    ) -> Result<Option<Packed>, PagedError> {
        let found = self.find(tx, key, 0, |node, nth, found| found.then(|| node.value(nth)))?;
        Ok(found.1)
    }

    /// Adds a record, or replaces its value. Returns `true` if the key is new.
    pub(crate) fn put_in<M: Medium>(
        self,
        tx: &mut Tx<'_, M>,
        (buffer, room): (&Buffer<M>, &Room<'_>),
        record: &Record,
    ) -> Result<bool, PagedError> {
        let (words, most) =
            (record.key.words.len() + record.value.words.len(), most_words(buffer.page_words()));
        if words > most {
            return Err(PagedError::TooLong { len: 8 * words, max: 8 * most });
        }
        let (mut record, mut level, mut is_new) = (record.clone(), 0, false);
        loop {
            let (page, found) = self.find(tx, &record.key, level, |_, _, found| found)?;
            is_new |= level == 0 && !found;
            if put(tx.write(page)?, &record).map_err(damaged(page))? {
                return Ok(is_new);
            }
            let (separator, right) = self.split(tx, room, page, &record.key)?;
            let to = if (&record.key.words, record.key.len) < (&separator.words, separator.len) {
                page
            } else {
                right
            };
            // After a split of the root the lesser keys are in another page, so search again.
            let to = if page == self.root {
                self.find(tx, &record.key, level, |_, _, _| ())?.0
            } else {
                to
            };
            if !put(tx.write(to)?, &record).map_err(damaged(to))? {
                return Err(PagedError::Corrupt { page: to, what: "half a page has no room" });
            }
            if page == self.root {
                return Ok(is_new);
            }
            record = Record { key: separator, value: page_number(right) };
            level += 1;
        }
    }

    /// Splits a page in two. A root moves its content to two new pages, and refers to them.
    fn split<M: Medium>(
        self,
        tx: &mut Tx<'_, M>,
        room: &Room<'_>,
        page: u64,
        coming: &Packed,
    ) -> Result<(Packed, u64), PagedError> {
        let right = meta::allocate(tx, room)?;
        let mut lesser = Content::of(tx.write(page)?);
        let parts = lesser.split(right, coming).ok_or("it has no record and no room");
        let (separator, greater) = parts.map_err(damaged(page))?;
        greater.write(tx.create(right)?).map_err(damaged(page))?;
        if page == self.root {
            let left = meta::allocate(tx, room)?;
            lesser.write(tx.create(left)?).map_err(damaged(page))?;
            let records = vec![Record { key: separator.clone(), value: page_number(right) }];
            let content =
                Content { level: lesser.level + 1, right: 0, leftmost: left, fence: None, records };
            content.write(tx.write(page)?).map_err(damaged(page))?;
        } else {
            lesser.write(tx.write(page)?).map_err(damaged(page))?;
        }
        Ok((separator, right))
    }

    /// Removes a record; returns its value.
    pub(crate) fn remove_in<M: Medium>(
        self,
        tx: &mut Tx<'_, M>,
        key: &Packed,
    ) -> Result<Option<Packed>, PagedError> {
        let (page, slot) = self.find(tx, key, 0, |_, nth, found| found.then_some(nth))?;
        let Some(nth) = slot else { return Ok(None) };
        let draft = tx.write(page)?;
        let value = Node(draft).value(nth);
        remove(draft, nth);
        Ok(Some(value))
    }

    /// Counts the records of all leaves, each leaf at a moment of its own. A leaf that is split meanwhile is counted
    /// once: its greater records go to its right, between it and its neighbour of before.
    pub(crate) fn count<M: Medium>(self, buffer: &Buffer<M>) -> Result<u64, PagedError> {
        let (mut page, mut records) = (self.root, 0);
        for _ in 0..=MOST_STEPS as u64 + buffer.pages() {
            let (count, next) = buffer.read(page, |view| {
                let node = Node(&view);
                match node.search(&Packed::default(), 0) {
                    _ if node.level() == 0 => (node.count() as u64, node.right()),
                    Step::To(first) => (0, first),
                    Step::Here(..) => (0, 0),
                }
            })?;
            records += count;
            if next == 0 {
                return Ok(records);
            }
            page = next;
        }
        Err(PagedError::Corrupt { page, what: "a search does not end" })
    }

    /// Returns the number of levels.
    pub(crate) fn height<M: Medium>(self, buffer: &Buffer<M>) -> Result<u64, PagedError> {
        Ok(buffer.read(self.root, |view| Node(&view).level())? as u64 + 1)
    }

    /// Verifies every page, and that it has what its parent says of it.
    pub(crate) fn check<M: Medium>(self, buffer: &Buffer<M>) -> Result<Counts, PagedError> {
        let mut counts = Counts::default();
        let mut left = vec![Expected::root(self.root)];
        let mut seen = 0;
        while let Some(expected) = left.pop() {
            let page = expected.page;
            seen += 1;
            if seen > buffer.pages() {
                return Err(PagedError::Corrupt { page, what: "a page has two parents" });
            }
            let (sound, own, count, children) = buffer.read(page, |view| {
                let node = Node(&view);
                let sound = node.check().and_then(|()| expected.check(&node));
                (sound, node.level(), node.count() as u64, expected.children(&node))
            })?;
            sound.map_err(damaged(page))?;
            counts.height = counts.height.max(own as u64 + 1);
            if own == 0 {
                counts.records += count;
                counts.leaves += 1;
            } else {
                counts.inners += 1;
                left.extend(children);
            }
        }
        Ok(counts)
    }
}

/// Returns the error of a page with a fault.
pub(crate) fn damaged(page: u64) -> impl Fn(&'static str) -> PagedError {
    move |what| PagedError::Corrupt { page, what }
}

fn page_number(page: u64) -> Packed {
    Packed { words: vec![page], len: 8 }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::sync::mpsc::channel;
    use std::thread;
    use std::time::Duration;

    use pmindex_buffer::BufferOptions;
    use pmindex_core::{Mapped, Pool};
    use pmindex_wal::sim::SimDisk;

    use super::*;
    use crate::map::PagedMap;

    /// Another thread changes what was read after each reading, as long as it can.
    #[test]
    fn reads_of_one_moment_end_although_others_always_write() {
        let pool = Arc::new(Pool::<Mapped>::emulated(4 << 20).expect("memory"));
        let disk = Arc::new(SimDisk::new(512, 64 * 4096));
        let options = BufferOptions::new(64);
        let buffer = Arc::new(Buffer::create(&pool, "buffer", disk, &options).expect("room"));
        let map = PagedMap::<u64, u64>::open(&buffer, "map").expect("room");
        map.put(&1, &0).expect("room");
        let (ask, asked) = channel::<()>();
        let (answer, answered) = channel::<()>();
        thread::scope(|scope| {
            let map = &map;
            scope.spawn(move || {
                for value in 1.. {
                    if asked.recv().is_err() {
                        return;
                    }
                    map.put(&1, &value).expect("room");
                    let _ = answer.send(());
                }
            });
            let times = std::cell::Cell::new(0);
            let read = at_one_moment(&buffer, |pages| {
                times.set(times.get() + 1);
                assert!(times.get() < 100, "it does not end");
                let batch = map.tree.batch(pages, &Packed::default(), 1)?;
                ask.send(()).expect("it writes");
                // The writer waits, if it may not commit now.
                let _ = answered.recv_timeout(Duration::from_millis(200));
                Ok(batch.0.len())
            });
            assert_eq!(read.expect("whole"), 1);
            assert!(times.get() >= TRIES, "{}", times.get());
            drop(ask);
        });
        assert!(map.get(&1).expect("whole").is_some_and(|value| value >= u64::from(TRIES)));
    }
}
