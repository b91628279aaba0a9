//! The header is the one that follows from the sources.
#![forbid(unsafe_code)]

use std::path::Path;

/// Its name has `golden` in it: `cargo xtask bless` writes the header anew.
#[test]
fn golden_header_is_current() {
    let package = Path::new(env!("CARGO_MANIFEST_DIR"));
    let config = cbindgen::Config::from_file(package.join("cbindgen.toml")).expect("a good file");
    let mut builder = cbindgen::Builder::new().with_config(config);
    let files = [
        "status",
        "boundary",
        "dyn_index",
        "pool",
        "backup",
        "index",
        "records",
        "many",
        "numbers",
        "cursor",
        "store",
        "moments",
        "watch",
        "expiring",
    ];
    for file in files {
        builder = builder.with_src(package.join("src").join(file).with_extension("rs"));
    }
    let mut text = Vec::new();
    builder.generate().expect("parsed").write(&mut text);
    let mut text = String::from_utf8(text).expect("text").replace('`', "");
    // What stands for a pointer in the sources is a type with a name there.
    for pointed in ["char", "lookup", "addition", "change"] {
        text = text.replace(&format!("{pointed} * "), &format!("{pointed} *"));
    }
    let header = package.join("include/pmindex.h");
    if std::env::var_os("PMINDEX_BLESS").is_some() {
        std::fs::write(&header, &text).expect("written");
    }
    let present = std::fs::read_to_string(&header).expect("readable");
    assert!(present == text, "include/pmindex.h is out of date: run `cargo xtask bless`");
}

#[test]
fn every_exported_function_is_in_the_header() {
    let package = Path::new(env!("CARGO_MANIFEST_DIR"));
    let header = std::fs::read_to_string(package.join("include/pmindex.h")).expect("readable");
    let mut functions = 0;
    for file in std::fs::read_dir(package.join("src")).expect("a folder") {
        let source = std::fs::read_to_string(file.expect("an entry").path()).expect("readable");
        for rest in source.split("pub extern \"C\" fn ").skip(1) {
            let name = rest.split('(').next().unwrap_or_default();
            assert!(header.contains(&format!("{name}(")), "{name} is not in the header");
            functions += 1;
        }
    }
    assert!(functions > 85, "{functions} functions found");
}
