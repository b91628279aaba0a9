//! Commands of keys in order: `SCAN`, `KEYS`, and `RANGE`, which Redis does not have.

use std::ops::Bound;

use crate::keyspace::item::{self, Head, KEYS, MEMBER_PREFIX};
use crate::keyspace::{Item, Kind, NEVER, glob};

use super::{Call, Outcome, Refusal};

/// The options of `SCAN` and similar commands, from argument `at` on.
struct Options<'a> {
    pattern: Option<&'a [u8]>,
    count: usize,
    kind: Option<Vec<u8>>,
}

impl<'a> Options<'a> {
    fn parse(call: &Call<'a, '_>, mut at: usize, of_keys: bool) -> Result<Self, Refusal> {
        let mut options = Self { pattern: None, count: 10, kind: None };
        while at < call.args.len() {
            let value = call.args.get(at + 1).ok_or(Refusal::SYNTAX)?;
            if call.args.is(at, "MATCH") {
                options.pattern = Some(value);
            } else if call.args.is(at, "COUNT") {
                let count = call.integer(at + 1)?;
                let count = usize::try_from(count).ok().filter(|count| *count > 0);
                options.count = count.ok_or(Refusal::SYNTAX)?;
            } else if call.args.is(at, "TYPE") && of_keys {
                options.kind = Some(value.to_ascii_lowercase());
            } else {
                return Err(Refusal::SYNTAX);
            }
            at += 2;
        }
        Ok(options)
    }

    fn takes(&self, name: &[u8]) -> bool {
        self.pattern.is_none_or(|pattern| glob::matches(pattern, name))
    }
}

/// The bits of a cursor that hold the number of the partition.
pub(crate) const PARTITION_BITS: u32 = 10;

fn cursor(call: &Call<'_, '_>, number: usize) -> Result<u64, Refusal> {
    let text = std::str::from_utf8(call.args.at(number)).ok();
    text.and_then(|text| text.parse().ok()).ok_or(Refusal::of("ERR invalid cursor"))
}

/// `SCAN cursor [MATCH pattern] [COUNT count] [TYPE type]`, of one partition. The last cursor of a partition
/// leads to the start of the next one.
pub(crate) fn scan(call: &mut Call<'_, '_>) -> Outcome {
    let number = cursor(call, 1)? >> PARTITION_BITS;
    let options = Options::parse(call, 2, true)?;
    let prefix = options.pattern.map_or(&b""[..], glob::prefix);
    let from = match number {
        0 => Bound::Included(item::key_of(prefix)),
        number => {
            let key = call.place.cursors.key(number).ok_or(Refusal::of("ERR invalid cursor"))?;
            Bound::Excluded(key.to_vec())
        }
    };
    let (mut keys, mut seen, mut last) = (Vec::new(), 0, None);
    let end = [KEYS + 1];
    let range = (from.as_ref().map(Vec::as_slice), Bound::Excluded(&end[..]));
    call.draft.scan(range, false, &mut |record, value| {
        let key = &record[1..];
        if !key.starts_with(prefix) {
            return false;
        }
        if seen == options.count {
            last = Some(true);
            return false;
        }
        seen += 1;
        let of_kind = options.kind.as_ref().is_none_or(|kind| kind_name(value).as_bytes() == kind);
        if of_kind && options.takes(key) {
            keys.push(key.to_vec());
        }
        last_seen(&mut call.place.last_scanned, record);
        true
    })?;
    let next = match last {
        Some(_) => {
            let record = std::mem::take(&mut call.place.last_scanned);
            call.place.cursors.after(&record) << PARTITION_BITS | call.place.number as u64
        }
        None => call.place.next.unwrap_or(0) as u64,
    };
    call.out.array(2);
    call.out.bulk(next.to_string().as_bytes());
    call.out.bulks(&keys);
    Ok(())
}

fn last_seen(last: &mut Vec<u8>, record: &[u8]) {
    last.clear();
    last.extend_from_slice(record);
}

