//! Files that are no pools, and damaged ones: each gives an error that says what is wrong.

use std::fs;
use std::os::unix::fs::PermissionsExt;

use crate::error::{OpenError, PmError};
use crate::pool::Pool;

use super::{Place, add, tiny, value_of};

fn error_of(bytes: &[u8]) -> OpenError {
    let place = Place::new();
    fs::write(place.path(), bytes).unwrap();
    let error = Pool::open(place.path(), &tiny()).unwrap_err();
    assert!(error.to_string().contains(&place.path().display().to_string()), "{error}");
    assert!(fs::read(place.path()).unwrap() == bytes, "a refused file stays as it was");
    error
}

fn pool_bytes() -> Vec<u8> {
    fs::read(Place::new().with_pool().path()).unwrap()
}

#[test]
fn a_file_truncated_anywhere_is_refused() {
    let bytes = pool_bytes();
    let len = bytes.len();
    let lengths = [1, 7, 8, 63, 64, 127, 128, 4095, 4096, 4100, 8191, 8192, 12_000, 16_384, 20_480];
    for cut in lengths.into_iter().chain([len / 2, len - 4096, len - 4095, len - 1]) {
        let error = error_of(&bytes[..cut]);
        let right = match cut {
            0..7 => matches!(error, OpenError::NotAPool { .. }),
            7..128 => matches!(error, OpenError::Damaged { .. }),
            _ => matches!(error, OpenError::Truncated { len, expected, .. }
                if len == cut as u64 && expected == bytes.len() as u64),
        };
        assert!(right, "{cut}: {error}");
    }
}

#[test]
fn other_files_are_not_pools() {
    for bytes in [vec![], vec![0; 100_000], vec![0xff; 5], b"#!/bin/sh\n".repeat(5000)] {
        let error = error_of(&bytes);
        assert!(matches!(error, OpenError::NotAPool { .. }), "{error}");
    }
    let mut state = 1u64;
    for len in [8, 4096, 8192, 70_000] {
        let random = || {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            (state >> 56) as u8
        };
        let bytes: Vec<u8> = core::iter::repeat_with(random).take(len).collect();
        let error = error_of(&bytes);
        assert!(matches!(error, OpenError::NotAPool { .. }), "{error}");
    }
}

#[test]
fn a_later_format_is_told_apart_from_damage() {
    let mut bytes = pool_bytes();
    for copy in [0, 4096] {
        bytes[copy + 8] = 3;
    }
    let error = error_of(&bytes);
    assert!(
        matches!(error, OpenError::UnsupportedVersion { found: 3, supported: 2, .. }),
        "{error}"
    );
    let mut bytes = pool_bytes();
    for copy in [0, 4096] {
        bytes[copy + 40] ^= 1; // the size of a zone
    }
    assert!(matches!(error_of(&bytes), OpenError::Damaged { .. }));
}

#[test]
fn one_damaged_superblock_is_repaired() {
    for copy in [0, 4096] {
        let place = Place::new().with_pool();
        let mut bytes = fs::read(place.path()).unwrap();
        bytes[copy..copy + 128].fill(0x5a);
        fs::write(place.path(), &bytes).unwrap();
        let pool = Pool::open(place.path(), &tiny()).unwrap();
        assert!(!pool.was_clean());
        assert_eq!(value_of(&pool, "a"), Some(1));
        pool.close().unwrap();
        assert!(Pool::open(place.path(), &tiny()).unwrap().was_clean());
    }
}

#[test]
fn random_damage_to_the_metadata_is_an_error_or_harmless() {
    let place = Place::new().with_pool();
    let good = fs::read(place.path()).unwrap();
    let mut state = 7u64;
    let mut random = |below: usize| {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695);
        (state >> 33) as usize % below
    };
    let opts = tiny().write_back(false); // independent of the disk
    for _ in 0..300 {
        let mut bytes = good.clone();
        for _ in 0..=random(20) {
            let at = random(24 << 10);
            bytes[at] = random(256) as u8;
        }
        fs::write(place.path(), &bytes).unwrap();
        let Ok(pool) = Pool::open(place.path(), &opts) else { continue };
        match pool.find_index("a") {
            Ok(found) => assert!(found.is_some(), "a damaged entry is not an absent one"),
            Err(error) => assert!(matches!(error, PmError::Corrupt { .. }), "{error}"),
        }
        let _ = add(&pool, "b", 2);
        pool.kill();
    }
}

#[test]
fn what_is_no_regular_file_is_refused() {
    let place = Place::new();
    let refused = |path: &std::path::Path, what: &str| {
        let error = Pool::open(path, &tiny()).unwrap_err();
        assert!(
            matches!(error, OpenError::NotAFile { found, .. } if found.contains(what)),
            "{error}"
        );
    };
    refused(place.directory.path(), "directory");
    refused(std::path::Path::new("/dev/null"), "character device");
    let fifo = place.directory.path().join("fifo");
    rustix::fs::mknodat(
        rustix::fs::CWD,
        &fifo,
        rustix::fs::FileType::Fifo,
        rustix::fs::Mode::RUSR | rustix::fs::Mode::WUSR,
        0,
    )
    .unwrap();
    refused(&fifo, "FIFO");
    let reading = Pool::open(&fifo, &tiny().read_only(true)).unwrap_err();
    assert!(matches!(reading, OpenError::NotAFile { .. }), "and it does not wait: {reading}");
    let socket = place.directory.path().join("socket");
    let _listener = std::os::unix::net::UnixListener::bind(&socket).unwrap();
    refused(&socket, "socket");
    let error = Pool::create(place.directory.path(), &tiny()).unwrap_err();
    assert!(matches!(error, OpenError::AlreadyExists { .. }), "{error}");
    let error = Pool::create(place.directory.path().join("no/such"), &tiny()).unwrap_err();
    assert!(matches!(error, OpenError::NoDirectory { .. }), "{error}");
    assert!(error.to_string().ends_with("no; make it first"), "{error}");
    let error = Pool::open(place.path(), &tiny()).unwrap_err();
    assert!(matches!(error, OpenError::NotFound { .. }), "{error}");
}

#[test]
fn permissions_are_respected() {
    let place = Place::new().with_pool();
    let mode = |path: &std::path::Path, mode| {
        fs::set_permissions(path, fs::Permissions::from_mode(mode)).unwrap();
    };
    mode(place.directory.path(), 0o755);
    mode(&place.path(), 0o444);
    // The superuser may do everything, so this thread alone becomes another user.
    if rustix::process::geteuid().is_root() {
        let nobody = rustix::fs::Uid::from_raw(65534);
        rustix::thread::set_thread_res_uid(nobody, nobody, nobody).unwrap();
    }
    let error = Pool::open(place.path(), &tiny()).unwrap_err();
    assert!(matches!(error, OpenError::PermissionDenied { .. }), "{error}");
    let pool = Pool::open(place.path(), &tiny().read_only(true)).unwrap();
    assert_eq!(value_of(&pool, "a"), Some(1));
    let error = Pool::create(std::path::Path::new("/proc/pool"), &tiny()).unwrap_err();
    assert!(!error.to_string().is_empty());
}
