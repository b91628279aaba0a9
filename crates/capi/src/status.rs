//! Codes, the calling thread's last error, and panics that stop at the boundary.

use std::any::Any;
use std::cell::RefCell;
use std::ffi::{CStr, CString, c_char};
use std::panic::{AssertUnwindSafe, catch_unwind};

use facade::core::PmError;
use facade::{BackupError, IndexError, OpenError, StoreError};

/// The result of a call. 0 is success, a positive code is an answer, a negative one is an error, which
/// pmindex_last_error() describes.
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Status {
    /// Success.
    Ok = 0,
    /// There is no such key; nothing was changed.
    NotFound = 1,
    /// The key exists already; nothing was changed.
    Exists = 2,
    /// The cursor has no further record, the watch no further commit, or the list no further entry.
    End = 3,
    /// The result does not fit into the buffer; its `len` is the required length, and nothing was changed.
    TooSmall = 4,
    /// The record is not as expected; nothing was changed.
    Different = 5,
    /// An argument is null, out of range, not UTF-8, or not of the index's types.
    InvalidArgument = -1,
    /// The handle is closed, of another kind, or not a handle.
    BadHandle = -2,
    /// The file, or an index of this name, does not exist.
    NoSuch = -3,
    /// The file or an index of this name exists already.
    AlreadyExists = -4,
    /// Permission denied.
    Permission = -5,
    /// In use: the file by another process; the pool by its open indexes or its store; the store by its
    /// maps, snapshots, transactions and watches; the index by its cursors; the transaction or watch by
    /// another call; or all slots for writers are in use.
    Busy = -6,
    /// The pool is full and may not grow, or the device is full.
    Full = -7,
    /// The key or value is longer than possible, or the changes of a batch or transaction are too large.
    TooLong = -8,
    /// The file is not a pool, or has a format that this library does not know.
    NotAPool = -9,
    /// The pool is damaged.
    Corrupt = -10,
    /// The medium supports less durability than the options require.
    TooWeak = -11,
    /// A write-back failed: from now on no write is acknowledged; reads still work.
    DurabilityLost = -12,
    /// The pool is open for reading only.
    ReadOnly = -13,
    /// The index has another kind or other types.
    WrongType = -14,
    /// The operating system reported an error.
    System = -15,
    /// A bug in this library: please report it with the message.
    Internal = -16,
    /// The index is already open in this process: share its handle between threads.
    AlreadyOpen = -17,
    /// Another commit changed what the transaction has read. Nothing was changed: begin a new transaction. Or a
    /// call that closes a handle has closed it, and the other writers had all slots for seconds.
    Conflict = -18,
    /// The snapshot or transaction has ended: the values that writers have replaced since it began take
    /// more memory than the store may keep.
    SnapshotEnded = -19,
    /// The transaction is durable and committed, but not all of its changes could be made in the maps: they
    /// are made before the next write, or when the store is opened again.
    Unfinished = -20,
    /// The store's log no longer has all commits after the position of the watch, or never had.
    WatchEnded = -21,
}

impl Status {
    const ALL: [(Self, &'static CStr); 27] = [
        (Self::Ok, c"done"),
        (Self::NotFound, c"no such key"),
        (Self::Exists, c"the key exists"),
        (Self::End, c"no further record"),
        (Self::TooSmall, c"the buffer is too small"),
        (Self::InvalidArgument, c"invalid argument"),
        (Self::BadHandle, c"bad handle"),
        (Self::NoSuch, c"no such file or index"),
        (Self::AlreadyExists, c"the file or index exists"),
        (Self::Permission, c"permission denied"),
        (Self::Busy, c"in use"),
        (Self::Full, c"no space"),
        (Self::TooLong, c"key or value too long"),
        (Self::NotAPool, c"not a pool"),
        (Self::Corrupt, c"the pool is damaged"),
        (Self::TooWeak, c"too little durability"),
        (Self::DurabilityLost, c"a write-back failed"),
        (Self::ReadOnly, c"open for reading only"),
        (Self::WrongType, c"an index of another type"),
        (Self::System, c"the operating system refused"),
        (Self::Internal, c"internal error"),
        (Self::AlreadyOpen, c"the index is already open"),
        (Self::Different, c"not as expected"),
        (Self::Conflict, c"conflicting transactions"),
        (Self::SnapshotEnded, c"the snapshot has ended"),
        (Self::Unfinished, c"durable, but unfinished"),
        (Self::WatchEnded, c"the watch has ended"),
    ];
}

impl Status {
    /// Converts a number that C passes.
    pub(crate) fn from_c(number: i32) -> Result<Self, Fault> {
        let known = Self::ALL.iter().find(|(code, _)| *code as i32 == number);
        let unknown =
            || Fault::new(Self::InvalidArgument, format!("{number} is no pmindex_status"));
        known.map(|(code, _)| *code).ok_or_else(unknown)
    }
}

/// The reason why a call failed.
#[derive(Clone, Debug)]
pub(crate) struct Fault {
    status: Status,
    message: String,
    /// `true` if only the types of keys or values differ.
    is_of_layout: bool,
}

impl Fault {
    pub(crate) fn new(status: Status, message: impl Into<String>) -> Self {
        Self { status, message: message.into(), is_of_layout: false }
    }

