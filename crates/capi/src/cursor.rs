//! Exported functions about cursors, which return one record per call.
//!
//! A cursor reads records in batches and remembers the last key, so it holds no lock and pins nothing
//! between two calls.

use std::collections::VecDeque;
use std::mem::MaybeUninit;
use std::ops::Bound;
use std::sync::{Arc, Mutex, PoisonError};

use crate::boundary::Bytes;
use crate::dyn_index::{Each, Moment, Record, Span};
use crate::handles::Table;
use crate::index::{Index, Shared, shared};
use crate::records::Range;
use crate::status::{Fault, Status, run};
use crate::stored::{Running, View};

/// A scan in progress. It is a handle, like `pmindex_pool`. Use a cursor from one thread at a time: the
/// bytes that it returns are valid until the next call on it. Close a cursor of a transaction before you
/// end the transaction.
pub struct Cursor {
    _private: (),
}

/// The number of records of the first batch; each further batch has twice as many.
const FIRST_BATCH: usize = 8;
/// The number of records of the largest batch.
const LARGEST_BATCH: usize = 512;
/// A batch ends early when it holds this number of bytes.
const BATCH_BYTES: usize = 1 << 20;

/// The source of a scan.
pub(crate) enum Source {
    /// An index in its present state.
    Index(Shared),
    /// A map in the state of a snapshot.
    Snapshot(Shared, Arc<View>),
    /// A map as a transaction sees it.
    Transaction(Shared, Arc<Running>),
}

impl Source {
    fn index(&self) -> &Shared {
        match self {
            Self::Index(index) | Self::Snapshot(index, _) | Self::Transaction(index, _) => index,
        }
    }

    pub(crate) fn scan(&self, span: &Span, each: Each<'_>) -> Result<(), Fault> {
        match self {
            Self::Index(index) => index.scan(span, each),
            Self::Snapshot(index, view) => {
                index.scan_at(Moment::Snapshot(&view.snapshot), span, each)
            }
            Self::Transaction(index, running) => {
                running.with(|tx| index.scan_at(Moment::Transaction(tx), span, each))
            }
        }
    }
}

/// The state of a scan.
pub(crate) struct State {
    source: Source,
    /// The range that is still to be read.
    rest: Span,
    batch: usize,
    ahead: VecDeque<Record>,
    /// The record whose bytes C may be reading.
    current: Record,
    /// `true` if no record follows those in `ahead`.
    last: bool,
}

impl State {
    pub(crate) fn new(source: Source, span: Span) -> Self {
        let (ahead, current) = (VecDeque::new(), Record::default());
        Self { source, rest: span, batch: FIRST_BATCH, ahead, current, last: false }
    }

    pub(crate) fn next(&mut self) -> Result<Option<&Record>, Fault> {
        if self.ahead.is_empty() && !self.last {
            self.read_ahead()?;
        }
        let Some(record) = self.ahead.pop_front() else { return Ok(None) };
        self.current = record;
        Ok(Some(&self.current))
    }

    fn read_ahead(&mut self) -> Result<(), Fault> {
        let (mut bytes, mut stopped) = (0, false);
        let (batch, ahead) = (self.batch, &mut self.ahead);
        let read = self.source.scan(&self.rest, &mut |key, value| {
            bytes += key.len() + value.len();
            ahead.push_back((key.to_vec(), value.to_vec()));
            stopped = ahead.len() >= batch || bytes >= BATCH_BYTES;
            !stopped
        });
        if let Err(fault) = read {
            // The next call reads these records again.
            self.ahead.clear();
            return Err(fault);
        }
        self.last = !stopped;
        self.batch = (self.batch * 2).min(LARGEST_BATCH);
        if let Some((key, _)) = self.ahead.back() {
            let beyond = Bound::Excluded(key.clone());
            *(if self.rest.reverse { &mut self.rest.upper } else { &mut self.rest.lower }) = beyond;
        }
        Ok(())
    }
}

static CURSORS: Table<Mutex<State>> = Table::new(3, "a cursor");

/// Begins a scan of a range (null: all records). On failure `*cursor` is null.
#[unsafe(no_mangle)]
pub extern "C" fn pmindex_cursor_open(
    index: *const Index,
    range: Option<&Range>,
    cursor: Option<&mut MaybeUninit<*mut Cursor>>,
) -> Status {
    run(|| open(range, cursor, || Ok(Source::Index(shared(index)?))))
}

/// Opens a cursor.
pub(crate) fn open(
    range: Option<&Range>,
    cursor: Option<&mut MaybeUninit<*mut Cursor>>,
    source: impl FnOnce() -> Result<Source, Fault>,
) -> Result<Status, Fault> {
    let Some(cursor) = cursor else { return Err(Fault::null("the place for the cursor")) };
    cursor.write(std::ptr::null_mut());
    let (span, source) = (Range::read(range)?, source()?);
    source.index().check_span(&span)?;
    cursor.write(CURSORS.open(Mutex::new(State::new(source, span)))?);
    Ok(Status::Ok)
}

/// Returns the next record, or `PMINDEX_STATUS_END`. The cursor owns the bytes, which are valid until the
/// next call on it. `key` or `value` may be null.
#[unsafe(no_mangle)]
pub extern "C" fn pmindex_cursor_next(
    cursor: *mut Cursor,
    key: Option<&mut MaybeUninit<Bytes>>,
    value: Option<&mut MaybeUninit<Bytes>>,
) -> Status {
    run(|| {
        CURSORS.with(cursor, |state| {
            let mut state = state.lock().unwrap_or_else(PoisonError::into_inner);
            let record = state.next()?;
            let (found_key, found_value) = match record {
                Some((key, value)) => (Bytes::lend(key), Bytes::lend(value)),
                None => (Bytes::NONE, Bytes::NONE),
            };
            let status = if record.is_some() { Status::Ok } else { Status::End };
            key.map(|key| key.write(found_key));
            value.map(|value| value.write(found_value));
            Ok(status)
        })
    })
}

/// Ends a scan.
#[unsafe(no_mangle)]
pub extern "C" fn pmindex_cursor_close(cursor: *mut Cursor) -> Status {
    run(|| CURSORS.close(cursor).map(|_| Status::Ok))
}
