//! Exported functions about watches, the streams of the changes of commits.

use std::ffi::c_void;
use std::mem::MaybeUninit;
use std::sync::{Arc, Mutex, MutexGuard, TryLockError};
use std::time::Duration;

use facade::{Committed, WatchPosition};

use crate::boundary::{Buffer, Bytes, Text};
use crate::handles::Table;
use crate::index::{INDEXES, Index};
use crate::status::{Fault, Status, run};
use crate::store::{STORES, Store};
use crate::stored::Stored;

/// A stream of the changes of commits to the maps of a store, in the order of the commits; a single write
/// is a commit too. It is a handle, like `pmindex_pool`, for one thread at a time: a call during another
/// call returns `PMINDEX_STATUS_BUSY`. While one is open, each single write takes two fences more, for its
/// record in the store's log.
pub struct Watch {
    _private: (),
}

/// A watch and the commit that it returned last; dropped before the store that it keeps open.
struct Watching {
    state: Mutex<State>,
    _store: Arc<Stored>,
}

struct State {
    watch: facade::Watch,
    commit: Option<Committed>,
}

impl State {
    fn commit(&self) -> Result<&Committed, Fault> {
        let none = || Fault::new(Status::NotFound, "the watch has returned no commit yet");
        self.commit.as_ref().ok_or_else(none)
    }
}

static WATCHES: Table<Arc<Watching>> = Table::new(7, "a watch");

/// Calls `work` with a watch.
fn with(
    watch: *const Watch,
    work: impl FnOnce(&mut State) -> Result<Status, Fault>,
) -> Result<Status, Fault> {
    let watching = WATCHES.with(watch, |watching| Ok(Arc::clone(watching)))?;
    let mut state: MutexGuard<'_, State> = match watching.state.try_lock() {
        Ok(state) => state,
        Err(TryLockError::Poisoned(poisoned)) => poisoned.into_inner(),
        Err(TryLockError::WouldBlock) => {
            let message = "the watch is in use by another call: one thread at a time";
            return Err(Fault::new(Status::Busy, message));
        }
    };
    work(&mut state)
}

fn begin(
    store: *const Store,
    after: Option<u64>,
    watch: Option<&mut MaybeUninit<*mut Watch>>,
) -> Result<Status, Fault> {
    let Some(place) = watch else { return Err(Fault::null("the place for it")) };
    place.write(std::ptr::null_mut());
    let store = STORES.with(store, |store| Ok(Arc::clone(store)))?;
    let watch = match after {
        None => store.store.watch()?,
        Some(position) => store.store.watch_from(WatchPosition::from_u64(position))?,
    };
    let state = Mutex::new(State { watch, commit: None });
    place.write(WATCHES.open(Arc::new(Watching { state, _store: store }))?);
    Ok(Status::Ok)
}

/// Watches the commits of all maps from now on. End it after use. On failure `*watch` is null.
#[unsafe(no_mangle)]
pub extern "C" fn pmindex_watch_begin(
    store: *const Store,
    watch: Option<&mut MaybeUninit<*mut Watch>>,
) -> Status {
    run(|| begin(store, None, watch))
}

/// Watches the commits after a position that pmindex_watch_position() returned, in this process or another
/// (0: from the first commit that was kept). Returns `PMINDEX_STATUS_WATCH_ENDED` if the log does not have
/// all of them: too many followed, or the store does not keep them (`keep_commits` of its options). On
/// failure `*watch` is null.
#[unsafe(no_mangle)]
pub extern "C" fn pmindex_watch_begin_after(
    store: *const Store,
    position: u64,
    watch: Option<&mut MaybeUninit<*mut Watch>>,
) -> Status {
    run(|| begin(store, Some(position), watch))
}

