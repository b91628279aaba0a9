//! Commands of the times at which keys expire.

use crate::keyspace::{NEVER, item};
use crate::wire::integer;

use super::{Call, Outcome, Refusal};

/// The unit and the origin of a time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Expiry {
    /// Seconds from now.
    Seconds,
    /// Milliseconds from now.
    Millis,
    /// A second since 1970.
    SecondsAt,
    /// A millisecond since 1970.
    MillisAt,
}

impl Expiry {
    /// Returns the option with this name.
    pub(crate) fn of(word: &[u8]) -> Option<Self> {
        Some(match word.to_ascii_uppercase().as_slice() {
            b"EX" => Self::Seconds,
            b"PX" => Self::Millis,
            b"EXAT" => Self::SecondsAt,
            b"PXAT" => Self::MillisAt,
            _ => return None,
        })
    }

    /// Returns the millisecond since 1970, which may be in the past.
    fn millis(self, number: i64, now: u64) -> Option<i64> {
        let number = match self {
            Self::Seconds | Self::SecondsAt => number.checked_mul(1000)?,
            Self::Millis | Self::MillisAt => number,
        };
        match self {
            Self::Seconds | Self::Millis => number.checked_add(i64::try_from(now).ok()?),
            Self::SecondsAt | Self::MillisAt => Some(number),
        }
    }

    /// Returns the time for `SET` and similar commands, where the number must be positive.
    pub(crate) fn time(self, number: &[u8], now: u64, command: &str) -> Result<u64, Refusal> {
        let number = integer(number).ok_or(Refusal::NOT_INTEGER)?;
        let time = Some(number).filter(|number| *number > 0);
        let time = time.and_then(|number| self.millis(number, now));
        let time = time.and_then(|time| u64::try_from(time).ok());
        time.ok_or_else(|| Refusal::expire_time(command))
    }
}

/// `EXPIRE key seconds [NX | XX | GT | LT]`
pub(crate) fn expire(call: &mut Call<'_, '_>) -> Outcome {
    expire_by(call, Expiry::Seconds)
}

/// `PEXPIRE key milliseconds [NX | XX | GT | LT]`
pub(crate) fn pexpire(call: &mut Call<'_, '_>) -> Outcome {
    expire_by(call, Expiry::Millis)
}

/// `EXPIREAT key time [NX | XX | GT | LT]`
pub(crate) fn expireat(call: &mut Call<'_, '_>) -> Outcome {
    expire_by(call, Expiry::SecondsAt)
}

/// `PEXPIREAT key milliseconds-time [NX | XX | GT | LT]`
pub(crate) fn pexpireat(call: &mut Call<'_, '_>) -> Outcome {
    expire_by(call, Expiry::MillisAt)
}

#[derive(Default)]
struct Conditions {
    none: bool,
    some: bool,
    greater: bool,
    less: bool,
}

impl Conditions {
    fn parse(call: &Call<'_, '_>) -> Result<Self, Refusal> {
        let mut all = Self::default();
        for word in call.args.from(3).iter() {
            match word.to_ascii_uppercase().as_slice() {
                b"NX" => all.none = true,
                b"XX" => all.some = true,
                b"GT" => all.greater = true,
                b"LT" => all.less = true,
                _ => {
                    let word = String::from_utf8_lossy(word);
                    return Err(format!("ERR Unsupported option {word}").into());
                }
            }
        }
        if all.none && (all.some || all.greater || all.less) {
            return Err(Refusal::of(
                "ERR NX and XX, GT or LT options at the same time are not compatible",
            ));
        }
        if all.greater && all.less {
            return Err(Refusal::of("ERR GT and LT options at the same time are not compatible"));
        }
        Ok(all)
    }

    /// Returns `true` if a key with the `old` expiry is to get the `new` one.
    fn allow(&self, old: u64, new: i64) -> bool {
        let forever = old == NEVER;
        let old = i64::try_from(old).unwrap_or(i64::MAX);
        !((self.none && !forever)
            || (self.some && forever)
            || (self.greater && (forever || new <= old))
            || (self.less && !forever && new >= old))
    }
}

