//! Commands of strings.

use crate::keyspace::{Item, NEVER, item};

use super::call::MAX_TEXT;
use super::expiry::Expiry;
use super::{Call, Outcome, Refusal};

/// `GET key`
pub(crate) fn get(call: &mut Call<'_, '_>) -> Outcome {
    let found = call.text_bytes(call.key())?;
    call.out.maybe(found.as_ref().and_then(Item::text));
    Ok(())
}

/// The options of `SET`.
#[derive(Default)]
struct SetOptions {
    only_new: bool,
    only_old: bool,
    get: bool,
    keep: bool,
    expires: Option<u64>,
}

impl SetOptions {
    fn parse(call: &Call<'_, '_>) -> Result<Self, Refusal> {
        let (mut options, mut at) = (Self::default(), 3);
        while at < call.args.len() {
            let is = |word| call.args.is(at, word);
            let timed = options.keep || options.expires.is_some();
            if is("NX") && !options.only_old {
                options.only_new = true;
            } else if is("XX") && !options.only_new {
                options.only_old = true;
            } else if is("GET") {
                options.get = true;
            } else if is("KEEPTTL") && !timed {
                options.keep = true;
            } else if let Some(expiry) = Expiry::of(call.args.at(at)).filter(|_| !timed) {
                at += 1;
                let time = call.args.get(at).ok_or(Refusal::SYNTAX)?;
                options.expires = Some(0);
                // Redis checks the words first and the numbers afterwards.
                if rest_is_valid(call, at + 1, &options) {
                    options.expires = Some(expiry.time(time, call.now(), call.name)?);
                }
            } else {
                return Err(Refusal::SYNTAX);
            }
            at += 1;
        }
        Ok(options)
    }
}

/// Returns `true` if the words after a time are options; otherwise the loop finds the error and reports it.
fn rest_is_valid(call: &Call<'_, '_>, from: usize, so_far: &SetOptions) -> bool {
    let (mut only_new, mut only_old) = (so_far.only_new, so_far.only_old);
    (from..call.args.len()).all(|at| {
        let is = |word| call.args.is(at, word);
        only_new |= is("NX");
        only_old |= is("XX");
        (is("NX") || is("XX") || is("GET")) && !(only_new && only_old)
    })
}

/// `SET key value [NX | XX] [GET] [EX seconds | PX ms | EXAT time | PXAT ms-time | KEEPTTL]`
pub(crate) fn set(call: &mut Call<'_, '_>) -> Outcome {
    let (key, value) = (call.key(), call.args.at(2));
    if call.args.len() == 3 {
        call.put_text(key, value, NEVER)?;
        call.out.ok();
        return Ok(());
    }
    let options = SetOptions::parse(call)?;
    let old = if options.get { call.text(key)? } else { None };
    let exists = old.is_some() || (!options.get && call.exists(key)?);
    let refused = (options.only_new && exists) || (options.only_old && !exists);
    if !refused {
        let kept = if options.keep { call.draft.expiry(&item::key_of(key))? } else { None };
        call.put_text(key, value, options.expires.or(kept).unwrap_or(NEVER))?;
    }
    if options.get {
        call.out.maybe(old.as_ref().and_then(Item::text));
    } else if refused {
        call.out.null();
    } else {
        call.out.ok();
    }
    Ok(())
}

/// `SETNX key value`
pub(crate) fn setnx(call: &mut Call<'_, '_>) -> Outcome {
    let absent = !call.exists(call.key())?;
    if absent {
        call.put_text(call.key(), call.args.at(2), NEVER)?;
    }
    call.out.boolean(absent);
    Ok(())
}

/// `SETEX key seconds value`
pub(crate) fn setex(call: &mut Call<'_, '_>) -> Outcome {
    set_with(call, Expiry::Seconds)
}

/// `PSETEX key milliseconds value`
pub(crate) fn psetex(call: &mut Call<'_, '_>) -> Outcome {
    set_with(call, Expiry::Millis)
}

fn set_with(call: &mut Call<'_, '_>, expiry: Expiry) -> Outcome {
    let expires = expiry.time(call.args.at(2), call.now(), call.name)?;
    call.put_text(call.key(), call.args.at(3), expires)?;
    call.out.ok();
    Ok(())
}

/// `GETSET key value`
pub(crate) fn getset(call: &mut Call<'_, '_>) -> Outcome {
    let old = call.text(call.key())?;
    call.put_text(call.key(), call.args.at(2), NEVER)?;
    call.out.maybe(old.as_ref().and_then(Item::text));
    Ok(())
}

/// `GETDEL key`
pub(crate) fn getdel(call: &mut Call<'_, '_>) -> Outcome {
    let old = call.text(call.key())?;
    if old.is_some() {
        call.remove(call.key())?;
    }
    call.out.maybe(old.as_ref().and_then(Item::text));
    Ok(())
}

