//! A disk that really fails: ext4 without a journal on a loop device whose backing memory is full.
//! Needs the right to mount; without it the tests say that they were skipped.
#![forbid(unsafe_code)]
#![cfg(target_os = "linux")]

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Arc;

use pmindex::{AnyIndex, Index, IndexError, Kind, PmError, Pool, PoolOptions};

type Model = BTreeMap<u64, [u8; 16]>;

/// A file system on a loop device over a tmpfs; unmounted when dropped.
struct Disk {
    directory: tempfile::TempDir,
    mounted: Vec<PathBuf>,
}

fn run(program: &str, arguments: &[&str]) -> Result<String, String> {
    match Command::new(program).args(arguments).output() {
        Ok(done) if done.status.success() => {
            Ok(String::from_utf8_lossy(&done.stdout).trim().to_owned())
        }
        Ok(done) => Err(format!("{program}: {}", String::from_utf8_lossy(&done.stderr).trim())),
        Err(error) => Err(format!("{program}: {error}")),
    }
}

fn text(path: &Path) -> &str {
    path.to_str().expect("plain names")
}

impl Disk {
    /// Of 48 MiB, which the memory behind it can hold.
    fn new() -> Result<Self, String> {
        let directory = tempfile::tempdir().map_err(|error| error.to_string())?;
        let mut disk = Self { directory, mounted: Vec::new() };
        let (memory, image) = (disk.path("memory"), disk.path("memory/image"));
        for name in ["memory", "disk"] {
            fs::create_dir(disk.path(name)).map_err(|error| error.to_string())?;
        }
        run("mount", &["-t", "tmpfs", "-o", "size=48m,huge=never", "none", text(&memory)])?;
        disk.mounted.push(memory);
        run("truncate", &["-s", "48M", text(&image)])?;
        let quick = "lazy_itable_init=0,nodiscard";
        run(
            "mkfs.ext4",
            &["-q", "-F", "-b", "4096", "-O", "^has_journal", "-E", quick, text(&image)],
        )?;
        disk.mount()?;
        Ok(disk)
    }

    fn path(&self, name: &str) -> PathBuf {
        self.directory.path().join(name)
    }

    fn mount(&mut self) -> Result<(), String> {
        let disk = self.path("disk");
        let device = run("losetup", &["--find", "--show", text(&self.path("memory/image"))])?;
        // A loop device takes a request that it could do in part for done: a page a request.
        let (_, name) = device.rsplit_once('/').ok_or("a strange name of a device")?;
        let limit = format!("/sys/block/{name}/queue/max_sectors_kb");
        let mounted = fs::write(limit, "4").map_err(|error| error.to_string());
        let mounted = mounted.and_then(|()| run("mount", &[&device, text(&disk)]));
        run("losetup", &["--detach", &device])?; // with the mount, if there is one
        mounted?;
        self.mounted.push(disk);
        Ok(())
    }

    fn unmount(&mut self) -> Result<(), String> {
        let disk = self.mounted.pop().expect("it is mounted");
        run("umount", &[text(&disk)]).map(drop)
    }

    /// Leaves so many bytes of the memory behind the disk, for blocks that hold more than zeros.
    fn fill(&self, left: usize) {
        run("sync", &["-f", text(&self.path("disk"))]).expect("a disk that works");
        run("fallocate", &["--dig-holes", text(&self.path("memory/image"))]).expect("holes");
        let mut ballast = fs::File::create(self.path("memory/ballast")).expect("a file");
        let block = [1; 4096];
        while std::io::Write::write_all(&mut ballast, &block).is_ok() {}
        let len = ballast.metadata().expect("its length").len();
        ballast.set_len(len - left as u64).expect("shorter");
    }

    /// Gives the space back.
    fn free(&self) {
        fs::remove_file(self.path("memory/ballast")).expect("it is there");
    }
}

impl Drop for Disk {
    fn drop(&mut self) {
        while let Some(place) = self.mounted.pop() {
            let _ = run("umount", &["-l", text(&place)]);
        }
    }
}

fn value(key: u64, round: u64) -> [u8; 16] {
    let mut value = [0; 16];
    value[..8].copy_from_slice(&key.to_le_bytes());
    value[8..].copy_from_slice(&round.to_le_bytes());
    value
}

fn is_lost<T>(result: &Result<T, IndexError>) -> bool {
    matches!(result, Err(IndexError::Pool(PmError::DurabilityLost(_))))
}

fn contents(index: &AnyIndex<u64, [u8; 16]>) -> Model {
    index
        .range_bounds(std::ops::Bound::Unbounded, std::ops::Bound::Unbounded)
        .collect::<Result<_, _>>()
        .expect("intact")
}

