//! Commands of numbers in strings.

use crate::keyspace::Item;
use crate::wire::{Decimal, integer};

use super::{Call, Outcome, Refusal};

/// `INCR key`
pub(crate) fn incr(call: &mut Call<'_, '_>) -> Outcome {
    add(call, 1)
}

/// `DECR key`
pub(crate) fn decr(call: &mut Call<'_, '_>) -> Outcome {
    add(call, -1)
}

/// `INCRBY key number`
pub(crate) fn incrby(call: &mut Call<'_, '_>) -> Outcome {
    add(call, call.integer(2)?)
}

/// `DECRBY key number`
pub(crate) fn decrby(call: &mut Call<'_, '_>) -> Outcome {
    let number = call.integer(2)?.checked_neg();
    add(call, number.ok_or(Refusal::of("ERR decrement would overflow"))?)
}

fn add(call: &mut Call<'_, '_>, number: i64) -> Outcome {
    let key = call.key();
    let old = call.text(key)?;
    let before = match old.as_ref().and_then(Item::text) {
        Some(text) => integer(text).ok_or(Refusal::NOT_INTEGER)?,
        None => 0,
    };
    let sum = before.checked_add(number).ok_or(Refusal::OVERFLOW)?;
    call.change_text(key, old.as_ref(), sum.to_string().as_bytes())?;
    call.out.integer(sum);
    Ok(())
}

/// `INCRBYFLOAT key number`
pub(crate) fn incrbyfloat(call: &mut Call<'_, '_>) -> Outcome {
    let key = call.key();
    let old = call.text(key)?;
    let before = old.as_ref().and_then(Item::text).unwrap_or(b"0");
    let before = Decimal::parse(before).ok_or(Refusal::NOT_FLOAT)?;
    let added = Decimal::parse(call.args.at(2)).ok_or(Refusal::NOT_FLOAT)?;
    let sum = before.plus(added).ok_or(Refusal::NOT_FINITE)?.print();
    call.change_text(key, old.as_ref(), sum.as_bytes())?;
    call.out.bulk(sum.as_bytes());
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::super::call::tests::Bench;

    #[test]
    fn numbers_count_and_do_not_overflow() {
        Bench::new().expect(&[
            ("INCR a", ":1"),
            ("DECRBY a 3", ":-2"),
            ("INCRBY a 9223372036854775807", ":9223372036854775805"),
            ("INCRBY a 5", "-ERR increment or decrement would overflow"),
            ("DECRBY a -9223372036854775808", "-ERR decrement would overflow"),
            ("SET b 10.50", "+OK"),
            ("INCR b", "-ERR value is not an integer or out of range"),
            ("INCRBYFLOAT b 0.1", "$4|10.6"),
            ("INCRBYFLOAT b x", "-ERR value is not a valid float"),
            ("INCRBYFLOAT b inf", "-ERR increment would produce NaN or Infinity"),
        ]);
    }
}