/// `GETEX key [EX seconds | PX ms | EXAT time | PXAT ms-time | PERSIST]`
pub(crate) fn getex(call: &mut Call<'_, '_>) -> Outcome {
    let wanted = match call.args.len() {
        2 => None,
        3 if call.args.is(2, "PERSIST") => Some((None, &b""[..])),
        4 => Some((Some(Expiry::of(call.args.at(2)).ok_or(Refusal::SYNTAX)?), call.args.at(3))),
        _ => return Err(Refusal::SYNTAX),
    };
    let key = call.key();
    let found = call.text(key)?;
    let Some(found) = found else {
        call.out.null();
        return Ok(());
    };
    if let Some((expiry, time)) = wanted {
        let expires = match expiry {
            Some(expiry) => expiry.time(time, call.now(), call.name)?,
            None => NEVER,
        };
        // The same time again is a change for those who watch the key, as in Redis.
        if expiry.is_some() || expires != found.expires {
            call.put_record(key, found.record.clone(), expires)?;
        }
    }
    call.out.maybe(found.text());
    Ok(())
}

/// `MGET key [key ...]`
pub(crate) fn mget(call: &mut Call<'_, '_>) -> Outcome {
    call.out.array(call.args.len() - 1);
    for key in call.args.from(1).iter() {
        // A key of another type is no error here.
        let record = call.draft.get(&item::key_of(key))?;
        let found = record.map(|record| Item { record, expires: NEVER });
        call.out.maybe(found.as_ref().and_then(Item::text));
    }
    Ok(())
}

/// `MSET key value [key value ...]`
pub(crate) fn mset(call: &mut Call<'_, '_>) -> Outcome {
    if call.args.len().is_multiple_of(2) {
        return Err(Refusal::arity(call.name));
    }
    for at in (1..call.args.len()).step_by(2) {
        call.put_text(call.args.at(at), call.args.at(at + 1), NEVER)?;
    }
    call.out.ok();
    Ok(())
}

/// `MSETNX key value [key value ...]`
pub(crate) fn msetnx(call: &mut Call<'_, '_>) -> Outcome {
    if call.args.len().is_multiple_of(2) {
        return Err(Refusal::arity(call.name));
    }
    for at in (1..call.args.len()).step_by(2) {
        if call.exists(call.args.at(at))? {
            call.out.integer(0);
            return Ok(());
        }
    }
    for at in (1..call.args.len()).step_by(2) {
        call.put_text(call.args.at(at), call.args.at(at + 1), NEVER)?;
    }
    call.out.integer(1);
    Ok(())
}

/// `APPEND key value`
pub(crate) fn append(call: &mut Call<'_, '_>) -> Outcome {
    let (key, added) = (call.key(), call.args.at(2));
    let old = call.text(key)?;
    let before = old.as_ref().and_then(Item::text).unwrap_or_default();
    if before.len() + added.len() > MAX_TEXT {
        return Err(Refusal::TOO_LONG);
    }
    let value = [before, added].concat();
    call.change_text(key, old.as_ref(), &value)?;
    call.out.count(value.len());
    Ok(())
}

/// `STRLEN key`
pub(crate) fn strlen(call: &mut Call<'_, '_>) -> Outcome {
    let found = call.text_bytes(call.key())?;
    call.out.count(found.as_ref().and_then(Item::text).map_or(0, <[u8]>::len));
    Ok(())
}

/// `SETRANGE key offset value`
pub(crate) fn setrange(call: &mut Call<'_, '_>) -> Outcome {
    let (key, part) = (call.key(), call.args.at(3));
    let offset = call.integer(2)?;
    let Ok(offset) = usize::try_from(offset) else {
        return Err(Refusal::of("ERR offset is out of range"));
    };
    let old = call.text(key)?;
    let before = old.as_ref().and_then(Item::text).unwrap_or_default();
    if part.is_empty() {
        call.out.count(before.len());
        return Ok(());
    }
    let end = offset.checked_add(part.len()).filter(|end| *end <= MAX_TEXT);
    let end = end.ok_or(Refusal::TOO_LONG)?;
    let mut value = before.to_vec();
    if value.len() < end {
        value.resize(end, 0);
    }
    value[offset..end].copy_from_slice(part);
    call.change_text(key, old.as_ref(), &value)?;
    call.out.count(value.len());
    Ok(())
}

/// `GETRANGE key start end` and `SUBSTR`
pub(crate) fn getrange(call: &mut Call<'_, '_>) -> Outcome {
    let (start, end) = (call.integer(2)?, call.integer(3)?);
    let found = call.text_bytes(call.key())?;
    let value = found.as_ref().and_then(Item::text).unwrap_or_default();
    // Unlike other ranges, one that ends before it begins ends at the first byte.
    let length = i64::try_from(value.len()).unwrap_or(i64::MAX);
    let last = if end < 0 { end.saturating_add(length).max(0) } else { end };
    let part = match super::ranges::clamp(start, last, value.len()) {
        Some(range) if !(start < 0 && end < 0 && start > end) => &value[range],
        _ => &[],
    };
    call.out.bulk(part);
    Ok(())
}

