//! A group of three processes under faults: kills, pauses, cuts of the network, wrong clocks, full disks. The
//! calls of its clients must be linearizable.
//!
//! `RSTORE_FAULTS=1000` makes it a campaign; `RSTORE_SEED` chooses other faults, `RSTORE_PARTITIONS` the
//! number of groups, `RSTORE_PROGRAM` another program. Disks fill only where this process may mount.
//! `RSTORE_NETWORK=namespaces` gives each node a host of its own, between which the kernel loses packets; needs
//! root.
#![forbid(unsafe_code)]

mod clients;
mod network;
mod nodes;

use std::collections::BTreeMap;
use std::sync::atomic::Ordering::Relaxed;
use std::thread;
use std::time::{Duration, Instant};

use pmindex_testkit::crash::Rng;
use pmindex_testkit::history::{Call, History};

use clients::{Caller, KEYS, Shared};
use nodes::{NODES, Nodes};

const CLIENTS: u32 = 4;
/// A group that answers nothing for so long after all faults are repaired does not recover.
const PATIENCE: Duration = Duration::from_secs(180);

fn number(name: &str, default: u64) -> u64 {
    std::env::var(name).ok().and_then(|text| text.parse().ok()).unwrap_or(default)
}

/// The kinds of faults, for the report.
const KINDS: [&str; 8] =
    ["kill", "kill all", "pause", "cut off", "cut one way", "reset", "clock", "full disk"];

struct Campaign<'s> {
    nodes: Nodes,
    shared: &'s Shared,
    random: Rng,
    done: BTreeMap<&'static str, u64>,
}

impl Campaign<'_> {
    fn sleep(&mut self, most: usize) {
        thread::sleep(Duration::from_millis(self.random.below(most) as u64));
    }

    /// Chooses a node: often one that leads.
    fn victim(&mut self) -> u64 {
        let leaders = self.nodes.leaders();
        if !leaders.is_empty() && self.random.one_in(2) {
            return leaders[self.random.below(leaders.len())];
        }
        1 + self.random.below(NODES.count()) as u64
    }

    /// Makes one fault, and repairs it, sometimes only later.
    fn fault(&mut self) {
        let victim = self.victim();
        let kind = KINDS[self.random.below(KINDS.len())];
        *self.done.entry(kind).or_default() += 1;
        match kind {
            "kill" => {
                self.nodes.node(victim).kill();
                self.sleep(3000);
                self.nodes.run(victim);
            }
            "kill all" => {
                NODES.for_each(|id| self.nodes.node(id).kill());
                NODES.for_each(|id| self.nodes.run(id));
            }
            "pause" => {
                self.nodes.node(victim).pause(true);
                self.sleep(4000);
                self.nodes.node(victim).pause(false);
            }
            "cut off" => {
                self.nodes.network.cut(NODES.flat_map(|id| [(id, victim), (victim, id)]));
                self.sleep(5000);
                self.nodes.network.cut([]);
            }
            "cut one way" => {
                let other = 1 + self.random.below(NODES.count()) as u64;
                let back = self.random.one_in(2).then_some((other, victim));
                self.nodes.network.cut(back.into_iter().chain([(victim, other)]));
                self.sleep(5000);
                self.nodes.network.cut([]);
            }
            "reset" => {
                self.nodes.network.reset();
                self.sleep(500);
            }
            "clock" => {
                let most: u32 = 1 << self.random.below(28); // up to three days
                let drawn = i64::try_from(self.random.below(2 * most as usize)).expect("small");
                let ahead = drawn - i64::from(most);
                self.nodes.node(victim).set_clock(ahead);
                self.sleep(2000);
            }
            _ => {
                self.nodes.node(victim).fill(true);
                // One that starts, and one that copies a snapshot, need more room than the others.
                if self.random.one_in(2) {
                    self.nodes.node(victim).kill();
                    self.nodes.run(victim);
                }
                self.sleep(3000);
                self.nodes.repair();
            }
        }
    }

    /// Waits until clients are answered.
    fn recover(&mut self) {
        let (before, started) = (self.shared.answered.load(Relaxed), Instant::now());
        while self.shared.answered.load(Relaxed) < before + u64::from(3 * CLIENTS) {
            thread::sleep(Duration::from_millis(10));
            if started.elapsed() > Duration::from_secs(5) {
                self.nodes.repair();
            }
            assert!(
                started.elapsed() < PATIENCE,
                "no answers after {:?}\n{}",
                self.done,
                self.logs()
            );
        }
    }

    /// Returns the ends of the nodes' logs.
    fn logs(&self) -> String {
        let log = |id| {
            let text = std::fs::read_to_string(self.nodes.log(id)).unwrap_or_default();
            let lines: Vec<&str> = text.lines().collect();
            format!("node {id}:\n{}\n", lines[lines.len().saturating_sub(30)..].join("\n"))
        };
        NODES.map(log).collect()
    }
}

