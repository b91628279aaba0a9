//! Exported functions about transactions and snapshots.

use std::ffi::c_void;
use std::mem::MaybeUninit;
use std::sync::Arc;

use crate::boundary::{Buffer, Bytes};
use crate::cursor::{Cursor, Source, State, open as open_cursor};
use crate::dyn_index::Moment;
use crate::handles::Table;
use crate::index::{INDEXES, Index, shared};
use crate::records::{Range, Visit};
use crate::status::{Fault, Status, run};
use crate::store::{STORES, Store};
use crate::stored::{Running, View};

/// A transaction over the maps of a store: all of its changes take effect, or none. It reads the state at
/// the moment of its first read, with its own changes. It is a handle, like `pmindex_pool`, for one thread
/// at a time (not always the same one): a call during another call returns `PMINDEX_STATUS_BUSY`. Commit
/// and rollback close it. Keep it short: while one is open, the values that writes replace are kept in
/// memory.
pub struct Transaction {
    _private: (),
}

/// A consistent view of all maps of a store: everything that was committed before it was taken, and nothing
/// later. Writers continue. It is a handle, like `pmindex_pool`.
pub struct Snapshot {
    _private: (),
}

static TRANSACTIONS: Table<Arc<Running>> = Table::new(5, "a transaction");
static SNAPSHOTS: Table<Arc<View>> = Table::new(6, "a snapshot");

/// Returns the transaction of a handle.
pub(crate) fn running(transaction: *const Transaction) -> Result<Arc<Running>, Fault> {
    TRANSACTIONS.with(transaction, |running| Ok(Arc::clone(running)))
}

/// Returns the snapshot of a handle.
fn view(snapshot: *const Snapshot) -> Result<Arc<View>, Fault> {
    SNAPSHOTS.with(snapshot, |view| Ok(Arc::clone(view)))
}

/// Passes the records of a source to a callback.
fn visit_all(
    range: Option<&Range>,
    visit: Visit,
    context: *mut c_void,
    visited: Option<&mut MaybeUninit<u64>>,
    source: impl FnOnce() -> Result<Source, Fault>,
) -> Result<Status, Fault> {
    let Some(visit) = visit else { return Err(Fault::null("the callback")) };
    let mut scan = State::new(source()?, Range::read(range)?);
    let mut count = 0;
    let outcome = loop {
        match scan.next() {
            Ok(Some((key, value))) => {
                count += 1;
                if !visit(context, Bytes::lend(key), Bytes::lend(value)) {
                    break Ok(Status::Ok);
                }
            }
            Ok(None) => break Ok(Status::Ok),
            Err(fault) => break Err(fault),
        }
    };
    visited.map(|visited| visited.write(count));
    outcome
}

fn begin(store: *const Store) -> Result<*mut Transaction, Fault> {
    let store = STORES.with(store, |store| Ok(Arc::clone(store)))?;
    let transaction = store.store.begin()?;
    TRANSACTIONS.open(Arc::new(Running::new(transaction, store)))
}

/// Ends a transaction, and closes its handle.
fn end(transaction: *mut Transaction, commits: bool) -> Result<Status, Fault> {
    let taken = running(transaction)?.take()?;
    drop(TRANSACTIONS.close(transaction)?);
    if commits {
        taken.commit().map_err(|error| Fault::from(error).behind_close())?;
    }
    Ok(Status::Ok)
}

/// Begins a transaction. Commit it, or roll it back. On failure `*transaction` is null.
#[unsafe(no_mangle)]
pub extern "C" fn pmindex_transaction_begin(
    store: *const Store,
    transaction: Option<&mut MaybeUninit<*mut Transaction>>,
) -> Status {
    run(|| {
        let Some(place) = transaction else { return Err(Fault::null("the place for it")) };
        place.write(std::ptr::null_mut());
        place.write(begin(store)?);
        Ok(Status::Ok)
    })
}

/// Commits a transaction: makes all of its changes or none, durably when it returns; serializable. Closes
/// the handle, except when it returns `PMINDEX_STATUS_BUSY`. `PMINDEX_STATUS_CONFLICT`: another commit
/// changed what this transaction has read, or the other writers had all slots for seconds: begin again. `PMINDEX_STATUS_TOO_LONG`: the changes are too
/// large for the store's log. After an error nothing is changed, except after `PMINDEX_STATUS_UNFINISHED`.
#[unsafe(no_mangle)]
pub extern "C" fn pmindex_transaction_commit(transaction: *mut Transaction) -> Status {
    run(|| end(transaction, true))
}

