//! The files of an environment: synchronised appends survive, of the others a prefix may; names change
//! atomically.

use std::collections::BTreeMap;
use std::panic::Location;

use pmindex_core::trace::Space;
use pmindex_core::{PmError, PoolOptions, Traced};
use pmindex_env::{Env, EnvError, EnvOptions};
use pmindex_testkit::crash::{CrashSubject, Fault, Geometry, Plan, create_used_pool, open_pool};
use proptest::prelude::*;

const NAMES: u8 = 3;
/// A name that does not end with its word, in an entry of another size.
const LONG: &str = "a name that is longer than the others are";

fn name(of: u8) -> &'static str {
    ["a", "b.log", LONG][usize::from(of % NAMES)]
}

/// The files of a pool.
pub(crate) struct Files(Env<Traced>);

#[derive(Clone, Debug)]
pub(crate) enum Op {
    Create(u8),
    /// Appends bytes: the file, their number, the first one, and whether to synchronise.
    Append(u8, u16, u8, bool),
    Sync(u8),
    Read(u8),
    Rename(u8, u8),
    Delete(u8),
    /// Deletes a file that is open, and reads it then.
    DeleteOpen(u8),
}

/// A file: its contents, and the lengths that it may have after a crash.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
struct KnownFile {
    bytes: Vec<u8>,
    lengths: Vec<usize>,
}

#[derive(Clone, Debug, Default)]
pub(crate) struct Contents {
    files: BTreeMap<u8, KnownFile>,
    /// It was found, so its lengths say nothing.
    found: bool,
}

impl Contents {
    /// Returns `true` if a crash may leave `found`.
    fn explains(&self, found: &Self) -> bool {
        let one = |(kept, found): (&KnownFile, &KnownFile)| {
            kept.lengths.contains(&found.bytes.len()) && kept.bytes.starts_with(&found.bytes)
        };
        self.files.keys().eq(found.files.keys())
            && self.files.values().zip(found.files.values()).all(one)
    }
}

impl PartialEq for Contents {
    fn eq(&self, other: &Self) -> bool {
        match (self.found, other.found) {
            (false, true) => self.explains(other),
            (true, false) => other.explains(self),
            _ => self.files == other.files,
        }
    }
}

impl Eq for Contents {}

impl std::hash::Hash for Contents {
    fn hash<H: std::hash::Hasher>(&self, state: &mut H) {
        self.files.len().hash(state);
    }
}

#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Ret {
    Done,
    NoFile,
    Full,
    Bytes(Vec<u8>),
    /// Never returned: the operation did a part.
    Cut,
}

fn bytes(count: u16, from: u8) -> Vec<u8> {
    (0..count).map(|at| (at as u8).wrapping_mul(7).wrapping_add(from)).collect()
}

fn options() -> EnvOptions {
    EnvOptions::new().extents(128..=512)
}

impl Files {
    fn answer(done: Result<Ret, EnvError>) -> Result<Ret, Fault> {
        match done {
            Err(EnvError::NoSuchFile { .. }) => Ok(Ret::NoFile),
            Err(EnvError::Pool(PmError::Full { .. })) => Ok(Ret::Full),
            other => Ok(other?),
        }
    }
}

impl CrashSubject for Files {
    type Op = Op;
    type Ret = Ret;
    type Model = Contents;
    const NAME: &'static str = "env";

    fn geometry() -> Geometry {
        let len = pool_options().created_size().map_or(0, |bytes| bytes as usize);
        Geometry { len, capacity: len }
    }

    fn create(space: &Space) -> Result<Self, Fault> {
        let pool = create_used_pool(space, &pool_options())?;
        Ok(Self(Env::create(&pool, "files", &options())?))
    }

    fn open(space: &Space) -> Result<Option<Self>, Fault> {
        let Some(pool) = open_pool(space, &pool_options())? else { return Ok(None) };
        Ok(Env::open(&pool, "files", &options())?.map(Self))
    }

