//! The time from `kill -9` to 90 % of the throughput before it, for each store as a process of its own.

use std::io::{BufRead, BufReader, Write as _};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::mpsc::{Receiver, channel};
use std::time::{Duration, Instant};

use crate::common::{Fault, Folders, Keys, RECORD, Scale, Skew, Table, VALUE, fill};
use crate::rocksdb;
use crate::stores::{Opening, System, create, forget, open};

/// One operation in ten is an update.
const UPDATES: u64 = 10;
/// The operations whose time a process reports together.
const STEP: u32 = 16;

/// The work of a process that will be killed, or of the one after it: `NAME DISK MEMORY BYTES RECORDS NEW`. It prints
/// a line whenever it has done some operations.
pub(crate) fn child(args: &[String]) -> Result<(), Fault> {
    let [name, disk, memory, bytes, records, new] = args else { return Err("arguments".into()) };
    let system = System::ALL.into_iter().find(|system| format!("{system:?}") == *name);
    let system = system.ok_or("a store")?;
    let folders = Folders { disk: disk.into(), memory: memory.into() };
    let (memory, records) = (bytes.parse()?, records.parse()?);
    let opening = Opening { memory, records, synced: false, on_tmpfs: true };
    let mut store = match new.as_str() {
        "new" => create(system, &folders, &opening)?,
        _ => open(system, &folders, &opening, false)?,
    };
    std::mem::forget(folders); // they are the parent's
    let seed = if new == "new" { 3 } else { 4 };
    let mut keys = Keys::new(Skew::Zipfian, opening.records, seed);
    let mut out = std::io::stdout().lock();
    let mut value = [0; VALUE];
    loop {
        for _ in 0..STEP {
            let key = keys.next();
            if keys.random().below(UPDATES) == 0 {
                fill(&mut value, keys.random());
                store.put(&[(key, value)])?;
            } else if !store.get(key)? {
                return Err("a record is missing".into());
            }
        }
        out.write_all(b".\n")?;
        out.flush()?;
    }
}

/// A running process, and the moments at which it had done [`STEP`] more operations.
struct Running {
    child: Child,
    started: Instant,
    lines: Receiver<(Duration, String)>,
}

impl Running {
    fn start(mut command: Command, errors: bool) -> Result<Self, Fault> {
        let started = Instant::now();
        command.stdout(if errors { Stdio::null() } else { Stdio::piped() });
        command.stderr(if errors { Stdio::piped() } else { Stdio::inherit() });
        let mut child = command.spawn()?;
        let (sender, lines) = channel();
        let source: Box<dyn std::io::Read + Send> = match (child.stdout.take(), child.stderr.take())
        {
            (Some(out), _) => Box::new(out),
            (None, Some(errors)) => Box::new(errors),
            _ => return Err("a process without output".into()),
        };
        std::thread::spawn(move || {
            // db_bench separates lines by carriage returns.
            let mut source = BufReader::new(source);
            let mut line = Vec::new();
            while source.read_until(b'\n', &mut line).is_ok_and(|count| count > 0) {
                let text = String::from_utf8_lossy(&line).into_owned();
                if sender.send((started.elapsed(), text)).is_err() {
                    break;
                }
                line.clear();
            }
        });
        Ok(Self { child, started, lines })
    }

    /// Returns the moments of all steps for a time after the first one, then kills the process.
    fn steps(mut self, time: Duration, is_step: fn(&str) -> bool) -> Result<Vec<Duration>, Fault> {
        let mut moments: Vec<Duration> = Vec::new();
        let patience = Duration::from_secs(120);
        loop {
            let wait = moments
                .first()
                .map_or(patience, |&first| (first + time).saturating_sub(self.started.elapsed()));
            match self.lines.recv_timeout(wait) {
                Ok((moment, line)) if is_step(&line) => moments.push(moment),
                Ok(_) => {}
                Err(_) => break,
            }
            if moments.first().is_some_and(|&first| self.started.elapsed() >= first + time) {
                break;
            }
        }
        self.child.kill()?; // SIGKILL
        self.child.wait()?;
        if moments.len() < 2 {
            return Err("a process did not work".into());
        }
        Ok(moments)
    }
}

/// The window in which the throughput is measured.
const WINDOW: Duration = Duration::from_millis(20);

/// Returns the operations a second in the last third.
fn peak(moments: &[Duration], step: u32) -> f64 {
    let [first, .., last] = moments else { return 0.0 };
    let from = *first + (*last - *first) * 2 / 3;
    let count = moments.iter().filter(|&&moment| moment > from).count();
    count as f64 * f64::from(step) / (*last - from).as_secs_f64()
}

/// Returns the end of the first window with 90 % of a throughput.
fn recovered(moments: &[Duration], step: u32, peak: f64) -> Option<Duration> {
    let enough = 0.9 * peak * WINDOW.as_secs_f64();
    let mut first = 0;
    for (at, &moment) in moments.iter().enumerate() {
        while moments[first] + WINDOW < moment {
            first += 1;
        }
        let whole = moment >= WINDOW;
        if whole && f64::from(step) * (at - first) as f64 >= enough {
            return Some(moment);
        }
    }
    None
}

