//! Converts keys and values of Python to their encodings and back. The encodings are those of Rust's types
//! (`pmindex::Storable`).

use std::ops::Bound as End;
use std::time::Duration;

use pyo3::IntoPyObjectExt;
use pyo3::exceptions::{PyOverflowError, PyTypeError, PyValueError};
use pyo3::prelude::*;
use pyo3::types::{PyBool, PyByteArray, PyBytes, PyFloat, PyMemoryView, PyString, PyTuple};

use crate::fault::{Class, Fault};
use crate::raw::{Lent, MOST_WORDS, Raw};
use crate::types::{Form, Spelled, Type};

/// Converts seconds or a `timedelta` to a duration.
pub(crate) fn seconds(time: &Bound<'_, PyAny>, what: &str) -> PyResult<Duration> {
    let seconds: f64 = match time.extract() {
        Ok(seconds) => seconds,
        Err(error) => match time.getattr_opt("total_seconds")? {
            Some(total) => total.call0()?.extract()?,
            None => return Err(error),
        },
    };
    if seconds == f64::INFINITY {
        return Ok(Duration::MAX);
    }
    let refuse = |error| PyValueError::new_err(format!("{what}={seconds}: {error}"));
    Duration::try_from_secs_f64(seconds).map_err(refuse)
}

const SIGN: u64 = 1 << 63;
/// Follows a zero byte that belongs to a part.
const ZERO: u8 = 0xff;

/// A key or value of a Python program, encoded.
pub(crate) enum Arg<'py> {
    Words([u64; MOST_WORDS]),
    /// The immutable Python object that owns the bytes.
    Object(Bound<'py, PyBytes>),
    Owned(Vec<u8>),
}

impl Arg<'_> {
    pub(crate) fn lend(&self) -> Lent<'_> {
        match self {
            Self::Words(words) => Lent::Words(*words),
            Self::Object(object) => Lent::Bytes(object.as_bytes()),
            Self::Owned(bytes) => Lent::Bytes(bytes),
        }
    }

    pub(crate) fn into_raw(self) -> Raw {
        match self {
            Self::Words(words) => Raw::Words(words),
            Self::Object(object) => Raw::Bytes(object.as_bytes().to_vec()),
            Self::Owned(bytes) => Raw::Bytes(bytes),
        }
    }
}

/// The error that the type of an object is not that of its map.
fn wrong(wanted: &Type, object: &Bound<'_, PyAny>, what: &str) -> PyErr {
    let found = object.get_type().name().map_or_else(|_| "?".into(), |name| name.to_string());
    PyTypeError::new_err(format!("the {what} is of type {found}; the map has {}", Spelled(wanted)))
}

/// Returns the word of an object whose type is one word.
fn word(of: &Type, object: &Bound<'_, PyAny>, what: &str) -> PyResult<u64> {
    let is_overflow = |error: &PyErr| error.is_instance_of::<PyOverflowError>(object.py());
    let explain = |error: PyErr| {
        if !is_overflow(&error) {
            return wrong(of, object, what);
        }
        let number = object.repr().map_or_else(|_| "the number".into(), |text| text.to_string());
        PyOverflowError::new_err(format!(
            "the {what} {number} is out of the range of {}",
            Spelled(of)
        ))
    };
    let out_of_range = || explain(PyOverflowError::new_err(()));
    match of {
        Type::Int(bits) => {
            let number: i64 = object.extract().map_err(explain)?;
            let high = number >> (bits - 1);
            if high != 0 && high != -1 {
                return Err(out_of_range());
            }
            Ok(number.cast_unsigned() ^ SIGN)
        }
        Type::Uint(bits) => {
            let number: u64 = object.extract().map_err(explain)?;
            if *bits < 64 && number >> bits != 0 {
                return Err(out_of_range());
            }
            Ok(number)
        }
        Type::Bool => {
            Ok(object.cast::<PyBool>().map_err(|_| wrong(of, object, what))?.is_true().into())
        }
        Type::Float => {
            let number: f64 = object.extract().map_err(explain)?;
            let bits = number.to_bits();
            Ok(if bits & SIGN == 0 { bits ^ SIGN } else { !bits })
        }
        Type::Unit if object.is_none() => Ok(0),
        _ => Err(wrong(of, object, what)),
    }
}

/// Encodes an object as the type of a map; `what` names it in messages.
pub(crate) fn encode<'py>(of: &Type, object: &Bound<'py, PyAny>, what: &str) -> PyResult<Arg<'py>> {
    match of {
        Type::Str => match object.cast::<PyString>() {
            Ok(text) => Ok(Arg::Object(text.encode_utf8()?)),
            Err(_) => Err(wrong(of, object, what)),
        },
        Type::Bytes => match object.cast::<PyBytes>() {
            Ok(bytes) => Ok(Arg::Object(bytes.clone())),
            Err(_) => copy_bytes(of, object, what).map(Arg::Owned),
        },
        Type::Tuple(parts) => {
            let tuple = parts_of(of, parts.len(), object, what)?;
            match of.form() {
                Form::Words(_) => {
                    let mut words = Vec::new();
                    put_words(parts, &tuple, what, &mut words)?;
                    let mut own = [0; MOST_WORDS];
                    own[..words.len()].copy_from_slice(&words);
                    Ok(Arg::Words(own))
                }
                Form::Bytes => {
                    let mut bytes = Vec::with_capacity(64);
                    put_parts(parts, &tuple, what, &mut bytes)?;
                    Ok(Arg::Owned(bytes))
                }
            }
        }
        _ => {
            let mut own = [0; MOST_WORDS];
            own[0] = word(of, object, what)?;
            Ok(Arg::Words(own))
        }
    }
}