fn kind_name(value: &[u8]) -> &'static str {
    let tag = value.get(..1).unwrap_or_default().to_vec();
    Item { record: tag, expires: NEVER }.kind().map_or("unknown", Kind::name)
}

/// `KEYS pattern`
pub(crate) fn keys(call: &mut Call<'_, '_>) -> Outcome {
    let pattern = call.args.at(1);
    let (mut keys, prefix) = (Vec::new(), glob::prefix(pattern));
    let (from, end) = (item::key_of(prefix), [KEYS + 1]);
    let range = (Bound::Included(&from[..]), Bound::Excluded(&end[..]));
    call.draft.scan(range, false, &mut |record, _| {
        let key = &record[1..];
        if key.starts_with(prefix) && glob::matches(pattern, key) {
            keys.push(key.to_vec());
        }
        key.starts_with(prefix)
    })?;
    call.out.bulks(&keys);
    Ok(())
}

/// One end of a range of keys: `-`, `+`, `(key`, `[key`, or a key, which is included.
fn bound(word: &[u8]) -> Bound<Vec<u8>> {
    match word {
        b"-" => Bound::Included(vec![KEYS]),
        b"+" => Bound::Excluded(vec![KEYS + 1]),
        [b'(', key @ ..] => Bound::Excluded(item::key_of(key)),
        [b'[', key @ ..] => Bound::Included(item::key_of(key)),
        key => Bound::Included(item::key_of(key)),
    }
}

/// The number of keys that `RANGE` replies at most, unless `LIMIT` says otherwise.
const RANGE_LIMIT: usize = 1000;

/// The options of `RANGE`.
#[derive(Clone, Copy, Debug)]
pub(crate) struct RangeOptions {
    pub(crate) limit: usize,
    pub(crate) reverse: bool,
    pub(crate) keys_only: bool,
}

impl RangeOptions {
    /// Reads the options after the two ends.
    fn parse(args: crate::wire::Args<'_>) -> Result<Self, Refusal> {
        let (mut options, mut at) =
            (Self { limit: RANGE_LIMIT, reverse: false, keys_only: false }, 3);
        while at < args.len() {
            if args.is(at, "LIMIT") {
                at += 1;
                let limit = crate::wire::integer(args.at(at)).ok_or(Refusal::NOT_INTEGER)?;
                options.limit = usize::try_from(limit).map_err(|_| Refusal::SYNTAX)?;
            } else if args.is(at, "REV") {
                options.reverse = true;
            } else if args.is(at, "KEYSONLY") {
                options.keys_only = true;
            } else {
                return Err(Refusal::SYNTAX);
            }
            at += 1;
        }
        Ok(options)
    }
}

/// Returns the options of a `RANGE` request.
pub(crate) fn range_options(args: crate::wire::Args<'_>) -> Result<RangeOptions, Refusal> {
    RangeOptions::parse(args)
}

/// `RANGE first last [LIMIT n] [REV] [KEYSONLY]`: replies keys in order, each with its string; the value of
/// other types is null.
pub(crate) fn range(call: &mut Call<'_, '_>) -> Outcome {
    let options = RangeOptions::parse(call.args)?;
    let (from, to) = (bound(call.args.at(1)), bound(call.args.at(2)));
    let range = (from.as_ref().map(Vec::as_slice), to.as_ref().map(Vec::as_slice));
    let mut found = Vec::new();
    if options.limit > 0 {
        call.draft.scan(range, options.reverse, &mut |record, value| {
            let value = if options.keys_only { Vec::new() } else { value.to_vec() };
            found.push((record[1..].to_vec(), value));
            found.len() < options.limit
        })?;
    }
    call.out.array(if options.keys_only { found.len() } else { found.len() * 2 });
    for (key, record) in found {
        call.out.bulk(&key);
        if !options.keys_only {
            call.out.maybe(Item { record, expires: NEVER }.text());
        }
    }
    Ok(())
}

/// Collections up to this length are replied in one piece.
const WHOLE: u64 = 512;

