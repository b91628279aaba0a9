//! Rule: public methods with the names of `Index` say what these names promise, and nothing else.
//!
//! The names follow `BTreeMap`, and every index has them: the first sentence of the doc of `insert` says that it
//! replaces, that of `try_insert` that it does not, that of `update` what it returns if there is no record. A method
//! is one of these if it takes a key (`&K::Ref`) or records of the index; other methods may have these names.

use super::File;

/// A name, what the first paragraph of its doc begins with, and what else is in it.
struct Name {
    method: &'static str,
    begins: &'static [&'static str],
    has: &'static str,
}

const NAMES: &[Name] = &[
    Name { method: "insert", begins: &["Adds or replaces", "Inserts or replaces"], has: "returns" },
    Name {
        method: "try_insert",
        begins: &["Adds a record", "Inserts a record"],
        has: "[`Occupied`]",
    },
    Name { method: "update", begins: &["Replaces a value"], has: "[`Missing`]" },
    Name {
        method: "put",
        begins: &["Adds or replaces", "Inserts or replaces"],
        has: "without reading",
    },
    Name { method: "remove", begins: &["Removes a record and returns its value"], has: "" },
    Name { method: "remove_exact", begins: &["Removes a record if its value"], has: "returns" },
    Name { method: "get_many", begins: &["Looks up many keys"], has: "`out[i]`" },
    Name { method: "try_insert_many", begins: &["Adds many records"], has: "keys are new" },
    Name { method: "put_many", begins: &["Adds or replaces many records"], has: "" },
    Name { method: "insert_many", begins: &["Adds or replaces many records"], has: "`out[i]`" },
    Name { method: "remove_many", begins: &["Removes many records"], has: "`out[i]`" },
];

pub(super) fn check(files: &[File]) -> Vec<String> {
    let is_library = |file: &&File| file.path.starts_with("crates/") && file.path.contains("/src/");
    files.iter().filter(is_library).filter(|file| file.is_rust()).flat_map(check_file).collect()
}

fn check_file(file: &File) -> Vec<String> {
    let lines: Vec<&str> = file.text.lines().map(str::trim_start).collect();
    let mut complaints = Vec::new();
    for (at, line) in lines.iter().enumerate() {
        let Some(name) = NAMES.iter().find(|name| is_method(&lines[at..], line, name.method))
        else {
            continue;
        };
        let doc = first_paragraph(&lines[..at]);
        let begins = name.begins.iter().any(|begin| doc.starts_with(begin));
        if doc.is_empty() || begins && doc.contains(name.has) {
            continue; // an undocumented one implements a trait, or the compiler complains
        }
        complaints.push(format!(
            "{}:{}: the doc of `{}` begins with {:?} and mentions {:?}, as for every index",
            file.path,
            at + 1,
            name.method,
            name.begins,
            name.has,
        ));
    }
    complaints
}

/// Returns `true` if a method of an index of this name begins on `line`, the first of `rest`.
fn is_method(rest: &[&str], line: &str, name: &str) -> bool {
    let line = line.strip_prefix("pub ").unwrap_or(line);
    let Some(after) = line.strip_prefix("fn ").and_then(|line| line.strip_prefix(name)) else {
        return false;
    };
    let signature: String = rest.iter().take(8).copied().collect::<Vec<_>>().join(" ");
    let signature = signature.split(['{', ';']).next().unwrap_or_default();
    let of_index = ["key: &K::Ref", "keys: &[K]", "records: &[(K, V)]"];
    after.starts_with(['(', '<'])
        && signature.contains("self")
        && signature.contains("Error>") | signature.contains("InsertMany")
        && of_index.iter().any(|parameter| signature.contains(parameter))
}

/// Returns the first paragraph of the doc at the end of `lines`, before attributes.
fn first_paragraph(lines: &[&str]) -> String {
    let is_part = |line: &&&str| line.starts_with("///") || line.starts_with("#[");
    let doc: Vec<&str> = lines.iter().rev().take_while(is_part).copied().collect();
    let doc = doc.into_iter().rev().filter_map(|line| line.strip_prefix("///"));
    let paragraph: Vec<&str> = doc.map(str::trim).take_while(|line| !line.is_empty()).collect();
    paragraph.join(" ")
}

#[cfg(test)]
mod tests {
    use super::super::file;
    use super::*;

    fn complaints(doc: &str, signature: &str) -> usize {
        let text = format!("//! M.\nimpl I {{\n{doc}\n    #[inline]\n    pub fn {signature} {{\n");
        check(&[file("crates/tree/src/access.rs", &text)]).len()
    }

    #[test]
    fn docs_say_what_the_name_does() {
        let insert = "insert(&self, key: &K::Ref, value: &V::Ref) -> Result<Option<V>, IndexError>";
        assert_eq!(complaints("    /// Adds or replaces; returns the old value.", insert), 0);
        assert_eq!(complaints("    /// Adds a record; `false` if the key exists.", insert), 1);
        let update = "update(\n&self,\nkey: &K::Ref,\n) -> Result<Result<(), Missing>, IndexError>";
        assert_eq!(complaints("    /// Replaces a value; `false` if it is missing.", update), 1);
        let two = "    /// Replaces a value; returns\n    /// [`Missing`] if there is none.\n    ///\n    /// X.";
        assert_eq!(complaints(two, update), 0);
        assert_eq!(
            complaints("    /// Replaces a value.\n    ///\n    /// [`Missing`].", update),
            1
        );
    }

    #[test]
    fn other_methods_may_have_the_name() {
        let doc = "    /// Adds a key and its word.";
        assert_eq!(complaints(doc, "insert(&self, key: &[u8]) -> Result<bool, IndexError>"), 0);
        assert_eq!(complaints(doc, "insert_at(&self, key: &K::Ref) -> Result<(), IndexError>"), 0);
    }
}
