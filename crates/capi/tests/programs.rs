//! Programs in C, compiled against the header and run: linked with the shared library and with the
//! static one. Without a C compiler these tests say so and check nothing.
#![forbid(unsafe_code)]

use std::ffi::OsStr;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::sync::OnceLock;

fn package() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}

/// The folder of `libpmindex.so` and `libpmindex.a`. Cargo builds no library for tests that they
/// could not link as Rust, so this asks for it, with the profile and folder of the test itself; and for
/// the whole workspace and a test, so that every dependency has the features that it has for tests, and
/// is there already.
fn libraries() -> &'static Path {
    static FOLDER: OnceLock<PathBuf> = OnceLock::new();
    FOLDER.get_or_init(|| {
        let test = std::env::current_exe().expect("a path");
        let folder = test.parent().and_then(Path::parent).expect("target/PROFILE/deps/TEST");
        let mut cargo = Command::new(env!("CARGO"));
        cargo.current_dir(package());
        cargo.args(["build", "--workspace", "--lib", "--test", "header", "--target-dir"]);
        cargo.arg(folder.parent().expect("target/PROFILE"));
        if folder.ends_with("release") {
            cargo.arg("--release");
        }
        succeed(&mut cargo);
        folder.to_owned()
    })
}

/// The compiler's name, if there is one.
fn compiler(variable: &str, usual: &str) -> Option<String> {
    let name = std::env::var(variable).unwrap_or_else(|_| usual.into());
    let answers = Command::new(&name).arg("--version").output().is_ok_and(|o| o.status.success());
    if !answers {
        eprintln!("skipped: {name} is no compiler here (set {variable} to one)");
    }
    answers.then_some(name)
}

fn succeed(command: &mut Command) -> Output {
    let output = command.output().expect("it starts");
    let text = |bytes| String::from_utf8_lossy(bytes).into_owned();
    assert!(
        output.status.success(),
        "{command:?}\n{}\n{}\n{}",
        output.status,
        text(&output.stdout),
        text(&output.stderr)
    );
    output
}

/// Compiles a program of one file; `None` without a compiler.
fn compile(source: &str, program: &Path, library: &[&OsStr]) -> Option<()> {
    let include = package().join("include");
    let mut cc = Command::new(compiler("CC", "cc")?);
    cc.args([
        "-std=c11",
        "-Wall",
        "-Wextra",
        "-Wpedantic",
        "-Werror",
        "-O1",
        "-D_GNU_SOURCE",
        "-I",
    ]);
    cc.arg(include).arg(package().join(source)).arg("-o").arg(program).args(library);
    succeed(cc.args(["-lpthread", "-ldl", "-lm"]));
    Some(())
}

fn shared() -> [std::ffi::OsString; 4] {
    let mut rpath = std::ffi::OsString::from("-Wl,-rpath,");
    rpath.push(libraries());
    ["-L".into(), libraries().into(), "-lpmindex".into(), rpath]
}

#[test]
fn every_function_does_and_refuses_what_the_header_says() {
    let folder = tempfile::tempdir().expect("a folder");
    let archive = libraries().join("libpmindex.a");
    let shared = shared();
    let shared: Vec<&OsStr> = shared.iter().map(AsRef::as_ref).collect();
    let parts = ["interface", "several", "store", "stream", "forked"];
    // Of the static library one part shows that it links.
    for (name, library, parts) in
        [("shared", &shared[..], &parts[..]), ("static", &[archive.as_os_str()], &parts[..1])]
    {
        for part in parts {
            let program = folder.path().join(format!("{name}-{part}"));
            if compile(&format!("tests/{part}.c"), &program, library).is_none() {
                return;
            }
            let pool = program.with_extension("pool");
            let output = succeed(Command::new(&program).arg(&pool));
            assert_eq!(output.stdout, b"all of it holds\n", "{part}");
        }
    }
}

