//! What each command does.

use std::io::{self, Write};

use pmindex::{Index, IndexError};

use crate::resp::Replies;
use crate::scan::{self, Cursors};
use crate::store::Store;

/// What is to happen to the connection, or to the server, after a reply.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum After {
    /// The next request.
    Go,
    /// The connection ends.
    Quit,
    /// The server ends.
    Shutdown,
}

/// What commands work on.
#[derive(Debug)]
pub(crate) struct Context {
    pub(crate) store: Store,
    pub(crate) cursors: Cursors,
    pub(crate) started: std::time::Instant,
}

/// Why a command has no reply of its own.
#[derive(Debug)]
pub(crate) enum Failure {
    /// The client's mistake: the error to reply.
    Request(String),
    /// The index failed.
    Index(IndexError),
    /// The connection failed.
    Io(io::Error),
}

impl From<io::Error> for Failure {
    fn from(error: io::Error) -> Self {
        Self::Io(error)
    }
}

impl From<IndexError> for Failure {
    fn from(error: IndexError) -> Self {
        Self::Index(error)
    }
}

/// Runs one request (a command with its arguments) and replies.
pub(crate) fn run(
    context: &Context,
    request: &[Vec<u8>],
    out: &mut impl Write,
) -> io::Result<After> {
    let Some((name, arguments)) = request.split_first() else { return Ok(After::Go) };
    let name = String::from_utf8_lossy(name).to_ascii_uppercase();
    match dispatch(context, &name, arguments, out) {
        Ok(after) => Ok(after),
        Err(Failure::Io(error)) => Err(error),
        Err(Failure::Request(text)) => out.error(&text).map(|()| After::Go),
        Err(Failure::Index(error)) => {
            // Reads go on whatever happened to the pool; the client learns why its write does not.
            out.error(&format!("ERR {error}")).map(|()| After::Go)
        }
    }
}

fn dispatch(
    context: &Context,
    name: &str,
    arguments: &[Vec<u8>],
    out: &mut impl Write,
) -> Result<After, Failure> {
    let index = &context.store.index;
    match (name, arguments) {
        ("GET", [key]) => out.maybe(index.get(key)?.as_deref())?,
        ("SET", [key, value, options @ ..]) => set(context, key, value, options, out)?,
        ("SETNX", [key, value]) => out.integer(index.try_insert(key, value)?.is_ok().into())?,
        ("GETSET", [key, value]) => out.maybe(index.insert(key, value)?.as_deref())?,
        ("GETDEL", [key]) => out.maybe(index.remove(key)?.as_deref())?,
        ("DEL" | "UNLINK", keys @ [_, ..]) => {
            let mut removed = 0;
            for key in keys {
                removed += u64::from(index.remove(key)?.is_some());
            }
            out.integer(removed)?;
        }
        ("EXISTS", keys @ [_, ..]) => {
            let mut present = 0;
            for key in keys {
                present += u64::from(index.contains_key(key)?);
            }
            out.integer(present)?;
        }
        ("STRLEN", [key]) => out.integer(index.get(key)?.map_or(0, |value| value.len() as u64))?,
        ("MGET", keys @ [_, ..]) => {
            let mut values = vec![None; keys.len()];
            index.get_many(keys, &mut values)?;
            out.array(values.len())?;
            for value in values {
                out.maybe(value.as_deref())?;
            }
        }
        ("MSET", pairs @ [_, ..]) if pairs.len().is_multiple_of(2) => {
            for pair in pairs.chunks_exact(2) {
                index.put(&pair[0], &pair[1])?;
            }
            out.simple("OK")?;
        }
        ("DBSIZE", []) => out.integer(index.len()?)?,
        ("FLUSHDB", []) => {
            index.clear()?;
            out.simple("OK")?;
        }
        ("SCAN", [cursor, options @ ..]) => {
            scan::scan(index, &context.cursors, cursor, options, out)?;
        }
        ("KEYS", [pattern]) => scan::keys(index, pattern, out)?,
        ("RANGE", [from, to, options @ ..]) => scan::range(index, from, to, options, out)?,
        _ => return connection(context, name, arguments, out),
    }
    Ok(After::Go)
}

/// Commands about the connection and the server.
fn connection(
    context: &Context,
    name: &str,
    arguments: &[Vec<u8>],
    out: &mut impl Write,
) -> Result<After, Failure> {
    match (name, arguments) {
        ("PING", []) => out.simple("PONG")?,
        ("PING" | "ECHO", [text]) => out.bulk(text)?,
        ("INFO", _) => out.bulk(info(context)?.as_bytes())?,
        // Waits until everything that was acknowledged survives what the pool's medium can give.
        ("SAVE", []) => {
            context.store.pool.sync().map_err(IndexError::from)?;
            out.simple("OK")?;
        }
        ("SELECT", [number]) if number == b"0" => out.simple("OK")?,
        ("SELECT", [_]) => out.error("ERR DB index is out of range")?,
        // What redis-cli and redis-benchmark ask at their start.
        ("COMMAND", _) => out.array(0)?,
        ("CONFIG", [get, name]) if get.eq_ignore_ascii_case(b"GET") => {
            out.array(2)?;
            out.bulk(name)?;
            out.bulk(b"")?;
        }
        ("CLIENT", _) => out.simple("OK")?,
        ("QUIT", []) => {
            out.simple("OK")?;
            return Ok(After::Quit);
        }
        ("SHUTDOWN", _) => return Ok(After::Shutdown),
        _ if is_known(name) => {
            let name = name.to_ascii_lowercase();
            out.error(&format!("ERR wrong number of arguments for '{name}' command"))?;
        }
        _ => out.error(&format!("ERR unknown command '{name}'"))?,
    }
    Ok(After::Go)
}

fn is_known(name: &str) -> bool {
    const NAMES: &[&str] = &[
        "GET", "SET", "SETNX", "GETSET", "GETDEL", "DEL", "UNLINK", "EXISTS", "STRLEN", "MGET",
        "MSET", "DBSIZE", "FLUSHDB", "SCAN", "KEYS", "RANGE", "PING", "ECHO", "SAVE", "SELECT",
        "QUIT",
    ];
    NAMES.contains(&name)
}

fn set(
    context: &Context,
    key: &[u8],
    value: &[u8],
    options: &[Vec<u8>],
    out: &mut impl Write,
) -> Result<(), Failure> {
    let index = &context.store.index;
    let done = match options {
        [] => {
            index.put(key, value)?;
            true
        }
        [only] if only.eq_ignore_ascii_case(b"NX") => index.try_insert(key, value)?.is_ok(),
        [only] if only.eq_ignore_ascii_case(b"XX") => index.update(key, value)?.is_ok(),
        [only] if only.eq_ignore_ascii_case(b"GET") => {
            return Ok(out.maybe(index.insert(key, value)?.as_deref())?);
        }
        _ => {
            let why = "ERR syntax error: only NX, XX or GET is understood";
            return Err(Failure::Request(why.into()));
        }
    };
    if done {
        out.simple("OK")?;
    } else {
        out.maybe(None)?;
    }
    Ok(())
}

fn info(context: &Context) -> Result<String, IndexError> {
    Ok(format!(
        "# Server\r\nredis_version:7.0.0\r\nserver_name:pmindex-kv-server\r\n\
         pmindex_version:{}\r\nprocess_id:{}\r\nuptime_in_seconds:{}\r\n\r\n{}",
        env!("CARGO_PKG_VERSION"),
        std::process::id(),
        context.started.elapsed().as_secs(),
        context.store.facts()?
    ))
}
