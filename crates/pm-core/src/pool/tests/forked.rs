//! A forked child ends while it has locks of its parent's other threads, which never come free there. In a process of
//! its own: the child has the locks of all files that are open in its parent.

use std::process::Command;
use std::sync::mpsc::channel;
use std::time::Duration;

use rustix::process::{Pid, Signal, WaitOptions, kill_process, waitpid};

use super::twin::twin_at;
use super::{Place, add, tiny};
use crate::pool::{Pool, PoolOptions};

const NAME: &str = "pool::tests::forked::a_forked_child_waits_for_no_lock_of_its_parent";
/// `CLONE_NEWPID` of the kernel's `sched.h`.
const NEW_PID: i32 = 0x2000_0000;
const IN_NAMESPACE: &str = "namespace";
const CHILD: &str = "PMINDEX_TEST_FORKED_CHILD";

unsafe extern "C" {
    safe fn fork() -> i32;
    safe fn _exit(code: i32) -> !;
    safe fn unshare(flags: i32) -> i32;
}

/// Runs this test in a process of its own.
fn in_a_process(mut command: Command, child: &str) {
    let command = command.args([NAME, "--exact", "--nocapture"]).env(CHILD, child);
    let done = command.output().unwrap();
    let told = String::from_utf8_lossy(&done.stdout).into_owned();
    assert!(done.status.success(), "{told}{}", String::from_utf8_lossy(&done.stderr));
    assert!(told.contains("1 passed"), "{told}");
}

/// Looks for a child that sleeps: 5 ms apart.
const LOOKS: u32 = 400;

/// Returns whether a process sleeps. One that is slow does not: it is runnable, or waits for a disk.
fn sleeps(process: Pid) -> bool {
    let status = std::fs::read_to_string(format!("/proc/{}/status", process.as_raw_nonzero()));
    status.is_ok_and(|status| status.contains("\nState:\tS"))
}

/// Forks while other threads hold every lock that the end of a pool takes; returns how the child ended.
fn end_in_a_child(pool: Pool, in_namespace: bool) -> Option<i32> {
    let (release, released) = channel::<()>();
    let (tell, told) = channel();
    let journal = pool.backing.as_ref().and_then(|backing| backing.journal().cloned());
    let mapping = pool.region.mapping().cloned();
    let holder = std::thread::spawn(move || {
        let _work = journal.as_ref().map(|journal| journal.hold_work());
        let _cut = mapping.as_ref().map(|mapping| mapping.hold());
        tell.send(()).unwrap();
        let _ = released.recv(); // the end of the other side
    });
    told.recv().unwrap();
    if in_namespace {
        assert_eq!((std::process::id(), unshare(NEW_PID)), (1, 0));
    }
    let op = pool.op().unwrap();
    let child = fork();
    if child == 0 {
        drop(op);
        drop(pool);
        _exit(7);
    }
    let child = Pid::from_raw(child).unwrap();
    // However long it takes: only a child that sleeps all the time waits for what never comes.
    let (mut asleep, mut status) = (0, None);
    while status.is_none() && asleep < LOOKS {
        std::thread::sleep(Duration::from_millis(5));
        asleep = if sleeps(child) { asleep + 1 } else { 0 };
        status = waitpid(Some(child), WaitOptions::NOHANG).unwrap();
    }
    if status.is_none() {
        kill_process(child, Signal::KILL).unwrap();
        waitpid(Some(child), WaitOptions::empty()).unwrap();
    }
    drop(op);
    drop(release);
    holder.join().unwrap();
    pool.close().unwrap();
    status?.1.exit_status()
}

#[test]
fn a_forked_child_waits_for_no_lock_of_its_parent() {
    let Ok(child) = std::env::var(CHILD) else {
        in_a_process(Command::new(std::env::current_exe().unwrap()), "1");
        // Parent and child have the same number, 1, each in its own namespace.
        let mut first = Command::new("unshare");
        first.args(["--pid", "--fork", "--mount-proc"]);
        if first.arg("true").output().is_ok_and(|done| done.status.success()) {
            let mut first = Command::new("unshare");
            first.args(["--pid", "--fork", "--mount-proc"]).arg(std::env::current_exe().unwrap());
            in_a_process(first, IN_NAMESPACE);
        } else {
            eprintln!("skipped in part: there are no namespaces here");
        }
        return;
    };
    let in_namespace = child == IN_NAMESPACE;
    let modes: [fn(&Place) -> PoolOptions; 4] = [
        |_| tiny().write_back(false),
        |_| tiny().as_on_disk(true),
        |_| tiny().as_on_disk(true).journal(true),
        |place| tiny().twin(twin_at(place)),
    ];
    for (mode, options) in modes.into_iter().enumerate() {
        let Some(place) = Place::tmpfs() else { return };
        let pool = Pool::create(place.path(), &options(&place)).unwrap();
        add(&pool, "a", 1).unwrap();
        let ended = std::thread::spawn(move || end_in_a_child(pool, in_namespace)).join().unwrap();
        assert_eq!(ended, Some(7), "mode {mode}");
        assert!(Pool::open(place.path(), &options(&place)).unwrap().was_clean());
    }
}
