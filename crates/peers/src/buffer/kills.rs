//! Kills in a loop: two threads change a map of ten times the pool until SIGKILL; then it has every acknowledged
//! transaction, whole, and nothing else.

use std::fs::File;
use std::os::fd::AsFd;
use std::os::unix::fs::FileExt;
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::time::{Duration, Instant};

use pmindex_pibench::KeySpace;

use crate::common::{Fault, Folders, RECORD, Scale, Table, VALUE};
use crate::stores::{Opening, Ours, System};

/// Threads of the process that is killed. Each has the keys that are congruent to its number.
const THREADS: u64 = 2;
/// The maximum number of records that a transaction changes.
const CHANGES: u64 = 4;
/// Rounds from one comparison of all records to the next; the others compare what was changed, and a sample.
const WHOLE: u64 = 8;
/// The records of a sample.
const SAMPLE: u64 = 2000;
/// The bytes of data for each byte of the pool.
const TIMES: u64 = 10;

/// The changes of one transaction: keys, each once, and their new versions; a record of version 0 is removed.
type Changes = Vec<(u64, u64)>;

/// The transactions of a thread, which parent and child derive from a seed.
struct Script {
    random: KeySpace,
    thread: u64,
    records: u64,
    step: u64,
    round: u64,
}

impl Script {
    fn new(seed: u64, round: u64, thread: u64, records: u64) -> Self {
        let random = KeySpace::new(seed ^ round << 8 ^ thread);
        Self { random, thread, records, step: 0, round }
    }
}

impl Iterator for Script {
    type Item = Changes;

    fn next(&mut self) -> Option<Changes> {
        self.step += 1;
        let mut changes: Changes = Vec::new();
        for _ in 0..=self.random.below(CHANGES) {
            // Half of the changes are in a sixteenth of the keys, so that pages change again in the pool.
            let all = self.records / THREADS;
            let some = if self.random.below(2) == 0 { all / 16 } else { all };
            let key = self.random.below(some) * THREADS + self.thread;
            let removed = self.random.below(8) == 0;
            let version = if removed { 0 } else { self.round << 32 | self.step };
            if changes.iter().all(|change| change.0 != key) {
                changes.push((key, version));
            }
        }
        Some(changes)
    }
}

/// Returns the value of a record.
fn value(key: u64, version: u64) -> Vec<u8> {
    let mut random = KeySpace::new(key ^ version.rotate_left(17));
    let words = (0..VALUE as u64 / 8).map(|at| if at == 0 { version } else { random.random() });
    words.flat_map(u64::to_le_bytes).collect()
}

fn change(ours: &Ours, changes: &Changes) -> Result<(), Fault> {
    ours.map.transact(|tx| {
        for &(key, version) in changes {
            if version == 0 {
                ours.map.remove_in(tx, &key)?;
            } else {
                ours.map.put_in(tx, &key, &value(key, version))?;
            }
        }
        Ok(())
    })?;
    Ok(())
}

/// The process that is killed: `SYSTEM DISK MEMORY BYTES RECORDS SEED ROUND`. Its standard output is a file with the
/// number of acknowledged transactions of each thread.
pub(crate) fn child(args: &[String]) -> Result<(), Fault> {
    let [name, disk, memory, bytes, records, seed, round] = args else {
        return Err("arguments".into());
    };
    let folders = Folders { disk: disk.into(), memory: memory.into() };
    let (system, opening) = (system(name)?, opening(bytes.parse()?, records.parse()?));
    let (seed, round): (u64, u64) = (seed.parse()?, round.parse()?);
    let acks = File::from(std::io::stdout().as_fd().try_clone_to_owned()?);
    let ours = Ours::open(system, &folders, &opening, false)?;
    std::mem::forget(folders); // they are the parent's
    std::thread::scope(|scope| {
        let work = |thread: u64| {
            let (ours, acks) = (&ours, &acks);
            scope.spawn(move || -> Result<(), Fault> {
                let script = Script::new(seed, round, thread, opening.records);
                for (step, changes) in (1_u64..).zip(script) {
                    change(ours, &changes)?;
                    acks.write_all_at(&step.to_le_bytes(), 8 * thread)?;
                }
                Ok(())
            })
        };
        let threads: Vec<_> = (0..THREADS).map(work).collect();
        threads.into_iter().try_for_each(|thread| thread.join().map_err(|_| "a panic")?)
    })
}

fn system(name: &str) -> Result<System, Fault> {
    let found = [System::Memory, System::Journal].into_iter().find(|it| format!("{it:?}") == name);
    found.ok_or_else(|| "a store".into())
}

