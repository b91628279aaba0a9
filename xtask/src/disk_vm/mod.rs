//! `cargo xtask disk-vm`: simulates power failures and errors of a disk under the file systems of a real
//! kernel.
//!
//! A virtual machine writes to a pool on a disk; QEMU logs every write and flush in the order of execution.
//! After each acknowledged write the guest writes a mark behind the file system, which the log orders too. A
//! second machine builds states of that disk as a power failure at a mark could have left them: everything
//! that was flushed, and none, some or all of the later writes. It mounts each, opens the pool, and checks
//! that it has a prefix of each thread's writes: the acknowledged ones, or one more.
//!
//! Then disks fail: from some write or flush on, QEMU answers with an error. The writer gets an error, and
//! the acknowledged writes are on the disk.
//!
//! The same runs below the kernel's device mapper (`mapped`).
//!
//! It needs no root. The program for the guest is `tests/guest`.

mod mapped;

use std::fmt::Write as _;
use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::vm::debian::{self, Parts};
use crate::vm::{self, Boot, Contents, End, Machine};

/// The bytes behind the file system, where the guest writes its marks.
const MARKS: u64 = 1 << 20;

/// A file system.
struct System {
    name: &'static str,
    /// Its modules, without those that they depend on.
    modules: &'static [&'static str],
    /// The program that creates one, and its package.
    program: (&'static str, &'static str),
    /// About its smallest size.
    bytes: u64,
}

const SYSTEMS: [System; 3] = [
    System {
        name: "ext4",
        modules: &["crc32c_generic", "ext4"],
        program: ("mke2fs", "e2fsprogs"),
        bytes: 64 << 20,
    },
    System {
        name: "xfs",
        modules: &["crc32c_generic", "xfs"],
        program: ("mkfs.xfs", "xfsprogs"),
        bytes: 320 << 20,
    },
    System {
        name: "btrfs",
        modules: &["crc32c_generic", "btrfs"],
        program: ("mkfs.btrfs", "btrfs-progs"),
        bytes: 160 << 20,
    },
];

/// Options of the command.
#[derive(clap::Args)]
pub(crate) struct Args {
    /// The file systems
    #[arg(long, value_name = "NAMES", value_delimiter = ',', default_value = "ext4,xfs,btrfs")]
    fs: Vec<String>,

    /// The modes of the pool: journal, msync, periodic
    #[arg(
        long,
        value_name = "MODES",
        value_delimiter = ',',
        default_value = "journal,msync,periodic"
    )]
    mode: Vec<String>,

    /// The kinds of index
    #[arg(long, value_name = "NAMES", value_delimiter = ',', default_value = "fptree")]
    index: Vec<String>,

    /// The number of writes of each of two threads
    #[arg(long, value_name = "N", default_value_t = 100)]
    steps: u64,

    /// The number of states of each disk
    #[arg(long, value_name = "N", default_value_t = 50)]
    states: u64,

    /// The seed that selects the states
    #[arg(long, value_name = "N", default_value_t = 1)]
    seed: u64,

    /// Where the writes are logged, and where they fail: `qemu`, below the guest; `kernel`, in its device
    /// mapper
    #[arg(long, value_name = "NAMES", value_delimiter = ',', default_value = "kernel,qemu")]
    below: Vec<String>,

    /// Run only what continuous integration has time for: ext4 in mode journal, below the device mapper
    #[arg(long)]
    short: bool,
}

impl Args {
    /// Returns the options for continuous integration.
    pub(crate) fn short() -> Self {
        let one = |name: &str| vec![name.to_owned()];
        let (fs, mode, index) = (one("ext4"), one("journal"), one("fptree"));
        let below = one("kernel");
        Self { fs, mode, index, steps: 24, states: 24, seed: 1, below, short: true }
    }
}

/// Runs everything; prints a message if this machine cannot.
pub(crate) fn run(args: &Args) -> Result<(), String> {
    let short = Args::short();
    let args = if args.short { &short } else { args };
    let Some(parts) = vm::parts(args.short)? else { return Ok(()) };
    let [program] = vm::programs(["guest"])?;
    let dir = vm::place();
    let [kernel, qemu] =
        ["kernel", "qemu"].map(|name| args.below.iter().any(|below| below == name));
    let mut outcome = if args.short { Ok(()) } else { control(&parts, &program, &dir, args) };
    for name in &args.fs {
        let system = SYSTEMS.iter().find(|system| system.name == name);
        let system = system.ok_or_else(|| format!("no file system {name}: ext4, xfs, btrfs"))?;
        let (tool, package) = system.program;
        if debian::find(tool).is_none() {
            println!("\n== skipped: no {name} without the package {package}");
            continue;
        }
        for (mode, index) in args.mode.iter().flat_map(|m| args.index.iter().map(move |i| (m, i))) {
            let disk = Disk { parts: &parts, program: &program, dir: &dir, system, mode, index };
            if kernel {
                outcome = outcome.and_then(|()| disk.logged_by_kernel(args));
                outcome = outcome.and_then(|()| disk.fail_in_kernel(args));
            }
            if qemu {
                outcome = outcome.and_then(|()| disk.power_failures(args));
                outcome = outcome.and_then(|()| disk.errors(args));
            }
        }
    }
    let _ = fs::remove_dir_all(&dir);
    outcome
}

