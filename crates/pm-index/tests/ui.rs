//! What cannot be stored, or cannot be a key, does not compile, and the message says what to do.
//!
//! The messages are those of one compiler version (`TRYBUILD=overwrite` rewrites them); under another
//! they are not compared.

/// The version whose messages are recorded: `rust-version` in `Cargo.toml`.
const RECORDED: &str = env!("CARGO_PKG_RUST_VERSION");

#[test]
fn what_has_no_encoding_does_not_compile() {
    let compiler = std::env::var("RUSTC").unwrap_or_else(|_| "rustc".into());
    let version = std::process::Command::new(compiler).arg("--version").output();
    let version = version.expect("a compiler built this").stdout;
    if String::from_utf8_lossy(&version).contains(&format!(" {RECORDED}.")) {
        trybuild::TestCases::new().compile_fail("tests/ui/fail/*.rs");
    } else {
        eprintln!("messages are recorded for Rust {RECORDED}: not compared");
    }
}
