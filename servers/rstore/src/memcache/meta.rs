//! The meta commands `mg`, `ms`, `md`, `ma`: a reply repeats the flags of its request, with their values.

use std::io::Write;

use crate::command::{Call, Refusal};
use crate::keyspace::NEVER;
use crate::keyspace::item::Item;

use super::{Counted, Mode, Stored, Value, count, flags, store, touch, unique};

/// The command.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Verb {
    Get,
    Set,
    Delete,
    Arithmetic,
}

/// A meta command.
#[derive(Debug)]
pub(crate) struct Meta {
    pub(crate) verb: Verb,
    pub(crate) key: Vec<u8>,
    /// The key as the client wrote it, perhaps in base64.
    pub(crate) written_key: Vec<u8>,
    pub(crate) flags: Vec<Vec<u8>>,
    pub(crate) data: Vec<u8>,
}

/// Returns the flags of a command.
fn known(verb: Verb) -> &'static [u8] {
    match verb {
        Verb::Get => b"bcfkOqstvT",
        Verb::Set => b"bcCFkOqsTM",
        Verb::Delete => b"bCkOqxT",
        Verb::Arithmetic => b"bCcDJkMNOqtTv",
    }
}

impl Meta {
    /// Refuses unknown flags, and flags without their number.
    pub(super) fn check(&self) -> Result<(), &'static str> {
        for flag in &self.flags {
            let name = flag.first().copied().unwrap_or_default();
            if !known(self.verb).contains(&name) {
                return Err("CLIENT_ERROR invalid flag");
            }
            if b"CDFJNT".contains(&name) && self.number::<i128>(name).is_none() {
                return Err("CLIENT_ERROR bad token in command line format");
            }
        }
        Ok(())
    }

    pub(super) fn writes(&self) -> bool {
        self.verb != Verb::Get || self.has(b'T')
    }

    fn token(&self, name: u8) -> Option<&[u8]> {
        self.flags.iter().find(|flag| flag.first() == Some(&name)).map(|flag| &flag[1..])
    }

    pub(super) fn has(&self, name: u8) -> bool {
        self.token(name).is_some()
    }

    fn number<T: std::str::FromStr>(&self, name: u8) -> Option<T> {
        std::str::from_utf8(self.token(name)?).ok()?.parse().ok()
    }

    /// Returns `true` if the client wants this reply.
    fn speaks(&self, code: &[u8]) -> bool {
        !self.has(b'q')
            || match self.verb {
                Verb::Get => code != b"EN",
                _ => code != b"HD",
            }
    }

    /// Writes a code, the flags of the reply, and a value.
    fn reply(
        &self,
        out: &mut Vec<u8>,
        code: &[u8],
        found: Option<&Item>,
        now: u64,
        value: Option<&[u8]>,
    ) {
        if !self.speaks(code) {
            return;
        }
        out.extend_from_slice(if value.is_some() { b"VA" } else { code });
        if let Some(value) = value {
            let _ = write!(out, " {}", value.len());
        }
        for flag in &self.flags {
            match (flag[0], found) {
                (b'O', _) => {
                    out.push(b' ');
                    out.extend_from_slice(flag);
                }
                (b'k', _) => {
                    out.extend_from_slice(b" k");
                    out.extend_from_slice(&self.written_key);
                }
                (b'b', _) => out.extend_from_slice(b" b"),
                (b'c', Some(found)) => {
                    let _ = write!(out, " c{}", unique(found));
                }
                (b'f', Some(found)) => {
                    let _ = write!(out, " f{}", flags(found));
                }
                (b's', Some(found)) => {
                    let _ = write!(out, " s{}", found.text().map_or(0, <[u8]>::len));
                }
                (b't', Some(found)) => {
                    let left = match found.expires {
                        NEVER => -1,
                        expires => (expires.saturating_sub(now) / 1000).cast_signed(),
                    };
                    let _ = write!(out, " t{left}");
                }
                _ => {}
            }
        }
        out.extend_from_slice(b"\r\n");
        if let Some(value) = value {
            out.extend_from_slice(value);
            out.extend_from_slice(b"\r\n");
        }
    }
}

/// Runs a meta command.
pub(super) fn run(call: &mut Call<'_, '_>, meta: &Meta, out: &mut Vec<u8>) -> Result<(), Refusal> {
    match meta.verb {
        Verb::Get => get(call, meta, out),
        Verb::Set => set(call, meta, out),
        Verb::Delete => delete(call, meta, out),
        Verb::Arithmetic => arithmetic(call, meta, out),
    }
}

