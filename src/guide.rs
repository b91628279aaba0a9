//! The guide, a module for each chapter: from the choice of an index to the recovery of a damaged file.
//!
//! The same text is a book (`docs/book` of the repository), with pictures of how it works inside.
//!
//! | question | chapter |
//! | --- | --- |
//! | Which part of the library do I use, and what shall a write wait for? | [`choosing`] |
//! | Which of the indexes? | [`which_index`] |
//! | Which types can keys and values have, and how do they change later? | [`modelling`] |
//! | How do threads share a map, and how do records change together? | [`transactions`] |
//! | What does a service do beside reading and writing? | [`operating`] |
//! | What happens after a crash, and what if a file is damaged? | [`recovering`] |
//! | How is an engine's cache warm after a deploy? | [`caches`] |
//! | How do I use it from C and C++? | [`c`] |
//! | How do I use it from Python? | [`python`] |
#![allow(clippy::doc_markdown, reason = "chapters are pages of a book as well")]

/// Where the chapters' links lead on these pages. In the book they lead to files, by definitions at the
/// ends of the chapters; of two definitions of a link the first counts.
macro_rules! links {
    () => {
        "[Transactions]: crate::guide::transactions\n\
         [Which index]: crate::guide::which_index\n\
         [Caches]: crate::guide::caches\n\
         [From C]: crate::guide::c\n\
         [From Python]: crate::guide::python\n\n"
    };
}

#[doc = links!()]
#[doc = include_str!("../docs/book/src/choosing.md")]
pub mod choosing {}

#[doc = include_str!("../docs/book/src/which-index.md")]
pub mod which_index {}

#[doc = include_str!("../docs/book/src/modelling.md")]
pub mod modelling {}

#[doc = include_str!("../docs/book/src/transactions.md")]
pub mod transactions {}

#[doc = include_str!("../docs/book/src/operating.md")]
pub mod operating {}

#[doc = links!()]
#[doc = include_str!("../docs/book/src/recovering.md")]
pub mod recovering {}

#[doc = include_str!("../docs/book/src/caches.md")]
pub mod caches {}

#[doc = include_str!("../docs/book/src/c.md")]
pub mod c {}

#[doc = include_str!("../docs/book/src/python.md")]
pub mod python {}

/// The book's first page, whose example is a test too.
#[cfg(doctest)]
#[doc = include_str!("../docs/book/src/introduction.md")]
pub struct Introduction;