    /// Returns `true` if the types of keys or values differ, and nothing else is wrong.
    pub(crate) fn is_of_layout(&self) -> bool {
        self.is_of_layout
    }

    /// Returns the error of a null argument.
    pub(crate) fn null(what: &str) -> Self {
        Self::new(Status::InvalidArgument, format!("{what} is null"))
    }

    pub(crate) fn status(&self) -> Status {
        self.status
    }

    /// Returns the same failure of a call that has closed a handle: `Busy` would mean that it is open.
    pub(crate) fn behind_close(mut self) -> Self {
        if self.status == Status::Busy {
            self.status = Status::Conflict;
        }
        self
    }
}

impl From<IndexError> for Fault {
    fn from(error: IndexError) -> Self {
        let status = match &error {
            IndexError::Pool(error) => of_pool(error),
            IndexError::KeyTooLong { .. } | IndexError::ValueTooLong { .. } => Status::TooLong,
            IndexError::NoSuchIndex { .. } => Status::NoSuch,
            IndexError::IndexExists { .. } => Status::AlreadyExists,
            IndexError::WrongType { .. } | IndexError::WrongLayout { .. } => Status::WrongType,
            IndexError::NotEmpty
            | IndexError::NotSorted { .. }
            | IndexError::ReservedName { .. } => Status::InvalidArgument,
            _ => Status::Internal,
        };
        let is_of_layout = matches!(error, IndexError::WrongLayout { .. });
        Self { is_of_layout, ..Self::new(status, error.to_string()) }
    }
}

impl From<StoreError> for Fault {
    fn from(error: StoreError) -> Self {
        let status = match error {
            StoreError::Index(error) => return error.into(),
            StoreError::Open(error) => return error.into(),
            StoreError::Conflict { .. } => Status::Conflict,
            StoreError::SnapshotEnded { .. } | StoreError::Dropped { .. } => Status::SnapshotEnded,
            StoreError::Unfinished(_) => Status::Unfinished,
            StoreError::WatchEnded => Status::WatchEnded,
            StoreError::TooLarge { .. } => Status::TooLong,
            StoreError::OpenWithOtherTypes { .. } | StoreError::NotOpen { .. } => Status::WrongType,
            StoreError::InUse { .. } => Status::Busy,
            StoreError::File { .. } => Status::System,
            StoreError::OtherStore { .. } => Status::InvalidArgument,
            _ => Status::Internal,
        };
        let is_of_layout = matches!(error, StoreError::OpenWithOtherTypes { .. });
        Self { is_of_layout, ..Self::new(status, error.to_string()) }
    }
}

impl From<BackupError> for Fault {
    fn from(error: BackupError) -> Self {
        let status = match &error {
            BackupError::Pool(error) => of_pool(error),
            BackupError::Changed { .. } => Status::Busy,
            BackupError::Itself { .. } => Status::InvalidArgument,
            BackupError::Io { .. } => Status::System,
            _ => Status::Internal,
        };
        Self::new(status, error.to_string())
    }
}

impl From<PmError> for Fault {
    fn from(error: PmError) -> Self {
        Self::new(of_pool(&error), error.to_string())
    }
}

impl From<OpenError> for Fault {
    fn from(error: OpenError) -> Self {
        let status = match &error {
            OpenError::NotFound { .. } | OpenError::NoDirectory { .. } => Status::NoSuch,
            OpenError::AlreadyExists { .. } | OpenError::JournalInTheWay { .. } => {
                Status::AlreadyExists
            }
            OpenError::PermissionDenied { .. } => Status::Permission,
            OpenError::NotAFile { .. }
            | OpenError::NotAPool { .. }
            | OpenError::UnsupportedVersion { .. } => Status::NotAPool,
            OpenError::Locked { .. } => Status::Busy,
            OpenError::NoSpace { .. } => Status::Full,
            OpenError::Truncated { .. }
            | OpenError::Damaged { .. }
            | OpenError::JournalMissing { .. }
            | OpenError::JournalForeign { .. }
            | OpenError::JournalDamaged { .. }
            | OpenError::TwinForeign { .. }
            | OpenError::TwinDamaged { .. } => Status::Corrupt,
            OpenError::BadOption { .. } | OpenError::TwinNotInMemory { .. } => {
                Status::InvalidArgument
            }
            OpenError::TooWeak { .. } => Status::TooWeak,
            OpenError::DirtyShutdown { .. } => Status::DurabilityLost,
            OpenError::Io { .. } => Status::System,
            OpenError::Pool { error, .. } => of_pool(error),
            _ => Status::Internal,
        };
        Self::new(status, error.to_string())
    }
}

fn of_pool(error: &PmError) -> Status {
    match error {
        PmError::Full { .. } | PmError::NoSpace { .. } | PmError::DirectoryFull { .. } => {
            Status::Full
        }
        PmError::TooLarge { .. } | PmError::TooManyTickets { .. } => Status::TooLong,
        PmError::Corrupt { .. } | PmError::Damaged { .. } => Status::Corrupt,
        PmError::DurabilityLost(_) => Status::DurabilityLost,
        PmError::ReadOnly => Status::ReadOnly,
        PmError::Busy { .. } => Status::Busy,
        PmError::NameTaken { .. } => Status::AlreadyExists,
        PmError::AlreadyOpen { .. } => Status::AlreadyOpen,
        PmError::BadName { .. } | PmError::BadOption { .. } | PmError::NoInstruction { .. } => {
            Status::InvalidArgument
        }
        PmError::Forked => Status::BadHandle,
        PmError::Os { .. } => Status::System,
        _ => Status::Internal,
    }
}

thread_local! {
    static LAST: RefCell<Option<CString>> = const { RefCell::new(None) };
}

/// Runs the body of an exported function; returns its code, and keeps the message for the thread.
pub(crate) fn run(body: impl FnOnce() -> Result<Status, Fault>) -> Status {
    let outcome = catch_unwind(AssertUnwindSafe(body)).unwrap_or_else(|panic| {
        let what = message_of(&*panic);
        Err(Fault::new(Status::Internal, format!("a bug in pmindex, please report it: {what}")))
    });
    match outcome {
        Ok(status) => status,
        Err(fault) => {
            let message = fault.message.replace('\0', "\u{fffd}");
            // A thread that is ending cannot keep the message; it gets only the code.
            let _ = LAST.try_with(|last| {
                last.replace(CString::new(message).ok());
            });
            fault.status
        }
    }
}

fn message_of(panic: &(dyn Any + Send)) -> &str {
    let text = panic.downcast_ref::<&str>().copied();
    text.or_else(|| panic.downcast_ref::<String>().map(String::as_str)).unwrap_or("a panic")
}

/// Returns the message of the calling thread's last failed call, which names the file, the index or the
/// argument. Never null; empty if no call has failed. Valid until this thread's next failing call.
#[unsafe(no_mangle)]
pub extern "C" fn pmindex_last_error() -> *const c_char {
    // The string stays at its address on the heap until `run` replaces it.
    let last = LAST.try_with(|last| last.borrow().as_ref().map(|message| message.as_ptr()));
    last.unwrap_or(Some(c"the thread is ending".as_ptr())).unwrap_or(c"".as_ptr())
}

/// Returns a code in a few words. Never null; the string is constant. `status` may be any number.
#[unsafe(no_mangle)]
pub extern "C" fn pmindex_status_name(status: i32) -> *const c_char {
    let known = Status::ALL.iter().find(|(code, _)| *code as i32 == status);
    known.map_or(c"unknown code", |(_, name)| name).as_ptr()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_panic_is_a_code_and_a_message() {
        let status = run(|| panic!("seven is not eight"));
        assert_eq!(status, Status::Internal);
        LAST.with_borrow(|last| {
            let message = last.as_ref().map(|message| message.to_string_lossy());
            assert!(message.is_some_and(|message| message.contains("seven is not eight")));
        });
    }

    /// A pool whose slots are all in use is busy, and the handle of a call that closes it closed.
    #[test]
    fn behind_a_close_no_fault_is_called_busy() {
        let busy = Fault::from(PmError::Busy { slots: 4 });
        assert_eq!(busy.status(), Status::Busy);
        assert_eq!(busy.behind_close().status(), Status::Conflict);
        assert_eq!(Fault::from(PmError::ReadOnly).behind_close().status(), Status::ReadOnly);
    }

    #[test]
    fn every_code_has_a_name_of_its_own() {
        let mut names: Vec<&CStr> = Status::ALL.iter().map(|(_, name)| *name).collect();
        names.sort();
        names.dedup();
        assert_eq!(names.len(), Status::ALL.len());
    }
}
