//! `cargo xtask bindgen`: generates the bindings to libpmem, which are checked in, so that a build
//! does not need libclang.

use std::path::Path;

use crate::shell::{output, root};

const HEADER: &str = "/usr/include/libpmem.h";
const BINDINGS: &str = "crates/pmem-rs/src/sys.rs";
const DOC: &str = "//! All of libpmem, loaded at run time. Generated from its header by \
                   `cargo xtask bindgen`.";

/// Generates the bindings again.
pub(crate) fn run() -> Result<(), String> {
    if !Path::new(HEADER).is_file() {
        return Err(format!("there is no {HEADER}: Debian has it in the package libpmem-dev"));
    }
    let bindings = output(
        "bindgen",
        &[
            "--raw-line",
            DOC,
            "--dynamic-loading",
            "Libpmem",
            "--allowlist-function",
            "pmem_.*",
            "--allowlist-var",
            "PMEM_(FILE|F_MEM|MAJOR|MINOR).*",
            "--no-layout-tests",
            "--use-core",
            HEADER,
        ],
    )
    .map_err(|e| format!("{e}\nDebian has bindgen in the package bindgen"))?;
    let path = root().join(BINDINGS);
    // The first line of the tool would precede the module's documentation.
    let text = bindings.split_once(DOC).map_or(bindings.as_str(), |(_, rest)| rest);
    let text = format!("{DOC}\n{}\n", text.trim_end());
    let old = std::fs::read_to_string(&path).unwrap_or_default();
    std::fs::write(&path, &text).map_err(|e| format!("{}: {e}", path.display()))?;
    println!("{BINDINGS}: {}", if old == text { "unchanged" } else { "written" });
    Ok(())
}
