//! The exported function that copies a pool in use.

use std::ffi::c_void;
use std::mem::MaybeUninit;

use facade::Backup;

use crate::boundary::Text;
use crate::pool::{POOLS, Pool};
use crate::status::{Status, run};

/// Called with `paused` = 1 to stop all writers of the pool between two writes, and with 0 to let them
/// continue. It must not unwind (throw), nor write to the pool.
pub type Pause = Option<extern "C" fn(context: *mut c_void, paused: u8)>;

/// Writers that are stopped until this is dropped.
struct Paused(extern "C" fn(*mut c_void, u8), *mut c_void);

impl Paused {
    fn new(pause: extern "C" fn(*mut c_void, u8), context: *mut c_void) -> Self {
        pause(context, 1);
        Self(pause, context)
    }
}

impl Drop for Paused {
    fn drop(&mut self) {
        self.0(self.1, 0);
    }
}

/// The number of rounds that copy what has changed, before writers pause.
const ROUNDS: u32 = 8;

/// Copies a pool to a file while it is in use. The copy replaces a file of this name when it is complete
/// and durable. When most of the pool is copied, calls `pause` with 1, copies the rest, and calls it with 0
/// (null: no thread writes meanwhile). If a thread wrote nevertheless, returns `PMINDEX_STATUS_BUSY`, and
/// there is no copy. Sets `bytes` (may be null) to the length of the copy. (pmindex_store_backup() pauses
/// no writer.)
#[unsafe(no_mangle)]
pub extern "C" fn pmindex_pool_backup(
    pool: *const Pool,
    path: Text,
    pause: Pause,
    context: *mut c_void,
    bytes: Option<&mut MaybeUninit<u64>>,
) -> Status {
    run(|| {
        let path = path.read("the path")?;
        let pool = POOLS.with(pool, |pool| Ok(pool.clone()))?;
        let mut backup = Backup::begin(&pool, path)?;
        let mut before = u64::MAX;
        for _ in 0..ROUNDS {
            let copied = backup.catch_up()?;
            if copied == 0 || copied >= before {
                break;
            }
            before = copied;
        }
        let report = backup.finish(pause.map(|pause| Paused::new(pause, context)))?;
        bytes.map(|bytes| bytes.write(report.bytes));
        Ok(Status::Ok)
    })
}