/// Returns the bytes of an object that is not `bytes` but has a buffer.
fn copy_bytes(of: &Type, object: &Bound<'_, PyAny>, what: &str) -> PyResult<Vec<u8>> {
    if let Ok(array) = object.cast::<PyByteArray>() {
        return Ok(array.to_vec());
    }
    if object.cast::<PyMemoryView>().is_ok() {
        return object.call_method0("tobytes")?.extract();
    }
    Err(wrong(of, object, what))
}

/// Returns a tuple with this number of parts, or with fewer if it is a prefix.
fn parts_of<'py>(
    of: &Type,
    count: usize,
    object: &Bound<'py, PyAny>,
    what: &str,
) -> PyResult<Bound<'py, PyTuple>> {
    let Ok(tuple) = object.cast::<PyTuple>() else { return Err(wrong(of, object, what)) };
    if tuple.len() == count {
        return Ok(tuple.clone());
    }
    let found = tuple.len();
    Err(PyTypeError::new_err(format!("the {what} has {found} parts; the map has {}", Spelled(of))))
}

/// Appends the words of parts that are all words.
fn put_words(
    parts: &[Type],
    tuple: &Bound<'_, PyTuple>,
    what: &str,
    words: &mut Vec<u64>,
) -> PyResult<()> {
    for (part, object) in parts.iter().zip(tuple) {
        match part {
            Type::Tuple(inner) => {
                put_words(inner, &parts_of(part, inner.len(), &object, what)?, what, words)?;
            }
            _ => words.push(word(part, &object, what)?),
        }
    }
    Ok(())
}

/// Appends parts to a byte string.
fn put_parts(
    parts: &[Type],
    tuple: &Bound<'_, PyTuple>,
    what: &str,
    bytes: &mut Vec<u8>,
) -> PyResult<()> {
    parts.iter().zip(tuple).try_for_each(|(part, object)| put_part(part, &object, what, bytes))
}

fn put_part(
    part: &Type,
    object: &Bound<'_, PyAny>,
    what: &str,
    bytes: &mut Vec<u8>,
) -> PyResult<()> {
    match (part, part.form()) {
        (Type::Tuple(inner), Form::Words(_)) => {
            let tuple = parts_of(part, inner.len(), object, what)?;
            put_parts(inner, &tuple, what, bytes)?;
        }
        (_, Form::Words(_)) => bytes.extend(word(part, object, what)?.to_be_bytes()),
        (_, Form::Bytes) => put_escaped(&encode(part, object, what)?.into_raw(), bytes),
    }
    Ok(())
}

/// Appends a byte string so that its end can be found.
fn put_escaped(part: &Raw, bytes: &mut Vec<u8>) {
    let Raw::Bytes(part) = part else { return };
    for byte in part {
        bytes.push(*byte);
        if *byte == 0 {
            bytes.push(ZERO);
        }
    }
    bytes.extend([0, 0]);
}

/// The error that the bytes of a record are no encoding of its type.
fn damaged(of: &Type, what: &str) -> PyErr {
    Fault::new(Class::Damaged, format!("a {what} of the map is damaged: no {of}")).into()
}

/// Returns the Python object of a key or value.
pub(crate) fn decode<'py>(
    py: Python<'py>,
    of: &Type,
    raw: &Raw,
    what: &str,
) -> PyResult<Bound<'py, PyAny>> {
    match (of, raw) {
        (Type::Bytes, Raw::Bytes(bytes)) => Ok(PyBytes::new(py, bytes).into_any()),
        (Type::Str, Raw::Bytes(bytes)) => match str::from_utf8(bytes) {
            Ok(text) => Ok(PyString::new(py, text).into_any()),
            Err(_) => Err(damaged(of, what)),
        },
        (Type::Tuple(parts), Raw::Words(words)) => {
            let mut words = words.iter().copied();
            take_words(py, parts, &mut words).ok_or_else(|| damaged(of, what))?
        }
        (Type::Tuple(parts), Raw::Bytes(bytes)) => {
            let mut rest = bytes.as_slice();
            let tuple = take_parts(py, parts, &mut rest, what)?;
            tuple.filter(|_| rest.is_empty()).ok_or_else(|| damaged(of, what))
        }
        (_, Raw::Words(words)) => of_word(py, of, words[0]),
        _ => Err(damaged(of, what)),
    }
}