impl Call<'_, '_> {
    /// Returns a string without its time of expiry, with one lookup instead of two.
    fn text_bytes(&self, key: &[u8]) -> Result<Option<Item>, Refusal> {
        let record = self.draft.get(&item::key_of(key))?;
        let Some(record) = record else { return Ok(None) };
        let found = Item { record, expires: NEVER };
        if found.text().is_none() {
            return Err(Refusal::WRONG_TYPE);
        }
        Ok(Some(found))
    }
}

#[cfg(test)]
mod tests {
    use std::ops::Bound;

    use super::super::call::tests::Bench;
    use super::super::table;
    use super::*;
    use crate::keyspace::{Draft, Failure, Place, Records, Visit};
    use crate::wire::{Reply, Request};

    #[test]
    fn set_takes_all_its_options() {
        let mut bench = Bench::new();
        bench.expect(&[
            ("SET a 1", "+OK"),
            ("SET a 2 NX", "$-1"),
            ("SET b 2 XX", "$-1"),
            ("SET a 3 XX GET", "$1|1"),
            ("SET a 4 EX 10", "+OK"),
            ("TTL a", ":10"),
            ("SET a 5 KEEPTTL", "+OK"),
            ("PTTL a", ":10000"),
            ("SET a 6", "+OK"),
            ("TTL a", ":-1"),
            ("SET a 7 EX 0", "-ERR invalid expire time in 'set' command"),
            ("SET a 7 EX x", "-ERR value is not an integer or out of range"),
            ("SET a 7 EX 9223372036854775807", "-ERR invalid expire time in 'set' command"),
            ("SET a 7 EX 1 PX 1", "-ERR syntax error"),
            ("SET a 7 EX x NX XX", "-ERR syntax error"),
            ("SET a 7 NX XX", "-ERR syntax error"),
            ("SET a 8 PXAT 5", "+OK"),
            ("GET a", "$-1"),
            ("MGET a b", "*2|$-1|$-1"),
        ]);
    }

    #[test]
    fn parts_of_strings() {
        let mut bench = Bench::new();
        bench.expect(&[
            ("APPEND a hello", ":5"),
            ("SETRANGE a 6 world", ":11"),
            ("GETRANGE a -5 -1", "$5|world"),
            ("GETRANGE a 3 1", "$0|"),
            ("GETRANGE none 0 -1", "$0|"),
            ("STRLEN a", ":11"),
            ("SETRANGE a -1 x", "-ERR offset is out of range"),
            (
                "SETRANGE a 536870912 x",
                "-ERR string exceeds maximum allowed size (proto-max-bulk-len)",
            ),
            ("MSETNX b 1 a 2", ":0"),
            ("MSET b 1 c", "-ERR wrong number of arguments for 'mset' command"),
            ("GETEX a PX 500", "$11|hello\0world"),
            ("PTTL a", ":500"),
            ("GETEX a PERSIST", "$11|hello\0world"),
            ("TTL a", ":-1"),
            ("GETDEL a", "$11|hello\0world"),
            ("EXISTS a", ":0"),
        ]);
    }

    /// Records that cannot be read.
    struct Damaged;

    impl Records for Damaged {
        fn get_into(&self, _: &[u8], _: u64, _: &mut Vec<u8>) -> Result<bool, Failure> {
            Err(Failure::Broken("damaged".into()))
        }

        fn expiry(&self, _: &[u8], _: u64) -> Result<Option<u64>, Failure> {
            Err(Failure::Broken("damaged".into()))
        }

        fn scan(
            &self,
            _: (Bound<&[u8]>, Bound<&[u8]>),
            _: u64,
            _: bool,
            _: &mut Visit<'_>,
        ) -> Result<(), Failure> {
            Err(Failure::Broken("damaged".into()))
        }

        fn len(&self) -> u64 {
            1
        }
    }

    /// No command takes a record that cannot be read for one that is not there.
    #[test]
    fn a_damaged_record_is_an_error() {
        for spec in table::COMMANDS.iter().filter(|spec| spec.keys.of(4).next() == Some(1)) {
            let Some(run) = spec.run_at_partition() else { continue };
            let mut words = vec![spec.name.as_bytes(), b"k"];
            words.resize(spec.arity.unsigned_abs() as usize, b"1");
            let request = Request::new(words);
            let (mut place, mut out) = (Place::default(), Reply::default());
            place.set_others(1);
            let mut draft = Draft::new(&Damaged, 1);
            let outcome = run(&mut Call {
                name: spec.name,
                args: request.args(),
                draft: &mut draft,
                place: &mut place,
                out: &mut out,
            });
            let text = format!("{outcome:?}");
            let is_early =
                ["syntax", "not a float", "min or max"].iter().any(|why| text.contains(why));
            assert!(is_early || text.contains("damaged"), "{}: {text}, {:?}", spec.name, out.bytes);
        }
    }
}
