//! What must not compile does not, and says why.
//!
//! The messages are those of one compiler version (`TRYBUILD=overwrite` rewrites them); under
//! another only what must compile is compiled here, and the `compile_fail` examples of
//! [`pm_struct!`](pmindex_core::pm_struct) stand for the rest.

/// The version whose messages are recorded: `rust-version` in `Cargo.toml`.
const RECORDED: &str = env!("CARGO_PKG_RUST_VERSION");

#[test]
fn safe_code_can_declare_words_and_nothing_else() {
    let cases = trybuild::TestCases::new();
    cases.pass("tests/ui/pass/*.rs");
    let compiler = std::env::var("RUSTC").unwrap_or_else(|_| "rustc".into());
    let version = std::process::Command::new(compiler).arg("--version").output();
    let version = version.expect("a compiler built this").stdout;
    if String::from_utf8_lossy(&version).contains(&format!(" {RECORDED}.")) {
        cases.compile_fail("tests/ui/fail/*.rs");
    } else {
        eprintln!("messages are recorded for Rust {RECORDED}: not compared");
    }
}
