//! Numbers as clients of Redis write and read them.

/// Parses an integer as strictly as Redis: no plus sign, no spaces, no leading zeros.
pub(crate) fn integer(digits: &[u8]) -> Option<i64> {
    let (negative, rest) = match digits {
        [b'-', rest @ ..] => (true, rest),
        rest => (false, rest),
    };
    match rest {
        [] | [b'0', _, ..] => return None,
        [b'0'] => return (!negative).then_some(0),
        _ if rest.len() > 19 => return None,
        _ => {}
    }
    let mut number: i64 = 0;
    for byte in rest {
        let digit = i64::from(byte.checked_sub(b'0').filter(|digit| *digit < 10)?);
        number = number.checked_mul(10)?;
        number = if negative { number.checked_sub(digit)? } else { number.checked_add(digit)? };
    }
    Some(number)
}

/// Parses a score or a float: the decimals and infinities that C's `strtod` accepts, but no NaN.
pub(crate) fn parse_double(text: &[u8]) -> Option<f64> {
    let text = std::str::from_utf8(text).ok()?;
    if text.is_empty() || text.starts_with(char::is_whitespace) {
        return None;
    }
    let number = text.parse::<f64>().ok().filter(|number| !number.is_nan())?;
    // A number out of range is refused; infinity has a name.
    let is_named = text.bytes().any(|byte| byte.eq_ignore_ascii_case(&b'n'));
    (number.is_finite() || is_named).then_some(number)
}

/// Formats a number as C's `%.17g` does, which is how Redis 7.0 replies scores.
pub(crate) fn general_17(number: f64) -> String {
    if number.is_infinite() {
        return if number > 0.0 { "inf".into() } else { "-inf".into() };
    }
    if number == 0.0 {
        return if number.is_sign_negative() { "-0".into() } else { "0".into() };
    }
    let scientific = format!("{number:.16e}");
    let (mantissa, exponent) = scientific.split_once('e').unwrap_or((&scientific, "0"));
    let exponent: i32 = exponent.parse().unwrap_or(0);
    if (-4..17).contains(&exponent) {
        let decimals = usize::try_from(16 - exponent).unwrap_or(0);
        return trimmed(&format!("{number:.decimals$}")).into();
    }
    let sign = if exponent < 0 { '-' } else { '+' };
    format!("{}e{sign}{:02}", trimmed(mantissa), exponent.abs())
}

/// Returns the shortest decimal that parses to the same number, for scores in RESP3 and `INFO`.
pub(crate) fn shortest_double(number: f64) -> String {
    if number.is_infinite() { general_17(number) } else { format!("{number}") }
}

/// Removes the zeros at the end of the decimals.
fn trimmed(decimal: &str) -> &str {
    if decimal.contains('.') {
        decimal.trim_end_matches('0').trim_end_matches('.')
    } else {
        decimal
    }
}

/// A decimal with 17 digits after the point, for `INCRBYFLOAT`. Sums of decimals are exact, while Redis uses
/// the machine's long double and prints 17 decimals of it.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Decimal {
    /// A number of units of 10^-17.
    Exact(i128),
    /// A number outside the range of `Exact`.
    Double(f64),
}

const DECIMALS: usize = 17;
const UNIT: i128 = 100_000_000_000_000_000;

impl Decimal {
    /// Parses a float.
    pub(crate) fn parse(text: &[u8]) -> Option<Self> {
        let double = parse_double(text)?;
        Some(Self::exact(text).unwrap_or(Self::Double(double)))
    }

