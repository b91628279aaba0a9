//! Inline requests: the words of a line, with or without the quotes of a shell.

/// Splits a line into words; returns `None` if a quote has no end, or no space after it.
pub(super) fn split(line: &[u8]) -> Option<Vec<Vec<u8>>> {
    let (mut words, mut rest) = (Vec::new(), line);
    loop {
        let begin = rest.iter().position(|byte| !byte.is_ascii_whitespace() && *byte != 0);
        let Some(begin) = begin else { return Some(words) };
        rest = &rest[begin..];
        let mut word = Vec::new();
        rest = bare(rest, &mut word)?;
        words.push(word);
    }
}

/// Reads one word, with the quoted parts in it.
fn bare<'a>(mut rest: &'a [u8], word: &mut Vec<u8>) -> Option<&'a [u8]> {
    while let Some((byte, after)) = rest.split_first() {
        match byte {
            b'"' => rest = double_quoted(after, word)?,
            b'\'' => rest = single_quoted(after, word)?,
            b' ' | b'\n' | b'\r' | b'\t' | 0 => break,
            other => {
                word.push(*other);
                rest = after;
                continue;
            }
        }
        if rest.first().is_some_and(|next| !next.is_ascii_whitespace()) {
            return None;
        }
        break;
    }
    Some(rest)
}

fn double_quoted<'a>(mut rest: &'a [u8], word: &mut Vec<u8>) -> Option<&'a [u8]> {
    loop {
        match rest {
            [b'\\', b'x', high, low, after @ ..]
                if high.is_ascii_hexdigit() && low.is_ascii_hexdigit() =>
            {
                let digit = |byte: &u8| char::from(*byte).to_digit(16).unwrap_or(0) as u8;
                word.push(digit(high) * 16 + digit(low));
                rest = after;
            }
            [b'\\', escaped, after @ ..] => {
                word.push(match escaped {
                    b'n' => b'\n',
                    b'r' => b'\r',
                    b't' => b'\t',
                    b'b' => 8,
                    b'a' => 7,
                    other => *other,
                });
                rest = after;
            }
            [b'"', after @ ..] => return Some(after),
            [byte, after @ ..] => {
                word.push(*byte);
                rest = after;
            }
            [] => return None,
        }
    }
}

fn single_quoted<'a>(mut rest: &'a [u8], word: &mut Vec<u8>) -> Option<&'a [u8]> {
    loop {
        match rest {
            [b'\\', b'\'', after @ ..] => {
                word.push(b'\'');
                rest = after;
            }
            [b'\'', after @ ..] => return Some(after),
            [byte, after @ ..] => {
                word.push(*byte);
                rest = after;
            }
            [] => return None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quotes_keep_spaces_and_escapes() {
        let words = split(br#"a "b c\n\x2a" 'd\'e' f"g""#).expect("balanced");
        assert_eq!(words, [&b"a"[..], b"b c\n*", b"d'e", b"fg"]);
        for bad in [&br#""a"#[..], br#""a"b"#, b"'a"] {
            assert_eq!(split(bad), None);
        }
    }
}
