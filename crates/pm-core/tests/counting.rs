//! The counting medium counts exactly as its rules say.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::{Duration, Instant};

use pmindex_core::{Counts, Flushed, Mapped, Medium, PmU64, Pool, Rmw};

fn pool() -> Pool {
    Pool::counting(64 << 10).expect("a small pool")
}

/// Returns 1024 words at a multiple of 4096.
fn words(pool: &Pool) -> &[PmU64] {
    pool.words(8192, 1024).expect("in bounds")
}

#[test]
fn every_kind_of_store_counts_its_words_and_no_flush_or_fence() {
    let pool = pool();
    let (pm, words) = (pool.pm(), words(&pool));
    pm.counter().expect("it counts").reset();
    pm.store(&words[0], 1);
    pm.cas(&words[0], 1, 2).expect("it is 1");
    pm.cas(&words[0], 1, 3).expect_err("it is 2");
    pm.rmw_word(&words[0], Rmw::Add(1));
    pm.write_words(&words[8..18], &[7; 10]);
    pm.write_bytes(&words[20..], b"17 bytes, 3 words");
    let _ = pm.load(&words[0]);
    pm.prefetch(&words[0]);
    assert_eq!(
        pm.counter().expect("it counts").counts(),
        Counts { stores: 1 + 1 + 1 + 10 + 3, ..Counts::default() }
    );
}

#[test]
fn lines_count_however_they_are_written_back() {
    let pool = pool();
    let (pm, words) = (pool.pm(), words(&pool));
    pm.counter().expect("it counts").reset();
    let before = pm.counter().expect("it counts").counts();
    let flushed = pm
        .flush(&words[0])
        .and(pm.flush_words(&words[6..10])) // the end of one line and the start of the next
        .and(pm.flush_words(&words[..0]))
        .and(pm.stream_words(&words[15..33], &[1; 18])) // 4 lines, two of them partly
        .and(pm.store_nt(&words[40], 5));
    pm.fence(flushed).expect("emulated");
    let counts = pm.counter().expect("it counts").counts() - before;
    assert_eq!((counts.lines, counts.nt_lines, counts.fences), (1 + 2 + 4 + 1, 5, 1));
    assert_eq!(counts.stores, 18 + 1);
    assert_eq!(pm.load(&words[15]) + pm.load(&words[32]) + pm.load(&words[40]), 1 + 1 + 5);
}

#[test]
fn flushes_that_do_nothing_show() {
    let pool = pool();
    let (pm, words) = (pool.pm(), words(&pool));
    pm.counter().expect("it counts").reset();
    let useless = || {
        let counts = pm.counter().expect("it counts").counts();
        pm.counter().expect("it counts").reset();
        (counts.clean, counts.repeated)
    };
    pm.write_words(&words[..16], &[1; 16]);
    pm.fence(pm.flush_words(&words[..16])).expect("emulated");
    assert_eq!(useless(), (0, 0), "two lines, each once");
    pm.store(&words[3], 2);
    pm.fence(pm.flush_words(&words[..24])).expect("emulated");
    assert_eq!(useless(), (2, 0), "of three lines one was stored to");
    pm.store(&words[0], 3);
    let first = pm.flush(&words[0]);
    pm.store(&words[1], 3);
    pm.fence(first.and(pm.flush(&words[1]))).expect("emulated");
    assert_eq!(useless(), (0, 1), "one flush would have done");
    let first = pm.store_nt(&words[2], 4);
    pm.fence(first.and(pm.flush(&words[2]))).expect("emulated");
    assert_eq!(useless(), (1, 0), "a non-temporal store flushes");
    pm.cas(&words[0], 9, 9).expect_err("it is 3");
    pm.fence(pm.flush(&words[0])).expect("emulated");
    assert_eq!(useless(), (1, 0), "a compare-and-exchange that fails stores nothing");
}

