//! x86-64.

pub(super) mod avx2;
pub(super) mod avx512;
pub(super) mod baseline;
pub(super) mod flush;
pub(super) mod nontemporal;
pub(super) mod rank;
pub(super) mod rank_avx2;
