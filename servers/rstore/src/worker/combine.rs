//! Combines the replies of several partitions, or of several threads, into one.

use std::collections::BTreeSet;

use crate::command::Gather;
use crate::wire::{Protocol, Reply, Shape};

use super::slots::Then;

/// Returns the number in an integer reply.
pub(super) fn count(reply: &[u8]) -> u64 {
    let digits = reply.strip_prefix(b":").and_then(|rest| rest.strip_suffix(b"\r\n"));
    let digits = digits.and_then(|digits| std::str::from_utf8(digits).ok());
    digits.and_then(|digits| digits.parse().ok()).unwrap_or(0)
}

/// Combines several replies; the first error is the reply, if there is one.
pub(super) fn combine(then: &Then, parts: &[Vec<u8>], protocol: Protocol) -> Vec<u8> {
    if !matches!(then, Then::Join | Then::Text | Then::Quiet | Then::Executed(_))
        && let Some(error) = parts.iter().find(|part| part.starts_with(b"-"))
    {
        return error.clone();
    }
    let mut reply = Reply::new(protocol);
    match then {
        Then::Join => reply.bytes = parts.concat(),
        Then::Text => reply.verbatim(&String::from_utf8_lossy(&parts.concat())),
        Then::Quiet => {}
        Then::Executed(places) => executed(places, parts, &mut reply),
        Then::Names => {
            let names = names(parts);
            reply.array(names.len());
            for name in names {
                reply.bytes.extend_from_slice(name);
            }
        }
        Then::CountNames => reply.count(names(parts).len()),
        Then::Listeners(channels) => listeners(channels, parts, &mut reply),
        Then::Gather(Gather::Sum) | Then::Watch => {
            let sum: u64 = parts.iter().map(|part| count(part)).sum();
            reply.integer(sum.cast_signed());
        }
        Then::Gather(Gather::Ok) | Then::Saved => reply.ok(),
        Then::Flushed => reply.bytes.extend_from_slice(b"OK\r\n"),
        Then::Backup(folder) => match folder.write_manifest() {
            Ok(()) => reply.ok(),
            Err(error) => reply.error(&format!("ERR backup: {error}")),
        },
        Then::Gather(Gather::Any) => {
            let null: &[&[u8]] = &[b"$-1\r\n", b"_\r\n"];
            let mut found = parts.iter().filter(|part| !null.contains(&part.as_slice()));
            match found.next() {
                Some(part) => reply.bytes.clone_from(part),
                None => reply.null(),
            }
        }
        Then::Gather(_) => {
            let rows: Vec<_> = parts.iter().map(|part| row(part)).collect();
            reply.head(Shape::Array, rows.iter().map(Vec::len).sum());
            for item in rows.iter().flatten() {
                reply.bytes.extend_from_slice(item);
            }
        }
        Then::Values(places) => {
            let mut values: Vec<&[u8]> = vec![b""; places.iter().map(Vec::len).sum()];
            for (places, part) in places.iter().zip(parts) {
                for (place, value) in places.iter().zip(row(part)) {
                    values[*place] = value;
                }
            }
            reply.array(values.len());
            for value in &values {
                reply.bytes.extend_from_slice(value);
            }
        }
        Then::Merge { limit, reverse, words } => {
            merge(*limit, *reverse, *words, parts, &mut reply);
        }
    }
    reply.bytes
}

/// Returns the names in some lists, each once.
fn names(parts: &[Vec<u8>]) -> BTreeSet<&[u8]> {
    parts.iter().flat_map(|part| row(part)).collect()
}

/// Writes channels, each with the sum of its numbers of listeners.
fn listeners(channels: &[Vec<u8>], parts: &[Vec<u8>], reply: &mut Reply) {
    let counts: Vec<_> = parts.iter().map(|part| row(part)).collect();
    reply.array(channels.len() * 2);
    for (at, channel) in channels.iter().enumerate() {
        reply.bulk(channel);
        let counts = counts.iter().filter_map(|counts| counts.get(at));
        reply.integer(counts.map(|number| count(number)).sum::<u64>().cast_signed());
    }
}

/// Writes the first rows of keys and values of all parts, in the order of the keys.
fn merge(limit: usize, reverse: bool, words: usize, parts: &[Vec<u8>], reply: &mut Reply) {
    let mut all: Vec<Vec<&[u8]>> = Vec::new();
    for part in parts {
        all.extend(row(part).chunks(words).map(<[&[u8]]>::to_vec));
    }
    all.sort_by(|one, two| key_of(one[0]).cmp(key_of(two[0])));
    if reverse {
        all.reverse();
    }
    all.truncate(limit);
    reply.array(all.len() * words);
    for item in all.iter().flatten() {
        reply.bytes.extend_from_slice(item);
    }
}

/// Writes the reply of a transaction with messages in these places.
fn executed(places: &[usize], parts: &[Vec<u8>], reply: &mut Reply) {
    let Some((first, counts)) = parts.split_first() else { return };
    if places.is_empty() || !first.starts_with(b"*") || first.starts_with(b"*-") {
        reply.bytes.extend_from_slice(first);
        return;
    }
    let mut replies = row(first).into_iter();
    let mut sums = vec![0; places.len()];
    for part in counts {
        sums.iter_mut().zip(row(part)).for_each(|(sum, item)| *sum += count(item));
    }
    let mut sums = sums.into_iter();
    let total = replies.len() + places.len();
    reply.array(total);
    for place in 0..total {
        if places.binary_search(&place).is_ok() {
            reply.integer(sums.next().unwrap_or(0_u64).cast_signed());
        } else {
            reply.bytes.extend_from_slice(replies.next().unwrap_or_default());
        }
    }
}

/// Returns the bytes of a bulk string.
fn key_of(item: &[u8]) -> &[u8] {
    let begin = item.iter().position(|byte| *byte == b'\n').map_or(0, |at| at + 1);
    &item[begin..item.len().saturating_sub(2).max(begin)]
}

/// Returns the items of an array, in their encoded form.
fn row(reply: &[u8]) -> Vec<&[u8]> {
    let mut items = Vec::new();
    let mut rest = line(reply).map_or(&b""[..], |(_, head)| &reply[head..]);
    while let Some((item, after)) = length(rest).and_then(|end| rest.split_at_checked(end)) {
        items.push(item);
        rest = after;
    }
    items
}

/// Returns the number in the first line, if it is one, and the bytes of the line.
fn line(bytes: &[u8]) -> Option<(Option<usize>, usize)> {
    let end = bytes.iter().position(|byte| *byte == b'\n')? + 1;
    let digits =
        bytes.get(1..end.checked_sub(2)?).and_then(|digits| std::str::from_utf8(digits).ok());
    Some((digits.and_then(|digits| digits.parse().ok()), end))
}

/// Returns the bytes of the first of some replies.
fn length(bytes: &[u8]) -> Option<usize> {
    let (number, head) = line(bytes)?;
    let items = match (bytes[0], number) {
        (b'$' | b'=', Some(length)) => return Some(head + length + 2),
        (b'*' | b'~' | b'>', Some(items)) => items,
        (b'%', Some(pairs)) => pairs * 2,
        _ => 0,
    };
    (0..items).try_fold(head, |at, _| Some(at + length(bytes.get(at..)?)?))
}
