//! The persistence steps that a source file contains, executed or not.
//!
//! The trace knows the steps that were executed. A step in a branch that no test takes is in no trace, so the
//! sources are searched for calls that flush, fence or order. Bodies of `#[track_caller]` functions are
//! skipped (their callers are the steps), and so are test modules, comments, and lines marked `// crash:
//! unreachable`, which must say why.

const CALLS: [&str; 14] = [
    ".flush(",
    ".flush_words(",
    ".flush_together(",
    ".fence(",
    ".in_order(",
    ".persist(",
    ".written_back(",
    ".stream_words(",
    ".stage(",
    ".prepare(",
    ".seal(",
    ".settle(",
    ".alloc_into(",
    ".free_from(",
];

const EXEMPT: &str = "// crash: unreachable";

/// Returns the lines that contain a step, numbered from 1.
pub(crate) fn steps_in(text: &str) -> Vec<(u32, &str)> {
    let mut steps = Vec::new();
    let mut skipping = Skipping::No;
    for (number, line) in (1u32..).zip(text.lines()) {
        let code = line.trim();
        if code.starts_with("#[cfg(test)]") {
            break;
        }
        if code.starts_with("//") {
            continue;
        }
        if code == "#[track_caller]" {
            skipping = Skipping::UntilBody;
        }
        skipping = skipping.after(code);
        let call = CALLS.iter().any(|call| code.contains(call));
        if call && skipping == Skipping::No && !code.contains(EXEMPT) {
            steps.push((number, code));
        }
    }
    steps
}

#[derive(Clone, Copy, PartialEq)]
enum Skipping {
    No,
    UntilBody,
    /// Braces still open.
    Body(usize),
}

impl Skipping {
    fn after(self, code: &str) -> Self {
        let mut state = self;
        for c in code.chars() {
            state = match (state, c) {
                (Self::UntilBody, '{') => Self::Body(1),
                (Self::UntilBody, ';') | (Self::Body(1), '}') => Self::No,
                (Self::Body(depth), '{') => Self::Body(depth + 1),
                (Self::Body(depth), '}') => Self::Body(depth - 1),
                (other, _) => other,
            };
        }
        state
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn steps_are_found_and_helpers_comments_and_exemptions_are_not() {
        let text = "fn a(&self) {\n    // pm.fence(x)\n    let f = pm.flush(&x);\n    pm.fence(f)?;\n}\n\
                    #[track_caller]\nfn b(&self) {\n    if c { pm.persist(x)?; }\n}\n\
                    fn c() {\n    pm.persist(y); // crash: unreachable, shows an error\n    op.seal();\n}\n\
                    #[cfg(test)]\nmod tests { fn d() { pm.fence(f); } }\n";
        let lines: Vec<u32> = steps_in(text).into_iter().map(|(line, _)| line).collect();
        assert_eq!(lines, [3, 4, 12]);
    }
}
