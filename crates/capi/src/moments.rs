//! Exported functions about transactions and snapshots.

use std::ffi::c_void;
use std::mem::MaybeUninit;
use std::sync::Arc;

use crate::boundary::{Buffer, Bytes};
use crate::cursor::{Cursor, Source, State, open as open_cursor};
use crate::erased::Moment;
use crate::handles::Table;
use crate::index::{INDEXES, Index, shared};
use crate::records::{Range, Visit};
use crate::status::{Fault, Status, run};
use crate::store::{STORES, Store};
use crate::stored::{Running, View};

/// A transaction over the maps of a store: all of its changes take place, or none. It reads one moment, that of
/// its first read, and its own changes. It is a handle, like `pmindex_pool`, for one thread at a time (any, not
/// the same): a call while another is under way is `PMINDEX_STATUS_BUSY`. After commit and rollback it is
/// closed. Hold it briefly: while one is open, writes keep in memory what they replace.
pub struct Transaction {
    _private: (),
}

/// One moment of all maps of a store: everything that was committed before, and nothing after. Writers go on.
/// It is a handle, like `pmindex_pool`.
pub struct Snapshot {
    _private: (),
}

static TRANSACTIONS: Table<Arc<Running>> = Table::new(5, "a transaction");
static SNAPSHOTS: Table<Arc<View>> = Table::new(6, "a snapshot");

/// The transaction of a handle.
pub(crate) fn running(transaction: *const Transaction) -> Result<Arc<Running>, Fault> {
    TRANSACTIONS.with(transaction, |running| Ok(Arc::clone(running)))
}

/// The snapshot of a handle.
fn view(snapshot: *const Snapshot) -> Result<Arc<View>, Fault> {
    SNAPSHOTS.with(snapshot, |view| Ok(Arc::clone(view)))
}

/// Hands the records of a source to a callback.
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

/// Ends a transaction, and its handle.
fn end(transaction: *mut Transaction, commits: bool) -> Result<Status, Fault> {
    let taken = running(transaction)?.take()?;
    drop(TRANSACTIONS.close(transaction)?);
    if commits {
        taken.commit()?;
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

/// Makes the changes of a transaction, all or none, durably when it returns; serializable. The handle is
/// closed whatever this returns but `PMINDEX_STATUS_BUSY`. `PMINDEX_STATUS_CONFLICT`: another commit
/// changed what this one read, so nothing was changed: begin again. `PMINDEX_STATUS_TOO_LONG`: the changes
/// are too much for the store's log. Nothing is changed after any error but `PMINDEX_STATUS_UNFINISHED`.
#[unsafe(no_mangle)]
pub extern "C" fn pmindex_transaction_commit(transaction: *mut Transaction) -> Status {
    run(|| end(transaction, true))
}

/// Ends a transaction without its changes.
#[unsafe(no_mangle)]
pub extern "C" fn pmindex_transaction_rollback(transaction: *mut Transaction) -> Status {
    run(|| end(transaction, false))
}

/// What a transaction does: reads and writes maps through it, and returns 0 for it to be committed, or one
/// of `pmindex_status` for it to be rolled back. It may run several times. It neither commits nor rolls back
/// itself, and must not unwind (throw).
pub type Body = Option<extern "C" fn(transaction: *mut Transaction, context: *mut c_void) -> i32>;

/// How often a transaction runs that conflicts with others.
const TRIES: u32 = 100;

/// Runs a transaction and commits it, again if it conflicts with others: up to 100 times, then
/// `PMINDEX_STATUS_CONFLICT`. What `body` returns if that is not 0, and nothing is changed then;
/// otherwise as pmindex_transaction_commit().
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
            // Others come to their end meanwhile.
            std::thread::yield_now();
        }
    })
}

/// The value of `key` as the transaction sees it; as pmindex_get().
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

/// Adds or replaces a record, without reading: no commit of others to the same key conflicts with it.
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

/// Removes a record; as pmindex_remove(). `value` may be null.
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

/// Hands the records of a range (null: all) to `visit`, in order, as the transaction sees them. It reads some
/// records ahead: of those, `visit` does not see its own changes, and what others commit to
/// them conflicts. `visited` (may be null) becomes how many it heard of.
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

/// pmindex_cursor_open() for a map as the transaction sees it; as pmindex_transaction_scan() reads.
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

/// A point for pmindex_transaction_rollback_to(): `*savepoint` becomes its number.
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

/// Takes back the changes since a savepoint of this transaction, which goes on. What was read stays read. A
/// savepoint that is later than one that was gone back to is that one.
#[unsafe(no_mangle)]
pub extern "C" fn pmindex_transaction_rollback_to(
    transaction: *const Transaction,
    savepoint: u64,
) -> Status {
    run(|| running(transaction)?.roll_back(savepoint).map(|()| Status::Ok))
}

/// Takes a snapshot: this moment of all maps. End it. On failure `*snapshot` is null.
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

/// The value of `key` at that moment; as pmindex_get(). `PMINDEX_STATUS_SNAPSHOT_ENDED` if what writers have
/// replaced since takes more memory than the store may keep.
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

/// Hands the records of a range (null: all) at that moment to `visit`, in order. `visited` (may be null) becomes
/// how many it heard of.
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

/// pmindex_cursor_open() for a map at that moment, which the cursor keeps when the snapshot is ended.
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
