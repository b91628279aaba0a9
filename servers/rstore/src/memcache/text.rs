//! The replies of the classic commands.

use std::io::Write;

use crate::command::{Call, Refusal};

use super::{Command, Counted, Stored, Value, count, flags, store, touch, unique};

/// Runs a command. A `get` replies its value alone; `END` follows the last key.
pub(super) fn run(
    call: &mut Call<'_, '_>,
    command: &Command,
    out: &mut Vec<u8>,
) -> Result<(), Refusal> {
    match command {
        Command::Get { key, with_unique, touch: expiry } => {
            let Some(found) = call.text(key)? else { return Ok(()) };
            if let Some(expiry) = expiry {
                touch(call, key, &found, *expiry)?;
            }
            let value = found.text().unwrap_or_default();
            out.extend_from_slice(b"VALUE ");
            out.extend_from_slice(key);
            let _ = write!(out, " {} {}", flags(&found), value.len());
            if *with_unique {
                let _ = write!(out, " {}", unique(&found));
            }
            out.extend_from_slice(b"\r\n");
            out.extend_from_slice(value);
            out.extend_from_slice(b"\r\n");
        }
        Command::Store { key, mode, flags, expiry, unique, data } => {
            let value =
                Value { key, mode: *mode, flags: *flags, expiry: *expiry, unique: *unique, data };
            out.extend_from_slice(match store(call, &value)? {
                Stored::Done => b"STORED\r\n",
                Stored::Refused => b"NOT_STORED\r\n",
                Stored::Exists => b"EXISTS\r\n",
                Stored::NotFound => b"NOT_FOUND\r\n",
            });
        }
        Command::Delete { key } => {
            let removed = call.remove(key)?;
            out.extend_from_slice(if removed { b"DELETED\r\n" } else { b"NOT_FOUND\r\n" });
        }
        Command::Count { key, up, by } => match count(call, key, *up, *by)? {
            Counted::Number(number) => {
                let _ = write!(out, "{number}\r\n");
            }
            Counted::NotFound => out.extend_from_slice(b"NOT_FOUND\r\n"),
            Counted::NotNumeric => out.extend_from_slice(
                b"CLIENT_ERROR cannot increment or decrement non-numeric value\r\n",
            ),
        },
        Command::Touch { key, expiry } => {
            let found = call.text(key)?;
            if let Some(found) = &found {
                touch(call, key, found, *expiry)?;
            }
            let done: &[u8] = if found.is_some() { b"TOUCHED\r\n" } else { b"NOT_FOUND\r\n" };
            out.extend_from_slice(done);
        }
        Command::Meta(_) => {}
    }
    Ok(())
}