fn expire_by(call: &mut Call<'_, '_>, by: Expiry) -> Outcome {
    let key = call.key();
    let conditions = Conditions::parse(call)?;
    let number = call.integer(2)?;
    let time = by.millis(number, call.now()).ok_or_else(|| Refusal::expire_time(call.name))?;
    let Some(old) = call.draft.expiry(&item::key_of(key))? else {
        call.out.integer(0);
        return Ok(());
    };
    let allowed = conditions.allow(old, time);
    if allowed {
        match u64::try_from(time).ok().filter(|time| *time > call.now()) {
            Some(time) => set_expiry(call, key, time)?,
            None => drop(call.remove(key)?),
        }
    }
    call.out.boolean(allowed);
    Ok(())
}

/// Writes the record again with another expiry.
fn set_expiry(call: &mut Call<'_, '_>, key: &[u8], expires: u64) -> Outcome {
    if let Some(found) = call.item(key)? {
        call.draft.put(item::key_of(key), found.record, expires);
    }
    Ok(())
}

/// `PERSIST key`
pub(crate) fn persist(call: &mut Call<'_, '_>) -> Outcome {
    let old = call.draft.expiry(&item::key_of(call.key()))?;
    let timed = old.is_some_and(|old| old != NEVER);
    if timed {
        set_expiry(call, call.key(), NEVER)?;
    }
    call.out.boolean(timed);
    Ok(())
}

/// `TTL key`
pub(crate) fn ttl(call: &mut Call<'_, '_>) -> Outcome {
    left(call, |expires, now| (expires - now).saturating_add(500) / 1000)
}

/// `PTTL key`
pub(crate) fn pttl(call: &mut Call<'_, '_>) -> Outcome {
    left(call, |expires, now| expires - now)
}

/// `EXPIRETIME key`
pub(crate) fn expiretime(call: &mut Call<'_, '_>) -> Outcome {
    left(call, |expires, _| expires.saturating_add(500) / 1000)
}

/// `PEXPIRETIME key`
pub(crate) fn pexpiretime(call: &mut Call<'_, '_>) -> Outcome {
    left(call, |expires, _| expires)
}

fn left(call: &mut Call<'_, '_>, reply: impl Fn(u64, u64) -> u64) -> Outcome {
    let answer = match call.draft.expiry(&item::key_of(call.key()))? {
        None => -2,
        Some(NEVER) => -1,
        Some(expires) => i64::try_from(reply(expires, call.now())).unwrap_or(i64::MAX),
    };
    call.out.integer(answer);
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::super::call::tests::Bench;

    #[test]
    fn conditions_and_past_times() {
        let mut bench = Bench::new();
        bench.expect(&[
            ("EXPIRE a 10", ":0"),
            ("SET a 1", "+OK"),
            ("EXPIRE a 10 XX", ":0"),
            ("EXPIRE a 10 GT", ":0"),
            ("EXPIRE a 10 LT", ":1"),
            ("EXPIRE a 20 NX", ":0"),
            ("EXPIRE a 20 GT", ":1"),
            (
                "EXPIRE a 20 NX GT",
                "-ERR NX and XX, GT or LT options at the same time are not compatible",
            ),
            ("EXPIRE a 20 ZZ", "-ERR Unsupported option ZZ"),
            ("EXPIRE a 9223372036854775807", "-ERR invalid expire time in 'expire' command"),
            ("PEXPIRETIME a", ":1020000"),
            ("EXPIRETIME a", ":1020"),
            ("PERSIST a", ":1"),
            ("PERSIST a", ":0"),
            ("TTL a", ":-1"),
            ("PEXPIREAT a 1000500", ":1"),
        ]);
        bench.now += 500;
        bench.expect(&[
            ("TTL a", ":-2"),
            ("SET a 1", "+OK"),
            ("EXPIRE a -1", ":1"),
            ("GET a", "$-1"),
        ]);
    }
}