/// `HSCAN`, `SSCAN`, `ZSCAN`: `key cursor [MATCH pattern] [COUNT count]`
pub(crate) fn scan_members(call: &mut Call<'_, '_>, kind: Kind) -> Outcome {
    let number = cursor(call, 2)?;
    let options = Options::parse(call, 3, false)?;
    let head = call.head(call.key(), kind)?;
    let Some(head) = head else {
        call.out.array(2);
        call.out.bulk(b"0");
        call.out.array(0);
        return Ok(());
    };
    let from = match number {
        0 => Bound::Included(head.bounds(item::BY_NAME).0),
        number => {
            let record = call.place.cursors.key(number);
            let record = record.filter(|record| item::id_in(record) == Some(head.id));
            Bound::Excluded(record.ok_or(Refusal::of("ERR invalid cursor"))?.to_vec())
        }
    };
    let most = if head.length <= WHOLE { usize::MAX } else { options.count };
    let (members, last) = some_members(call, &head, &from, most)?;
    let next = last.map_or(0, |record| call.place.cursors.after(&record));
    let members: Vec<_> = members.into_iter().filter(|(name, _)| options.takes(name)).collect();
    call.out.array(2);
    call.out.bulk(next.to_string().as_bytes());
    call.out.array(members.len() * if kind == Kind::Set { 1 } else { 2 });
    for (name, value) in members {
        call.out.bulk(&name);
        match kind {
            Kind::Hash => call.out.bulk(&value),
            Kind::Sorted => {
                let score = value.first_chunk().map_or(0.0, |bits| f64::from_be_bytes(*bits));
                call.out.bulk(crate::wire::general_17(score).as_bytes());
            }
            _ => {}
        }
    }
    Ok(())
}

type Members = Vec<(Vec<u8>, Vec<u8>)>;

/// Returns the names and values of up to `most` members, and the last record if there are more.
fn some_members(
    call: &Call<'_, '_>,
    head: &Head,
    from: &Bound<Vec<u8>>,
    most: usize,
) -> Result<(Members, Option<Vec<u8>>), Refusal> {
    let (_, end) = head.bounds(item::BY_NAME);
    let range = (from.as_ref().map(Vec::as_slice), Bound::Excluded(&end[..]));
    let (mut members, mut more) = (Members::new(), false);
    call.draft.scan(range, false, &mut |record, value| {
        more = members.len() == most;
        if !more {
            members.push((record[MEMBER_PREFIX..].to_vec(), value.to_vec()));
        }
        !more
    })?;
    let last = members.last().filter(|_| more).map(|(name, _)| head.member(name));
    Ok((members, last))
}

#[cfg(test)]
mod tests {
    use super::super::call::tests::Bench;

    #[test]
    fn scans_go_on_where_they_stopped() {
        let mut bench = Bench::new();
        for number in 0..25 {
            bench.run(&format!("SET k{number:02} v"));
        }
        bench.run("SADD set a");
        let (mut cursor, mut seen) = ("0".to_owned(), 0);
        loop {
            let reply = bench.run(&format!("SCAN {cursor} COUNT 7 MATCH k* TYPE string"));
            let parts: Vec<_> = reply.split('|').collect();
            cursor = parts[2].to_owned();
            seen += parts.iter().filter(|part| part.starts_with('k')).count();
            bench.run("DEL k06");
            if cursor == "0" {
                break;
            }
        }
        assert_eq!(seen, 25);
        bench.expect(&[
            ("SCAN x", "-ERR invalid cursor"),
            ("SCAN 99328", "-ERR invalid cursor"),
            ("SCAN 0 COUNT 0", "-ERR syntax error"),
            ("KEYS k*[05]1", "*1|$3|k01"),
            ("RANGE k23 (set", "*4|$3|k23|$1|v|$3|k24|$1|v"),
            ("RANGE - + LIMIT 1 REV", "*2|$3|set|$-1"),
            ("RANGE k00 k05 KEYSONLY LIMIT 2", "*2|$3|k00|$3|k01"),
            ("SSCAN set 0", "*2|$1|0|*1|$1|a"),
            ("SSCAN set 7", "-ERR invalid cursor"),
        ]);
    }
}
