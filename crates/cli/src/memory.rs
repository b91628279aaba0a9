//! How much memory this process uses and the machine has available, by the operating system.

/// Returns the resident anonymous memory (heap and stacks, no files) in bytes; `None` without `/proc`.
pub(crate) fn resident_anonymous() -> Option<u64> {
    let status = std::fs::read_to_string("/proc/self/status").ok()?;
    let line = status.lines().find_map(|line| line.strip_prefix("RssAnon:"))?;
    let kib: u64 = line.trim().strip_suffix("kB")?.trim().parse().ok()?;
    Some(kib * 1024)
}

/// Returns the memory that can be allocated without much swapping, and the swap space, in bytes; `None`
/// without `/proc`.
pub(crate) fn available() -> Option<u64> {
    let info = std::fs::read_to_string("/proc/meminfo").ok()?;
    let kib = |name: &str| {
        let line = info.lines().find_map(|line| line.strip_prefix(name))?;
        line.trim().strip_suffix("kB")?.trim().parse::<u64>().ok()
    };
    Some((kib("MemAvailable:")? + kib("SwapFree:").unwrap_or_default()) * 1024)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn touched_memory_shows() {
        let before = resident_anonymous().expect("Linux");
        let touched = std::hint::black_box(vec![1_u8; 32 << 20]);
        let after = resident_anonymous().expect("Linux");
        assert!(after > before + (16 << 20), "{before} {after}");
        drop(touched);
    }
}
