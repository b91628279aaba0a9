//! The failures of calls and their exceptions, which are classes of `pmindex._errors`.

use facade::core::PmError;
use facade::{IndexError, OpenError, StoreError};
use pyo3::prelude::*;
use pyo3::types::PyType;

/// The class of an exception.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Class {
    Error,
    Conflict,
    SnapshotEnded,
    WatchEnded,
    Unfinished,
    NoSpace,
    TooLong,
    InUse,
    WrongType,
    NoSuchMap,
    NoSuchFile,
    FileExists,
    Permission,
    System,
    NotAPool,
    Damaged,
    DurabilityLost,
    TooWeak,
    ReadOnly,
    Closed,
    Forked,
    BadOption,
    Internal,
}

impl Class {
    /// Returns its name in Python.
    fn name(self) -> &'static str {
        match self {
            Self::Error => "Error",
            Self::Conflict => "Conflict",
            Self::SnapshotEnded => "SnapshotEnded",
            Self::WatchEnded => "WatchEnded",
            Self::Unfinished => "Unfinished",
            Self::NoSpace => "NoSpace",
            Self::TooLong => "TooLong",
            Self::InUse => "InUse",
            Self::WrongType => "WrongType",
            Self::NoSuchMap => "NoSuchMap",
            Self::NoSuchFile => "NoSuchFile",
            Self::FileExists => "AlreadyExists",
            Self::Permission => "Permission",
            Self::System => "System",
            Self::NotAPool => "NotAPool",
            Self::Damaged => "Damaged",
            Self::DurabilityLost => "DurabilityLost",
            Self::TooWeak => "TooWeak",
            Self::ReadOnly => "ReadOnly",
            Self::Closed => "Closed",
            Self::Forked => "Forked",
            Self::BadOption => "BadOption",
            Self::Internal => "Internal",
        }
    }
}

impl Class {
    /// Returns `true` if a Python object is an exception of this class.
    pub(crate) fn is_of(self, object: &Bound<'_, PyAny>) -> bool {
        type_of(object.py(), self).and_then(|class| object.is_instance(&class)).unwrap_or(false)
    }
}

/// Returns the class in Python.
fn type_of(py: Python<'_>, class: Class) -> PyResult<Bound<'_, PyType>> {
    let found = py.import("pmindex._errors")?.getattr(class.name())?;
    Ok(found.cast_into::<PyType>()?)
}

/// A failure of a call.
#[derive(Clone, Debug)]
pub(crate) struct Fault {
    pub(crate) class: Class,
    message: String,
    /// `true` if the only failure is that the keys or values have other types.
    pub(crate) is_of_layout: bool,
}

impl Fault {
    pub(crate) fn new(class: Class, message: impl Into<String>) -> Self {
        Self { class, message: message.into(), is_of_layout: false }
    }

    /// Returns the failure that something was closed before.
    pub(crate) fn closed(message: impl Into<String>) -> Self {
        Self::new(Class::Closed, message)
    }
}

/// Returns an exception of a class, or the error that prevented it.
fn exception(class: Class, message: String) -> PyErr {
    Python::attach(|py| match type_of(py, class) {
        Ok(class) => PyErr::from_type(class, (message,)),
        Err(error) => error,
    })
}

impl From<Fault> for PyErr {
    fn from(fault: Fault) -> Self {
        exception(fault.class, fault.message)
    }
}

impl From<PmError> for Fault {
    fn from(error: PmError) -> Self {
        Self::new(of_pool(&error), error.to_string())
    }
}

fn of_pool(error: &PmError) -> Class {
    match error {
        PmError::Full { .. } | PmError::NoSpace { .. } | PmError::DirectoryFull { .. } => {
            Class::NoSpace
        }
        PmError::TooLarge { .. } | PmError::TooManyTickets { .. } => Class::TooLong,
        PmError::Corrupt { .. } | PmError::Damaged { .. } => Class::Damaged,
        PmError::DurabilityLost(_) => Class::DurabilityLost,
        PmError::ReadOnly => Class::ReadOnly,
        PmError::Busy { .. } | PmError::AlreadyOpen { .. } => Class::InUse,
        PmError::NameTaken { .. } | PmError::BadName { .. } | PmError::BadOption { .. } => {
            Class::BadOption
        }
        PmError::NoInstruction { .. } => Class::TooWeak,
        PmError::Forked => Class::Forked,
        PmError::Os { .. } => Class::System,
        _ => Class::Error,
    }
}

impl From<IndexError> for Fault {
    fn from(error: IndexError) -> Self {
        let class = match &error {
            IndexError::Pool(error) => of_pool(error),
            IndexError::KeyTooLong { .. } | IndexError::ValueTooLong { .. } => Class::TooLong,
            IndexError::NoSuchIndex { .. } => Class::NoSuchMap,
            IndexError::WrongType { .. } | IndexError::WrongLayout { .. } => Class::WrongType,
            IndexError::IndexExists { .. }
            | IndexError::NotEmpty
            | IndexError::NotSorted { .. } => Class::BadOption,
            _ => Class::Error,
        };
        let is_of_layout = matches!(error, IndexError::WrongLayout { .. });
        Self { is_of_layout, ..Self::new(class, error.to_string()) }
    }
}

impl From<OpenError> for Fault {
    fn from(error: OpenError) -> Self {
        let class = match &error {
            OpenError::NotFound { .. } | OpenError::NoDirectory { .. } => Class::NoSuchFile,
            OpenError::AlreadyExists { .. } | OpenError::JournalInTheWay { .. } => {
                Class::FileExists
            }
            OpenError::PermissionDenied { .. } => Class::Permission,
            OpenError::NotAFile { .. }
            | OpenError::NotAPool { .. }
            | OpenError::UnsupportedVersion { .. } => Class::NotAPool,
            OpenError::Locked { .. } => Class::InUse,
            OpenError::NoSpace { .. } => Class::NoSpace,
            OpenError::Truncated { .. }
            | OpenError::Damaged { .. }
            | OpenError::JournalMissing { .. }
            | OpenError::JournalForeign { .. }
            | OpenError::JournalDamaged { .. }
            | OpenError::TwinForeign { .. }
            | OpenError::TwinDamaged { .. } => Class::Damaged,
            OpenError::BadOption { .. } | OpenError::TwinNotInMemory { .. } => Class::BadOption,
            OpenError::TooWeak { .. } => Class::TooWeak,
            OpenError::DirtyShutdown { .. } => Class::DurabilityLost,
            OpenError::Io { .. } => Class::System,
            OpenError::Pool { error, .. } => of_pool(error),
            _ => Class::Error,
        };
        Self::new(class, error.to_string())
    }
}

impl From<StoreError> for Fault {
    fn from(error: StoreError) -> Self {
        let class = match error {
            StoreError::Index(error) => return error.into(),
            StoreError::Open(error) => return error.into(),
            StoreError::Conflict { .. } => Class::Conflict,
            StoreError::SnapshotEnded { .. } | StoreError::Dropped { .. } => Class::SnapshotEnded,
            StoreError::Unfinished(_) => Class::Unfinished,
            StoreError::WatchEnded => Class::WatchEnded,
            StoreError::TooLarge { .. } => Class::TooLong,
            StoreError::OpenWithOtherTypes { .. } => Class::WrongType,
            StoreError::InUse { .. } => Class::InUse,
            StoreError::File { .. } => Class::System,
            StoreError::OtherStore { .. } => Class::BadOption,
            _ => Class::Error,
        };
        let is_of_layout = matches!(error, StoreError::OpenWithOtherTypes { .. });
        Self { is_of_layout, ..Self::new(class, error.to_string()) }
    }
}
