//! The parts of a guest from Debian packages: a kernel with its modules, and busybox.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

/// The package that depends on the present kernel for virtual machines.
const KERNEL: &str = "linux-image-cloud-amd64";
const BUSYBOX: &str = "busybox-static";

/// The programs of the host that are needed, and their packages.
const PROGRAMS: [(&str, &str); 6] = [
    ("qemu-system-x86_64", "qemu-system-x86"),
    ("mke2fs", "e2fsprogs"),
    ("apt-get", "apt"),
    ("dpkg-deb", "dpkg"),
    ("ldd", "libc-bin"),
    ("xz", "xz-utils"),
];

/// The files of the parts.
pub(crate) struct Parts {
    /// The kernel's image.
    pub(super) kernel: PathBuf,
    /// Its modules.
    pub(super) modules: PathBuf,
    /// A statically linked busybox.
    pub(super) busybox: PathBuf,
}

impl Parts {
    /// Returns `true` if the kernel has this module.
    pub(crate) fn has_module(&self, name: &str) -> bool {
        let files = ["modules.dep", "modules.builtin"].map(|file| self.modules.join(file));
        let text: String = files.iter().filter_map(|file| fs::read_to_string(file).ok()).collect();
        let ends = ["", ".xz", ".zst"].map(|end| format!("/{name}.ko{end}"));
        let path = |line: &str| line.split(':').next().unwrap_or(line).replace('-', "_");
        text.lines().map(path).any(|path| ends.iter().any(|end| path.ends_with(end)))
    }
}

/// Returns the packages of the programs that this machine lacks.
pub(super) fn missing() -> Vec<&'static str> {
    let there = |program: &str| find(program).is_some();
    PROGRAMS.iter().filter(|(program, _)| !there(program)).map(|(_, package)| *package).collect()
}

/// Returns the path of a program, including system programs that are not in every user's path.
pub(crate) fn find(program: &str) -> Option<PathBuf> {
    let path = std::env::var_os("PATH").unwrap_or_default();
    let system = ["/usr/sbin", "/sbin"].map(PathBuf::from);
    std::env::split_paths(&path).chain(system).map(|dir| dir.join(program)).find(|p| p.is_file())
}

/// Fetches the parts that are not in `cache` yet.
pub(super) fn parts(cache: &Path) -> Result<Parts, String> {
    let busybox = unpacked(cache, BUSYBOX, BUSYBOX)?;
    let busybox = ["bin/busybox", "usr/bin/busybox"].map(|path| busybox.join(path));
    let busybox = busybox.into_iter().find(|path| path.is_file());
    let busybox = busybox.ok_or("busybox-static has no busybox")?;
    let kernel = unpacked(cache, KERNEL, &kernel_package()?)?;
    let image = only(&kernel.join("boot"), "vmlinuz-")?;
    let version = image.file_name().and_then(|name| name.to_str()).unwrap_or_default();
    let version = version.trim_start_matches("vmlinuz-").to_owned();
    let roots = ["lib/modules", "usr/lib/modules"].map(|dir| kernel.join(dir).join(&version));
    let modules = roots.into_iter().find(|dir| dir.is_dir()).ok_or("the kernel has no modules")?;
    if !modules.join("modules.dep").is_file() {
        let base =
            modules.ancestors().nth(if modules.starts_with(kernel.join("usr")) { 4 } else { 3 });
        let base = base.unwrap_or(&kernel).to_string_lossy().into_owned();
        run(Command::new(&busybox).args(["depmod", "-b", &base, &version]))?;
    }
    Ok(Parts { kernel: image, modules, busybox })
}

/// Returns the package that the meta-package depends on.
fn kernel_package() -> Result<String, String> {
    let text = run(Command::new("apt-cache").args(["depends", "--important", KERNEL]))?;
    let real = text.lines().find_map(|line| line.trim().strip_prefix("Depends: linux-image-"));
    real.map(|name| format!("linux-image-{name}"))
        .ok_or_else(|| format!("{KERNEL}: unknown to apt; `apt-get update` may help"))
}

/// Returns the folder with the contents of a package.
fn unpacked(cache: &Path, folder: &str, package: &str) -> Result<PathBuf, String> {
    let done = cache.join(folder);
    if done.is_dir() {
        return Ok(done);
    }
    let work = cache.join(format!("{folder}.new"));
    let _ = fs::remove_dir_all(&work); // of an interrupted run
    fs::create_dir_all(&work).map_err(|e| format!("{}: {e}", work.display()))?;
    let work = work.canonicalize().map_err(|e| e.to_string())?;
    eprintln!("fetching the Debian package {package}");
    let download = ["-q", "-o", "APT::Sandbox::User=root", "download", package];
    run(Command::new("apt-get").args(download).current_dir(&work))?;
    let archive = only(&work, "")?;
    let contents = work.join("contents");
    run(Command::new("dpkg-deb").arg("-x").arg(&archive).arg(&contents))?;
    fs::rename(&contents, &done).map_err(|e| e.to_string())?;
    let _ = fs::remove_dir_all(&work);
    Ok(done)
}

/// Returns the only file of a folder whose name begins with `prefix`.
fn only(dir: &Path, prefix: &str) -> Result<PathBuf, String> {
    let entries = fs::read_dir(dir).map_err(|e| format!("{}: {e}", dir.display()))?;
    let mut paths = entries.flatten().map(|entry| entry.path());
    paths
        .find(|path| {
            let name = path.file_name().and_then(|name| name.to_str());
            path.is_file() && name.is_some_and(|name| name.starts_with(prefix))
        })
        .ok_or_else(|| format!("{}: no file {prefix}*", dir.display()))
}

/// Runs a program; returns its output.
pub(crate) fn run(command: &mut Command) -> Result<String, String> {
    let line = format!("{command:?}").replace('"', "");
    let output = command.output().map_err(|e| format!("`{line}` did not start: {e}"))?;
    if !output.status.success() {
        let errors = String::from_utf8_lossy(&output.stderr);
        return Err(format!("`{line}` failed ({}): {}", output.status, errors.trim()));
    }
    Ok(String::from_utf8_lossy(&output.stdout).into_owned())
}
