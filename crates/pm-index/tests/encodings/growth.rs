//! What changes of a type leave readable, and what is refused.

use pmindex::Storable;

use crate::kit::encoded;

/// As indexes were created with them.
mod then {
    use pmindex_derive::Storable;

    #[derive(Clone, Debug, PartialEq, Storable)]
    pub(crate) enum Status {
        New,
        Paid,
    }

    #[derive(Clone, Debug, PartialEq, Storable)]
    #[storable(bytes)]
    pub(crate) enum Stored {
        V1(u64, String),
    }
}

/// As they are now.
mod now {
    use pmindex_derive::Storable;

    #[derive(Clone, Debug, PartialEq, Storable)]
    pub(crate) enum Status {
        /// Before the others, whose numbers stay because they are written out.
        #[storable(added)]
        Cancelled = 7,
        New = 0,
        #[storable(name = "Paid")]
        Settled,
    }

    #[derive(Clone, Debug, PartialEq, Storable)]
    #[storable(bytes)]
    pub(crate) enum Stored {
        V1(u64, String),
        #[storable(added)]
        V2 {
            total: u64,
            notes: (String, String),
        },
    }
}

/// As they must not change.
mod changed {
    use pmindex_derive::Storable;

    #[derive(Clone, Debug, Storable)]
    pub(crate) enum Swapped {
        Paid,
        New,
    }

    #[derive(Clone, Debug, Storable)]
    pub(crate) enum Unannounced {
        New,
        Paid,
        Cancelled,
    }

    #[derive(Clone, Debug, Storable)]
    pub(crate) enum Larger {
        New,
        Paid,
        #[storable(added)]
        Part(u64),
    }

    #[derive(Clone, Debug, Storable)]
    #[storable(bytes)]
    pub(crate) enum AsBytes {
        New,
        Paid,
    }
}

#[test]
fn added_and_renamed_variants_leave_old_data_readable() {
    assert_eq!(then::Status::type_name(), now::Status::type_name());
    assert_eq!(then::Stored::type_name(), now::Stored::type_name());
    let paid = then::Status::to_words(&then::Status::Paid);
    assert_eq!(now::Status::from_words(&paid[..1]), now::Status::Settled);
    let old = encoded(&then::Stored::V1(7, "a".into()));
    assert_eq!(now::Stored::from_bytes(&old), Some(now::Stored::V1(7, "a".into())));
}

#[test]
fn an_older_program_finds_an_added_variant_damaged_or_takes_the_greatest() {
    let new = now::Stored::V2 { total: 1, notes: (String::new(), "b".into()) };
    assert_eq!(then::Stored::from_bytes(&encoded(&new)), None);
    let cancelled = now::Status::to_words(&now::Status::Cancelled);
    assert_eq!(then::Status::from_words(&cancelled[..1]), then::Status::Paid);
}

#[test]
fn other_changes_are_another_layout() {
    let names = [
        then::Status::type_name(),
        changed::Swapped::type_name(),
        changed::Unannounced::type_name(),
        changed::Larger::type_name(),
        changed::AsBytes::type_name(),
    ];
    let distinct: std::collections::BTreeSet<_> = names.iter().collect();
    assert_eq!(distinct.len(), names.len(), "{names:?}");
}