#[test]
fn the_bank_loses_no_money_and_makes_none() {
    let folder = tempfile::tempdir().expect("a folder");
    let program = folder.path().join("bank");
    let library = shared();
    let library: Vec<&OsStr> = library.iter().map(AsRef::as_ref).collect();
    if compile("examples/bank.c", &program, &library).is_none() {
        return;
    }
    let (pool, copy) = (folder.path().join("bank.pool"), folder.path().join("bank.copy"));
    let run = |pool: &Path, arguments: &[&str]| {
        let mut bank = Command::new(&program);
        bank.arg(pool).arg(arguments[0]).arg(&copy).args(&arguments[1..]);
        let output = bank.output().expect("it starts");
        let killed = arguments.len() > 1;
        let error = String::from_utf8_lossy(&output.stderr).into_owned();
        assert_eq!(output.status.code(), (!killed).then_some(0), "{error}");
        String::from_utf8_lossy(&output.stdout).into_owned()
    };
    let says = |booked: u64| format!("{booked} transfers, Ada has {} of 200\n", 100 - 10 * booked);
    for booked in [3, 6] {
        assert_eq!(run(&pool, &["3", "kill"]), says(booked - 1) + &says(booked));
    }
    assert_eq!(run(&copy, &["0"]), says(5), "the copy is the moment before the last transfer");
    let refused = "Ada has not got that much\n";
    assert_eq!(run(&pool, &["5"]), refused.to_owned() + &says(10) + &says(10));
}

#[test]
fn the_example_finds_what_it_stored_last_time() {
    let folder = tempfile::tempdir().expect("a folder");
    let program = folder.path().join("fruit");
    let library = shared();
    let library: Vec<&OsStr> = library.iter().map(AsRef::as_ref).collect();
    if compile("examples/fruit.c", &program, &library).is_none() {
        return;
    }
    for run in 1..=3 {
        let output = succeed(Command::new(&program).arg(folder.path().join("fruit.pool")));
        let expected = format!("apple: 3\neaten: {run}\npear: 5\n");
        assert_eq!(String::from_utf8_lossy(&output.stdout), expected);
    }
}

/// What a run of the orders' program prints; `None` if the medium is too weak for it. Killed at its end,
/// it has printed everything.
fn orders(program: &Path, arguments: &[&OsStr]) -> Option<String> {
    let output = Command::new(program).args(arguments).output().expect("it starts");
    let error = String::from_utf8_lossy(&output.stderr).into_owned();
    if error.contains("was required, this medium gives") {
        eprintln!("skipped: {error}");
        return None;
    }
    let killed = arguments.last().is_some_and(|&last| last == "kill");
    assert_eq!(output.status.code(), (!killed).then_some(0), "{error}");
    Some(String::from_utf8_lossy(&output.stdout).into_owned())
}

#[test]
fn the_orders_survive_in_a_journal_and_in_a_twin() {
    let folder = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).expect("a folder");
    let program = folder.path().join("orders");
    let library = shared();
    let library: Vec<&OsStr> = library.iter().map(AsRef::as_ref).collect();
    if compile("examples/orders.c", &program, &library).is_none() {
        return;
    }
    let (pool, count, kill) =
        (folder.path().join("orders.pool"), OsStr::new("3"), OsStr::new("kill"));
    for (found, last) in [(0, &[kill][..]), (3, &[kill]), (6, &[]), (9, &[])] {
        let arguments = [&[pool.as_os_str(), count], last].concat();
        let Some(printed) = orders(&program, &arguments) else { break };
        assert_eq!(printed, format!("{found} found\n3 booked\n"));
        // Closed, the pool is its file alone; killed, it is nothing without its journal.
        let journal = folder.path().join("orders.pool.journal");
        assert!(last.is_empty() || journal.exists());
    }
    let shm = Path::new("/dev/shm");
    let Some(memory) = shm.is_dir().then(|| tempfile::tempdir_in(shm).expect("a folder")) else {
        return eprintln!("skipped: no tmpfs");
    };
    let (pool, twin) = (memory.path().join("orders.pool"), folder.path().join("orders.twin"));
    for found in [0, 3, 6] {
        let arguments = [pool.as_os_str(), count, twin.as_os_str(), kill];
        let printed = orders(&program, &arguments).expect("what tmpfs gives");
        assert_eq!(printed, format!("{found} found\n3 booked\n"));
        // After a kill the pool is in memory; after a power failure it is not.
        if found != 3 {
            std::fs::remove_file(&pool).expect("a pool");
        }
    }
}

#[test]
fn the_header_is_good_cpp_too() {
    let Some(cpp) = compiler("CXX", "c++") else { return };
    let header = package().join("include/pmindex.h");
    let arguments = ["-std=c++11", "-Wall", "-Wextra", "-Werror", "-fsyntax-only", "-x", "c++"];
    succeed(Command::new(cpp).args(arguments).arg(header));
}
