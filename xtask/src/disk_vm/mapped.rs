//! The same below the kernel's own device mapper, in one boot each: `dm-log-writes` logs what the file system
//! writes, in the order in which it was completed, and the state at every flush and every forced write is
//! verified; `dm-flakey` and `dm-error` fail at a moment of the writer's work.
//!
//! A mark of the writer is a forced write (`FUA`), which this log holds without what is not durable yet: the
//! state at a mark is the least that a disk may have.

use std::fmt::Write as _;
use std::fs::{self, File};
use std::path::Path;

use super::{Args, Disk, MARKS, Mount, file, told};
use crate::vm::debian;

/// The ways in which a mapped disk fails: the name for the guest's program, and what it means.
const FAULTS: [(&str, &str); 3] = [
    ("flakey", "dm-flakey: each write fails"),
    ("error", "dm-error: each read and write fails"),
    ("drop", "dm-flakey: each write is lost, without an error, as if the power failed"),
];

/// The modules of the device mapper.
const MODULES: [&str; 3] = ["dm_mod", "dm_log_writes", "dm_flakey"];

/// Bytes of the log: as much as the guest could write; the file on the host is sparse.
const LOG: u64 = 1 << 30;

/// The shell commands that end the use of the mapped disk.
const RELEASE: &str = "umount /mnt/disk || exit 8\ndmsetup remove disk || exit 7\n";

/// What the shell says instead of failing if a command ended by SIGBUS.
const UNLESS_SIGBUS: &str = "|| { [ $? = 135 ] && echo 'ended by SIGBUS'; } || exit 11";

impl Disk<'_> {
    /// Returns `false`, and says so, if this machine has no `dmsetup` or its kernel no device mapper.
    fn can_map(&self) -> bool {
        if debian::find("dmsetup").is_none() {
            println!("\n== {}: skipped: no device mapper without dmsetup", self.what());
            return false;
        }
        let missing = MODULES.into_iter().find(|module| !self.parts.has_module(module));
        if let Some(module) = missing {
            println!("\n== {}: skipped: the kernel has no module {module}", self.what());
        }
        missing.is_none()
    }

    /// Checks the state at every flush of a disk that `dm-log-writes` logs, or at as many as are asked for.
    pub(super) fn logged_by_kernel(&self, args: &Args) -> Result<(), String> {
        if !self.can_map() {
            return Ok(());
        }
        let (image, base, log) = (self.make("disk")?, self.path("base"), self.path("log"));
        fs::copy(&image, &base).map_err(|e| format!("{}: {e}", base.display()))?;
        let sized = File::create(&log).and_then(|file| file.set_len(LOG));
        sized.map_err(|e| format!("{}: {e}", log.display()))?;
        let bytes = self.system.bytes + MARKS;
        let table = format!("0 {} log-writes /dev/vda /dev/vdb", bytes / 512);
        let settings = [
            ("STEPS", args.steps.to_string()),
            ("MARKS_AT", self.system.bytes.to_string()),
            ("MARKS_ON", "/dev/dm-0".into()),
            ("DISK_BYTES", bytes.to_string()),
            ("STATES", args.states.to_string()),
            ("SEED", args.seed.to_string()),
            ("BASE", "/dev/vdc".into()),
            ("FLUSHES", "1".into()),
        ];
        let mut command = self.map(&table);
        command += &self.test("write", "write_on_a_disk_that_is_logged", &settings);
        command += RELEASE;
        command +=
            &self.test("verify", "every_state_of_the_disk_has_what_was_acknowledged", &settings);
        let read_only = |path: &Path| file(path, r#""node-name":"NODE","read-only":true,"#);
        let disks = [writable(&image), writable(&log), read_only(&base)];
        let output = self.boot_with(&disks, &command, 2)?;
        println!("\n== {}: dm-log-writes\n{}", self.what(), told(&output));
        Ok(())
    }

    /// Checks that disks that `dm-flakey` and `dm-error` let fail have what was acknowledged before.
    pub(super) fn fail_in_kernel(&self, args: &Args) -> Result<(), String> {
        if !self.can_map() {
            return Ok(());
        }
        let (mut command, mut disks) = (String::new(), Vec::new());
        for ((fault, meaning), name) in FAULTS.into_iter().zip(["vda", "vdb", "vdc"]) {
            disks.push(writable(&self.make(fault)?));
            let sectors = self.system.bytes / 512;
            let _ = writeln!(command, "echo '-- {meaning}'");
            command += &self.map(&format!("0 {sectors} linear /dev/{name} 0"));
            let end =
                if fault == "error" { String::new() } else { format!(" /dev/{name} 0 0 3600 1") };
            let end = match fault {
                "flakey" => format!("flakey{end} error_writes"),
                "drop" => format!("flakey{end} drop_writes"),
                _ => "error".into(),
            };
            let settings = [
                ("STEPS", (10 * args.steps).to_string()),
                ("FAULT_AT", (args.steps / 2).to_string()),
                ("FAULT", format!("'0 {sectors} {end}'")),
                ("LOST", u8::from(fault == "drop").to_string()),
            ];
            let write = self.test("write", "write_on_a_disk_that_is_logged", &settings);
            // A page of the mapped pool that cannot be read ends the process: the disk must have everything
            // then, too.
            let may_end = fault == "error" && ["journal", "msync"].contains(&self.mode);
            command += &if may_end { write.replace("|| exit 11", UNLESS_SIGBUS) } else { write };
            command += RELEASE;
            command += &self.mount(&format!("/dev/{name}"));
            let look = "what_was_acknowledged_before_the_disk_failed_is_there";
            command += &self.test("look", look, &settings);
            command += "umount /mnt/disk || exit 6\nrm -f /dev/shm/*\n";
        }
        let output = self.boot_with(&disks, &command, 2 * FAULTS.len())?;
        println!("\n== {}: dm-flakey and dm-error\n{}", self.what(), told(&output));
        Ok(())
    }

    /// Returns the commands that map a disk and mount it.
    fn map(&self, table: &str) -> String {
        let map = format!("dmsetup create disk --table '{table}' || exit 10\n");
        map + &self.mount("/dev/dm-0")
    }

    fn mount(&self, device: &str) -> String {
        format!("mount -t {} {device} /mnt/disk || exit 9\n", self.system.name)
    }

    /// Boots with these disks, the mapper and its program; `passed` tests pass.
    fn boot_with(&self, disks: &[String], command: &str, passed: usize) -> Result<String, String> {
        let dmsetup = debian::find("dmsetup").ok_or("no dmsetup")?;
        let command = format!("export PATH=$PATH:/host DM_DISABLE_UDEV=1\n{command}");
        let mount = Mount { disks, modules: &MODULES, tools: &[("dmsetup", dmsetup)] };
        let output = self.machine(&mount, &command)?;
        let ended = ["1 passed", "ended by SIGBUS"].map(|end| output.matches(end).count());
        if ended.iter().sum::<usize>() == passed {
            return Ok(output);
        }
        Err(format!("{}: the guest's tests did not all run:\n{output}", self.what()))
    }
}

/// A disk that QEMU passes on as it is.
fn writable(path: &Path) -> String {
    file(path, r#""node-name":"NODE","#)
}
