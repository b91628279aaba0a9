//! `cargo xtask dax-vm`: runs a virtual machine with an emulated NVDIMM and a real DAX file system, where
//! `MAP_SYNC` is granted, persistence domains are reported, and the whole machine can be killed.
//!
//! It needs no root and no KVM. The processor is emulated, so times mean nothing, and the caches of a killed
//! machine survive: it tests that detection, mapping and recovery work on real interfaces. The crash
//! simulator finds missing flushes.
//! on real interfaces. Whether a flush is missing, the crash simulator shows.

use std::fs::File;
use std::path::{Path, PathBuf};
use std::time::Duration;

use crate::vm::debian::{self, Parts};
use crate::vm::{self, Boot, Contents, End, Machine};

/// The bytes of an NVDIMM.
const SIZE: u64 = 256 << 20;
/// The offset at which the kernel starts the data of an fsdax namespace.
const DATA: u64 = 2 << 20;
const MODULES: [&str; 6] = ["nfit", "nd_pmem", "dax_pmem", "device_dax", "crc32c_generic", "ext4"];

/// Options of the command.
#[derive(clap::Args)]
pub(crate) struct Args {
    /// Kills of the whole machine, each with its own index
    #[arg(long, value_name = "N", default_value_t = 3)]
    kills: usize,

    /// The kinds of index to kill in turn
    #[arg(long, value_name = "NAMES", value_delimiter = ',', default_value = "fptree")]
    index: Vec<String>,

    /// Run only what continuous integration has time for: detection, and one kill
    #[arg(long)]
    short: bool,
}

impl Args {
    /// Returns the options for continuous integration.
    pub(crate) fn short() -> Self {
        Self { kills: 1, index: vec!["fptree".into()], short: true }
    }
}

/// Runs everything; prints a message if this machine cannot.
pub(crate) fn run(args: &Args) -> Result<(), String> {
    let Some(parts) = vm::parts(args.short)? else { return Ok(()) };
    let programs = programs()?;
    let place = vm::place();
    let outcome = detection(&parts, &programs, &place, args.short)
        .and_then(|()| kills(&parts, &programs, &place, args))
        .and_then(|()| if args.short { Ok(()) } else { bank(&parts, &programs, &place) });
    let _ = std::fs::remove_dir_all(&place);
    outcome
}

/// The programs that run in the guest.
struct Programs {
    dax: PathBuf,
    pmindex: PathBuf,
}

/// Builds a test, and the command line, which comes with its own tests.
fn programs() -> Result<Programs, String> {
    let [dax, _] = vm::programs(["dax", "commands"])?;
    // target/debug/deps/dax-...
    let pmindex = dax.ancestors().nth(2).map(|dir| dir.join("pmindex"));
    Ok(Programs { pmindex: pmindex.ok_or("no build folder")?, dax })
}

/// A machine with a new NVDIMM; for `fsdax` with an empty ext4 on it.
struct WithNvdimm<'a> {
    machine: Machine<'a>,
    image: PathBuf,
}

impl<'a> WithNvdimm<'a> {
    fn new(parts: &'a Parts, dir: &Path, mode: &str) -> Result<Self, String> {
        let machine = Machine::new(parts, dir)?;
        let image = dir.join("nvdimm");
        let sized = File::create(&image).and_then(|file| file.set_len(SIZE));
        sized.map_err(|e| format!("{}: {e}", image.display()))?;
        if mode == "fsdax" {
            let mke2fs = debian::find("mke2fs").ok_or("no mke2fs")?;
            let options = format!("offset={DATA},lazy_itable_init=0");
            let blocks = ((SIZE - DATA) / 4096).to_string();
            let mut command = std::process::Command::new(mke2fs);
            command.args(["-q", "-F", "-t", "ext4", "-b", "4096", "-E", &options]);
            debian::run(command.arg(&image).arg(blocks))?;
        }
        Ok(Self { machine, image })
    }

    /// Returns its arguments for QEMU, with the CPU caches in the persistence domain or not.
    fn hardware(&self, caches_persist: bool) -> Vec<String> {
        let persistence = if caches_persist { "cpu" } else { "mem-ctrl" };
        let image = self.image.display();
        let memory = format!("memory-backend-file,id=nv,share=on,mem-path={image},size={SIZE}");
        let machine = format!("pc,nvdimm=on,nvdimm-persistence={persistence}");
        let words = ["-machine", &machine, "-m", "1G,slots=2,maxmem=4G", "-object", &memory];
        let device = ["-device", "nvdimm,id=nvdimm0,memdev=nv"];
        words.into_iter().chain(device).map(String::from).collect()
    }
}

