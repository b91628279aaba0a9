//! Reports on the state of a store.

use std::fmt;
use std::path::PathBuf;

use pmindex_core::{Activity, Durability, Medium};

use crate::core::Core;

/// The state of a store at about one moment, from [`Store::report`](crate::Store::report). `Display` formats
/// it for people.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct StoreReport {
    /// The pool's file, or `(memory)`.
    pub path: PathBuf,
    /// The present size of the pool in bytes.
    pub pool_bytes: u64,
    /// The bytes in use.
    pub used_bytes: u64,
    /// The maximum size of the pool in bytes.
    pub max_bytes: u64,
    /// How a commit becomes durable.
    pub durability: Durability,
    /// The maps, open or not.
    pub maps: Vec<MapReport>,
    /// Commits since the store was opened: of transactions, and of single writes beside a transaction or a
    /// snapshot. Other single writes are not counted, nor transactions of one record without a read, which
    /// are such.
    pub commits: u64,
    /// Transactions that were refused because other commits changed what they had read; each try counts.
    pub conflicts: u64,
    /// Commits in progress, and those that wait for room in the pool.
    pub unfinished: u64,
    /// Commits that are durable in the log and whose changes are not all made, including commits before a
    /// crash that wait for their maps to be opened.
    pub waiting: u64,
    /// The present snapshots and transactions.
    pub readers: u64,
    /// The commits since the oldest of them began.
    pub oldest_reader_behind: u64,
    /// Snapshots and transactions that were ended because they kept too many old values.
    pub ended_readers: u64,
    /// The approximate bytes of memory of old values for them.
    pub past_bytes: u64,
    /// The limit of that.
    pub past_bytes_max: u64,
    /// The present watches.
    pub watches: u32,
    /// `true` if all commits have records in the log for later watches
    /// ([`keep_commits`](crate::StoreOptions::keep_commits)).
    pub keeps_commits: bool,
    /// Segments of the log.
    pub log_segments: u32,
    /// The maximum number of segments.
    pub log_segments_max: u32,
    /// The bytes of commit records that were written to it since the store was opened.
    pub log_bytes: u64,
    /// The activity of the pool since it was opened, including other indexes in it: splits of leaves, and,
    /// where they wait for a disk, fences, group commits and synchronisations.
    pub activity: Activity,
}

/// A map in a [`StoreReport`].
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct MapReport {
    /// Its name.
    pub name: String,
    /// The kind of its index in the pool's directory.
    pub kind: String,
    /// `true` if it was opened since the store was opened.
    pub is_open: bool,
}

impl StoreReport {
    pub(crate) fn new<M: Medium>(core: &Core<M>, maps: Vec<MapReport>) -> Self {
        let (pool, figures) = (&core.pool, core.moments.figures(core.pm()));
        let (log_segments, log_segments_max) = core.redo.segments();
        Self {
            path: pool.path().into(),
            pool_bytes: pool.len(),
            used_bytes: pool.used_bytes(),
            max_bytes: pool.max_size(),
            durability: pool.durability(),
            maps,
            commits: figures.committed,
            conflicts: figures.conflicts,
            unfinished: figures.unfinished,
            waiting: core.redo.len(),
            readers: figures.readers,
            oldest_reader_behind: figures.behind,
            ended_readers: figures.ended,
            past_bytes: core.moments.kept(),
            past_bytes_max: core.moments.limit(),
            watches: figures.logging - u32::from(core.keeps_all()),
            keeps_commits: core.keeps_all(),
            log_segments,
            log_segments_max,
            log_bytes: core.redo.written(),
            activity: pool.activity(),
        }
    }
}

#[cfg(feature = "metrics")]
impl StoreReport {
    /// Records the figures with the recorder of the `metrics` crate. Call it at each scrape, or every few
    /// seconds. Feature `metrics`. All have the label `store`, the path.
    ///
    /// Counters: `pmindex_store_commits_total`, `_conflicts_total`, `_readers_ended_total`,
    /// `_log_bytes_total`, `_splits_total`, `_group_commits_total`, `_syncs_total`, `_journal_bytes_total`, and
    /// `_fences_total` where fences are counted ([`Activity::fences`]). Gauges:
    /// `pmindex_store_readers`, `_oldest_reader_behind`, `_past_bytes`, `_past_bytes_max`,
    /// `_commits_unfinished`, `_commits_waiting`, `_watches`, `_log_segments`, `_log_segments_max`, `_maps`,
    /// `_pool_bytes`, `_pool_used_bytes`, `_pool_max_bytes`.
    #[allow(clippy::cast_precision_loss, reason = "a gauge is a float")]
    pub fn record(&self) {
        let store = self.path.display().to_string();
        for (name, value, what) in self.counters() {
            metrics::describe_counter!(name, what);
            metrics::counter!(name, "store" => store.clone()).absolute(value);
        }
        for (name, value, what) in self.gauges() {
            metrics::describe_gauge!(name, what);
            metrics::gauge!(name, "store" => store.clone()).set(value as f64);
        }
    }

