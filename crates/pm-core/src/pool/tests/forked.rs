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
const CHILD: &str = "PMINDEX_TEST_FORKED_CHILD";

unsafe extern "C" {
    safe fn fork() -> i32;
    safe fn _exit(code: i32) -> !;
}

/// Looks for a child that sleeps: 5 ms apart.
const LOOKS: u32 = 400;

/// Returns whether a process sleeps. One that is slow does not: it is runnable, or waits for a disk.
fn sleeps(process: Pid) -> bool {
    let status = std::fs::read_to_string(format!("/proc/{}/status", process.as_raw_nonzero()));
    status.is_ok_and(|status| status.contains("\nState:\tS"))
}

/// Forks while other threads hold every lock that the end of a pool takes; returns how the child ended.
fn end_in_a_child(pool: Pool) -> Option<i32> {
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
    let child = fork();
    if child == 0 {
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
    drop(release);
    holder.join().unwrap();
    pool.close().unwrap();
    status?.1.exit_status()
}

#[test]
fn a_forked_child_waits_for_no_lock_of_its_parent() {
    if std::env::var(CHILD).is_err() {
        let done = Command::new(std::env::current_exe().unwrap())
            .args([NAME, "--exact", "--nocapture"])
            .env(CHILD, "1")
            .output()
            .unwrap();
        let told = String::from_utf8_lossy(&done.stdout).into_owned();
        assert!(done.status.success(), "{told}{}", String::from_utf8_lossy(&done.stderr));
        assert!(told.contains("1 passed"), "{told}");
        return;
    }
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
        assert_eq!(end_in_a_child(pool), Some(7), "mode {mode}");
        assert!(Pool::open(place.path(), &options(&place)).unwrap().was_clean());
    }
}
