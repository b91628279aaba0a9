//! The options of `pmindex bench`, checked.

use std::collections::HashSet;
use std::path::Path;
use std::time::Duration;

use clap::builder::{PossibleValuesParser, TypedValueParser};
use pmindex_pibench::{
    CHUNKS, Distribution, Field, Integers, Length, Lines, Phase, Records, Settings, Sizes, Step,
    Texts, Workload, Yardstick,
};

use crate::bench::{Args, Background};
use crate::error::CliError;
use crate::medium::MediumArgs;
use crate::memory;
use crate::registry::{self, Entry};
use crate::table::bytes;

/// Accepts the name of any phase, and lists them all in the help.
pub(super) fn phases() -> impl TypedValueParser<Value = Phase> {
    PossibleValuesParser::new(Phase::ALL.iter().map(|phase| phase.name()))
        .try_map(|name| Phase::named(&name).ok_or("there is no such phase"))
}

/// A measurement with all options checked.
pub(super) struct Plan<'a> {
    /// The indexes.
    pub(super) entries: Vec<&'static Entry>,
    /// The steps; the first is the load.
    pub(super) steps: Vec<Step>,
    pub(super) threads: Vec<usize>,
    pub(super) distributions: Vec<Distribution>,
    pub(super) data: Data,
    pub(super) dir: Option<&'a Path>,
    pub(super) medium: MediumArgs,
    pub(super) write_latency: Duration,
    records: u64,
    ops: u64,
    scan_length: usize,
    batch: usize,
    seed: u64,
    pin: bool,
    background: bool,
    seconds: Option<f64>,
    chunk: Duration,
    sample: Option<f64>,
}

/// The types of keys and values.
pub(super) enum Data {
    /// 8-byte integers.
    Integers,
    /// Byte strings.
    Bytes(Bytes),
}

/// The lengths and the source of byte strings.
pub(super) struct Bytes {
    key: Length,
    value: Length,
    prefix: String,
    /// A file of keys: its name and its text.
    file: Option<(String, Vec<u8>)>,
}

impl<'a> Plan<'a> {
    pub(super) fn new(args: &'a Args) -> Result<Self, CliError> {
        let option = |what: String| CliError::Usage { what };
        let skewed = |name: &String| matches!(name.as_str(), "zipfian" | "self-similar");
        let any_skewed = args.distribution.iter().any(skewed);
        // Of several, those have it that have any.
        let named = |name: &String| {
            Distribution::named(name, args.skew.filter(|_| skewed(name) || !any_skewed))
        };
        let distributions: Result<Vec<_>, String> = args.distribution.iter().map(named).collect();
        if args.threads.iter().any(|threads| !(1..=1024).contains(threads)) {
            return Err(option("--threads must be from 1 to 1024".into()));
        }
        if !(0.0..=1.0).contains(&args.latency_sample) {
            return Err(option("--latency-sample must be from 0 to 1".into()));
        }
        if args.batch == 0 || args.scan_length == 0 {
            return Err(option("--batch and --scan-length must be at least 1".into()));
        }
        let least = args.batch.saturating_mul(CHUNKS) as u64;
        if args.records < least {
            let batch = args.batch;
            let what = format!(
                "--records must be at least {least}: a phase has {CHUNKS} chunks of at least --batch ({batch}) records"
            );
            return Err(option(what));
        }
        if args.ops.is_some_and(|ops| !(least..=args.records).contains(&ops)) {
            let records = args.records;
            let what = format!(
                "--ops must be from {least} to --records ({records}): a phase has {CHUNKS} chunks of at least \
                 --batch records, and removes each record once"
            );
            return Err(option(what));
        }
        let data = Data::new(args)?;
        let records = args.records;
        let keys = data.keys()?;
        if records > keys {
            return Err(option(format!("--records {records}: there are only {keys} such keys")));
        }
        let entries = entries(args)?;
        if let Some(what) = too_many(records, &data, entries.len()) {
            return Err(CliError::Option { what }); // on another machine it may be right
        }
        Ok(Self {
            entries,
            steps: steps(args).map_err(option)?,
            threads: args.threads.clone(),
            distributions: distributions.map_err(option)?,
            data,
            dir: args.dir.as_deref(),
            medium: args.medium,
            write_latency: Duration::from_nanos(args.write_latency),
            records,
            ops: args.ops.unwrap_or_else(|| Workload::default_ops(args.records)),
            scan_length: args.scan_length,
            batch: args.batch,
            seed: args.seed,
            pin: args.pin,
            background: args.background == Background::Thread,
            seconds: args.seconds,
            chunk: Duration::from_millis(args.chunk_ms),
            sample: (args.latency_sample > 0.0).then_some(args.latency_sample),
        })
    }

