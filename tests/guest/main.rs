//! The program that `cargo xtask disk-vm` runs in a virtual machine: a writer on a disk whose every write and
//! flush the host logs, and a verifier of the states that a power failure could have left of that disk.
//!
//! `GUEST_WORK` selects the work; without it the tests report that they are skipped.
#![forbid(unsafe_code)]
#![cfg(target_os = "linux")]

mod log;
mod states;
mod work;

/// A setting that the host gives.
fn setting(name: &str) -> Option<String> {
    std::env::var(format!("GUEST_{name}")).ok()
}

fn is_asked_for(work: &str) -> bool {
    let asked = setting("WORK").is_some_and(|asked| asked == work);
    if !asked {
        eprintln!("skipped: no GUEST_WORK={work}");
    }
    asked
}

#[test]
fn write_on_a_disk_that_is_logged() {
    if is_asked_for("write") {
        work::write();
    }
}

#[test]
fn every_state_of_the_disk_has_what_was_acknowledged() {
    if is_asked_for("verify") {
        states::verify();
    }
}

#[test]
fn what_was_acknowledged_before_the_disk_failed_is_there() {
    if is_asked_for("look") {
        let [synced, acked] = work::counts();
        let found = work::look(&synced, &acked, 0);
        println!("found {}", found.expect("sound"));
    }
}
