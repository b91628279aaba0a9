//! Patterns of `KEYS` and `SCAN`: `*`, `?`, `[a-z]`, `[^a]`, and `\` before any of these.

/// Returns `true` if `text` is what the pattern says. Takes time in the product of both lengths at
/// most: a hostile pattern of many stars does not stop a partition.
pub(crate) fn matches(pattern: &[u8], text: &[u8]) -> bool {
    let (mut at, mut seen) = (pattern, text);
    // The pattern after the last star, and the text that it has not consumed.
    let mut star: Option<(&[u8], &[u8])> = None;
    loop {
        match (at, seen) {
            ([b'*', rest @ ..], _) => {
                star = Some((rest, seen));
                at = rest;
            }
            ([], []) => return true,
            (_, [byte, after @ ..]) if !at.is_empty() => match one(at, *byte) {
                Some(rest) => (at, seen) = (rest, after),
                None => match retry(&mut star) {
                    Some(again) => (at, seen) = again,
                    None => return false,
                },
            },
            _ => match retry(&mut star) {
                Some(again) => (at, seen) = again,
                None => return false,
            },
        }
    }
}

/// Lets the last star consume one byte more.
fn retry<'a>(star: &mut Option<(&'a [u8], &'a [u8])>) -> Option<(&'a [u8], &'a [u8])> {
    let (rest, swallowed) = star.as_mut()?;
    *swallowed = swallowed.get(1..)?;
    Some((*rest, *swallowed))
}

/// Returns the rest of the pattern if its first element matches this byte.
fn one(pattern: &[u8], byte: u8) -> Option<&[u8]> {
    match pattern {
        [b'?', rest @ ..] => Some(rest),
        [b'[', rest @ ..] => {
            let (found, rest) = class(rest, byte);
            found.then_some(rest)
        }
        [b'\\', escaped, rest @ ..] => (*escaped == byte).then_some(rest),
        [literal, rest @ ..] => (*literal == byte).then_some(rest),
        [] => None,
    }
}

/// Matches a class after its `[`; a class without its end reaches to the end of the pattern.
fn class(pattern: &[u8], byte: u8) -> (bool, &[u8]) {
    let (negated, mut rest) = match pattern {
        [b'^', rest @ ..] => (true, rest),
        rest => (false, rest),
    };
    let mut found = false;
    loop {
        match rest {
            [b'\\', literal, after @ ..] => {
                found |= *literal == byte;
                rest = after;
            }
            [b']', after @ ..] => return (found != negated, after),
            [low, b'-', high, after @ ..] => {
                found |= (*low.min(high)..=*low.max(high)).contains(&byte);
                rest = after;
            }
            [literal, after @ ..] => {
                found |= *literal == byte;
                rest = after;
            }
            [] => return (found != negated, rest),
        }
    }
}

/// Returns the literal bytes that every match begins with, which bound a scan.
pub(crate) fn prefix(pattern: &[u8]) -> &[u8] {
    let special = |byte: &u8| matches!(byte, b'*' | b'?' | b'[' | b'\\');
    &pattern[..pattern.iter().position(special).unwrap_or(pattern.len())]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn patterns_match_as_in_redis() {
        for (pattern, text, expected) in [
            ("*", "", true),
            ("h?llo", "hallo", true),
            ("h*llo", "heeeello", true),
            ("h[ae]llo", "hillo", false),
            ("h[^e]llo", "hallo", true),
            ("h[a-b]llo", "hbllo", true),
            ("h[b-a]llo", "hallo", true),
            ("h\\*llo", "h*llo", true),
            ("h\\*llo", "hxllo", false),
            ("*a*b", "xxaxxb", true),
            ("*a*b", "xxaxxbc", false),
            ("a", "ab", false),
            ("[]", "a", false),
        ] {
            assert_eq!(matches(pattern.as_bytes(), text.as_bytes()), expected, "{pattern} {text}");
        }
        assert!(!matches(&b"*a".repeat(2000), &b"a".repeat(1999)));
        assert_eq!(prefix(b"user:*"), b"user:");
    }
}