/// Checks that a pool that does not survive power failures is detected.
fn control(parts: &Parts, program: &Path, dir: &Path, args: &Args) -> Result<(), String> {
    let disk = Disk { parts, program, dir, system: &SYSTEMS[0], mode: "process", index: "fptree" };
    let kernel = args.below.iter().any(|below| below == "kernel");
    let run = if kernel { disk.logged_by_kernel(args) } else { disk.power_failures(args) };
    match run {
        Err(why) if why.contains("since the last flush") => {
            println!("\n== {}: caught, as it must be", disk.what());
            Ok(())
        }
        Err(why) => Err(why),
        Ok(()) => Err(format!("{}: no state shows what it loses", disk.what())),
    }
}

/// What a boot has besides the guest's program.
struct Mount<'a> {
    /// Its disks: arguments of QEMU.
    disks: &'a [String],
    /// More modules of the kernel.
    modules: &'a [&'a str],
    /// More programs.
    tools: &'a [(&'a str, PathBuf)],
}

/// A disk with a file system and a pool.
struct Disk<'a> {
    parts: &'a Parts,
    program: &'a Path,
    dir: &'a Path,
    system: &'static System,
    mode: &'a str,
    index: &'a str,
}

impl Disk<'_> {
    fn what(&self) -> String {
        format!("{}, {}, {}", self.system.name, self.mode, self.index)
    }

    fn path(&self, name: &str) -> PathBuf {
        self.dir.join(name)
    }

    /// An empty file system on a new image.
    fn make(&self, name: &str) -> Result<PathBuf, String> {
        fs::create_dir_all(self.dir).map_err(|e| format!("{}: {e}", self.dir.display()))?;
        let (image, bytes) = (self.path(name), self.system.bytes);
        let sized = File::create(&image).and_then(|file| file.set_len(bytes + MARKS));
        sized.map_err(|e| format!("{}: {e}", image.display()))?;
        let (tool, package) = self.system.program;
        let mut make = Command::new(debian::find(tool).ok_or_else(|| format!("no {package}"))?);
        match self.system.name {
            "ext4" => {
                make.args(["-q", "-F", "-t", "ext4", "-b", "4096", "-E", "lazy_itable_init=0"]);
                make.arg(&image).arg((bytes / 4096).to_string());
            }
            "xfs" => {
                make.args(["-q", "-f", "-d", &format!("size={bytes}")]).arg(&image);
            }
            _ => {
                make.args(["-q", "-f", "-b", &bytes.to_string()]).arg(&image);
            }
        }
        debian::run(&mut make)?;
        Ok(image)
    }

    /// Boots with these disks, and runs a test of the guest's program with these settings.
    fn boot(
        &self,
        disks: &[String],
        mounted: bool,
        test: &str,
        settings: &[(&str, String)],
    ) -> Result<String, String> {
        let mut command = String::new();
        if mounted {
            let system = self.system.name;
            let _ = writeln!(command, "mount -t {system} /dev/vda /mnt/disk || exit 9");
        }
        let work = settings.iter().find(|(name, _)| *name == "WORK").map_or("", |(_, work)| work);
        command += &self.test(work, test, settings);
        let output = self.machine(&Mount { disks, modules: &[], tools: &[] }, &command)?;
        if !output.contains("1 passed") {
            return Err(format!("{}: the guest's test did not run:\n{output}", self.what()));
        }
        Ok(output)
    }

    /// Returns the command that runs a test of the guest's program with these settings.
    fn test(&self, work: &str, test: &str, settings: &[(&str, String)]) -> String {
        let mut command = String::new();
        let fixed = [("FS", self.system.name), ("MODE", self.mode), ("INDEX", self.index)];
        let fixed = fixed.into_iter().chain([("DISK", "/mnt/disk"), ("WORK", work)]);
        let settings = settings.iter().map(|(name, value)| (*name, value.as_str()));
        for (name, value) in fixed.chain(settings) {
            let _ = write!(command, "GUEST_{name}={value} ");
        }
        let _ = writeln!(command, "./guest --nocapture --exact {test} || exit 11");
        command
    }

    /// Boots, runs a command that succeeds, and returns its output.
    fn machine(&self, mount: &Mount<'_>, command: &str) -> Result<String, String> {
        let mut modules = vec!["virtio_pci", "virtio_blk", "loop"];
        modules.extend(self.system.modules.iter().chain(mount.modules));
        let files = [("guest", self.program.to_path_buf())];
        let files: Vec<_> = files.into_iter().chain(mount.tools.iter().cloned()).collect();
        let contents = Contents { mode: "disk", modules: &modules, command, files: &files };
        let mut hardware: Vec<String> = ["-m", "2G"].map(String::from).into();
        for (number, disk) in mount.disks.iter().enumerate() {
            hardware.extend(["-blockdev".into(), disk.replace("NODE", &format!("d{number}"))]);
            hardware.extend(["-device".into(), format!("virtio-blk-pci,drive=d{number}")]);
        }
        let machine = Machine::new(self.parts, self.dir)?;
        let report = machine.boot(&Boot { contents, hardware: &hardware, kill_after: None })?;
        if report.end != End::Exit(0) {
            return Err(format!("{}: the guest failed:\n{}", self.what(), report.output));
        }
        Ok(report.output)
    }

    /// Checks that each state after a power failure has every acknowledged write.
    fn power_failures(&self, args: &Args) -> Result<(), String> {
        let (image, base, log) = (self.make("disk")?, self.path("base"), self.path("log"));
        fs::copy(&image, &base).map_err(|e| format!("{}: {e}", base.display()))?;
        File::create(&log).map_err(|e| format!("{}: {e}", log.display()))?;
        let marks_at = ("MARKS_AT", self.system.bytes.to_string());
        let logged = format!(
            r#"{{"driver":"blklogwrites","node-name":"NODE","log-sector-size":512,
                "log-super-update-interval":1,"file":{},"log":{}}}"#,
            file(&image, ""),
            file(&log, "")
        );
        let steps = ("STEPS", args.steps.to_string());
        let settings = [("WORK", "write".into()), steps, marks_at.clone()];
        self.boot(&[logged], true, "write_on_a_disk_that_is_logged", &settings)?;
        let settings = [
            ("WORK", "verify".into()),
            marks_at,
            ("DISK_BYTES", (self.system.bytes + MARKS).to_string()),
            ("STATES", args.states.to_string()),
            ("SEED", args.seed.to_string()),
        ];
        let only = |path: &Path| file(path, r#""node-name":"NODE","read-only":true,"#);
        let test = "every_state_of_the_disk_has_what_was_acknowledged";
        let output = self.boot(&[only(&base), only(&log)], false, test, &settings)?;
        println!("\n== {}: power failures\n{}", self.what(), told(&output));
        Ok(())
    }

    /// Checks that a disk that failed has every earlier acknowledged write.
    fn errors(&self, args: &Args) -> Result<(), String> {
        let all = [("flush_to_disk", 40), ("pwritev", 90), ("flush_to_disk", 9), ("pwritev", 400)];
        for (event, after) in all.into_iter().take(if args.short { 1 } else { all.len() }) {
            let image = self.make("disk")?;
            let failing = format!(
                r#"{{"driver":"raw","node-name":"NODE","file":{}}}"#,
                failing(&image, event, after)
            );
            let steps = ("STEPS", (10 * args.steps).to_string());
            let settings = [("WORK", "write".into()), steps];
            let output =
                self.boot(&[failing], true, "write_on_a_disk_that_is_logged", &settings)?;
            println!("\n== {}: the disk fails at {event} {after}\n{}", self.what(), told(&output));
            let said = |what| output.lines().find_map(|line| line.strip_prefix(what));
            let (Some(acked), Some(synced)) = (said("acked "), said("synced ")) else { continue };
            let counts = [("ACKED", acked.to_owned()), ("SYNCED", synced.to_owned())];
            let settings = [("WORK", "look".into())].into_iter().chain(counts).collect::<Vec<_>>();
            let plain = file(&image, r#""node-name":"NODE","#);
            let test = "what_was_acknowledged_before_the_disk_failed_is_there";
            let output = self.boot(&[plain], true, test, &settings)?;
            println!("{}", told(&output));
        }
        Ok(())
    }
}