fn open(pool: &Path) -> (Arc<Pool>, AnyIndex<u64, [u8; 16]>) {
    let pool = Arc::new(Pool::open(pool, &PoolOptions::new()).expect("a pool"));
    let index = AnyIndex::open(&pool, "index").expect("an index");
    (pool, index)
}

/// The index has what was acknowledged, but for one write that was refused.
fn opens_with(pool: &Path, model: &Model, refused: (u64, Option<[u8; 16]>)) {
    let (pool, index) = open(pool);
    let mut other = model.clone();
    match refused {
        (key, Some(value)) => other.insert(key, value),
        (key, None) => other.remove(&key),
    };
    let found = contents(&index);
    let differing = model.keys().chain(found.keys()).filter(|key| found.get(key) != model.get(key));
    let differing: Vec<_> = differing.map(|key| (key, found.get(key), model.get(key))).collect();
    let kind = index.kind();
    assert!(
        found == *model || found == other,
        "{kind}, {refused:?} refused: {} differ: {:?}",
        differing.len(),
        differing.first()
    );
    assert_eq!(index.check().expect("whole"), found.len() as u64);
    index.close().expect("a disk that works");
    Arc::into_inner(pool).expect("the last").close().expect("a disk that works");
}

/// Writes until the disk fails; what the write that was refused would have made of its record.
fn write_until_refused(
    index: &AnyIndex<u64, [u8; 16]>,
    model: &mut Model,
) -> (u64, Option<[u8; 16]>) {
    for i in 0..1_000_000u64 {
        let key = i.wrapping_mul(0x9e37_79b9_7f4a_7c15) % 100_000;
        let value = value(key, i);
        let (refused, wanted) = match i % 4 {
            0 | 1 => (index.upsert(&key, &value).map(drop), Some(value)),
            2 => {
                let key = model.keys().next_back().copied().unwrap_or(key);
                match index.remove(&key) {
                    Ok(_) => {
                        model.remove(&key);
                        continue;
                    }
                    lost if is_lost(&lost) => return (key, None),
                    other => panic!("{other:?}"),
                }
            }
            _ => {
                let key = model.keys().next().copied().unwrap_or(key);
                match index.update(&key, &value) {
                    Ok(true) => {
                        model.insert(key, value);
                        continue;
                    }
                    Ok(false) => continue,
                    lost if is_lost(&lost) => return (key, Some(value)),
                    other => panic!("{other:?}"),
                }
            }
        };
        match refused {
            Ok(()) => model.insert(key, value),
            lost if is_lost(&lost) => return (key, wanted),
            other => panic!("{other:?}"),
        };
    }
    panic!("the disk does not fail");
}

/// One failure; `kept`: the next opening is in the same boot, and finds what the kernel has in memory.
fn one_failure(kind: Kind, left: usize, kept: bool) -> Result<(), String> {
    let mut disk = Disk::new()?;
    let path = disk.path("disk/pool");
    let pool = Pool::create(&path, &PoolOptions::new().size(16 << 20).grow(false));
    let pool = Arc::new(pool.map_err(|error| error.to_string())?);
    let index = AnyIndex::<u64, [u8; 16]>::create(&pool, "index", kind).expect("room");
    let mut model = Model::new();
    for i in 0..200 {
        index.insert(&(i * 400), &value(i, 0)).expect("a disk that works");
        model.insert(i * 400, value(i, 0));
    }
    disk.fill(left);
    let refused = write_until_refused(&index, &mut model);
    for _ in 0..2 {
        assert!(contents(&index) == model, "{kind}: after the failure");
        for key in model.keys().chain([&refused.0]) {
            assert_eq!(index.get(key).expect("readable"), model.get(key).copied(), "{kind}");
        }
        assert!(is_lost(&index.upsert(&1, &value(1, 1))), "{kind}");
        assert!(is_lost(&index.remove(&refused.0)), "{kind}");
        assert!(is_lost(&index.update(&0, &value(1, 1))), "{kind}");
    }
    drop(index);
    drop(pool);
    disk.free();
    if !kept {
        disk.unmount()?;
        disk.mount()?;
    }
    opens_with(&path, &model, refused);
    let (pool, index) = open(&path);
    let model = contents(&index);
    drop((index, pool));
    // What the kernel had in memory is gone now.
    disk.unmount()?;
    disk.mount()?;
    let (pool, index) = open(&path);
    assert!(contents(&index) == model, "{kind}: after mounting again");
    drop((index, pool));
    Ok(())
}

#[test]
fn what_was_acknowledged_survives_a_disk_that_fails() {
    for (i, &kind) in Kind::ALL.iter().enumerate() {
        for (left, kept) in [(64 << 10, true), (160 << 10, false)] {
            if let Err(why) = one_failure(kind, left + (i << 12), kept) {
                eprintln!("skipped: no such disk here: {why}");
                return;
            }
        }
    }
}
