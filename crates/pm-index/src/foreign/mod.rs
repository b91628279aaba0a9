//! Types of other crates, each behind a feature of its name.

#[cfg(feature = "chrono")]
mod chrono;
#[cfg(any(feature = "chrono", feature = "jiff", feature = "time"))]
mod civil;
#[cfg(feature = "jiff")]
mod jiff;
#[cfg(feature = "serde")]
mod postcard;
#[cfg(feature = "time")]
mod time;

#[cfg(feature = "serde")]
pub use postcard::Postcard;

#[cfg(feature = "bytes")]
crate::bytes::byte_string! {
    bytes::Bytes, [u8], "bytes", |v| v, |bytes| Some(bytes.into());
}

#[cfg(feature = "uuid")]
mod uuid {
    //! Unique names, in the order of their bytes.

    use ::uuid::Uuid;

    use crate::inline::in_words;
    use crate::key::Key;

    in_words! {
        Uuid, "uuid", 2, |v| u128::to_words(&v.as_u128())[..2],
            |w| Self::from_u128(u128::from_words(w));
    }
    impl Key for Uuid {}
}