    fn apply(&self, op: &Op) -> Result<Ret, Fault> {
        let env = &self.0;
        let done = || {
            match *op {
                Op::Create(file) => drop(env.create_file(name(file))?),
                Op::Append(file, count, from, is_synced) => {
                    let file = env.open_file(name(file))?;
                    file.append(&bytes(count, from))?;
                    if is_synced {
                        file.sync()?;
                    }
                }
                Op::Sync(file) => env.open_file(name(file))?.sync()?,
                Op::Read(file) => return Ok(Ret::Bytes(env.open_file(name(file))?.read_all()?)),
                Op::Rename(from, to) => env.rename(name(from), name(to))?,
                Op::Delete(file) => env.delete(name(file))?,
                Op::DeleteOpen(file) => {
                    let open = env.open_file(name(file))?;
                    env.delete(name(file))?;
                    return Ok(Ret::Bytes(open.read_all()?));
                }
            }
            Ok(Ret::Done)
        };
        Self::answer(done())
    }

    fn observe(&self) -> Result<Contents, Fault> {
        self.0.check()?;
        let mut files = BTreeMap::new();
        let names = self.0.list("");
        for of in 0..NAMES {
            if names.iter().any(|found| found == name(of)) {
                let file = self.0.open_file(name(of))?;
                file.sync()?; // observed contents remain
                let bytes = file.read_all()?;
                files.insert(of, KnownFile { lengths: vec![bytes.len()], bytes });
            }
        }
        if names.len() != files.len() {
            return Err(Fault::new(format!("names that nobody gave: {names:?}")));
        }
        Ok(Contents { files, found: true })
    }

    fn audit(&self) -> Result<(), Fault> {
        self.0.pool().audit(self.0.blocks().into_iter())?;
        Ok(())
    }

    fn model(model: &mut Contents, op: &Op) -> Ret {
        let files = &mut model.files;
        match *op {
            Op::Create(file) => {
                files.insert(file, KnownFile { bytes: Vec::new(), lengths: vec![0] });
                Ret::Done
            }
            Op::Append(file, count, from, is_synced) => {
                let Some(kept) = files.get_mut(&file) else { return Ret::NoFile };
                kept.bytes.extend(bytes(count, from));
                if is_synced {
                    kept.lengths.clear();
                }
                kept.lengths.push(kept.bytes.len());
                Ret::Done
            }
            Op::Sync(file) => {
                let Some(kept) = files.get_mut(&file) else { return Ret::NoFile };
                kept.lengths = vec![kept.bytes.len()];
                Ret::Done
            }
            Op::Read(file) => files.get(&file).map_or(Ret::NoFile, |f| Ret::Bytes(f.bytes.clone())),
            Op::Rename(from, to) => {
                let Some(kept) = files.remove(&from) else { return Ret::NoFile };
                files.insert(to, kept);
                Ret::Done
            }
            Op::Delete(file) => files.remove(&file).map_or(Ret::NoFile, |_| Ret::Done),
            Op::DeleteOpen(file) => {
                files.remove(&file).map_or(Ret::NoFile, |kept| Ret::Bytes(kept.bytes))
            }
        }
    }

    fn used_unseen() -> bool {
        false
    }

    fn observed(model: Contents) -> Contents {
        Contents { found: false, ..model }
    }

    fn outcomes(model: &Contents, op: &Op) -> Vec<(Contents, Ret)> {
        let mut after = model.clone();
        let ret = Self::model(&mut after, op);
        let mut outcomes = vec![(after, ret)];
        if let Op::Append(file, _, _, true) = *op {
            // Interrupted between the two: appended, and not synchronised.
            let mut part = model.clone();
            if let Some(kept) = part.files.get_mut(&file) {
                let lengths = kept.lengths.clone();
                Self::model(&mut part, op);
                if let Some(kept) = part.files.get_mut(&file) {
                    kept.lengths.splice(0..0, lengths);
                }
            }
            outcomes.push((part, Ret::Cut));
        }
        if matches!(op, Op::Create(_) | Op::Append(..) | Op::Rename(..)) {
            outcomes.push((model.clone(), Ret::Full));
        }
        outcomes
    }