/// Returns the output of the guest's program without that of its test harness.
fn told(output: &str) -> String {
    let is_frame = |line: &&str| {
        let frame = ["test ", "running ", "skipped"];
        line.trim().is_empty() || frame.iter().any(|word| line.starts_with(word))
    };
    output.lines().filter(|line| !is_frame(line)).collect::<Vec<_>>().join("\n")
}

/// Returns the arguments for a file in QEMU's block layer. Flushes to the host's own disk are suppressed,
/// since it is not what is tested.
fn file(path: &Path, more: &str) -> String {
    let path = path.display();
    format!(r#"{{{more}"driver":"file","filename":"{path}","cache":{{"no-flush":true}}}}"#)
}

/// Does the same, with each write and flush failing from the `after`th `event` on.
fn failing(path: &Path, event: &str, after: u32) -> String {
    let next = |n: u32| format!(r#"{{"event":"{event}","state":{n},"new_state":{}}}"#, n + 1);
    let states: Vec<String> = (1..=after).map(next).collect();
    let fail = |event: &str, kind: &str| {
        let state = after + 1;
        format!(r#"{{"event":"{event}","iotype":"{kind}","errno":5,"state":{state},"once":false}}"#)
    };
    let fails = [fail("pwritev", "write"), fail("flush_to_disk", "flush")].join(",");
    format!(
        r#"{{"driver":"blkdebug","image":{},"set-state":[{}],"inject-error":[{fails}]}}"#,
        file(path, ""),
        states.join(",")
    )
}
