//! Commands of hashes, which have a record for each field.

use std::ops::Bound;

use crate::keyspace::item::{self, Head, MEMBER_PREFIX};
use crate::keyspace::{Kind, NEVER};
use crate::wire::{Decimal, Protocol, Shape, integer};

use super::{Call, Outcome, Refusal};

impl Call<'_, '_> {
    fn hash(&self) -> Result<Option<Head>, Refusal> {
        self.head(self.key(), Kind::Hash)
    }

    fn field(&self, head: Option<&Head>, field: &[u8]) -> Result<Option<Vec<u8>>, Refusal> {
        let Some(head) = head else { return Ok(None) };
        Ok(self.draft.get(&head.member(field))?)
    }

    /// Sets a field; returns `true` if it is new.
    fn put_field(&mut self, head: &mut Head, field: &[u8], value: &[u8]) -> Result<bool, Refusal> {
        let record = head.member(field);
        let new = self.draft.expiry(&record)?.is_none();
        head.length += u64::from(new);
        self.draft.put(record, value.to_vec(), NEVER);
        Ok(new)
    }

    /// Visits the members of a collection by name, with their values.
    pub(crate) fn each_member(
        &self,
        head: &Head,
        visit: &mut dyn FnMut(&[u8], &[u8]) -> bool,
    ) -> Outcome {
        let (from, end) = head.bounds(item::BY_NAME);
        let range = (Bound::Included(&from[..]), Bound::Excluded(&end[..]));
        self.draft
            .scan(range, false, &mut |record, value| visit(&record[MEMBER_PREFIX..], value))?;
        Ok(())
    }
}

/// `HSET key field value [field value ...]`
pub(crate) fn hset(call: &mut Call<'_, '_>) -> Outcome {
    let added = set_fields(call)?;
    call.out.count(added);
    Ok(())
}

/// `HMSET key field value [field value ...]`
pub(crate) fn hmset(call: &mut Call<'_, '_>) -> Outcome {
    set_fields(call)?;
    call.out.ok();
    Ok(())
}

fn set_fields(call: &mut Call<'_, '_>) -> Result<usize, Refusal> {
    if !call.args.len().is_multiple_of(2) {
        return Err(Refusal::arity(call.name));
    }
    let key = call.key();
    let mut head = call.head_or_new(key, Kind::Hash)?;
    let before = head.length;
    for at in (2..call.args.len()).step_by(2) {
        call.put_field(&mut head, call.args.at(at), call.args.at(at + 1))?;
    }
    if head.length != before {
        call.put_head(key, &head);
    }
    Ok((head.length - before) as usize)
}

/// `HSETNX key field value`
pub(crate) fn hsetnx(call: &mut Call<'_, '_>) -> Outcome {
    let key = call.key();
    let mut head = call.head_or_new(key, Kind::Hash)?;
    let absent = call.draft.expiry(&head.member(call.args.at(2)))?.is_none();
    if absent {
        call.put_field(&mut head, call.args.at(2), call.args.at(3))?;
        call.put_head(key, &head);
    }
    call.out.boolean(absent);
    Ok(())
}

/// `HGET key field`
pub(crate) fn hget(call: &mut Call<'_, '_>) -> Outcome {
    let head = call.hash()?;
    let value = call.field(head.as_ref(), call.args.at(2))?;
    call.out.maybe(value.as_deref());
    Ok(())
}

/// `HMGET key field [field ...]`
pub(crate) fn hmget(call: &mut Call<'_, '_>) -> Outcome {
    let head = call.hash()?;
    call.out.array(call.args.len() - 2);
    for field in call.args.from(2).iter() {
        let value = call.field(head.as_ref(), field)?;
        call.out.maybe(value.as_deref());
    }
    Ok(())
}

/// `HDEL key field [field ...]`
pub(crate) fn hdel(call: &mut Call<'_, '_>) -> Outcome {
    let removed = remove_members(call, Kind::Hash)?;
    call.out.count(removed);
    Ok(())
}

/// Removes the members that the arguments name from a hash or a set.
pub(super) fn remove_members(call: &mut Call<'_, '_>, kind: Kind) -> Result<usize, Refusal> {
    let key = call.key();
    let Some(mut head) = call.head(key, kind)? else { return Ok(0) };
    let before = head.length;
    for name in call.args.from(2).iter() {
        let record = head.member(name);
        if call.draft.expiry(&record)?.is_some() {
            call.draft.remove(record);
            head.length -= 1;
        }
    }
    if head.length != before {
        call.put_head(key, &head);
    }
    Ok((before - head.length) as usize)
}