    fn ops() -> BoxedStrategy<Op> {
        ops_for(1)
    }

    fn ops_for(threads: usize) -> BoxedStrategy<Op> {
        ops_for(threads)
    }

    fn directed() -> Vec<Plan<Op>> {
        let append = |file, count| Op::Append(file, count, 3, true);
        vec![
            // A file that another one replaces, and is deleted then: the older one must not come back.
            Plan {
                setup: vec![Op::Create(0), append(0, 40), Op::Create(1), append(1, 9)],
                threads: vec![vec![Op::Rename(1, 0), Op::DeleteOpen(0), Op::Create(2)]],
                tail: vec![Op::Read(0), Op::Create(1), append(1, 300), Op::Read(1)],
            },
            // A file replaces another one with several extents.
            Plan {
                setup: vec![Op::Create(0), append(0, 100), append(0, 300), append(0, 500)],
                threads: vec![vec![Op::Create(0), append(0, 3), Op::Delete(0)]],
                tail: vec![Op::Create(0), append(0, 700), Op::Read(0), Op::Delete(0)],
            },
            // Appends that end within words and extents.
            Plan {
                setup: vec![Op::Create(2), append(2, 61)],
                threads: vec![vec![
                    Op::Append(2, 1, 9, false),
                    Op::Append(2, 5, 8, false),
                    Op::Append(2, 200, 7, false),
                    Op::Sync(2),
                ]],
                tail: vec![Op::Read(2), append(2, 11), Op::Read(2)],
            },
            // Two threads append while one reads.
            Plan {
                setup: vec![Op::Create(0), append(0, 5)],
                threads: vec![
                    vec![Op::Append(0, 70, 1, false), append(0, 3)],
                    vec![Op::Append(0, 90, 2, false), Op::Read(0)],
                ],
                tail: vec![Op::Read(0)],
            },
            // One deletes what another has open.
            Plan {
                setup: vec![Op::Create(0), append(0, 150)],
                threads: vec![vec![Op::Read(0), Op::Create(1)], vec![Op::Delete(0), append(0, 1)]],
                tail: vec![Op::Create(0), append(0, 10)],
            },
        ]
    }

    fn concurrent() -> bool {
        true
    }

    fn owns(site: &Location<'static>) -> bool {
        site.file().contains("pm-env/src/")
    }

    fn sources() -> &'static [(&'static str, &'static str)] {
        &[
            ("pm-env/src/node.rs", include_str!("../../crates/pm-env/src/node.rs")),
            ("pm-env/src/directory.rs", include_str!("../../crates/pm-env/src/directory.rs")),
            ("pm-env/src/env.rs", include_str!("../../crates/pm-env/src/env.rs")),
        ]
    }
}

fn ops_for(threads: usize) -> BoxedStrategy<Op> {
    let file = || 0..NAMES;
    let counts = prop_oneof![3 => 1..30u16, 1 => 1..400u16];
    let one = prop_oneof![
        3 => file().prop_map(Op::Create),
        8 => (file(), counts, 0..255u8, any::<bool>()).prop_map(|(f, n, b, s)| Op::Append(f, n, b, s)),
        2 => file().prop_map(Op::Sync),
        2 => file().prop_map(Op::Read),
        2 => file().prop_map(Op::Delete),
        1 => file().prop_map(Op::DeleteOpen),
    ];
    if threads > 1 {
        // If a file is renamed while it is open, another thread may open another file of that name: a name is
        // not an object.
        return one.boxed();
    }
    prop_oneof![8 => one, 2 => (file(), file()).prop_map(|(from, to)| Op::Rename(from, to))].boxed()
}

fn pool_options() -> PoolOptions {
    PoolOptions::new().size(48 << 10).zone_bytes(32 << 10).slots(3).slot_bytes(512)
}