/// Tests the reported durability, on a file system and on a device.
fn detection(parts: &Parts, programs: &Programs, dir: &Path, short: bool) -> Result<(), String> {
    let all = [
        ("fsdax", false, "PMEM_DIR=/mnt/pmem ./dax --nocapture a_dax_file"),
        ("fsdax", true, "PMEM_DIR=/mnt/pmem PMEM_CACHES=1 ./dax --nocapture a_dax_file"),
        ("devdax", false, "PMEM_DEV=/dev/dax0.0 ./dax --nocapture a_device"),
    ];
    for (mode, caches_persist, command) in all.into_iter().take(if short { 2 } else { 3 }) {
        let made = WithNvdimm::new(parts, dir, mode)?;
        let files = [("dax", programs.dax.clone())];
        let contents = Contents { mode, modules: &MODULES, command, files: &files };
        let hardware = made.hardware(caches_persist);
        let report =
            made.machine.boot(&Boot { contents, hardware: &hardware, kill_after: None })?;
        let domain = if caches_persist { "cpu_cache" } else { "memory_controller" };
        println!(
            "\n== {mode}, {domain}: up in {:.1} s\n{}",
            report.up.as_secs_f64(),
            report.output
        );
        // A test that finds no persistent memory is skipped, which must not count as success.
        let skipped = report.output.contains("skipped") || !report.output.contains("1 passed");
        if report.end != End::Exit(0) || skipped {
            return Err(format!("{mode}, {domain}: the test did not pass"));
        }
    }
    Ok(())
}

/// Kills the machine while it writes, and verifies every acknowledged write after the next boot.
fn kills(parts: &Parts, programs: &Programs, dir: &Path, args: &Args) -> Result<(), String> {
    let keys = dir.join("keys");
    let words: Vec<String> = (0..2000).map(|i| format!("key {}", i * 7919 % 100_003)).collect();
    std::fs::write(&keys, words.join("\n")).map_err(|e| e.to_string())?;
    let files = [("pmindex", programs.pmindex.clone()), ("keys", keys)];
    let rounds = if args.short { 1 } else { args.kills };
    for (round, index) in (0..rounds).zip(args.index.iter().cycle()) {
        let made = WithNvdimm::new(parts, dir, "fsdax")?;
        let hardware = made.hardware(false);
        let what =
            format!("/mnt/pmem/pool --keys keys --integers 5000 --threads 2 --script {round}");
        let acks = "--acks /mnt/pmem/acks";
        // Standard input never ends: the writer writes until the machine is killed.
        let write = format!("sleep 1000 | ./pmindex trial-writer {what} {acks} --create {index}");
        let contents =
            Contents { mode: "fsdax", modules: &MODULES, command: &write, files: &files };
        let kill_after = Some(Duration::from_millis(3000 + 700 * (round as u64 % 5)));
        let report = made.machine.boot(&Boot { contents, hardware: &hardware, kill_after })?;
        if report.end != End::Killed {
            return Err(format!("{index}: the writer ended by itself:\n{}", report.output));
        }
        let verify = format!(
            "./pmindex trial-verifier {what} {acks} && ./pmindex info /mnt/pmem/pool | cat"
        );
        let contents =
            Contents { mode: "fsdax", modules: &MODULES, command: &verify, files: &files };
        let report =
            made.machine.boot(&Boot { contents, hardware: &hardware, kill_after: None })?;
        println!("\n== {index}: the machine was killed and booted again\n{}", report.output);
        if report.end != End::Exit(0) {
            return Err(format!("{index}: not everything was there after the machine was killed"));
        }
    }
    Ok(())
}

/// The bank in a store, whose processes are killed inside a machine, in both modes of persistent memory.
fn bank(parts: &Parts, programs: &Programs, dir: &Path) -> Result<(), String> {
    for (mode, caches_persist) in [("fence", true), ("flush", false)] {
        let made = WithNvdimm::new(parts, dir, "fsdax")?;
        let files = [("pmindex", programs.pmindex.clone())];
        let command = format!(
            "./pmindex torture --index store --durability {mode} --kills 5 --dir /mnt/pmem --json 2>/dev/null"
        );
        let contents =
            Contents { mode: "fsdax", modules: &MODULES, command: &command, files: &files };
        let hardware = made.hardware(caches_persist);
        let report =
            made.machine.boot(&Boot { contents, hardware: &hardware, kill_after: None })?;
        println!("\n== the bank, {mode}\n{}", report.output);
        if report.end != End::Exit(0) {
            return Err(format!("{mode}: the bank lost money"));
        }
    }
    Ok(())
}
