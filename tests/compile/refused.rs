//! What the macros refuse does not compile, and the message says what to do: structs that are not made of
//! words (`words/`), types that have no encoding or no order as keys (`encodings/`).
//!
//! The messages are those of one compiler version (`TRYBUILD=overwrite` rewrites them). Under another
//! version nothing is compared: the `compile_fail` examples of [`pm_struct!`](pmindex_core::pm_struct)
//! stand for the rest.

/// The version whose messages are recorded: `rust-version` in `Cargo.toml`.
const RECORDED: &str = env!("CARGO_PKG_RUST_VERSION");

#[test]
fn what_is_refused_does_not_compile() {
    let compiler = std::env::var("RUSTC").unwrap_or_else(|_| "rustc".into());
    let version = std::process::Command::new(compiler).arg("--version").output();
    let version = version.expect("a compiler built this").stdout;
    if String::from_utf8_lossy(&version).contains(&format!(" {RECORDED}.")) {
        let cases = trybuild::TestCases::new();
        cases.pass("accepted/*.rs");
        cases.compile_fail("words/*.rs");
        cases.compile_fail("encodings/*.rs");
    } else {
        eprintln!("messages are recorded for Rust {RECORDED}: not compared");
    }
}