fn of_word<'py>(py: Python<'py>, of: &Type, word: u64) -> PyResult<Bound<'py, PyAny>> {
    match of {
        Type::Int(_) => (word ^ SIGN).cast_signed().into_bound_py_any(py),
        Type::Bool => (word != 0).into_bound_py_any(py),
        Type::Float => {
            let bits = if word & SIGN == 0 { !word } else { word ^ SIGN };
            Ok(PyFloat::new(py, f64::from_bits(bits)).into_any())
        }
        Type::Unit => Ok(py.None().into_bound(py)),
        _ => word.into_bound_py_any(py),
    }
}

type Made<'py> = Option<PyResult<Bound<'py, PyAny>>>;

/// Makes a tuple of words; `None` if there are too few.
fn take_words<'py>(
    py: Python<'py>,
    parts: &[Type],
    words: &mut dyn Iterator<Item = u64>,
) -> Made<'py> {
    let mut objects = Vec::with_capacity(parts.len());
    for part in parts {
        let object = match part {
            Type::Tuple(inner) => take_words(py, inner, words)?,
            _ => of_word(py, part, words.next()?),
        };
        match object {
            Ok(object) => objects.push(object),
            error => return Some(error),
        }
    }
    Some(PyTuple::new(py, objects).map(Bound::into_any))
}

/// Decodes a tuple from the front of bytes; `None` if they encode none.
fn take_parts<'py>(
    py: Python<'py>,
    parts: &[Type],
    rest: &mut &[u8],
    what: &str,
) -> PyResult<Option<Bound<'py, PyAny>>> {
    let mut objects = Vec::with_capacity(parts.len());
    for part in parts {
        let object = match (part, part.form()) {
            (Type::Tuple(inner), Form::Words(_)) => take_parts(py, inner, rest, what)?,
            (_, Form::Words(_)) => match rest.split_first_chunk::<8>() {
                Some((word, others)) => {
                    *rest = others;
                    Some(of_word(py, part, u64::from_be_bytes(*word))?)
                }
                None => None,
            },
            (_, Form::Bytes) => match take_escaped(rest) {
                Some(bytes) => Some(decode(py, part, &Raw::Bytes(bytes), what)?),
                None => None,
            },
        };
        let Some(object) = object else { return Ok(None) };
        objects.push(object);
    }
    Ok(Some(PyTuple::new(py, objects)?.into_any()))
}

/// Decodes a byte string from the front of another one.
fn take_escaped(rest: &mut &[u8]) -> Option<Vec<u8>> {
    let mut part = Vec::new();
    loop {
        let (byte, others) = rest.split_first()?;
        *rest = others;
        if *byte != 0 {
            part.push(*byte);
            continue;
        }
        let (second, others) = rest.split_first()?;
        *rest = others;
        match *second {
            0 => return Some(part),
            ZERO => part.push(0),
            _ => return None,
        }
    }
}

/// Returns the bounds of the keys that begin with `prefix`: text, bytes, or the first parts of a tuple.
pub(crate) fn bounds_of_prefix(
    of: &Type,
    prefix: &Bound<'_, PyAny>,
) -> PyResult<(End<Raw>, End<Raw>)> {
    match of {
        Type::Str | Type::Bytes => {
            let Raw::Bytes(bytes) = encode(of, prefix, "prefix")?.into_raw() else {
                return Err(wrong(of, prefix, "prefix"));
            };
            Ok(bounds_of_bytes(bytes))
        }
        Type::Tuple(parts) => {
            let Ok(tuple) = prefix.cast::<PyTuple>() else {
                return Err(wrong(of, prefix, "prefix"));
            };
            let Some(parts) = parts.get(..tuple.len()) else {
                return Err(wrong(of, prefix, "prefix"));
            };
            if let Form::Words(_) = of.form() {
                let mut words = Vec::new();
                put_words(parts, tuple, "prefix", &mut words)?;
                let (mut lower, mut upper) = ([0; MOST_WORDS], [u64::MAX; MOST_WORDS]);
                lower[..words.len()].copy_from_slice(&words);
                upper[..words.len()].copy_from_slice(&words);
                if let Form::Words(words) = of.form() {
                    upper[words..].fill(0);
                }
                return Ok((End::Included(Raw::Words(lower)), End::Included(Raw::Words(upper))));
            }
            let mut bytes = Vec::new();
            put_parts(parts, tuple, "prefix", &mut bytes)?;
            Ok(bounds_of_bytes(bytes))
        }
        _ => {
            Err(PyTypeError::new_err(format!("only str, bytes and tuples have prefixes, not {of}")))
        }
    }
}

fn bounds_of_bytes(prefix: Vec<u8>) -> (End<Raw>, End<Raw>) {
    let after = prefix.iter().rposition(|byte| *byte < u8::MAX).map(|last| {
        let mut after = prefix[..=last].to_vec();
        after[last] += 1;
        Raw::Bytes(after)
    });
    (End::Included(Raw::Bytes(prefix)), after.map_or(End::Unbounded, End::Excluded))
}
