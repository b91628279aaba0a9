//! Runs a virtual machine: one boot, from power-on to its end.

use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use super::debian::Parts;
use super::initramfs::{self, Contents};

/// A boot that takes longer has hung.
const PATIENCE: Duration = Duration::from_secs(300);

/// How a boot ended.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum End {
    /// The command ended with this status.
    Exit(i32),
    /// The machine was killed while the command ran.
    Killed,
}

/// A boot.
pub(crate) struct Boot<'a> {
    /// Its file system and its command.
    pub(crate) contents: Contents<'a>,
    /// The hardware besides processors and memory: arguments of QEMU.
    pub(crate) hardware: &'a [String],
    /// Kill the machine this long after the command began.
    pub(crate) kill_after: Option<Duration>,
}

/// The results of a boot.
pub(crate) struct Report {
    /// How it ended.
    pub(crate) end: End,
    /// What the command printed.
    pub(crate) output: String,
    /// The duration of the boot.
    pub(crate) up: Duration,
}

/// A machine: the settings that all boots share.
pub(crate) struct Machine<'a> {
    parts: &'a Parts,
    dir: PathBuf,
}

impl<'a> Machine<'a> {
    /// Makes one whose files go to `dir`.
    pub(crate) fn new(parts: &'a Parts, dir: &Path) -> Result<Self, String> {
        fs::create_dir_all(dir).map_err(|e| format!("{}: {e}", dir.display()))?;
        Ok(Self { parts, dir: dir.into() })
    }

    /// Boots, runs the command, and waits for the end.
    pub(crate) fn boot(&self, boot: &Boot<'_>) -> Result<Report, String> {
        let archive = self.dir.join("initramfs");
        let bytes = initramfs::build(self.parts, &boot.contents)?;
        fs::write(&archive, bytes).map_err(|e| format!("{}: {e}", archive.display()))?;
        let (console, output) = (self.dir.join("console"), self.dir.join("output"));
        let started = Instant::now();
        let child = self.start(&archive, [&console, &output], boot.hardware)?;
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
        hardware: &[String],
    ) -> Result<Child, String> {
        let mut command = Command::new("qemu-system-x86_64");
        command.args(["-accel", "tcg,thread=multi", "-cpu", "max", "-smp", "2"]).args(hardware);
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

/// A running machine; dropping it kills it.
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