/// What one kill showed.
struct Killed {
    name: String,
    peak: f64,
    served: Duration,
    back: Option<Duration>,
}

/// The table of all stores.
pub(crate) fn page(scale: &Scale, folders: &Folders) -> Result<String, Fault> {
    let memory = 4 * scale.memory;
    let opening = Opening { memory, records: memory * 2 / RECORD, synced: false, on_tmpfs: true };
    let mut all = Vec::new();
    for (system, cold) in [
        (System::Memory, true),
        (System::Redb, true),
        (System::Redb, false),
        (System::Lmdb, false),
        (System::Sqlite, true),
        (System::Sqlite, false),
    ] {
        eprintln!("kill -9: {}", system.name());
        all.push(ours_or_other(scale, folders, &opening, system, cold)?);
    }
    all.extend(of_rocksdb(scale, folders, &opening)?);
    folders.clear()?;
    let mut table =
        Table::new(&["", "before, thousands/s", "first operations after", "90 % after"]);
    for killed in &all {
        let ms = |time: Duration| format!("{:.0} ms", time.as_secs_f64() * 1e3);
        let never = format!("not in {:.1} s", run(scale).as_secs_f64());
        table.row(
            &killed.name,
            [format!("{:.1}", killed.peak / 1e3), ms(killed.served), killed.back.map_or(never, ms)],
        );
    }
    let ours = all.first().and_then(|killed| killed.back);
    let others = all
        .iter()
        .filter(|killed| killed.name.contains("cold") && !killed.name.starts_with("pmindex"));
    let best = others.map(|killed| killed.back.unwrap_or(run(scale))).min();
    let times = match (ours, best) {
        (Some(ours), Some(best)) => best.as_secs_f64() / ours.as_secs_f64(),
        _ => 0.0,
    };
    Ok(format!(
        "\n## After `kill -9`: time to 90 % of the throughput\n\n{} MiB of memory for each store, data twice that, zipfian, nine gets to one update, \
         unsynced, each store as a process of its own; the times are from the start of the next process. *Cold*: the \
         kernel's pages of the store's files are dropped between the processes, as a restart of the machine drops \
         them; what the pool in memory has is kept, as persistent memory keeps it. Otherwise they stay, and what is \
         compared is the kernel's page cache. *90 % after*: the end of the first 20 ms that have it.\n\n{}\nThe pool in memory is back {times:.1} times sooner than the best cold \
         store.\n",
        memory >> 20,
        table.text()
    ))
}

fn run(scale: &Scale) -> Duration {
    Duration::from_millis(scale.millis * 4)
}

fn ours_or_other(
    scale: &Scale,
    folders: &Folders,
    opening: &Opening,
    system: System,
    cold: bool,
) -> Result<Killed, Fault> {
    folders.clear()?;
    let command = |new: &str| -> Result<Command, Fault> {
        let mut command = Command::new(std::env::current_exe()?);
        command.arg("--child").arg(format!("{system:?}")).arg(&folders.disk).arg(&folders.memory);
        command.args([opening.memory.to_string(), opening.records.to_string(), new.into()]);
        Ok(command)
    };
    let step = |line: &str| line.starts_with('.');
    let before = Running::start(command("new")?, false)?.steps(run(scale), step)?;
    if cold {
        drop_pages(&folders.disk)?;
    }
    let after = Running::start(command("old")?, false)?.steps(run(scale), step)?;
    let peak = peak(&before, STEP);
    let name = format!("{}{}", system.name(), if cold { ", cold" } else { "" });
    Ok(Killed { name, peak, served: after[0], back: recovered(&after, STEP, peak) })
}

/// Drops the kernel's pages of all files in a folder.
fn drop_pages(folder: &Path) -> Result<(), Fault> {
    for entry in std::fs::read_dir(folder)? {
        let path = entry?.path();
        if path.is_dir() {
            drop_pages(&path)?;
        } else {
            std::fs::File::open(&path)?.sync_all()?;
            forget(&path);
        }
    }
    Ok(())
}

fn of_rocksdb(
    scale: &Scale,
    folders: &Folders,
    opening: &Opening,
) -> Result<Option<Killed>, Fault> {
    const OPS: u32 = 128;
    folders.clear()?;
    if !rocksdb::load(&folders.disk, opening)? {
        return Ok(None);
    }
    let start = || {
        let mut command = rocksdb::command(&folders.disk, opening);
        rocksdb::skewed(&mut command, opening, 1.0 - 1.0 / UPDATES as f64);
        command.args(["--use_existing_db=1", "--duration=1000", "--benchmarks=mixgraph"]);
        command.arg(format!("--stats_interval={OPS}"));
        Running::start(command, true)
    };
    let step = |line: &str| line.contains("ops/second");
    let before = start()?.steps(run(scale), step)?;
    drop_pages(&folders.disk)?;
    let after = start()?.steps(run(scale), step)?;
    let peak = peak(&before, OPS);
    Ok(Some(Killed {
        name: "RocksDB, cold".into(),
        peak,
        served: after[0],
        back: recovered(&after, OPS, peak),
    }))
}
