//! Exported functions about cursors: scans at the caller's pace.
//!
//! A cursor reads records in batches and remembers the last key, so it keeps nothing of the index
//! pinned or locked between two calls.

use std::collections::VecDeque;
use std::mem::MaybeUninit;
use std::ops::Bound;
use std::sync::{Mutex, PoisonError};

use crate::boundary::Bytes;
use crate::erased::{Record, Span};
use crate::handles::Table;
use crate::index::{INDEXES, Index, Shared};
use crate::records::Range;
use crate::status::{Fault, Status, run};

/// A scan under way. It is a handle, like `pmindex_pool`. Use a cursor from one thread at a time:
/// what it returns is good until the next call on it.
pub struct Cursor {
    _private: (),
}

/// Records of the first batch; each further one is twice as large.
const FIRST_BATCH: usize = 8;
/// Records of the largest batch.
const LARGEST_BATCH: usize = 512;
/// A batch ends early when it holds so many bytes.
const BATCH_BYTES: usize = 1 << 20;

/// A scan under way.
struct State {
    index: Shared,
    /// What is still to be read.
    rest: Span,
    batch: usize,
    ahead: VecDeque<Record>,
    /// The record that C is looking at.
    current: Record,
    /// Whether nothing follows what is in `ahead`.
    last: bool,
}

impl State {
    fn new(index: Shared, span: Span) -> Self {
        let (ahead, current) = (VecDeque::new(), Record::default());
        Self { index, rest: span, batch: FIRST_BATCH, ahead, current, last: false }
    }

    fn next(&mut self) -> Result<Option<&Record>, Fault> {
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
        self.index.scan(&self.rest, &mut |key, value| {
            bytes += key.len() + value.len();
            ahead.push_back((key.to_vec(), value.to_vec()));
            stopped = ahead.len() >= batch || bytes >= BATCH_BYTES;
            !stopped
        })?;
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

/// Begins a scan of a range (null: everything). On failure `*cursor` is null.
#[unsafe(no_mangle)]
pub extern "C" fn pmindex_cursor_open(
    index: *const Index,
    range: Option<&Range>,
    cursor: Option<&mut MaybeUninit<*mut Cursor>>,
) -> Status {
    run(|| {
        let Some(cursor) = cursor else { return Err(Fault::null("the place for the cursor")) };
        cursor.write(std::ptr::null_mut());
        let span = Range::read(range)?;
        let index = INDEXES.with(index, |index| Ok(Shared::clone(index)))?;
        index.check_span(&span)?;
        cursor.write(CURSORS.open(Mutex::new(State::new(index, span)))?);
        Ok(Status::Ok)
    })
}

/// The next record, or `PMINDEX_STATUS_END`. The bytes belong to the cursor and are good until the
/// next call on it. Either place may be null.
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