    /// Returns the sizes of a run; [`Workload::of`] limits them.
    pub(super) fn sizes(&self, distribution: Distribution) -> Sizes {
        let Self { scan_length, batch, .. } = *self;
        let sizes = Sizes::new(self.records, self.ops, self.seed);
        Sizes { scan_length, batch, distribution, ..sizes }
    }

    /// Returns how to measure with this number of threads.
    pub(super) fn settings(&self, threads: usize) -> Settings {
        let Self { pin, seconds, chunk, sample, background, .. } = *self;
        Settings { threads, pin, seconds, chunk, sample, background }
    }

    /// Returns a number of bytes that is enough for an index with the most records.
    pub(super) fn room(&self) -> u64 {
        let (key, value) = self.data.fields();
        let record = (key.max_bytes + key.prefix.len() + value.max_bytes) as u64;
        // A hungry index takes about 112 bytes besides; each round of each phase may add records.
        let rounds = if self.seconds.is_some() { 16 } else { 4 };
        let adds = |step: &Step| step.share(Phase::Insert) + step.share(Phase::InsertMany) > 0.0;
        let longer = self.seconds.is_some() || !self.chunk.is_zero();
        // Before they are undone, additional inserts are as many as the records.
        let times = if longer && self.steps.iter().any(adds) { 2 } else { 1 };
        let records = self.records.saturating_mul(times).saturating_add(rounds * self.ops);
        (112 + record).saturating_mul(records)
    }
}

/// Returns the error if this machine has too little memory for the records. The estimate counts only the
/// least that they take: the numbers of all records, the keys and values of the chunk that is loaded next,
/// and the records themselves.
fn too_many(records: u64, data: &Data, indexes: usize) -> Option<String> {
    let (key, value) = data.fields();
    if key.file.is_some() {
        return None; // no more than the file has
    }
    let record = (key.min_bytes + key.prefix.len() + value.min_bytes) as u64;
    let of_each = 8 + record / CHUNKS as u64 + record.saturating_mul(indexes as u64);
    let wanted = records.saturating_mul(of_each);
    let there = memory::available()?;
    (wanted > there).then(|| {
        let (wanted, there) = (bytes(wanted), bytes(there));
        format!("--records {records} needs at least {wanted} of memory, and {there} are available")
    })
}

/// Returns the indexes, each once, and with every requested node size.
fn entries(args: &Args) -> Result<Vec<&'static Entry>, CliError> {
    let mut entries: Vec<&'static Entry> = Vec::new();
    for name in &args.index {
        if args.node_size.is_empty() || name == Yardstick::NAME {
            entries.push(registry::find(name)?); // the yardstick is beside any of them
            continue;
        }
        for &size in &args.node_size {
            entries.push(registry::find_sized(name, size)?);
        }
    }
    // Each has a pool of its name.
    let mut names = HashSet::new();
    entries.retain(|entry| names.insert(entry.name));
    Ok(entries)
}