/// Ends a transaction and discards its changes.
#[unsafe(no_mangle)]
pub extern "C" fn pmindex_transaction_rollback(transaction: *mut Transaction) -> Status {
    run(|| end(transaction, false))
}

/// The body of a transaction: reads and writes maps through it, and returns 0 to commit it, or a
/// `pmindex_status` to roll it back. It may run several times. It must not commit or roll back itself, nor
/// unwind (throw).
pub type Body = Option<extern "C" fn(transaction: *mut Transaction, context: *mut c_void) -> i32>;

/// The number of attempts of a transaction that conflicts with others.
const TRIES: u32 = 100;

/// Runs a transaction and commits it; if it conflicts with others, runs it again, up to 100 times, then
/// returns `PMINDEX_STATUS_CONFLICT`. If `body` returns a status that is not 0, returns that, and nothing
/// is changed. Otherwise returns what pmindex_transaction_commit() returns.
#[unsafe(no_mangle)]
pub extern "C" fn pmindex_transaction_run(
    store: *const Store,
    body: Body,
    context: *mut c_void,
) -> Status {
    run(|| {
        let Some(body) = body else { return Err(Fault::null("the callback")) };
        let again = [Status::Conflict, Status::SnapshotEnded];
        let mut tries = 0;
        loop {
            tries += 1;
            let transaction = begin(store)?;
            let code = body(transaction, context);
            let ended = end(transaction, code == Status::Ok as i32);
            let outcome = ended.and_then(|_| Status::from_c(code));
            let status = outcome.as_ref().map_or_else(Fault::status, |status| *status);
            if tries == TRIES || !again.contains(&status) {
                return outcome;
            }
            // Lets the other transactions finish.
            std::thread::yield_now();
        }
    })
}

/// Gets the value of `key` as the transaction sees it, like pmindex_get().
#[unsafe(no_mangle)]
pub extern "C" fn pmindex_transaction_get(
    transaction: *const Transaction,
    map: *const Index,
    key: Bytes,
    value: Option<&mut Buffer>,
) -> Status {
    run(|| {
        let Some(value) = value else { return Err(Fault::null("the buffer")) };
        let (key, running) = (key.read("the key")?, running(transaction)?);
        INDEXES.with(map, |map| {
            running.with(|tx| {
                map.get_at(Moment::Transaction(tx), key, &mut |bytes| value.write(bytes))
            })
        })
    })
}

/// Adds or replaces a record without reading it: no other commit to the same key conflicts with it.
#[unsafe(no_mangle)]
pub extern "C" fn pmindex_transaction_put(
    transaction: *const Transaction,
    map: *const Index,
    key: Bytes,
    value: Bytes,
) -> Status {
    run(|| {
        let (key, value) = (key.read("the key")?, value.read("the value")?);
        let running = running(transaction)?;
        INDEXES.with(map, |map| running.with(|tx| map.put_in(tx, key, value)))?;
        Ok(Status::Ok)
    })
}

/// Removes a record, like pmindex_remove(). `value` may be null.
#[unsafe(no_mangle)]
pub extern "C" fn pmindex_transaction_remove(
    transaction: *const Transaction,
    map: *const Index,
    key: Bytes,
    value: Option<&mut Buffer>,
) -> Status {
    run(|| {
        let (key, running) = (key.read("the key")?, running(transaction)?);
        INDEXES.with(map, |map| running.with(|tx| map.remove_in(tx, key, value)))
    })
}

/// Calls `visit` with the records of a range (null: all), in order, as the transaction sees them. It reads
/// some records ahead: among these, changes that `visit` makes are not seen, and commits of others
/// conflict. Sets `visited` (may be null) to the number of calls.
#[unsafe(no_mangle)]
pub extern "C" fn pmindex_transaction_scan(
    transaction: *const Transaction,
    map: *const Index,
    range: Option<&Range>,
    visit: Visit,
    context: *mut c_void,
    visited: Option<&mut MaybeUninit<u64>>,
) -> Status {
    run(|| {
        visit_all(range, visit, context, visited, || {
            Ok(Source::Transaction(shared(map)?, running(transaction)?))
        })
    })
}

