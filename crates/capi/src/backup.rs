//! The exported function that copies a pool in use.

use std::ffi::c_void;
use std::mem::MaybeUninit;

use facade::Backup;

use crate::boundary::Text;
use crate::pool::{POOLS, Pool};
use crate::status::{Status, run};

/// Told with `paused` 1 to keep all writers of the pool between two writes, and with 0 to let them go on. It
/// must not unwind (throw), nor write to the pool.
pub type Pause = Option<extern "C" fn(context: *mut c_void, paused: u8)>;

/// Writers that are kept where they are.
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

/// Rounds of copying what has changed, before writers pause.
const ROUNDS: u32 = 8;

/// Copies a pool to a file while it is in use; a file of this name is replaced when the copy is complete and
/// durable. `pause` is called when all but the last changes are copied: with 1, then with 0 (null: nobody
/// writes meanwhile). If somebody wrote all the same, it is `PMINDEX_STATUS_BUSY`, and there is no copy.
/// `bytes` (may be null) becomes the length of the copy. (pmindex_store_backup() pauses nobody.)
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