fn check(shared: &Shared) -> Result<(), String> {
    let mut history = History::new(BTreeMap::new());
    history.add(shared.events());
    history.check().map_err(|violation| violation.to_string())
}

#[test]
fn a_group_under_faults_is_linearizable() {
    let faults = number("RSTORE_FAULTS", 4);
    let seed = number("RSTORE_SEED", 1);
    let partitions = number("RSTORE_PARTITIONS", 1) as u16;
    let dir =
        tempfile::Builder::new().prefix("rstore-faults").tempdir_in("/dev/shm").expect("a folder");
    let shared = Shared::default();
    let nodes = Nodes::start(dir.path(), partitions);
    let full = nodes.all.iter().all(|node| node.is_mounted);
    let (clocks, network) = (nodes.has_clocks(), nodes.network.kind());
    println!("wrong clocks: {clocks}, full disks: {full}, network of {network}, seed {seed}");
    let addresses = nodes.addresses();
    let started = Instant::now();
    let mut campaign =
        Campaign { nodes, shared: &shared, random: Rng::new(seed), done: BTreeMap::new() };
    thread::scope(|scope| {
        let stop = Stop(&shared);
        for number in 0..CLIENTS {
            let caller = Caller::new(&shared, addresses.clone(), number, seed);
            scope.spawn(move || caller.run());
        }
        let filler = Caller::new(&shared, addresses.clone(), CLIENTS, seed);
        scope.spawn(move || filler.fill());
        campaign.recover();
        for count in 1..=faults {
            campaign.fault();
            campaign.recover();
            shared.epoch.fetch_add(1, Relaxed);
            if count % 10 == 0 || count == faults {
                report(&campaign, count, started);
                // A fault of the group should end the campaign soon.
                check(&shared).unwrap_or_else(|wrong| panic!("{wrong}\n{}", campaign.logs()));
            }
        }
        drop(stop);
    });
    NODES.for_each(|id| campaign.nodes.node(id).set_clock(0));
    campaign.nodes.repair();
    shared.stop.store(false, Relaxed);
    let mut last = Caller::new(&shared, addresses, CLIENTS, seed);
    for key in 0..(faults + 1) * KEYS {
        while !last.call(key, Call::Get) {}
    }
    check(&shared).unwrap_or_else(|wrong| panic!("{wrong}\n{}", campaign.logs()));
    report(&campaign, faults, started);
}

/// Stops the clients, also when the test panics.
struct Stop<'s>(&'s Shared);

impl Drop for Stop<'_> {
    fn drop(&mut self) {
        self.0.stop.store(true, Relaxed);
    }
}

fn report(campaign: &Campaign<'_>, count: u64, started: Instant) {
    println!(
        "{count} faults in {:.0} s: {:?}; {} calls answered, {} of unknown outcome",
        started.elapsed().as_secs_f64(),
        campaign.done,
        campaign.shared.answered.load(Relaxed),
        campaign.shared.unknown.load(Relaxed),
    );
}