/// `HLEN key`
pub(crate) fn hlen(call: &mut Call<'_, '_>) -> Outcome {
    let head = call.hash()?;
    call.out.count(head.map_or(0, |head| head.length as usize));
    Ok(())
}

/// `HEXISTS key field`
pub(crate) fn hexists(call: &mut Call<'_, '_>) -> Outcome {
    let head = call.hash()?;
    let value = call.field(head.as_ref(), call.args.at(2))?;
    call.out.boolean(value.is_some());
    Ok(())
}

/// `HSTRLEN key field`
pub(crate) fn hstrlen(call: &mut Call<'_, '_>) -> Outcome {
    let head = call.hash()?;
    let value = call.field(head.as_ref(), call.args.at(2))?;
    call.out.count(value.map_or(0, |value| value.len()));
    Ok(())
}

/// `HKEYS key`
pub(crate) fn hkeys(call: &mut Call<'_, '_>) -> Outcome {
    list(call, true, false)
}

/// `HVALS key`
pub(crate) fn hvals(call: &mut Call<'_, '_>) -> Outcome {
    list(call, false, true)
}

/// `HGETALL key`
pub(crate) fn hgetall(call: &mut Call<'_, '_>) -> Outcome {
    list(call, true, true)
}

fn list(call: &mut Call<'_, '_>, names: bool, values: bool) -> Outcome {
    let head = call.hash()?;
    let length = head.map_or(0, |head| head.length as usize);
    call.out.head(if names && values { Shape::Map } else { Shape::Array }, length);
    let Some(head) = head else { return Ok(()) };
    let mut out = std::mem::take(call.out);
    let listed = call.each_member(&head, &mut |name, value| {
        if names {
            out.bulk(name);
        }
        if values {
            out.bulk(value);
        }
        true
    });
    *call.out = out;
    listed
}

/// `HINCRBY key field number`
pub(crate) fn hincrby(call: &mut Call<'_, '_>) -> Outcome {
    let added = call.integer(3)?;
    let key = call.key();
    let mut head = call.head_or_new(key, Kind::Hash)?;
    let before = match call.field(Some(&head), call.args.at(2))? {
        Some(value) => integer(&value).ok_or(Refusal::of("ERR hash value is not an integer"))?,
        None => 0,
    };
    let sum = before.checked_add(added).ok_or(Refusal::OVERFLOW)?;
    if call.put_field(&mut head, call.args.at(2), sum.to_string().as_bytes())? {
        call.put_head(key, &head);
    }
    call.out.integer(sum);
    Ok(())
}

/// `HINCRBYFLOAT key field number`
pub(crate) fn hincrbyfloat(call: &mut Call<'_, '_>) -> Outcome {
    let added = Decimal::parse(call.args.at(3)).ok_or(Refusal::NOT_FLOAT)?;
    if !added.is_finite() {
        return Err(Refusal::of("ERR value is NaN or Infinity"));
    }
    let key = call.key();
    let mut head = call.head_or_new(key, Kind::Hash)?;
    let before = call.field(Some(&head), call.args.at(2))?.unwrap_or_else(|| b"0".to_vec());
    let before = Decimal::parse(&before).ok_or(Refusal::of("ERR hash value is not a float"))?;
    let sum = before.plus(added).ok_or(Refusal::NOT_FINITE)?.print();
    if call.put_field(&mut head, call.args.at(2), sum.as_bytes())? {
        call.put_head(key, &head);
    }
    call.out.bulk(sum.as_bytes());
    Ok(())
}

/// `HSCAN key cursor [MATCH pattern] [COUNT count]`
pub(crate) fn hscan(call: &mut Call<'_, '_>) -> Outcome {
    super::scan::scan_members(call, Kind::Hash)
}