fn opening(memory: u64, records: u64) -> Opening {
    Opening { memory, records, synced: false, on_tmpfs: true }
}

/// What the rounds showed.
#[derive(Default)]
struct Seen {
    kills: u64,
    while_opening: u64,
    transactions: u64,
    in_flight: u64,
    whole: u64,
    log: u64,
    pages: u64,
    opened: Vec<Duration>,
}

/// A map, and what it must have.
struct Kills<'a> {
    system: System,
    folders: &'a Folders,
    opening: Opening,
    seed: u64,
    /// The version of each record; 0: there is none.
    model: Vec<u64>,
    seen: Seen,
}

impl Kills<'_> {
    fn open(&self) -> Result<Ours, Fault> {
        Ours::open(self.system, self.folders, &self.opening, false)
    }

    fn load(&mut self) -> Result<(), Fault> {
        let ours = Ours::open(self.system, self.folders, &self.opening, true)?;
        let keys: Vec<u64> = (0..self.opening.records).collect();
        for part in keys.chunks(64) {
            change(&ours, &part.iter().map(|&key| (key, 1)).collect())?;
        }
        self.model = vec![1; keys.len()];
        Ok(())
    }

    /// Starts a process, kills it, and compares.
    fn round(&mut self, round: u64, random: &mut KeySpace) -> Result<(), Fault> {
        let path = self.folders.memory.join("acks");
        let acks = File::options().read(true).write(true).create(true).truncate(true).open(path)?;
        acks.write_all_at(&[0; 8 * THREADS as usize], 0)?;
        let mut command = Command::new(std::env::current_exe()?);
        command.arg("--kills").arg(format!("{:?}", self.system));
        command.arg(&self.folders.disk).arg(&self.folders.memory);
        let numbers = [self.opening.memory, self.opening.records, self.seed, round];
        command
            .args(numbers.map(|number| number.to_string()))
            .stdout(Stdio::from(acks.try_clone()?));
        let mut child = command.spawn()?;
        let life =
            if random.below(4) == 0 { random.below(20_000) } else { random.below(3_000_000) };
        let until = Instant::now() + Duration::from_micros(life);
        while Instant::now() < until {
            if let Some(status) = child.try_wait()? {
                return Err(format!("round {round}: the process ended by itself: {status}").into());
            }
            std::thread::sleep(
                until.saturating_duration_since(Instant::now()).min(Duration::from_millis(5)),
            );
        }
        child.kill()?; // SIGKILL
        child.wait()?;
        self.seen.kills += 1;
        let mut counts = [0; 8 * THREADS as usize];
        acks.read_exact_at(&mut counts, 0)?;
        let counts = counts.as_chunks().0.iter().map(|bytes| u64::from_le_bytes(*bytes));
        let counts: Vec<u64> = counts.collect();
        self.seen.while_opening += u64::from(counts.iter().all(|&count| count == 0));
        self.compare(round, &counts, random)
            .map_err(|error| format!("round {round}: {error}").into())
    }

    fn compare(&mut self, round: u64, counts: &[u64], random: &mut KeySpace) -> Result<(), Fault> {
        let mut changed: Vec<u64> = Vec::new();
        let mut begun: Vec<Changes> = Vec::new();
        for (thread, &count) in (0..).zip(counts) {
            self.seen.transactions += count;
            let mut script = Script::new(self.seed, round, thread, self.opening.records);
            for (key, version) in script.by_ref().take(count as usize).flatten() {
                self.model[key as usize] = version;
                changed.push(key);
            }
            begun.extend(script.next());
        }
        let started = Instant::now();
        let ours = self.open()?;
        self.seen.opened.push(started.elapsed());
        self.seen.log = self.seen.log.max(ours.map.buffer().log_bytes());
        // A transaction that was not acknowledged is there as a whole, or not at all.
        for changes in begun {
            let mut done = None;
            for &(key, version) in &changes {
                let (found, old) = (found(&ours, key)?, self.model[key as usize]);
                let is = match (found == version, found == old) {
                    (true, true) => continue, // it was absent before
                    (true, false) => true,
                    (false, true) => false,
                    (false, false) => {
                        return Err(format!(
                            "record {key} has version {found:#x}, not {old:#x} or {version:#x}"
                        )
                        .into());
                    }
                };
                if *done.get_or_insert(is) != is {
                    return Err(format!("half a transaction, at record {key}").into());
                }
            }
            if done == Some(true) {
                self.seen.in_flight += 1;
                changes.iter().for_each(|&(key, version)| self.model[key as usize] = version);
            }
        }
        let sample = (0..SAMPLE).map(|_| random.below(self.opening.records));
        for key in changed.into_iter().chain(sample) {
            let (found, expected) = (found(&ours, key)?, self.model[key as usize]);
            if found != expected {
                return Err(
                    format!("record {key} has version {found:#x}, not {expected:#x}").into()
                );
            }
        }
        if round.is_multiple_of(WHOLE) {
            self.whole(&ours)?;
        }
        self.seen.log = self.seen.log.max(ours.map.buffer().log_bytes());
        self.seen.pages =
            self.seen.pages.max(std::fs::metadata(self.folders.disk.join("pages"))?.len());
        if random.below(2) == 0 {
            // One more crash, of the process that has just recovered.
            let pool = Arc::clone(ours.map.buffer().pool());
            drop(ours);
            Arc::into_inner(pool).ok_or("the pool is in use")?.kill();
        }
        Ok(())
    }

    /// Compares all records.
    fn whole(&mut self, ours: &Ours) -> Result<(), Fault> {
        self.seen.whole += 1;
        ours.map.check()?;
        let mut expected = (0..).zip(&self.model).filter(|(_, version)| **version != 0);
        for record in ours.map.range(..) {
            let (key, found) = record?;
            let Some((next, &version)) = expected.next() else {
                return Err(format!("record {key} is one too many").into());
            };
            if key != next || found != value(key, version) {
                return Err(format!("record {key} in the place of record {next}").into());
            }
        }
        expected.next().map_or(Ok(()), |(key, _)| Err(format!("record {key} is missing").into()))
    }
}

