//! The types of keys and values: their names in Python, and their forms in an index.

use pyo3::exceptions::{PyTypeError, PyValueError};
use pyo3::prelude::*;
use pyo3::types::{PyBool, PyBytes, PyFloat, PyInt, PyNone, PyString, PyTuple, PyType};

use crate::raw::MOST_WORDS;

/// The maximum number of words that an index keeps in a node; more are a byte string.
const WORDS_IN_A_NODE: usize = 4;

/// A type of keys or values.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Type {
    /// A signed number of this many bits.
    Int(u32),
    /// An unsigned number of this many bits.
    Uint(u32),
    /// A truth value.
    Bool,
    /// A number with a fraction, in the total order of IEEE 754.
    Float,
    /// Nothing but `None`.
    Unit,
    /// Text.
    Str,
    /// A byte string.
    Bytes,
    /// A tuple; the first part counts most.
    Tuple(Vec<Type>),
}

/// The form of a type in an index.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Form {
    Words(usize),
    Bytes,
}

/// The names of types for which Python has none, and the types.
const NUMBERS: [(&str, Type); 13] = [
    ("i64", Type::Int(64)),
    ("u64", Type::Uint(64)),
    ("i32", Type::Int(32)),
    ("u32", Type::Uint(32)),
    ("i16", Type::Int(16)),
    ("u16", Type::Uint(16)),
    ("i8", Type::Int(8)),
    ("u8", Type::Uint(8)),
    ("bool", Type::Bool),
    ("f64", Type::Float),
    ("()", Type::Unit),
    ("str", Type::Str),
    ("bytes", Type::Bytes),
];

impl Type {
    /// Returns the types to try on a map of unknown types.
    pub(crate) fn guesses() -> impl Iterator<Item = Self> + Clone {
        NUMBERS.iter().map(|(_, guess)| guess.clone())
    }

    /// Parses the type that a Python program names: `int`, `str`, `bytes`, `float`, `bool`, `None`, a tuple of
    /// types (`(str, int)`, `tuple[str, int]`), or the name of a Rust type (`"u64"`).
    pub(crate) fn of(said: &Bound<'_, PyAny>, what: &str) -> PyResult<Self> {
        if let Some(found) = Self::read(said)? {
            found.check(what)?;
            return Ok(found);
        }
        Err(PyTypeError::new_err(format!(
            "{what}={}: not a type that a map can have; those are int, str, bytes, float, bool, None, \
             tuples of them, and the names of Rust's numbers, as \"u64\"",
            said.repr()?
        )))
    }

    fn read(said: &Bound<'_, PyAny>) -> PyResult<Option<Self>> {
        let py = said.py();
        if said.is_none() {
            return Ok(Some(Self::Unit));
        }
        if let Ok(name) = said.cast::<PyString>() {
            let name = name.to_cow()?;
            let known = NUMBERS.iter().find(|(known, _)| *known == name);
            return Ok(known.map(|(_, number)| number.clone()));
        }
        if let Ok(parts) = said.cast::<PyTuple>() {
            return Self::read_parts(parts);
        }
        if let Ok(class) = said.cast::<PyType>() {
            let known = [
                (py.get_type::<PyInt>(), Self::Int(64)),
                (py.get_type::<PyString>(), Self::Str),
                (py.get_type::<PyBytes>(), Self::Bytes),
                (py.get_type::<PyFloat>(), Self::Float),
                (py.get_type::<PyBool>(), Self::Bool),
                (py.get_type::<PyNone>(), Self::Unit),
            ];
            let found = known.into_iter().find(|(one, _)| one.is(class));
            if let Some((_, found)) = found {
                return Ok(Some(found));
            }
        }
        // tuple[str, int]
        let origin = said.getattr_opt("__origin__")?;
        if origin.is_some_and(|origin| origin.is(py.get_type::<PyTuple>()))
            && let Ok(parts) = said.getattr("__args__")?.cast::<PyTuple>()
        {
            return Self::read_parts(parts);
        }
        Ok(None)
    }

    fn read_parts(parts: &Bound<'_, PyTuple>) -> PyResult<Option<Self>> {
        let mut types = Vec::new();
        for part in parts {
            let Some(part) = Self::read(&part)? else { return Ok(None) };
            types.push(part);
        }
        Ok((1..=8).contains(&types.len()).then_some(Self::Tuple(types)))
    }

    /// Refuses types that no map of this module can have.
    pub(crate) fn check(&self, what: &str) -> PyResult<()> {
        match self.form() {
            Form::Words(words) if words > MOST_WORDS => Err(PyValueError::new_err(format!(
                "{what}: {self} has {words} numbers and no str or bytes; a tuple of numbers alone has \
                 at most {MOST_WORDS}, or more than {WORDS_IN_A_NODE}"
            ))),
            _ => Ok(()),
        }
    }

    /// Returns the number of words; `None` if it is kept as a byte string.
    fn words(&self) -> Option<usize> {
        match self {
            Self::Str | Self::Bytes => None,
            Self::Tuple(parts) => match Self::words_of(parts) {
                Some(words) if words <= WORDS_IN_A_NODE => Some(words.max(1)),
                _ => None,
            },
            _ => Some(1),
        }
    }

    fn words_of(parts: &[Self]) -> Option<usize> {
        parts.iter().map(Self::words).sum()
    }

    /// Returns its form in an index.
    pub(crate) fn form(&self) -> Form {
        self.words().map_or(Form::Bytes, Form::Words)
    }
}

/// A type, written as a Python program names it.
pub(crate) struct Spelled<'t>(pub(crate) &'t Type);

impl std::fmt::Display for Spelled<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self.0 {
            Type::Int(64) => f.write_str("int"),
            Type::Float => f.write_str("float"),
            Type::Unit => f.write_str("None"),
            Type::Tuple(parts) => {
                let parts: Vec<String> = parts.iter().map(|p| Spelled(p).to_string()).collect();
                write!(f, "({})", parts.join(", "))
            }
            other => other.fmt(f),
        }
    }
}

/// Writes the name that an index records.
impl std::fmt::Display for Type {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        if let Self::Tuple(parts) = self {
            let parts: Vec<String> = parts.iter().map(ToString::to_string).collect();
            return write!(f, "({})", parts.join(", "));
        }
        let known = NUMBERS.iter().find(|(_, number)| number == self);
        f.write_str(known.map_or("(no type)", |(name, _)| name))
    }
}
