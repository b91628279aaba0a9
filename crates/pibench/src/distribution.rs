//! Distributions: which records operations choose, by rank among the existing ones.
//!
//! Ranks follow the distributions of Gray et al., "Quickly generating billion-record synthetic databases"
//! (SIGMOD 1994), as in the evaluation of persistent range indexes (section 4): the lower a rank, the more
//! often it is chosen. A multiplicative bijection scatters keys over their whole domain, so frequently
//! chosen ranks are not neighbours.

use crate::keys::KeySpace;

/// The distribution by which records are chosen.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub enum Distribution {
    /// All records equally often.
    #[default]
    Uniform,
    /// Rank `i` with a probability proportional to `1 / (i + 1)^theta`.
    Zipfian {
        /// Greater than 0, less than 1; YCSB uses 0.99.
        theta: f64,
    },
    /// A fraction `1 - skew` of the choices falls on the first fraction `skew` of the ranks, and
    /// recursively so within it: 0.2 is the 80-20 rule.
    SelfSimilar {
        /// Greater than 0, at most 0.5, which is uniform.
        skew: f64,
    },
    /// In key order, repeatedly from the start; keys are inserted in ascending order.
    Monotonic,
}

impl Distribution {
    /// The names of all distributions.
    pub const NAMES: [&'static str; 4] = ["uniform", "zipfian", "self-similar", "monotonic"];

    /// Returns the distribution of this name, with this skew or the default (0.99 or 0.2).
    ///
    /// # Errors
    /// A description of what is wrong with the name or the skew.
    pub fn named(name: &str, skew: Option<f64>) -> Result<Self, String> {
        let within = |value: f64, most: f64| {
            let fits = value > 0.0 && value < 1.0 && value <= most;
            let wrong =
                || format!("the skew of {name} lies above 0 and up to {most}, not at {value}");
            fits.then_some(value).ok_or_else(wrong)
        };
        match (name, skew) {
            ("uniform", None) => Ok(Self::Uniform),
            ("monotonic", None) => Ok(Self::Monotonic),
            ("uniform" | "monotonic", Some(_)) => Err(format!("{name} has no skew")),
            ("zipfian", skew) => Ok(Self::Zipfian { theta: within(skew.unwrap_or(0.99), 0.999)? }),
            ("self-similar", skew) => {
                Ok(Self::SelfSimilar { skew: within(skew.unwrap_or(0.2), 0.5)? })
            }
            _ => Err(format!("the distributions are {}", Self::NAMES.join(", "))),
        }
    }

    /// Returns its name in options, tables and JSON.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Uniform => Self::NAMES[0],
            Self::Zipfian { .. } => Self::NAMES[1],
            Self::SelfSimilar { .. } => Self::NAMES[2],
            Self::Monotonic => Self::NAMES[3],
        }
    }

    /// Returns its skew, if it has one.
    #[must_use]
    pub const fn skew(self) -> Option<f64> {
        match self {
            Self::Zipfian { theta } => Some(theta),
            Self::SelfSimilar { skew } => Some(skew),
            Self::Uniform | Self::Monotonic => None,
        }
    }
}

/// Chooses ranks below a bound that may change from choice to choice.
#[derive(Debug)]
pub struct Chooser {
    distribution: Distribution,
    zeta: Zeta,
    next: u64,
}

impl Chooser {
    /// Returns a chooser that has chosen nothing yet.
    #[must_use]
    pub fn new(distribution: Distribution) -> Self {
        let theta = distribution.skew().unwrap_or_default();
        Self { distribution, zeta: Zeta { theta, terms: 0, sum: 0.0 }, next: 0 }
    }

    /// Returns the next rank below `bound`, which is not 0.
    #[allow(
        clippy::cast_precision_loss,
        clippy::cast_sign_loss,
        reason = "ranks are below 2^52, and fractions of them are not negative"
    )]
    pub fn rank(&mut self, bound: u64, random: &mut KeySpace) -> u64 {
        let n = bound as f64;
        let rank = match self.distribution {
            Distribution::Uniform => return random.below(bound),
            Distribution::Monotonic => {
                let rank = self.next % bound;
                self.next = rank + 1;
                return rank;
            }
            Distribution::SelfSimilar { skew } => {
                n * random.unit().powf(skew.ln() / (1.0 - skew).ln())
            }
            Distribution::Zipfian { theta } => {
                let zeta = self.zeta.of(bound);
                let (unit, second) = (random.unit(), 0.5_f64.powf(theta));
                match unit * zeta {
                    x if x < 1.0 => 0.0,
                    x if x < 1.0 + second => 1.0,
                    _ => {
                        let eta =
                            (1.0 - (2.0 / n).powf(1.0 - theta)) / (1.0 - (1.0 + second) / zeta);
                        n * (eta * unit - eta + 1.0).powf(1.0 / (1.0 - theta))
                    }
                }
            }
        };
        (rank as u64).min(bound - 1)
    }
}

/// The generalized harmonic number of the last bound: that of the next bound is a few terms away.
#[derive(Debug)]
struct Zeta {
    theta: f64,
    terms: u64,
    sum: f64,
}

impl Zeta {
    #[allow(clippy::cast_precision_loss, reason = "ranks are below 2^52")]
    fn of(&mut self, terms: u64) -> f64 {
        let term = |i: u64| (i as f64).powf(-self.theta);
        if terms >= self.terms {
            self.sum += (self.terms + 1..=terms).map(term).sum::<f64>();
        } else {
            self.sum -= (terms + 1..=self.terms).map(term).sum::<f64>();
        }
        self.terms = terms;
        self.sum
    }
}