/// Returns the version of a record, whose value is that of the version; 0 if there is none.
fn found(ours: &Ours, key: u64) -> Result<u64, Fault> {
    let Some(found) = ours.map.get(&key)? else { return Ok(0) };
    let version = found.first_chunk().map_or(0, |bytes| u64::from_le_bytes(*bytes));
    if version == 0 || found != value(key, version) {
        return Err(format!("record {key} has no value of a version").into());
    }
    Ok(version)
}

/// The table of all rounds, for some seconds with each medium.
pub(crate) fn page(scale: &Scale, folders: &Folders, seconds: u64) -> Result<String, Fault> {
    let memory = scale.memory;
    let mut table = Table::new(&[
        "",
        "kills",
        "while opening",
        "transactions",
        "in flight, done",
        "all records compared",
        "longest log, KiB",
        "file of pages, MiB",
        "opening, median",
        "longest",
    ]);
    let seed = KeySpace::new(std::process::id().into()).random() >> 32;
    for system in [System::Memory, System::Journal] {
        folders.clear()?;
        let opening = opening(memory, TIMES * memory / RECORD);
        let (model, seen) = (Vec::new(), Seen::default());
        let mut kills = Kills { system, folders, opening, seed, model, seen };
        kills.load()?;
        let until = Instant::now() + Duration::from_secs(seconds);
        let mut random = KeySpace::new(seed);
        let mut round = 1;
        while Instant::now() < until {
            kills
                .round(round, &mut random)
                .map_err(|error| format!("{system:?}, seed {seed}: {error}"))?;
            if round.is_multiple_of(100) {
                eprintln!("{system:?}: {round} kills, {} transactions", kills.seen.transactions);
            }
            round += 1;
        }
        let mut seen = kills.seen;
        seen.opened.sort();
        let ms = |time: Option<&Duration>| {
            format!("{:.1} ms", time.map_or(0.0, |time| time.as_secs_f64() * 1e3))
        };
        table.row(
            system.name(),
            [
                seen.kills.to_string(),
                seen.while_opening.to_string(),
                seen.transactions.to_string(),
                seen.in_flight.to_string(),
                seen.whole.to_string(),
                (seen.log >> 10).to_string(),
                (seen.pages >> 20).to_string(),
                ms(seen.opened.get(seen.opened.len() / 2)),
                ms(seen.opened.last()),
            ],
        );
    }
    Ok(format!(
        "\n## Kills in a loop\n\n{} MiB of pool, ten times that of records, {seconds} s of each row. Two threads change one to {CHANGES} records in a \
         transaction, one change in eight a removal, until SIGKILL: one in four within 20 ms of the start, the others \
         within 3 s. Then every acknowledged transaction is there, one that was not acknowledged as a whole or not \
         at all, and nothing else: all changed records and {SAMPLE} others are compared after each kill, all of them and the structure \
         after each {WHOLE}th. After every other comparison the process that compared crashes too.\n\n{}",
        memory >> 20,
        table.text()
    ))
}
