//! RocksDB, measured by its own program: `db_bench`.

use std::path::Path;
use std::process::Command;

use crate::beside::WORKS;
use crate::common::{Fault, Skew, THETA, VALUE};
use crate::stores::Opening;

/// Returns the options of a database with this much memory.
pub(crate) fn command(folder: &Path, opening: &Opening) -> Command {
    let mut command = Command::new("db_bench");
    command.arg(format!("--db={}", folder.join("rocksdb").display()));
    command.arg(format!("--num={}", opening.records)).arg("--key_size=8");
    command.arg(format!("--value_size={VALUE}")).arg("--compression_type=none");
    command.args(["--use_direct_reads=1", "--use_direct_io_for_flush_and_compaction=1"]);
    command.args(["--bloom_bits=10", "--cache_index_and_filter_blocks=1", "--threads=1"]);
    command.arg(format!("--cache_size={}", opening.memory / 4 * 3));
    // Two of them.
    command.arg(format!("--write_buffer_size={}", opening.memory / 8));
    command.arg(format!("--sync={}", u8::from(opening.synced)));
    command
}

/// Adds keys of a power law, whose distribution function is that of the zipfian one but for the hottest keys.
pub(crate) fn skewed(command: &mut Command, opening: &Opening, gets: f64) {
    let exponent = 1.0 - THETA + 0.09; // 0.1: half of the accesses are to a thousandth of the keys
    command.arg(format!("--key_dist_b={exponent}"));
    command.arg(format!("--key_dist_a={}", (opening.records as f64).powf(-exponent)));
    command.arg(format!("--value_theta={VALUE}")).args(["--value_k=0", "--value_sigma=0"]);
    command.arg(format!("--mix_get_ratio={gets}")).arg(format!("--mix_put_ratio={}", 1.0 - gets));
}

/// Runs it; returns `None` if it is not installed.
pub(crate) fn told(mut command: Command) -> Result<Option<String>, Fault> {
    let out = match command.output() {
        Err(e) if e.kind() == std::io::ErrorKind::NotFound => {
            eprintln!("RocksDB is skipped: there is no db_bench (Debian: rocksdb-tools)");
            return Ok(None);
        }
        out => out?,
    };
    if !out.status.success() {
        return Err(format!("db_bench: {}", String::from_utf8_lossy(&out.stderr)).into());
    }
    Ok(Some(String::from_utf8_lossy(&out.stdout).into_owned()))
}

/// Loads a database. Returns `false` if `db_bench` is not installed.
pub(crate) fn load(folder: &Path, opening: &Opening) -> Result<bool, Fault> {
    let mut command = command(folder, &Opening { synced: false, ..*opening });
    command.arg("--benchmarks=fillseq");
    Ok(told(command)?.is_some())
}

/// Returns the rates by [`WORKS`]; each has as much time to warm up before.
pub(crate) fn rates(
    folder: &Path,
    opening: &Opening,
    millis: u64,
) -> Result<Option<[f64; 4]>, Fault> {
    if !load(folder, opening)? {
        return Ok(None);
    }
    let mut rates = [0.0; 4];
    for (rate, (update, skew)) in rates.iter_mut().zip(WORKS) {
        let mut command = command(folder, opening);
        command.args(["--use_existing_db=1"]).arg(format!("--duration={}", millis.div_ceil(1000)));
        let name = match (update, skew) {
            (false, Skew::Uniform) => "readrandom",
            (true, Skew::Uniform) => "overwrite",
            _ => {
                skewed(&mut command, opening, if update { 0.0 } else { 1.0 });
                "mixgraph"
            }
        };
        command.arg(format!("--benchmarks={name},{name}"));
        let Some(told) = told(command)? else { return Ok(None) };
        let of_line = |line: &str| -> Option<f64> {
            let words: Vec<&str> = line.split_whitespace().collect();
            let at = words.iter().position(|word| word.starts_with("ops/sec"))?;
            words.get(at.checked_sub(1)?)?.parse().ok()
        };
        let found = told.lines().rev().filter(|line| line.starts_with(name)).find_map(of_line);
        *rate = found.ok_or_else(|| format!("db_bench printed no rate:\n{told}"))?;
    }
    Ok(Some(rates))
}
