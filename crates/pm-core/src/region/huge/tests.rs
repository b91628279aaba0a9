//! Checks the contents of a file after each call that is made for speed, by other ways than the stores:
//! through a second mapping, with `pread`, and after the kernel dropped the pages. On every kind of memory
//! that this machine can mount; a test prints what it skips.

use std::process::Command;

use rustix::fd::OwnedFd;
use rustix::fs::{MemfdFlags, OFlags};

use crate::Pool;
use crate::pool::PoolOptions;

use super::*;

const LEN: usize = 24 << 20;
/// Where pages begin to be touched ahead.
const FIRST: usize = 16 << 20;

/// A folder on a file system of its own.
struct Mounted {
    folder: tempfile::TempDir,
    name: &'static str,
    /// Whether it is to be unmounted.
    own: bool,
}

impl Mounted {
    fn new(name: &'static str, file_system: &str, options: &str) -> Option<Self> {
        let folder = tempfile::tempdir().unwrap();
        let mount = Command::new("mount")
            .args(["-t", file_system, "-o", options, "none"])
            .arg(folder.path())
            .output();
        if !mount.is_ok_and(|done| done.status.success()) {
            eprintln!("skipped: this machine does not let the test mount {name}");
            return None;
        }
        Some(Self { folder, name, own: true })
    }

    /// A disk of its own: a file.
    fn ext4() -> Option<Self> {
        let folder = tempfile::tempdir().unwrap();
        let (image, place) = (folder.path().join("image"), tempfile::tempdir().unwrap());
        File::create(&image).and_then(|file| file.set_len(200 << 20)).unwrap();
        let done = |command: &mut Command| command.output().is_ok_and(|done| done.status.success());
        let made = done(Command::new("mkfs.ext4").arg("-Fq").arg(&image));
        // The mount keeps the image, which needs no name.
        if !made || !done(Command::new("mount").args(["-o", "loop"]).arg(&image).arg(place.path()))
        {
            eprintln!("skipped: this machine does not let the test mount a file as a disk");
            return None;
        }
        Some(Self { folder: place, name: "ext4", own: true })
    }

    fn ordinary() -> Self {
        Self { folder: tempfile::tempdir().unwrap(), name: "an ordinary file", own: false }
    }

    /// Returns a file of [`LEN`] bytes, if the file system has room.
    fn file(&self) -> Option<OwnedFd> {
        let (flags, mode) = (OFlags::CREATE | OFlags::RDWR, sys::mode(0o600));
        let fd = rustix::fs::open(self.folder.path().join("file"), flags, mode).unwrap();
        allocated(fd, self.name)
    }
}

impl Drop for Mounted {
    fn drop(&mut self) {
        if self.own {
            let _ = Command::new("umount").arg("-l").arg(self.folder.path()).status();
        }
    }
}

fn allocated(fd: OwnedFd, name: &str) -> Option<OwnedFd> {
    let none = FallocateFlags::empty();
    let done = rustix::fs::fallocate(&fd, none, 0, LEN as u64);
    if let Err(error) = done {
        eprintln!("skipped: {name} has no room for a test ({error})");
    }
    done.is_ok().then_some(fd)
}

const SETTINGS: [(&str, &str); 4] = [
    ("tmpfs, huge=never", "huge=never,size=200m"),
    ("tmpfs, huge=advise", "huge=advise,size=200m"),
    ("tmpfs, huge=within_size", "huge=within_size,size=200m"),
    ("tmpfs, huge=always", "huge=always,size=200m"),
];

fn every_tmpfs() -> impl Iterator<Item = Mounted> {
    SETTINGS.into_iter().filter_map(|(name, options)| Mounted::new(name, "tmpfs", options))
}

/// Runs `test` on a file of each kind.
fn on_every_file(test: impl Fn(&str, OwnedFd)) {
    let hugetlbfs = Mounted::new("hugetlbfs", "hugetlbfs", "pagesize=2M");
    for place in every_tmpfs().chain([Mounted::ordinary()]).chain(hugetlbfs) {
        if let Some(file) = place.file() {
            test(place.name, file);
        }
    }
    let memory = [("a memfd", MemfdFlags::empty()), ("a huge memfd", MemfdFlags::HUGETLB)];
    for (name, flags) in memory {
        let fd = rustix::fs::memfd_create(c"pages", flags);
        if let Some(file) = fd.ok().and_then(|fd| allocated(fd, name)) {
            test(name, file);
        }
    }
}

fn mapped(file: &OwnedFd, kind: MapKind, huge: bool) -> Region {
    let region = Region::reserve(LEN, LEN).unwrap();
    region.map_file(file.as_fd(), LEN, kind, huge).unwrap();
    region
}