    fn exact(text: &[u8]) -> Option<Self> {
        let (negative, digits) = match text {
            [b'-', rest @ ..] => (true, rest),
            [b'+', rest @ ..] => (false, rest),
            rest => (false, rest),
        };
        // `12.5e3` is 12500: the exponent moves the point.
        let mut halves = digits.splitn(2, |byte| byte.eq_ignore_ascii_case(&b'e'));
        let (digits, exponent) = (halves.next()?, halves.next());
        let exponent: usize = match exponent {
            Some(text) => std::str::from_utf8(text).ok()?.trim_start_matches('+').parse().ok()?,
            None => 0,
        };
        let mut parts = digits.splitn(2, |byte| *byte == b'.');
        let (whole, fraction) = (parts.next()?, parts.next().unwrap_or_default());
        if exponent > 0 {
            let moved = exponent.min(fraction.len());
            let zeros = vec![b'0'; exponent.checked_sub(moved).filter(|zeros| *zeros < 19)?];
            let text = [whole, &fraction[..moved], &zeros, b".", &fraction[moved..]].concat();
            let Self::Exact(number) = Self::exact(&text)? else { return None };
            return Some(Self::Exact(if negative { -number } else { number }));
        }
        if whole.len() > 19 || fraction.len() > DECIMALS {
            return None;
        }
        let padding = std::iter::repeat_n(&b'0', DECIMALS - fraction.len());
        let mut number: i128 = 0;
        for byte in whole.iter().chain(fraction).chain(padding) {
            number = number * 10 + i128::from(byte.checked_sub(b'0').filter(|digit| *digit < 10)?);
        }
        Some(Self::Exact(if negative { -number } else { number }))
    }

    fn double(self) -> f64 {
        match self {
            #[expect(clippy::cast_precision_loss, reason = "what is out of range is approximate")]
            Self::Exact(number) => number as f64 / UNIT as f64,
            Self::Double(number) => number,
        }
    }

    pub(crate) fn is_finite(self) -> bool {
        self.double().is_finite()
    }

    /// Returns the sum; `None` if it is not finite.
    pub(crate) fn plus(self, other: Self) -> Option<Self> {
        if let (Self::Exact(one), Self::Exact(two)) = (self, other)
            && let Some(sum) = one.checked_add(two)
        {
            return Some(Self::Exact(sum));
        }
        Some(self.double() + other.double()).filter(|sum| sum.is_finite()).map(Self::Double)
    }

    /// Formats the decimal without zeros at its end.
    pub(crate) fn print(self) -> String {
        match self {
            Self::Exact(number) => {
                let (sign, size) = (if number < 0 { "-" } else { "" }, number.unsigned_abs());
                let (whole, fraction) = (size / UNIT.unsigned_abs(), size % UNIT.unsigned_abs());
                trimmed(&format!("{sign}{whole}.{fraction:017}")).into()
            }
            Self::Double(number) => trimmed(&format!("{number:.17}")).into(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn integers_are_strict() {
        assert_eq!(integer(b"-9223372036854775808"), Some(i64::MIN));
        assert_eq!(integer(b"9223372036854775807"), Some(i64::MAX));
        assert_eq!(integer(b"0"), Some(0));
        for bad in ["", "-", "+1", "01", "-0", " 1", "1 ", "9223372036854775808", "1.0", "x"] {
            assert_eq!(integer(bad.as_bytes()), None, "{bad}");
        }
    }

    #[test]
    fn scores_print_as_c_does() {
        for (number, text) in [
            (3.1, "3.1000000000000001"),
            (1.0, "1"),
            (-2.5, "-2.5"),
            (1e20, "1e+20"),
            (123_456_789.0, "123456789"),
            (1e-7, "9.9999999999999995e-08"),
            (f64::NEG_INFINITY, "-inf"),
        ] {
            assert_eq!(general_17(number), text);
        }
    }

    #[test]
    fn sums_of_decimals_are_exact() {
        let sum = |one: &str, two: &str| {
            let [one, two] =
                [one, two].map(|text| Decimal::parse(text.as_bytes()).expect("decimal"));
            one.plus(two).expect("finite").print()
        };
        assert_eq!(sum("0.1", "0.2"), "0.3");
        assert_eq!(sum("10.50", "0.1"), "10.6");
        assert_eq!(sum("5.0e3", "2.0e2"), "5200");
        assert_eq!(sum("1e3", "0.1"), "1000.1");
        assert_eq!(sum("-1.25e1", "0"), "-12.5");
        assert_eq!(sum("3", "-3"), "0");
        assert_eq!(sum("-0.5", "0.25"), "-0.25");
        assert_eq!(Decimal::parse(b"nan"), None);
        assert_eq!(parse_double(b"1e999"), None);
        assert_eq!(parse_double(b"-Infinity"), Some(f64::NEG_INFINITY));
    }
}