/// Returns the steps: the load, the phases, the mixes.
fn steps(args: &Args) -> Result<Vec<Step>, String> {
    let mut mixes = Vec::new();
    for text in &args.mix {
        if text.contains(':') {
            mixes.push(Step::mix(text)?);
        } else {
            for name in text.split(',') {
                mixes.push(Step::mix(name)?);
            }
        }
    }
    let usual = args.phases.is_empty() && mixes.is_empty();
    let wanted = |phase: &Phase| {
        *phase == Phase::Load
            || args.phases.contains(phase)
            || usual && Phase::USUAL.contains(phase)
    };
    Ok(Phase::ALL.into_iter().filter(wanted).map(Step::one).chain(mixes).collect())
}

impl Data {
    fn new(args: &Args) -> Result<Self, CliError> {
        let length = |name: &str, text: &str| {
            Length::parse(text).map_err(|what| CliError::Usage { what: format!("{name}: {what}") })
        };
        let key = length("--key-size", &args.key_size)?;
        let value = length("--value-size", &args.value_size)?;
        let word = Length { min: 8, max: 8 };
        let prefix = args.key_prefix.clone();
        let file = match &args.key_file {
            None => None,
            Some(path) => Some((path.display().to_string(), super::read(path)?)),
        };
        if key == word && value == word && prefix.is_empty() && file.is_none() {
            return Ok(Self::Integers);
        }
        let longest = pmindex::MAX_KEY_BYTES.saturating_sub(prefix.len() + 1);
        if key.max > longest || value.max > pmindex::MAX_VALUE_BYTES {
            let (key, value) = (pmindex::MAX_KEY_BYTES, pmindex::MAX_VALUE_BYTES);
            let what = format!("keys have at most {key} bytes, values at most {value}");
            return Err(CliError::Usage { what });
        }
        let bytes = Bytes { key, value, prefix, file };
        Ok(Self::Bytes(bytes))
    }

    /// Returns the number of different keys.
    fn keys(&self) -> Result<u64, CliError> {
        match self {
            Self::Integers => Ok(integers(0, true).capacity()),
            Self::Bytes(bytes) => Ok(bytes.records(0, true)?.capacity()),
        }
    }

    /// Returns the fields of a report that describe keys and values.
    pub(super) fn fields(&self) -> (Field, Field) {
        match self {
            Self::Integers => (Field::integer(), Field::integer()),
            Self::Bytes(bytes) => bytes.fields(),
        }
    }
}

impl Bytes {
    /// Returns the records of a seed.
    pub(super) fn records(
        &self,
        seed: u64,
        ascending: bool,
    ) -> Result<Box<dyn Records<Vec<u8>, Vec<u8>>>, CliError> {
        let prefix = self.prefix.as_bytes();
        Ok(match &self.file {
            None => Box::new(Texts::new(seed, ascending, prefix, self.key, self.value)),
            Some((name, text)) => {
                let lines = Lines::new(text, seed, ascending, prefix, self.value);
                let no_use = |what| CliError::Keys { path: name.into(), what };
                Box::new(lines.map_err(no_use)?)
            }
        })
    }

    fn fields(&self) -> (Field, Field) {
        let field = |length: Length| Field {
            kind: "bytes".into(),
            min_bytes: length.min,
            max_bytes: length.max,
            ..Field::default()
        };
        let mut key = field(self.key);
        if let Some((name, text)) = &self.file {
            let lengths = text.split(|byte| *byte == b'\n').map(|line| line.trim_ascii().len());
            let lengths: Vec<usize> = lengths.filter(|len| *len > 0).collect();
            key.min_bytes = lengths.iter().min().copied().unwrap_or_default();
            key.max_bytes = lengths.iter().max().copied().unwrap_or_default();
            key.file = Some(name.clone());
        }
        key.prefix.clone_from(&self.prefix);
        (key, field(self.value))
    }
}

/// Returns the 8-byte integers of a seed.
pub(super) fn integers(seed: u64, ascending: bool) -> Box<dyn Records<u64, u64>> {
    Box::new(Integers::new(seed, ascending))
}