/// Moves on to the next commit, which the functions below describe; waits for it up to `wait_ms`
/// milliseconds. Returns `PMINDEX_STATUS_END` if none came; the last commit then stays. Returns
/// `PMINDEX_STATUS_WATCH_ENDED` if more commits came than the log keeps: read the maps, and begin another
/// watch.
#[unsafe(no_mangle)]
pub extern "C" fn pmindex_watch_next(watch: *const Watch, wait_ms: u32) -> Status {
    run(|| {
        with(watch, |state| {
            let next = match wait_ms {
                0 => state.watch.try_next()?,
                wait => state.watch.next_within(Duration::from_millis(wait.into()))?,
            };
            let Some(commit) = next else { return Ok(Status::End) };
            state.commit = Some(commit);
            Ok(Status::Ok)
        })
    })
}

/// Gets the position after the last returned commit, from which a later watch can continue.
#[unsafe(no_mangle)]
pub extern "C" fn pmindex_watch_position(
    watch: *const Watch,
    position: Option<&mut MaybeUninit<u64>>,
) -> Status {
    run(|| {
        let Some(place) = position else { return Err(Fault::null("the place for it")) };
        with(watch, |state| {
            place.write(state.watch.position().into_u64());
            Ok(Status::Ok)
        })
    })
}

/// Gets the name of map number `number`, from 0, of those that the commit changed (without a final zero
/// byte; `name->len` is the length). Returns `PMINDEX_STATUS_END` if there are fewer,
/// `PMINDEX_STATUS_NOT_FOUND` before the first commit.
#[unsafe(no_mangle)]
pub extern "C" fn pmindex_watch_map_name(
    watch: *const Watch,
    number: usize,
    name: Option<&mut Buffer>,
) -> Status {
    run(|| {
        let Some(name) = name else { return Err(Fault::null("the buffer")) };
        with(watch, |state| {
            let Some(map) = state.commit()?.maps().nth(number) else { return Ok(Status::End) };
            name.write(map.as_bytes()).map(|()| Status::Ok)
        })
    })
}

/// Tells whether the commit bulk-loaded the map `name`, which was empty: the records loaded then are not
/// among the changes.
#[unsafe(no_mangle)]
pub extern "C" fn pmindex_watch_is_loaded(
    watch: *const Watch,
    name: Text,
    loaded: Option<&mut MaybeUninit<bool>>,
) -> Status {
    run(|| {
        let Some(place) = loaded else { return Err(Fault::null("the place for it")) };
        let name = name.read("the name")?;
        with(watch, |state| {
            place.write(state.commit()?.is_loaded(name));
            Ok(Status::Ok)
        })
    })
}

/// Called for each change, with the new value, or with `value` null for a removed record. Returns false to
/// stop. The bytes are valid during this call. It must not unwind (throw), and may call any function of
/// this library except those that close and those of the watch.
pub type VisitChange =
    Option<extern "C" fn(context: *mut c_void, key: Bytes, value: Option<&Bytes>) -> bool>;

/// Calls `visit` with the changes of the commit to a map, in the order of keys. Sets `visited` (may be
/// null) to the number of calls. Returns `PMINDEX_STATUS_NOT_FOUND` before the first commit.
#[unsafe(no_mangle)]
pub extern "C" fn pmindex_watch_changes(
    watch: *const Watch,
    map: *const Index,
    visit: VisitChange,
    context: *mut c_void,
    visited: Option<&mut MaybeUninit<u64>>,
) -> Status {
    run(|| {
        let Some(visit) = visit else { return Err(Fault::null("the callback")) };
        let map = INDEXES.with(map, |map| Ok(Arc::clone(map)))?;
        with(watch, |state| {
            let mut count = 0;
            map.changes_of(state.commit()?, &mut |key, value| {
                count += 1;
                visit(context, Bytes::lend(key), value.map(Bytes::lend).as_ref())
            })?;
            visited.map(|visited| visited.write(count));
            Ok(Status::Ok)
        })
    })
}

/// Ends a watch.
#[unsafe(no_mangle)]
pub extern "C" fn pmindex_watch_end(watch: *mut Watch) -> Status {
    run(|| WATCHES.close(watch).map(|_| Status::Ok))
}