fn get(call: &mut Call<'_, '_>, meta: &Meta, out: &mut Vec<u8>) -> Result<(), Refusal> {
    let now = call.now();
    let Some(found) = call.text(&meta.key)? else {
        meta.reply(out, b"EN", None, now, None);
        return Ok(());
    };
    let mut shown = found.clone();
    if let Some(expiry) = meta.number(b'T') {
        touch(call, &meta.key, &found, expiry)?;
        shown.expires = super::expires(expiry, now);
    }
    let value = if meta.has(b'v') { shown.text() } else { None };
    meta.reply(out, b"HD", Some(&shown), now, value);
    Ok(())
}

fn set(call: &mut Call<'_, '_>, meta: &Meta, out: &mut Vec<u8>) -> Result<(), Refusal> {
    let mode = match meta.token(b'M').and_then(<[u8]>::first).map(u8::to_ascii_uppercase) {
        None | Some(b'S') => Mode::Set,
        Some(b'E') => Mode::Add,
        Some(b'A') => Mode::Append,
        Some(b'P') => Mode::Prepend,
        Some(b'R') => Mode::Replace,
        Some(_) => {
            out.extend_from_slice(b"CLIENT_ERROR invalid mode for ms M token\r\n");
            return Ok(());
        }
    };
    let value = Value {
        key: &meta.key,
        mode,
        flags: meta.number(b'F').unwrap_or(0),
        expiry: meta.number(b'T').unwrap_or(0),
        unique: meta.number(b'C').filter(|unique| *unique != 0),
        data: &meta.data,
    };
    let code: &[u8] = match store(call, &value)? {
        Stored::Done => b"HD",
        Stored::Refused => b"NS",
        Stored::Exists => b"EX",
        Stored::NotFound => b"NF",
    };
    let found = call.text(&meta.key)?.filter(|_| code == b"HD");
    meta.reply(out, code, found.as_ref(), call.now(), None);
    Ok(())
}

fn delete(call: &mut Call<'_, '_>, meta: &Meta, out: &mut Vec<u8>) -> Result<(), Refusal> {
    let now = call.now();
    let code: &[u8] = match (call.text(&meta.key)?, meta.number::<u64>(b'C')) {
        (None, _) => b"NF",
        (Some(found), Some(wanted)) if unique(&found) != wanted => b"EX",
        (Some(_), _) => {
            call.remove(&meta.key)?;
            b"HD"
        }
    };
    meta.reply(out, code, None, now, None);
    Ok(())
}

fn arithmetic(call: &mut Call<'_, '_>, meta: &Meta, out: &mut Vec<u8>) -> Result<(), Refusal> {
    let now = call.now();
    let up = match meta.token(b'M').and_then(<[u8]>::first).map(u8::to_ascii_uppercase) {
        None | Some(b'I' | b'+') => true,
        Some(b'D' | b'-') => false,
        Some(_) => {
            out.extend_from_slice(b"CLIENT_ERROR invalid mode for ma M token\r\n");
            return Ok(());
        }
    };
    let old = call.text(&meta.key)?;
    if let (Some(old), Some(wanted)) = (&old, meta.number::<u64>(b'C'))
        && unique(old) != wanted
    {
        meta.reply(out, b"EX", None, now, None);
        return Ok(());
    }
    let by = meta.number(b'D').unwrap_or(1);
    let number = match (count(call, &meta.key, up, by)?, meta.number::<i64>(b'N')) {
        (Counted::Number(number), _) => number,
        (Counted::NotNumeric, _) => {
            out.extend_from_slice(
                b"CLIENT_ERROR cannot increment or decrement non-numeric value\r\n",
            );
            return Ok(());
        }
        (Counted::NotFound, None) => {
            meta.reply(out, b"NF", None, now, None);
            return Ok(());
        }
        (Counted::NotFound, Some(expiry)) => {
            let number: u64 = meta.number(b'J').unwrap_or(0);
            let data = number.to_string();
            let value = Value {
                key: &meta.key,
                mode: Mode::Set,
                flags: 0,
                expiry,
                unique: None,
                data: data.as_bytes(),
            };
            store(call, &value)?;
            number
        }
    };
    if let Some(expiry) = meta.number(b'T')
        && let Some(found) = call.text(&meta.key)?
    {
        touch(call, &meta.key, &found, expiry)?;
    }
    let found = call.text(&meta.key)?;
    let text = number.to_string();
    let value = if meta.has(b'v') { Some(text.as_bytes()) } else { None };
    meta.reply(out, b"HD", found.as_ref(), now, value);
    Ok(())
}