/// Stores a number of its own in every page, and reads all back in every other way.
fn store_and_read_back(what: &str, region: &Region, file: &OwnedFd, round: u64) {
    let pm = Mapped::dram();
    let value = |at: usize| (at as u64) << 8 | round;
    let word = |region: &Region, at: usize| pm.load(&region.words(at as u64, 1).unwrap()[0]);
    let pages = || (0..LEN).step_by(PAGE);
    pages().for_each(|at| pm.store(&region.words(at as u64, 1).unwrap()[0], value(at)));
    let other = mapped(file, MapKind::Shared, false);
    let differs = |at: &usize| word(&other, *at) != value(*at);
    assert_eq!(pages().filter(differs).count(), 0, "pages of a second mapping, {what}");
    let differs = |at: &usize| {
        let mut bytes = [0; 8];
        assert_eq!(rustix::io::pread(file, &mut bytes, *at as u64), Ok(8));
        u64::from_le_bytes(bytes) != value(*at)
    };
    assert_eq!(pages().filter(differs).count(), 0, "pages read by a call, {what}");
    // SAFETY: mapped from the file, and shared.
    unsafe { sys::let_go(region.base(), LEN) };
    let differs = |at: &usize| word(region, *at) != value(*at);
    assert_eq!(pages().filter(differs).count(), 0, "pages found anew, {what}");
}

#[test]
fn what_is_stored_after_a_call_for_speed_is_in_the_file() {
    on_every_file(|name, file| {
        for huge in [false, true] {
            let mut round = 0;
            let mut check = |call: &str, region: &Region, file: &OwnedFd| {
                round += 1;
                let what = format!("{name}, huge pages: {huge}, after {call}");
                store_and_read_back(&what, region, file, round);
            };
            // Each call meets pages that nothing has touched, then pages that were stored to.
            for call in ["nothing", "touching ahead", "touching all ahead", "making present"] {
                rustix::fs::ftruncate(&file, 0).unwrap();
                let Some(file) = rustix::io::dup(&file).ok().and_then(|fd| allocated(fd, name))
                else {
                    return;
                };
                let region = mapped(&file, MapKind::Shared, huge);
                for _ in 0..2 {
                    match call {
                        "touching ahead" => {
                            region.reached(FIRST + 5);
                            region.ahead.wait();
                        }
                        "touching all ahead" => (FIRST..LEN).step_by(1 << 20).for_each(|used| {
                            region.reached(used);
                            region.ahead.wait();
                        }),
                        "making present" => region.make_present(0, LEN),
                        _ => {}
                    }
                    check(call, &region, &file);
                }
            }
        }
    });
}

#[test]
fn a_pool_has_in_its_file_what_was_stored_in_it() {
    for place in every_tmpfs().chain([Mounted::ordinary()]) {
        let path = place.folder.path().join("pool");
        let opts = PoolOptions::new().size(40 << 20).write_back(false);
        let pool = Pool::create(&path, &opts).unwrap();
        let mut op = pool.op().unwrap();
        let mut blocks = Vec::new();
        while blocks.len() < 500 {
            let block = op.reserve_bytes(64 << 10, 8).unwrap().ptr().offset();
            let words = pool.words(block, 8 << 10).unwrap();
            for word in words {
                pool.pm().store(word, block);
            }
            blocks.push(block);
        }
        let lost = |bytes: &[u8]| {
            let word = |at: u64| bytes[at as usize..].first_chunk().map(|b| u64::from_le_bytes(*b));
            let in_file = |&block: &u64| {
                (block..block + (64 << 10)).step_by(PAGE).all(|at| word(at) == Some(block))
            };
            blocks.iter().filter(|block| !in_file(block)).count()
        };
        let name = place.name;
        assert_eq!(lost(&std::fs::read(&path).unwrap()), 0, "blocks of {}, {name}", blocks.len());
        drop(op);
        drop(pool);
        assert_eq!(lost(&std::fs::read(&path).unwrap()), 0, "blocks of a closed pool, {name}");
        let pool = Pool::open(&path, &opts).unwrap();
        let mut image = vec![0; pool.len() as usize];
        pool.read_image(0, &mut image).unwrap();
        assert_eq!(lost(&image), 0, "blocks of a pool opened again, {name}");
    }
}

/// Huge pages of the mapping, and of those touched ahead from [`FIRST`] on.
fn huge_pages(region: &Region) -> Option<(usize, usize)> {
    let mut found = [0, 0];
    for at in (0..LEN).step_by(HUGE) {
        // SAFETY: within the region.
        let start = unsafe { region.base().add(at) };
        found[usize::from(at >= FIRST)] += usize::from(sys::look_at(start, HUGE)? == Found::Huge);
    }
    Some((found[0] + found[1], found[1]))
}