    fn counters(&self) -> impl Iterator<Item = (&'static str, u64, &'static str)> {
        let Activity { splits, fences, group_commits, syncs, journal_bytes, .. } = self.activity;
        let all = [
            (
                "pmindex_store_commits_total",
                self.commits,
                "Commits of transactions and watched writes",
            ),
            (
                "pmindex_store_conflicts_total",
                self.conflicts,
                "Runs of transactions that were refused",
            ),
            ("pmindex_store_readers_ended_total", self.ended_readers, "Readers that kept too much"),
            ("pmindex_store_log_bytes_total", self.log_bytes, "Bytes of commits' records"),
            ("pmindex_store_splits_total", splits, "Splits of leaves"),
            (
                "pmindex_store_group_commits_total",
                group_commits,
                "Waits for the disk that fences share",
            ),
            ("pmindex_store_syncs_total", syncs, "Synchronisations of the pool's file"),
            ("pmindex_store_journal_bytes_total", journal_bytes, "Bytes written to the journal"),
        ];
        let fences = fences
            .map(|fences| ("pmindex_store_fences_total", fences, "Fences that wait for a disk"));
        all.into_iter().chain(fences)
    }

    fn gauges(&self) -> [(&'static str, u64, &'static str); 13] {
        let (segments, most) = (self.log_segments.into(), self.log_segments_max.into());
        [
            ("pmindex_store_readers", self.readers, "Snapshots and transactions alive"),
            (
                "pmindex_store_oldest_reader_behind",
                self.oldest_reader_behind,
                "Commits since the oldest began",
            ),
            ("pmindex_store_past_bytes", self.past_bytes, "Memory that is kept for readers"),
            ("pmindex_store_past_bytes_max", self.past_bytes_max, "The limit of that"),
            ("pmindex_store_commits_unfinished", self.unfinished, "Commits under way"),
            (
                "pmindex_store_commits_waiting",
                self.waiting,
                "Durable commits whose changes are not all made",
            ),
            ("pmindex_store_watches", self.watches.into(), "Watches alive"),
            ("pmindex_store_log_segments", segments, "Segments of the log"),
            ("pmindex_store_log_segments_max", most, "Segments that the log may have"),
            ("pmindex_store_maps", self.maps.len() as u64, "Maps"),
            ("pmindex_store_pool_bytes", self.pool_bytes, "Bytes of the pool"),
            ("pmindex_store_pool_used_bytes", self.used_bytes, "Bytes of the pool in use"),
            ("pmindex_store_pool_max_bytes", self.max_bytes, "Bytes that the pool may grow to"),
        ]
    }
}

/// Bytes, formatted for people.
struct Bytes(u64);

impl fmt::Display for Bytes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let units = ["KiB", "MiB", "GiB", "TiB"].into_iter().zip(1_u32..);
        let unit = units.filter(|(_, power)| self.0 >> (10 * power) > 0).last();
        let Some((name, power)) = unit else { return write!(f, "{} bytes", self.0) };
        let tenths = (u128::from(self.0) * 10) >> (10 * power);
        write!(f, "{}.{} {name}", tenths / 10, tenths % 10)
    }
}

impl fmt::Display for StoreReport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { commits, conflicts, unfinished, waiting, readers, ended_readers, .. } = self;
        let [pool, used, max] = [self.pool_bytes, self.used_bytes, self.max_bytes].map(Bytes);
        writeln!(f, "store      {}, mode {}", self.path.display(), self.durability)?;
        writeln!(f, "space      {used} used of {pool}; may grow to {max}")?;
        for (at, map) in self.maps.iter().enumerate() {
            let heading = if at == 0 { "maps" } else { "" };
            let state = if map.is_open { "" } else { ", not open" };
            writeln!(f, "{heading:<10} {} ({}{state})", map.name, map.kind)?;
        }
        writeln!(f, "commits    {commits}, {unfinished} under way; {conflicts} conflicts")?;
        let behind = self.oldest_reader_behind;
        writeln!(
            f,
            "readers    {readers}, the oldest {behind} commits behind; {ended_readers} ended"
        )?;
        let [past, limit] = [self.past_bytes, self.past_bytes_max].map(Bytes);
        writeln!(f, "memory     {past} of at most {limit} for them")?;
        let (segments, most) = (self.log_segments, self.log_segments_max);
        let written = Bytes(self.log_bytes);
        write!(f, "log        {segments} of {most} segments, {written} written; ")?;
        let kept = if self.keeps_commits { "; all commits are kept" } else { "" };
        writeln!(f, "{waiting} commits to be finished; {} watches{kept}", self.watches)?;
        let Activity { splits, fences, group_commits, syncs, journal_bytes, .. } = self.activity;
        let Some(fences) = fences else {
            return write!(f, "pool       {splits} splits; {syncs} syncs; fences wait for no disk");
        };
        let journal = Bytes(journal_bytes);
        write!(
            f,
            "pool       {splits} splits; {fences} fences in {group_commits} group commits; "
        )?;
        write!(f, "{syncs} syncs; {journal} of journal")
    }
}