/// Opens a cursor like pmindex_cursor_open(), for a map as the transaction sees it; it reads ahead like
/// pmindex_transaction_scan().
#[unsafe(no_mangle)]
pub extern "C" fn pmindex_transaction_cursor(
    transaction: *const Transaction,
    map: *const Index,
    range: Option<&Range>,
    cursor: Option<&mut MaybeUninit<*mut Cursor>>,
) -> Status {
    run(|| {
        open_cursor(range, cursor, || Ok(Source::Transaction(shared(map)?, running(transaction)?)))
    })
}

/// Sets a savepoint for pmindex_transaction_rollback_to(), and sets `*savepoint` to its number.
#[unsafe(no_mangle)]
pub extern "C" fn pmindex_transaction_savepoint(
    transaction: *const Transaction,
    savepoint: Option<&mut MaybeUninit<u64>>,
) -> Status {
    run(|| {
        let Some(place) = savepoint else { return Err(Fault::null("the place for the point")) };
        place.write(running(transaction)?.savepoint()?);
        Ok(Status::Ok)
    })
}

/// Undoes the changes since a savepoint of this transaction, which continues. Records read since then still
/// count as read. Rolling back to a savepoint ends the later savepoints: their numbers then mean this one.
#[unsafe(no_mangle)]
pub extern "C" fn pmindex_transaction_rollback_to(
    transaction: *const Transaction,
    savepoint: u64,
) -> Status {
    run(|| running(transaction)?.roll_back(savepoint).map(|()| Status::Ok))
}

/// Takes a snapshot of all maps. End it after use. On failure `*snapshot` is null.
#[unsafe(no_mangle)]
pub extern "C" fn pmindex_snapshot_begin(
    store: *const Store,
    snapshot: Option<&mut MaybeUninit<*mut Snapshot>>,
) -> Status {
    run(|| {
        let Some(place) = snapshot else { return Err(Fault::null("the place for it")) };
        place.write(std::ptr::null_mut());
        let store = STORES.with(store, |store| Ok(Arc::clone(store)))?;
        let snapshot = store.store.snapshot()?;
        place.write(SNAPSHOTS.open(Arc::new(View { snapshot, _store: store }))?);
        Ok(Status::Ok)
    })
}

/// Gets the value of `key` in the snapshot, like pmindex_get(). Returns `PMINDEX_STATUS_SNAPSHOT_ENDED` if
/// the values that writers have replaced since take more memory than the store may keep.
#[unsafe(no_mangle)]
pub extern "C" fn pmindex_snapshot_get(
    snapshot: *const Snapshot,
    map: *const Index,
    key: Bytes,
    value: Option<&mut Buffer>,
) -> Status {
    run(|| {
        let Some(value) = value else { return Err(Fault::null("the buffer")) };
        let (key, view) = (key.read("the key")?, view(snapshot)?);
        INDEXES.with(map, |map| {
            map.get_at(Moment::Snapshot(&view.snapshot), key, &mut |bytes| value.write(bytes))
        })
    })
}

/// Calls `visit` with the records of a range (null: all) in the snapshot, in order. Sets `visited` (may be
/// null) to the number of calls.
#[unsafe(no_mangle)]
pub extern "C" fn pmindex_snapshot_scan(
    snapshot: *const Snapshot,
    map: *const Index,
    range: Option<&Range>,
    visit: Visit,
    context: *mut c_void,
    visited: Option<&mut MaybeUninit<u64>>,
) -> Status {
    run(|| {
        visit_all(range, visit, context, visited, || {
            Ok(Source::Snapshot(shared(map)?, view(snapshot)?))
        })
    })
}

/// Opens a cursor like pmindex_cursor_open(), for a map in the snapshot; the cursor stays valid when the
/// snapshot is ended.
#[unsafe(no_mangle)]
pub extern "C" fn pmindex_snapshot_cursor(
    snapshot: *const Snapshot,
    map: *const Index,
    range: Option<&Range>,
    cursor: Option<&mut MaybeUninit<*mut Cursor>>,
) -> Status {
    run(|| open_cursor(range, cursor, || Ok(Source::Snapshot(shared(map)?, view(snapshot)?))))
}

/// Ends a snapshot.
#[unsafe(no_mangle)]
pub extern "C" fn pmindex_snapshot_end(snapshot: *mut Snapshot) -> Status {
    run(|| SNAPSHOTS.close(snapshot).map(|_| Status::Ok))
}
