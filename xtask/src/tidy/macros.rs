//! Rule: pm-core's macros never place a caller's code inside `unsafe`.
//!
//! `forbid(unsafe_code)` does not see through macros, so an exported macro that pasted a caller's
//! expression into an `unsafe` block would break the promise of every crate above. In a
//! `macro_rules!` of pm-core no metavariable may stand inside an `unsafe` block or function, and
//! inside an `unsafe impl` only names, types and literals, each parsed as such.

use super::File;

pub(super) fn check(files: &[File]) -> Vec<String> {
    let mut complaints = Vec::new();
    for file in files.iter().filter(|f| f.is_rust() && f.path.starts_with("crates/pm-core/src/")) {
        let code = without_comments(&file.text);
        for (start, _) in code.match_indices("macro_rules!") {
            let body = braces(&code[start..]).unwrap_or_default();
            for (at, _) in body.match_indices("unsafe") {
                if braces(&body[at..]).is_some_and(|inner| breaks(&body[at..], inner, body)) {
                    let name = code[start + "macro_rules!".len()..].split('{').next();
                    complaints.push(format!(
                        "{}: macro {} puts a caller's tokens inside `unsafe`",
                        file.path,
                        name.unwrap_or_default().trim()
                    ));
                }
            }
        }
    }
    complaints
}

/// Returns `true` if the text in the braces of the `unsafe` at the start of `text` breaks the rule.
fn breaks(text: &str, inner: &str, body: &str) -> bool {
    let is_impl = text.starts_with("unsafe impl");
    metavariables(inner).any(|name| {
        let declared = format!("${name}:");
        let harmless = ["ident", "ty", "literal"]
            .iter()
            .any(|kind| body.replace(' ', "").contains(&format!("{declared}{kind}")));
        !(is_impl && harmless)
    })
}

/// Returns the names of the metavariables in `text`, except `$crate`.
fn metavariables(text: &str) -> impl Iterator<Item = &str> {
    text.split('$').skip(1).filter_map(|rest| {
        let end = rest.find(|c: char| !c.is_alphanumeric() && c != '_').unwrap_or(rest.len());
        let name = &rest[..end];
        (!name.is_empty() && name != "crate").then_some(name)
    })
}

fn without_comments(text: &str) -> String {
    text.lines().map(|line| line.split("//").next().unwrap_or_default()).fold(
        String::with_capacity(text.len()),
        |mut code, line| {
            code.push_str(line);
            code.push('\n');
            code
        },
    )
}

/// Returns the text between the first `{` and the `}` that closes it.
fn braces(text: &str) -> Option<&str> {
    let open = text.find('{')?;
    let mut depth = 0_usize;
    for (at, c) in text[open..].char_indices() {
        match c {
            '{' => depth += 1,
            '}' => depth -= 1,
            _ => {}
        }
        if depth == 0 {
            return Some(&text[open + 1..open + at]);
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::super::file;
    use super::*;

    fn complaints(body: &str) -> usize {
        let text = format!("//! M.\nmacro_rules! m {{\n($e:expr, $t:ty) => {{ {body} }};\n}}\n");
        check(&[file("crates/pm-core/src/m.rs", &text)]).len()
    }

    #[test]
    fn a_callers_expression_inside_unsafe_is_found() {
        assert_eq!(complaints("unsafe { read($e) }"), 1);
        assert_eq!(complaints("unsafe impl X for Y { const Z: u8 = $e; }"), 1);
        assert_eq!(complaints("unsafe { read::<$t>() }"), 1);
    }

    #[test]
    fn names_and_bounds_outside_the_braces_are_allowed() {
        assert_eq!(complaints("unsafe impl PmType for $t where $t: Word {}"), 0);
        assert_eq!(complaints("unsafe impl X for $t { const Z: usize = $crate::of::<$t>(); }"), 0);
        assert_eq!(complaints("let e = $e; unsafe { read(e) }"), 0);
        assert_eq!(complaints("// SAFETY: unsafe { $e }\n safe($e)"), 0);
    }
}