/// `HRANDFIELD key [count [WITHVALUES]]`
pub(crate) fn hrandfield(call: &mut Call<'_, '_>) -> Outcome {
    let with_values = call.args.len() == 4 && call.args.is(3, "WITHVALUES");
    if call.args.len() > 3 && !with_values {
        return Err(Refusal::SYNTAX);
    }
    let count = super::sets::count_of(call)?;
    if with_values && count.is_some_and(|count| count.unsigned_abs() > i64::MAX.unsigned_abs() / 2)
    {
        return Err(Refusal::of("ERR value is out of range"));
    }
    let head = call.hash()?;
    let Some(head) = head else {
        match count {
            Some(_) => call.out.array(0),
            None => call.out.null(),
        }
        return Ok(());
    };
    let mut fields = Vec::new();
    call.each_member(&head, &mut |name, value| {
        fields.push((name.to_vec(), value.to_vec()));
        true
    })?;
    let chosen = super::sets::choose(call, fields.len(), count.unwrap_or(1))?;
    if count.is_none() {
        call.out.maybe(chosen.first().map(|at| &fields[*at].0[..]));
        return Ok(());
    }
    let is_pairs = with_values && call.out.protocol == Protocol::Resp3;
    let is_flat = with_values && !is_pairs;
    call.out.array(if is_flat { chosen.len() * 2 } else { chosen.len() });
    for at in chosen {
        if is_pairs {
            call.out.array(2);
        }
        call.out.bulk(&fields[at].0);
        if with_values {
            call.out.bulk(&fields[at].1);
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::super::call::tests::Bench;
    use super::*;

    const RANGE: &str = "-ERR value is out of range, value must between -9223372036854775807 and \
                         9223372036854775807";
    const FEW: &str = "-ERR value is out of range, must be at least -1048576";

    #[test]
    fn fields_are_set_counted_and_removed() {
        let mut bench = Bench::new();
        bench.expect(&[
            ("HSET h a 1 b 2 a 3", ":2"),
            ("HSET h a", "-ERR wrong number of arguments for 'hset' command"),
            ("HGETALL h", "*4|$1|a|$1|3|$1|b|$1|2"),
            ("HMGET h a c", "*2|$1|3|$-1"),
            ("HSETNX h a 9", ":0"),
            ("HSETNX h c x", ":1"),
            ("HINCRBY h a 4", ":7"),
            ("HINCRBY h c 1", "-ERR hash value is not an integer"),
            ("HINCRBYFLOAT h a 0.5", "$3|7.5"),
            ("HSTRLEN h a", ":3"),
            ("HLEN h", ":3"),
            ("HKEYS h", "*3|$1|a|$1|b|$1|c"),
            ("HVALS none", "*0"),
            ("GET h", "-WRONGTYPE Operation against a key holding the wrong kind of value"),
            ("LPUSH h x", "-WRONGTYPE Operation against a key holding the wrong kind of value"),
            ("HDEL h a b c d", ":3"),
            ("EXISTS h", ":0"),
            ("DBSIZE", ":0"),
        ]);
        assert_eq!(bench.reap(), 1);
    }

    #[test]
    fn random_fields_are_counted() {
        let mut bench = Bench::new();
        bench.expect(&[
            ("HRANDFIELD none 1", "*0"),
            ("HRANDFIELD none -9223372036854775808", RANGE),
            ("HSET h a 1", ":1"),
            ("HRANDFIELD h", "$1|a"),
            ("HRANDFIELD h 0 WITHVALUES", "*0"),
            ("HRANDFIELD h 5 WITHVALUES", "*2|$1|a|$1|1"),
            ("HRANDFIELD h -2 WITHVALUES", "*4|$1|a|$1|1|$1|a|$1|1"),
            ("HRANDFIELD h -9223372036854775808", RANGE),
            ("HRANDFIELD h -9223372036854775807", FEW),
            ("HRANDFIELD h -1048577 WITHVALUES", FEW),
            ("HRANDFIELD h -4611686018427387905 WITHVALUES", "-ERR value is out of range"),
            ("HRANDFIELD h 9223372036854775807", "*1|$1|a"),
        ]);
        bench.protocol = Protocol::Resp3;
        bench.expect(&[
            ("HRANDFIELD h 5 WITHVALUES", "*1|*2|$1|a|$1|1"),
            ("HRANDFIELD h -2 WITHVALUES", "*2|*2|$1|a|$1|1|*2|$1|a|$1|1"),
            ("HRANDFIELD h 0 WITHVALUES", "*0"),
            ("HRANDFIELD none 1 WITHVALUES", "*0"),
            ("HRANDFIELD h -2", "*2|$1|a|$1|a"),
        ]);
    }
}
