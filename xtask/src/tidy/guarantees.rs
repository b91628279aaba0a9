//! Rule: every sentence of `docs/guarantees.md` names tests that exist.

use super::File;

const PAGE: &str = "docs/guarantees.md";

pub(super) fn check(files: &[File]) -> Vec<String> {
    let Some(page) = files.iter().find(|file| file.path == PAGE) else { return Vec::new() };
    let is_test = |name: &str| {
        let definition = format!("fn {name}(");
        files.iter().any(|file| file.is_rust() && file.text.contains(&definition))
    };
    let mut complaints = Vec::new();
    for (number, line) in page.text.lines().enumerate() {
        for name in line.split('`').skip(1).step_by(2).filter(|word| looks_like_a_test(word)) {
            if !is_test(name) {
                complaints.push(format!("{PAGE}:{}: there is no test {name}", number + 1));
            }
        }
    }
    complaints
}

/// Returns `true` if a word looks like the name of a test, which is a sentence.
fn looks_like_a_test(word: &str) -> bool {
    word.matches('_').count() >= 2
        && word.chars().all(|c| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '_')
}

#[cfg(test)]
mod tests {
    use super::super::file;
    use super::*;

    #[test]
    fn a_guarantee_without_its_test_is_a_complaint() {
        let page = file(PAGE, "* It holds. `this_is_shown` and `that_is_not`, in `Flush` mode.\n");
        let code = file("tests/a.rs", "//! A.\n#[test]\nfn this_is_shown() {}\n");
        let complaints = check(&[page, code]);
        assert_eq!(complaints, ["docs/guarantees.md:1: there is no test that_is_not"]);
    }
}