#[cfg(all(test, feature = "metrics"))]
#[allow(
    clippy::cast_precision_loss,
    clippy::float_cmp,
    reason = "the figures are small whole numbers"
)]
mod tests {
    use std::collections::BTreeMap;
    use std::sync::Arc;

    use metrics::{
        Counter, CounterFn, Gauge, GaugeFn, Histogram, Key, KeyName, Metadata, Recorder,
        SharedString, Unit,
    };
    use parking_lot::Mutex;
    use pmindex_core::Pool;
    use pmindex_index::Index;

    use crate::Store;
    use crate::StoreOptions;
    use crate::tests::store::Small;

    /// Collects metrics by name and label.
    #[derive(Default)]
    struct Figures(Arc<Mutex<BTreeMap<String, f64>>>);

    struct Figure(Arc<Mutex<BTreeMap<String, f64>>>, String);

    impl Figures {
        fn figure(&self, key: &Key) -> Arc<Figure> {
            let labels: Vec<String> =
                key.labels().map(|l| format!("{}={}", l.key(), l.value())).collect();
            Arc::new(Figure(Arc::clone(&self.0), format!("{} {}", key.name(), labels.join(","))))
        }
    }

    impl CounterFn for Figure {
        fn increment(&self, _: u64) {
            unreachable!("counters are absolute");
        }
        fn absolute(&self, value: u64) {
            self.0.lock().insert(self.1.clone(), value as f64);
        }
    }

    impl GaugeFn for Figure {
        fn increment(&self, _: f64) {}
        fn decrement(&self, _: f64) {}
        fn set(&self, value: f64) {
            self.0.lock().insert(self.1.clone(), value);
        }
    }

    impl Recorder for Figures {
        fn describe_counter(&self, _: KeyName, _: Option<Unit>, _: SharedString) {}
        fn describe_gauge(&self, _: KeyName, _: Option<Unit>, _: SharedString) {}
        fn describe_histogram(&self, _: KeyName, _: Option<Unit>, _: SharedString) {}
        fn register_counter(&self, key: &Key, _: &Metadata<'_>) -> Counter {
            Counter::from_arc(self.figure(key))
        }
        fn register_gauge(&self, key: &Key, _: &Metadata<'_>) -> Gauge {
            Gauge::from_arc(self.figure(key))
        }
        fn register_histogram(&self, _: &Key, _: &Metadata<'_>) -> Histogram {
            Histogram::noop()
        }
    }

    #[test]
    fn splits_and_the_bytes_of_records_are_counted_and_single_writes_have_none() {
        let pool = Arc::new(Pool::emulated(4 << 20).unwrap());
        let store = Store::<Small>::in_pool(&pool, &StoreOptions::new()).unwrap();
        let map = store.map::<u64, u64>("numbers").unwrap();
        for n in 0..200 {
            map.insert(&n, &n).unwrap();
        }
        let report = store.report().unwrap();
        assert!(report.activity.splits > 1 && report.log_bytes == 0, "{report}");
        store.transaction(|tx| (0..10).try_for_each(|n| tx.put(&map, &n, &0))).unwrap();
        let after = store.report().unwrap();
        assert_eq!(after.activity.splits, report.activity.splits, "nothing was added");
        assert!(after.log_bytes >= 10 * 16, "{after}");
        assert_eq!(after.activity.fences, None);
        let text = after.to_string();
        assert!(text.contains(" splits; 0 syncs; fences wait for no disk"), "{text}");
    }

    #[test]
    fn a_recorder_has_every_figure_of_a_report() {
        let figures = Figures::default();
        let pool = Arc::new(Pool::emulated(1 << 20).unwrap());
        let store = Store::<Small>::in_pool(&pool, &StoreOptions::new()).unwrap();
        let map = store.map::<u64, u64>("numbers").unwrap();
        let _view = store.snapshot().unwrap();
        store.transaction(|tx| tx.put(&map, &1, &2)).unwrap();
        let report = store.report().unwrap();
        metrics::with_local_recorder(&figures, || report.record());
        let figures = figures.0.lock();
        let figure = |name: &str| figures[&format!("pmindex_store_{name} store=(memory)")];
        assert_eq!(figures.len(), 21); // no fences, since they wait for nothing here
        assert_eq!([figure("commits_total"), figure("readers"), figure("maps")], [1.0; 3]);
        assert_eq!(figure("pool_bytes"), report.pool_bytes as f64);
        assert_eq!(figure("past_bytes_max"), 256.0 * 1024.0 * 1024.0);
    }
}
