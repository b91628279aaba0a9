//! Figure 5.1: a counter, shared by a mutex, or owned by a thread that gets messages.

use std::fs;
use std::sync::atomic::AtomicBool;
use std::sync::atomic::Ordering::Relaxed;
use std::sync::mpsc::sync_channel;
use std::sync::{Mutex, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use pmindex_pibench::Pinned;

use crate::table::Table;
use crate::{Fault, Scale};

/// The messages of a queue, as the server's.
const QUEUE: usize = 4096;

/// What a way to count costs.
struct Cost {
    /// Increments a second.
    rate: f64,
    /// Nanoseconds of all processors for an increment.
    busy: f64,
}

/// Returns the processor time of this process, in hundredths of a second.
fn busy() -> Result<f64, Fault> {
    let stat = fs::read_to_string("/proc/self/stat")?;
    let words: Vec<&str> = stat.rsplit(')').next().unwrap_or_default().split_whitespace().collect();
    let ticks =
        |at: usize| words.get(at).ok_or("/proc/self/stat")?.parse::<f64>().map_err(Fault::from);
    Ok(ticks(11)? + ticks(12)?)
}

fn cost(work: impl FnOnce() -> u64) -> Result<Cost, Fault> {
    let (before, started) = (busy()?, Instant::now());
    let count = work() as f64;
    let rate = count / started.elapsed().as_secs_f64();
    Ok(Cost { rate, busy: (busy()? - before) * 1e7 / count })
}

fn mutex(threads: usize, time: Duration) -> u64 {
    let (counter, over) = (Mutex::new(0), AtomicBool::new(false));
    let lock = || counter.lock().unwrap_or_else(PoisonError::into_inner);
    thread::scope(|scope| {
        for number in 0..threads {
            let (over, lock) = (&over, &lock);
            scope.spawn(move || {
                let _core = Pinned::to_core(number);
                while !over.load(Relaxed) {
                    *lock() += 1;
                }
            });
        }
        thread::sleep(time);
        over.store(true, Relaxed);
    });
    *lock()
}

/// One of the threads owns the counter, the others send messages to it.
fn messages(threads: usize, time: Duration) -> u64 {
    let (sender, receiver) = sync_channel::<u64>(QUEUE);
    let over = AtomicBool::new(false);
    thread::scope(|scope| {
        let owner = scope.spawn(move || {
            let _core = Pinned::to_core(0);
            receiver.iter().sum()
        });
        for number in 1..threads {
            let (over, sender) = (&over, sender.clone());
            scope.spawn(move || {
                let _core = Pinned::to_core(number);
                while !over.load(Relaxed) && sender.send(1).is_ok() {}
            });
        }
        drop(sender);
        thread::sleep(time);
        over.store(true, Relaxed);
        owner.join().unwrap_or(0)
    })
}

/// The table.
pub(crate) fn page(scale: &Scale) -> Result<String, Fault> {
    let time = scale.time / 2;
    let mut table = Table::new(&[
        "threads",
        "mutex: million/s",
        "ns of processors each",
        "messages: million/s",
        "ns of processors each",
    ]);
    for threads in [1, 2, 3, 4] {
        let mut cells = cells(&cost(|| mutex(threads, time))?);
        if threads == 1 {
            cells.extend(["-".into(), "-".into()]);
        } else {
            cells.extend(self::cells(&cost(|| messages(threads, time))?));
        }
        table.row(&threads.to_string(), cells);
    }
    Ok(format!(
        "\n## Figure 5.1: a counter, by a mutex and by messages\n{}\n\
         **The thesis**: with few cores messages have the higher rate; with more cores their rate drops and that of the \
         mutex stays, but the cycles of the mutex grow, and those of messages do not. **Here** there are two processors: \
         with one thread there is no other to send messages, and three and four threads share the processors. A mutex of \
         Rust's library spins, then sleeps in the kernel, so that its waiting costs little time of processors; the queue \
         is the one between the server's threads, of {QUEUE} messages, which wake a sleeping owner. The server sends a \
         message only for a key of another partition; cluster clients need none.\n",
        table.text()
    ))
}

fn cells(cost: &Cost) -> Vec<String> {
    vec![format!("{:.2}", cost.rate / 1e6), format!("{:.0}", cost.busy)]
}
