//! Commands of keys, whatever their types.

use std::ops::Bound;

use crate::keyspace::item::{self, BY_NAME, BY_SCORE, KEYS};
use crate::keyspace::{Kind, NEVER};

use super::{Call, Outcome, Refusal};

/// `DEL key [key ...]` and `UNLINK`, which do the same: the members of a collection are removed later.
pub(crate) fn del(call: &mut Call<'_, '_>) -> Outcome {
    let mut removed = 0;
    for key in call.args.from(1).iter() {
        removed += usize::from(call.remove(key)?);
    }
    call.out.count(removed);
    Ok(())
}

/// `EXISTS key [key ...]` and `TOUCH`
pub(crate) fn exists(call: &mut Call<'_, '_>) -> Outcome {
    let mut found = 0;
    for key in call.args.from(1).iter() {
        found += usize::from(call.exists(key)?);
    }
    call.out.count(found);
    Ok(())
}

/// `TYPE key`
pub(crate) fn kind(call: &mut Call<'_, '_>) -> Outcome {
    let name = match call.item(call.key())? {
        Some(found) => found.kind()?.name(),
        None => "none",
    };
    call.out.simple(name);
    Ok(())
}

/// `RENAME key newkey`
pub(crate) fn rename(call: &mut Call<'_, '_>) -> Outcome {
    move_key(call, true)?;
    call.out.ok();
    Ok(())
}

/// `RENAMENX key newkey`
pub(crate) fn renamenx(call: &mut Call<'_, '_>) -> Outcome {
    let moved = move_key(call, false)?;
    call.out.boolean(moved);
    Ok(())
}

fn move_key(call: &mut Call<'_, '_>, overwrite: bool) -> Result<bool, Refusal> {
    let (from, to) = (call.args.at(1), call.args.at(2));
    let found = call.item(from)?.ok_or(Refusal::NO_SUCH_KEY)?;
    if from == to || (!overwrite && call.exists(to)?) {
        return Ok(from == to && overwrite);
    }
    call.draft.remove(item::key_of(from));
    let head = found.head();
    call.put_record(to, found.record, found.expires)?;
    if let Some(head) = head {
        call.own(head.id, to);
    }
    Ok(true)
}

/// `COPY source destination [DB 0] [REPLACE]`
pub(crate) fn copy(call: &mut Call<'_, '_>) -> Outcome {
    let (from, to) = (call.args.at(1), call.args.at(2));
    let (mut replace, mut at) = (false, 3);
    while at < call.args.len() {
        if call.args.is(at, "REPLACE") {
            replace = true;
        } else if call.args.is(at, "DB") && at + 1 < call.args.len() {
            at += 1;
            if call.integer(at)? != 0 {
                return Err(Refusal::of("ERR DB index is out of range"));
            }
        } else {
            return Err(Refusal::SYNTAX);
        }
        at += 1;
    }
    if from == to {
        return Err(Refusal::of("ERR source and destination objects are the same"));
    }
    let found = call.item(from)?;
    let Some(found) = found.filter(|_| replace || !call.exists(to).unwrap_or(true)) else {
        call.out.integer(0);
        return Ok(());
    };
    match found.head() {
        None => call.put_record(to, found.record, found.expires)?,
        Some(head) => copy_members(call, to, &head)?,
    }
    call.out.integer(1);
    Ok(())
}

fn copy_members(call: &mut Call<'_, '_>, to: &[u8], old: &item::Head) -> Outcome {
    let new = item::Head { id: call.place.new_id(), ..*old };
    let mut records = Vec::new();
    for by in [BY_NAME, BY_SCORE] {
        let (from, end) = old.bounds(by);
        let range = (Bound::Included(&from[..]), Bound::Excluded(&end[..]));
        call.draft.scan(range, false, &mut |record, value| {
            let (prefix, _) = new.bounds(by);
            records.push(([&prefix, &record[item::MEMBER_PREFIX..]].concat(), value.to_vec()));
            true
        })?;
    }
    for (record, value) in records {
        call.draft.put(record, value, NEVER);
    }
    call.put_record(to, new.record(), new.expires)?;
    call.own(new.id, to);
    Ok(())
}

/// `DBSIZE`
pub(crate) fn dbsize(call: &mut Call<'_, '_>) -> Outcome {
    let keys = call.place.keys(call.draft.base_len());
    let keys = keys.saturating_add_signed(call.draft.keys_added()?);
    call.out.integer(i64::try_from(keys).unwrap_or(i64::MAX));
    Ok(())
}