#[test]
fn huge_pages_are_asked_for_where_that_is_safe_and_wanted() {
    on_every_file(|name, file| {
        for huge in [true, false] {
            let region = mapped(&file, MapKind::Shared, huge);
            let advised = flags(&region).contains(&"hg".to_string());
            assert!(!advised || huge && name.starts_with("tmpfs") || name == "a memfd", "{name}");
            assert_eq!(advised, huge && (name.starts_with("tmpfs") || name == "a memfd"), "{name}");
            (FIRST..FIRST + (4 << 20)).step_by(1 << 20).for_each(|used| {
                region.reached(used);
                region.ahead.wait();
            });
            let verdict = region.ahead.mount().map(|mount| mount.verdict.get().copied());
            let Some((_, found)) = huge_pages(&region) else {
                eprintln!("skipped: this kernel does not tell what is huge");
                return;
            };
            match name {
                _ if !huge => assert_eq!(verdict, None, "{name}"),
                "tmpfs, huge=never" | "tmpfs, huge=advise" => {
                    // As many as were touched, or none at all on a kernel that fails the trial.
                    assert_eq!(found >= 3, verdict == Some(Some(true)), "{name}, {found} pages");
                }
                "tmpfs, huge=always" | "tmpfs, huge=within_size" => {
                    assert!(verdict != Some(Some(true)), "{name}: nobody asks for what is given");
                }
                "a memfd" => assert_eq!(found, 0, "no mount, no trial"),
                _ => assert_eq!(verdict, None, "{name}"),
            }
        }
    });
}

/// The flags of the mapping at a region's base, as the kernel names them.
fn flags(region: &Region) -> Vec<String> {
    let maps = std::fs::read_to_string("/proc/self/smaps").unwrap();
    let base = format!("{:x}-", region.base().addr().get());
    let mapping = maps.split_once(&format!("\n{base}")).map_or("", |(_, rest)| rest);
    let line = mapping.lines().find_map(|line| line.strip_prefix("VmFlags:"));
    line.unwrap_or_default().split_whitespace().map(str::to_owned).collect()
}

/// Stores to some words of a pool's second half, one at a time; bytes written a fence, if the kernel
/// tells.
fn bytes_written_a_fence(pool: &Pool) -> Option<u64> {
    let written = || {
        let io = std::fs::read_to_string("/proc/thread-self/io").ok()?;
        let bytes = io.lines().find_map(|line| line.strip_prefix("write_bytes: "))?;
        bytes.parse::<u64>().ok()
    };
    let before = written()?;
    let words = pool.words(32 << 20, 1 << 20).unwrap();
    for word in words.iter().step_by(5000) {
        pool.pm().store(word, pool.pm().load(word) + 1);
        pool.pm().persist(word).unwrap();
    }
    Some((written()? - before) / words.len().div_ceil(5000) as u64)
}

#[test]
fn a_fence_on_a_disk_writes_the_pages_that_changed() {
    for place in [Mounted::ext4(), Some(Mounted::ordinary())].into_iter().flatten() {
        let path = place.folder.path().join("pool");
        let opts = PoolOptions::new().size(64 << 20);
        let pool = Pool::create(&path, &opts).unwrap();
        if is_tmpfs(File::open(&path).unwrap().as_fd()) {
            continue;
        }
        let check = |pool: &Pool, when: &str| match bytes_written_a_fence(pool) {
            Some(each) => assert!(each <= 16 << 10, "{each} bytes a fence, {}, {when}", place.name),
            None => eprintln!("skipped: a kernel that does not count what is written"),
        };
        check(&pool, "new");
        pool.grow(80 << 20).unwrap();
        pool.kill();
        let pool = Pool::open(&path, &opts).unwrap();
        check(&pool, "opened");
        drop(pool);
        // As after a restart; what recovery reads it reads in order.
        sys::forget_cached(File::open(&path).unwrap().as_fd());
        let pool = Pool::open(&path, &opts).unwrap();
        let mut image = vec![0; pool.len() as usize];
        pool.read_image(0, &mut image).unwrap();
        check(&pool, "read from the disk");
    }
}

#[test]
fn the_setting_of_a_mount_is_found_by_its_device() {
    let mounts = "22 1 0:20 / /dev/shm rw,relatime shared:3 - tmpfs tmpfs rw,size=24684084k\n\
                  23 1 0:21 / /a\\040b rw - tmpfs none rw,size=2097152k,huge=always,inode64\n\
                  24 1 0:22 / /c rw,relatime shared:9 master:4 - tmpfs none rw,huge=within_size\n\
                  25 1 254:0 / / rw - ext4 /dev/vda rw,huge=always\n\
                  nonsense - \n";
    let setting = |minor| setting_of(mounts, rustix::fs::makedev(0, minor));
    assert_eq!(setting(20), Some("never"));
    assert_eq!(setting(21), Some("always"));
    assert_eq!(setting(22), Some("within_size"));
    assert_eq!(setting(23), None);
    assert_eq!(setting_of(mounts, rustix::fs::makedev(254, 0)), None, "no tmpfs");
}
