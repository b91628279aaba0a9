//! A virtual machine with an NVDIMM: one boot, from power-on to its end.

use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use super::debian::{self, Parts};
use super::initramfs::{self, Contents};

/// Bytes of an NVDIMM.
const SIZE: u64 = 256 << 20;
/// Where the kernel lets the data of an fsdax namespace begin.
const DATA: u64 = 2 << 20;
/// A boot that takes longer is stuck.
const PATIENCE: Duration = Duration::from_mins(5);

/// How a boot ended.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum End {
    /// The command ended with this status.
    Exit(i32),
    /// The machine was killed while the command ran.
    Killed,
}

/// A boot.
pub(super) struct Boot<'a> {
    /// What runs.
    pub(super) contents: Contents<'a>,
    /// Whether the platform says that CPU caches are in the persistence domain.
    pub(super) caches_persist: bool,
    /// Kill the machine so long after the command began.
    pub(super) kill_after: Option<Duration>,
}

/// What a boot was like.
pub(super) struct Report {
    /// How it ended.
    pub(super) end: End,
    /// What the command printed.
    pub(super) output: String,
    /// How long it took to boot.
    pub(super) up: Duration,
}

/// A machine and its NVDIMM.
pub(super) struct Machine<'a> {
    parts: &'a Parts,
    dir: PathBuf,
    image: PathBuf,
}

impl<'a> Machine<'a> {
    /// With a new NVDIMM; for `fsdax` with an empty ext4 on it.
    pub(super) fn new(parts: &'a Parts, dir: &Path, mode: &str) -> Result<Self, String> {
        fs::create_dir_all(dir).map_err(|e| format!("{}: {e}", dir.display()))?;
        let image = dir.join("nvdimm");
        let sized = File::create(&image).and_then(|file| file.set_len(SIZE));
        sized.map_err(|e| format!("{}: {e}", image.display()))?;
        if mode == "fsdax" {
            let mke2fs = debian::find("mke2fs").ok_or("no mke2fs")?;
            let options = format!("offset={DATA},lazy_itable_init=0");
            let blocks = ((SIZE - DATA) / 4096).to_string();
            let mut command = Command::new(mke2fs);
            command.args(["-q", "-F", "-t", "ext4", "-b", "4096", "-E", &options]);
            debian::run(command.arg(&image).arg(blocks))?;
        }
        Ok(Self { parts, dir: dir.into(), image })
    }

    /// Boots, runs the command, and waits for the end.
    pub(super) fn boot(&self, boot: &Boot<'_>) -> Result<Report, String> {
        let archive = self.dir.join("initramfs");
        let bytes = initramfs::build(self.parts, &boot.contents)?;
        fs::write(&archive, bytes).map_err(|e| format!("{}: {e}", archive.display()))?;
        let (console, output) = (self.dir.join("console"), self.dir.join("output"));
        let started = Instant::now();
        let child = self.start(&archive, [&console, &output], boot.caches_persist)?;
        let mut machine = Running(child);
        let mut began = None;
        loop {
            let text = String::from_utf8_lossy(&fs::read(&output).unwrap_or_default()).into_owned();
            if began.is_none() && text.contains("@begin") {
                began = Some(Instant::now());
            }
            let up = began.map_or(Duration::ZERO, |began: Instant| began - started);
            let printed = || {
                let lines = text.lines().filter(|line| !line.starts_with('@'));
                lines.collect::<Vec<_>>().join("\n")
            };
            if let Some(status) = text.lines().find_map(|line| line.strip_prefix("@end ")) {
                let status = status.trim().parse();
                machine.stop();
                let status = status.map_err(|_| format!("the guest failed:\n{}", printed()))?;
                return Ok(Report { end: End::Exit(status), output: printed(), up });
            }
            if let (Some(began), Some(after)) = (began, boot.kill_after)
                && began.elapsed() >= after
            {
                machine.stop();
                return Ok(Report { end: End::Killed, output: printed(), up });
            }
            let over = machine.0.try_wait().map_err(|e| format!("qemu: {e}"))?;
            if over.is_some() || started.elapsed() > PATIENCE {
                machine.stop();
                let console = String::from_utf8_lossy(&fs::read(&console).unwrap_or_default())
                    .lines()
                    .rev()
                    .take(20)
                    .collect::<Vec<_>>()
                    .join("\n");
                let what = if over.is_some() { "ended too early" } else { "is stuck" };
                return Err(format!(
                    "the machine {what}; its last words, latest first:\n{console}"
                ));
            }
            std::thread::sleep(Duration::from_millis(20));
        }
    }

    fn start(
        &self,
        archive: &Path,
        ports: [&Path; 2],
        caches_persist: bool,
    ) -> Result<Child, String> {
        let persistence = if caches_persist { "cpu" } else { "mem-ctrl" };
        let memory = format!(
            "memory-backend-file,id=nv,share=on,mem-path={},size={SIZE}",
            self.image.display()
        );
        let mut command = Command::new("qemu-system-x86_64");
        command.args(["-machine", &format!("pc,nvdimm=on,nvdimm-persistence={persistence}")]);
        command.args(["-accel", "tcg,thread=multi", "-cpu", "max", "-smp", "2"]);
        command.args(["-m", "1G,slots=2,maxmem=4G", "-object", &memory]);
        command.args(["-device", "nvdimm,id=nvdimm0,memdev=nv"]);
        command.args(["-nodefaults", "-no-user-config", "-display", "none", "-no-reboot"]);
        for port in ports {
            let _ = fs::remove_file(port); // the last boot's
            command.args(["-serial", &format!("file:{}", port.display())]);
        }
        command.arg("-kernel").arg(&self.parts.kernel).arg("-initrd").arg(archive);
        command.args(["-append", "console=ttyS0 quiet panic=-1 nokaslr mitigations=off"]);
        let errors = File::create(self.dir.join("qemu")).map_err(|e| e.to_string())?;
        command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(errors);
        command.spawn().map_err(|e| format!("qemu did not start: {e}"))
    }
}

/// A machine under power; dropping it pulls the plug.
struct Running(Child);

impl Running {
    fn stop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        self.stop();
    }
}
