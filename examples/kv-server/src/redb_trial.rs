//! redb in the server's place: a process that writes until it is killed, another one that opens what
//! is left.
//!
//! redb is a library, so no network lies between its writer and its store: writes come in
//! transactions of as many records as the server's clients have in flight, each of them durable.

use std::io::{BufRead, BufReader, Read, Write};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Instant;

use redb::{Database, ReadableDatabase, TableDefinition};

use crate::Error;
use crate::load::{key, per_second, value};
use crate::trial::{IN_FLIGHT, Outcome, VALUE_SIZE};

/// Which file.
#[derive(clap::Args, Clone, Debug)]
pub struct RedbArgs {
    file: PathBuf,
}

const TABLE: TableDefinition<'_, &[u8], &[u8]> = TableDefinition::new("keyspace");

/// Anything redb can fail with, as one type.
fn failed(error: impl Into<redb::Error>) -> Error {
    Error::Redb(error.into())
}

/// Writes batches until it is killed; a line for each that is durable: how many records are.
pub fn write(args: &RedbArgs) -> Result<(), Error> {
    let db = Database::create(&args.file).map_err(failed)?;
    let mut output = std::io::stdout().lock();
    for batch in 0.. {
        let change = db.begin_write().map_err(failed)?;
        {
            let mut table = change.open_table(TABLE).map_err(failed)?;
            for number in batch * IN_FLIGHT..(batch + 1) * IN_FLIGHT {
                let value = value(number, VALUE_SIZE);
                table.insert(key(number).as_bytes(), value.as_slice()).map_err(failed)?;
            }
        }
        change.commit().map_err(failed)?;
        let acknowledge = writeln!(output, "{}", (batch + 1) * IN_FLIGHT);
        acknowledge.and_then(|()| output.flush()).map_err(Error::io("acknowledging"))?;
    }
    Ok(())
}

/// Opens the file and reads its first record.
pub fn read(args: &RedbArgs) -> Result<(), Error> {
    let db = Database::open(&args.file).map_err(failed)?;
    let table = db.begin_read().map_err(failed)?.open_table(TABLE).map_err(failed)?;
    let found = table.get(key(0).as_bytes()).map_err(failed)?.is_some();
    println!("{found}");
    Ok(())
}

/// This program with a command of redb's.
fn child(command: &str, file: &Path) -> Result<std::process::Child, Error> {
    let program = std::env::current_exe().map_err(Error::io("this program"))?;
    let mut child = Command::new(program);
    child.arg(command).arg(file).stdout(Stdio::piped());
    child.spawn().map_err(Error::io("starting redb's process"))
}

/// The trial: write, kill, open in a new process, verify.
pub(crate) fn attempt(file: &Path, records: u64) -> Result<Outcome, Error> {
    let started = Instant::now();
    let mut writer = child("redb-write", file)?;
    let mut acknowledged = 0;
    for line in writer.stdout.take().map(BufReader::new).into_iter().flat_map(BufRead::lines) {
        let line = line.map_err(Error::io("redb's process"))?;
        acknowledged = line.parse().unwrap_or(acknowledged);
        if acknowledged >= records {
            break;
        }
    }
    writer.kill().map_err(Error::io("killing redb's process"))?;
    let rate = per_second(acknowledged, started.elapsed());
    writer.wait().map_err(Error::io("redb's process"))?;

    let started = Instant::now();
    let mut reader = child("redb-read", file)?;
    let mut first = [0; 1];
    let answer = reader.stdout.take().map(|mut answer| answer.read_exact(&mut first));
    let ready_in = started.elapsed();
    answer.transpose().map_err(Error::io("redb's process"))?;
    reader.wait().map_err(Error::io("redb's process"))?;

    let started = Instant::now();
    let lost = verify(file, acknowledged)?;
    let verified_in = started.elapsed();
    let greetings = Default::default();
    Ok(Outcome { acknowledged, rate, ready_in, greetings, lost, verified_in })
}

/// How many of the first `count` records are not what was written.
fn verify(file: &Path, count: u64) -> Result<u64, Error> {
    let db = Database::open(file).map_err(failed)?;
    let table = db.begin_read().map_err(failed)?.open_table(TABLE).map_err(failed)?;
    let mut lost = 0;
    for number in 0..count {
        let found = table.get(key(number).as_bytes()).map_err(failed)?;
        let wanted = value(number, VALUE_SIZE);
        lost += u64::from(found.is_none_or(|found| found.value() != wanted));
    }
    Ok(lost)
}

/// What stands beside its figures.
pub(crate) const NOTE: &str = "a library in its own process, transactions of 64 records";