#[test]
fn a_flush_of_what_another_thread_has_not_fenced_does_something() {
    let pool = pool();
    let (pm, words) = (pool.pm(), words(&pool));
    pm.store(&words[0], 1);
    let mine = pm.flush(&words[0]);
    pm.counter().expect("it counts").reset();
    let flush_on_another = || {
        std::thread::scope(|scope| {
            let other = scope.spawn(|| pm.fence(pm.flush(&words[0])).is_ok());
            assert!(other.join().expect("no panic"));
        });
        pm.counter().expect("it counts").counts().clean
    };
    assert_eq!(flush_on_another(), 0, "it is not durable yet");
    pm.fence(mine).expect("emulated");
    assert_eq!(flush_on_another(), 1, "it is durable");
}

#[test]
fn media_bytes_follow_the_access_unit() {
    let pool = pool();
    let (pm, words) = (pool.pm(), words(&pool));
    pm.counter().expect("it counts").reset();
    // Two whole units, then one line of a third unit.
    let flushed = pm.flush_words(&words[..64]).and(pm.flush(&words[64]));
    pm.fence(flushed).expect("emulated");
    assert_eq!(
        pm.counter().expect("it counts").counts().media_written,
        0,
        "all still in the buffer"
    );
    pm.counter().expect("it counts").drain();
    let counts = pm.counter().expect("it counts").counts();
    assert_eq!((counts.media_written, counts.media_read), (3 * 256, 256));
    pm.counter().expect("it counts").reset();
    assert_eq!(pm.counter().expect("it counts").counts(), Counts::default());
}

#[test]
fn threads_count_for_themselves_and_all_together() {
    let pool = pool();
    pool.pm().counter().expect("it counts").reset();
    let before = pool.pm().counter().expect("it counts").thread_counts();
    let lines = AtomicU64::new(0);
    std::thread::scope(|scope| {
        for thread in 1..=4u64 {
            let (pool, lines) = (&pool, &lines);
            scope.spawn(move || {
                let (pm, words) = (pool.pm(), words(pool));
                for _ in 0..thread * 100 {
                    let flushed = pm.flush(&words[thread as usize]);
                    pm.fence(flushed).expect("emulated");
                }
                let mine = pm.counter().expect("it counts").thread_counts();
                assert_eq!((mine.lines, mine.fences), (thread * 100, thread * 100));
                lines.fetch_add(mine.lines, Relaxed);
            });
        }
    });
    assert_eq!(lines.load(Relaxed), 1000);
    assert_eq!(
        pool.pm().counter().expect("it counts").counts().lines,
        1000,
        "threads that ended still count"
    );
    assert_eq!(pool.pm().counter().expect("it counts").thread_counts(), before);
}

#[test]
fn two_media_do_not_share_counts() {
    let (one, other) = (pool(), pool());
    one.pm().counter().expect("it counts").reset();
    other.pm().counter().expect("it counts").reset();
    let flushed: Flushed = one.pm().flush(&words(&one)[0]);
    one.pm().fence(flushed).expect("emulated");
    assert_eq!(
        (
            one.pm().counter().expect("it counts").counts().lines,
            other.pm().counter().expect("it counts").counts().lines
        ),
        (1, 0)
    );
}

#[test]
fn a_delay_per_line_slows_flushes_down() {
    let opts = pmindex_core::PoolOptions::new().size(64 << 10).grow(false).emulate_pm(true);
    let slow = |mapped: Mapped| mapped.counted(Duration::from_micros(100));
    let pool = Pool::create_in_memory(&opts, slow).expect("a small pool");
    let started = Instant::now();
    let flushed = pool.pm().flush_words(&words(&pool)[..80]); // 10 lines
    pool.pm().fence(flushed).expect("emulated");
    // A lower bound, with a wide margin for the calibration. An upper bound would depend on the scheduler.
    assert!(started.elapsed() > Duration::from_micros(500), "{:?}", started.elapsed());
}