/// `RANDOMKEY`: replies the key after a random place between the first and the last. Keys have different
/// probabilities.
pub(crate) fn randomkey(call: &mut Call<'_, '_>) -> Outcome {
    let (begin, end) = ([KEYS], [KEYS + 1]);
    let whole = (Bound::Included(&begin[..]), Bound::Excluded(&end[..]));
    let (Some(first), Some(last)) = (first_of(call, whole, false)?, first_of(call, whole, true)?)
    else {
        call.out.null();
        return Ok(());
    };
    let shared = first.iter().zip(&last).take_while(|(one, two)| one == two).count();
    let mut place = first[..shared].to_vec();
    let (low, high) = (first.get(shared).copied().unwrap_or(0), last.get(shared).copied());
    let random = call.place.random().to_be_bytes();
    let span = u64::from(high.unwrap_or(0).saturating_sub(low)) + 1;
    place.push(low + (u64::from(random[0]) * span / 256) as u8);
    place.extend_from_slice(&random[1..]);
    let rest = (Bound::Included(&place[..]), Bound::Excluded(&end[..]));
    let chosen = first_of(call, rest, false)?.unwrap_or(first);
    call.out.bulk(&chosen[1..]);
    Ok(())
}

fn first_of(
    call: &Call<'_, '_>,
    range: (Bound<&[u8]>, Bound<&[u8]>),
    reverse: bool,
) -> Result<Option<Vec<u8>>, Refusal> {
    let mut found = None;
    call.draft.scan(range, reverse, &mut |record, _| {
        found = Some(record.to_vec());
        false
    })?;
    Ok(found)
}

/// `OBJECT ENCODING | FREQ | IDLETIME | REFCOUNT key`
pub(crate) fn object(call: &mut Call<'_, '_>) -> Outcome {
    let key = call.args.at(2);
    let Some(found) = call.item(key)? else {
        call.out.null();
        return Ok(());
    };
    if call.args.is(1, "ENCODING") {
        let encoding = match found.kind()? {
            Kind::Text if found.text().is_some_and(|text| crate::wire::integer(text).is_some()) => {
                "int"
            }
            Kind::Text if found.text().is_some_and(|text| text.len() <= 44) => "embstr",
            Kind::Text => "raw",
            Kind::Hash | Kind::Set => "hashtable",
            Kind::Sorted => "skiplist",
            Kind::List => "quicklist",
        };
        call.out.bulk(encoding.as_bytes());
    } else if call.args.is(1, "REFCOUNT") {
        call.out.integer(1);
    } else if call.args.is(1, "IDLETIME") {
        call.out.integer(0);
    } else {
        let word = String::from_utf8_lossy(call.args.at(1)).into_owned();
        return Err(format!(
            "ERR Unknown subcommand or wrong number of arguments for '{word}'. Try OBJECT HELP."
        )
        .into());
    }
    Ok(())
}

/// `WATCH key`, as a connection sends it: replies twice the version of the key, plus one if the key exists.
pub(crate) fn watch(call: &mut Call<'_, '_>) -> Outcome {
    let item = call.draft.item(call.key())?;
    let exists = item.is_some();
    let id = item.and_then(|item| item.head()).map(|head| head.id);
    let version = call.place.watches.watch(call.key(), exists, id);
    call.out.integer((version << 1).cast_signed() + i64::from(exists));
    Ok(())
}

/// `UNWATCH key version`, as a connection sends it: replies 1 if the key is unchanged.
pub(crate) fn unwatch(call: &mut Call<'_, '_>) -> Outcome {
    let version = u64::try_from(call.integer(2)?).unwrap_or(0);
    let same = call.place.watches.unwatch(call.key(), version);
    call.out.boolean(same);
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::super::call::tests::Bench;

    #[test]
    fn keys_move_with_all_they_hold() {
        let mut bench = Bench::new();
        bench.expect(&[
            ("HSET h a 1 b 2", ":2"),
            ("SET s x", "+OK"),
            ("RENAME none x", "-ERR no such key"),
            ("RENAMENX h s", ":0"),
            ("RENAME h s", "+OK"),
            ("TYPE s", "+hash"),
            ("HGET s b", "$1|2"),
            ("EXISTS h s s", ":2"),
            ("COPY s t", ":1"),
            ("COPY s t", ":0"),
            ("COPY s t REPLACE", ":1"),
            ("COPY s s", "-ERR source and destination objects are the same"),
            ("DEL s", ":1"),
            ("HGETALL t", "*4|$1|a|$1|1|$1|b|$1|2"),
            ("DBSIZE", ":1"),
            ("RANDOMKEY", "$1|t"),
            ("DEL t none", ":1"),
            ("RANDOMKEY", "$-1"),
        ]);
        // The count itself remains.
        assert_eq!(bench.reap(), 1);
    }

    #[test]
    fn members_of_expired_and_overwritten_collections_go() {
        let mut bench = Bench::new();
        for number in 0..200 {
            bench.run(&format!("HSET h f{number} v"));
        }
        bench.expect(&[("SADD s a b c", ":3"), ("EXPIRE s 1", ":1"), ("SET h now-text", "+OK")]);
        bench.now += 2000;
        bench.expect(&[("SCARD s", ":0"), ("SADD s z", ":1"), ("SMEMBERS s", "*1|$1|z")]);
        // The text, the new set with its member and owner, and the count.
        assert_eq!(bench.reap(), 5);
        bench.expect(&[("SMEMBERS s", "*1|$1|z"), ("GET h", "$8|now-text"), ("DBSIZE", ":2")]);
    }
}
