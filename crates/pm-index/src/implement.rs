//! [`impl_index!`](crate::impl_index): the traits of an index, from its own methods.

/// Implements [`Index`](crate::Index) and [`PmIndex`](crate::PmIndex) for an index whose own methods
/// have the names and the signatures of the traits' methods.
///
/// A program calls the methods of `FpTree` without importing a trait, and generic code calls them
/// through [`Index`](crate::Index): the macro writes the second half. It takes the type with its
/// parameters, each number with its type, and the index's name for tools. Methods that differ from the
/// traits' defaults follow in braces. The index's own methods tell the pool of
/// damage that they end with ([`Noted`](crate::Noted)), so whichever way it is found, it is known.
///
/// ```ignore
/// impl_index!(Hart<K, V, M, CHUNK: usize, PREFIX: usize>, "hart");
/// ```
#[doc(hidden)]
#[macro_export]
macro_rules! impl_index {
    (
        $index:ident<$key:ident, $value:ident, $medium:ident $(, $number:ident: $type:ty)*>,
        $name:expr $(, { $($more:item)* })?
    ) => {
        /// The operations that are made of others: see [`Index`](pmindex_index::Index).
        impl<$key, $value, $medium $(, const $number: $type)*>
            $index<$key, $value, $medium $(, $number)*>
        where
            $key: $crate::Key,
            $value: $crate::Value,
            $medium: $crate::Medium,
        {
            /// Removes the least record and returns it: [`Index::pop_first`](pmindex_index::Index::pop_first).
            pub fn pop_first(&self) -> Result<Option<($key, $value)>, $crate::IndexError> {
                $crate::Index::pop_first(self)
            }

            /// Removes the greatest record and returns it: [`Index::pop_last`](pmindex_index::Index::pop_last).
            pub fn pop_last(&self) -> Result<Option<($key, $value)>, $crate::IndexError> {
                $crate::Index::pop_last(self)
            }

            /// Removes a record if `condition` says so of its value:
            /// [`Index::remove_if`](pmindex_index::Index::remove_if).
            pub fn remove_if(
                &self,
                key: &$key::Ref,
                mut condition: impl FnMut(&$value) -> bool,
            ) -> Result<Option<$value>, $crate::IndexError> {
                $crate::Index::remove_if(self, key, &mut condition)
            }

            /// Removes the records of which `keep` says `false`; returns how many:
            /// [`Index::retain`](pmindex_index::Index::retain).
            pub fn retain(
                &self,
                mut keep: impl FnMut(&$key, &$value) -> bool,
            ) -> Result<u64, $crate::IndexError> {
                $crate::Index::retain(self, &mut keep)
            }

            /// Removes the records with keys in `range`; returns how many:
            /// [`Index::remove_range`](pmindex_index::Index::remove_range).
            pub fn remove_range(
                &self,
                range: impl $crate::KeyRange<$key>,
            ) -> Result<u64, $crate::IndexError> {
                $crate::Index::remove_range(self, range)
            }

            /// Removes all records: [`Index::clear`](pmindex_index::Index::clear).
            pub fn clear(&self) -> Result<(), $crate::IndexError> {
                $crate::Index::clear(self)
            }

            /// Returns the records whose keys begin with `prefix`: [`Index::prefix`](pmindex_index::Index::prefix).
            pub fn prefix(&self, prefix: &$key::Ref) -> $crate::RangeIter<'_, $key, $value>
            where
                $key: $crate::PrefixKey,
            {
                $crate::Index::prefix(self, prefix)
            }
        }

        impl<$key, $value, $medium $(, const $number: $type)*> $crate::Index<$key, $value>
            for $index<$key, $value, $medium $(, $number)*>
        where
            $key: $crate::Key,
            $value: $crate::Value,
            $medium: $crate::Medium,
        {
            fn get(&self, key: &$key::Ref) -> Result<Option<$value>, $crate::IndexError> {
                $index::get(self, key)
            }

            fn get_into(
                &self,
                key: &$key::Ref,
                value: &mut $value,
            ) -> Result<bool, $crate::IndexError> {
                $index::get_into(self, key, value)
            }

            fn contains_key(&self, key: &$key::Ref) -> Result<bool, $crate::IndexError> {
                $index::contains_key(self, key)
            }

            fn insert(
                &self,
                key: &$key::Ref,
                value: &$value::Ref,
            ) -> Result<Option<$value>, $crate::IndexError> {
                $index::insert(self, key, value)
            }

            fn try_insert(
                &self,
                key: &$key::Ref,
                value: &$value::Ref,
            ) -> Result<Result<(), $crate::Occupied>, $crate::IndexError> {
                $index::try_insert(self, key, value)
            }

            fn update(
                &self,
                key: &$key::Ref,
                value: &$value::Ref,
            ) -> Result<Result<(), $crate::Missing>, $crate::IndexError> {
                $index::update(self, key, value)
            }

            fn put(
                &self,
                key: &$key::Ref,
                value: &$value::Ref,
            ) -> Result<bool, $crate::IndexError> {
                $index::put(self, key, value)
            }

            fn remove(&self, key: &$key::Ref) -> Result<Option<$value>, $crate::IndexError> {
                $index::remove(self, key)
            }

            fn remove_exact(
                &self,
                key: &$key::Ref,
                value: &$value,
            ) -> Result<Option<$value>, $crate::IndexError> {
                $index::remove_exact(self, key, value)
            }

            fn range_bounds(
                &self,
                lower: std::ops::Bound<&$key::Ref>,
                upper: std::ops::Bound<&$key::Ref>,
            ) -> $crate::RangeIter<'_, $key, $value> {
                Box::new($index::range(self, (lower, upper)))
            }

            fn scan(
                &self,
                from: &$key::Ref,
                limit: usize,
                out: &mut Vec<($key, $value)>,
            ) -> Result<(), $crate::IndexError> {
                $index::scan(self, from, limit, out)
            }

            fn scan_bounds_into(
                &self,
                lower: std::ops::Bound<&$key::Ref>,
                upper: std::ops::Bound<&$key::Ref>,
                limit: usize,
                out: &mut $crate::Records<$key, $value>,
            ) -> Result<usize, $crate::IndexError> {
                $index::scan_into(self, (lower, upper), limit, out)
            }

            fn first_key_value(&self) -> Result<Option<($key, $value)>, $crate::IndexError> {
                $index::first_key_value(self)
            }

            fn last_key_value(&self) -> Result<Option<($key, $value)>, $crate::IndexError> {
                $index::last_key_value(self)
            }

            fn len(&self) -> Result<u64, $crate::IndexError> {
                $index::len(self)
            }

            fn is_empty(&self) -> Result<bool, $crate::IndexError> {
                $index::is_empty(self)
            }

            fn bulk_load(
                &self,
                records: &mut dyn Iterator<Item = ($key, $value)>,
            ) -> Result<u64, $crate::IndexError> {
                $index::bulk_load(self, records)
            }

            fn get_many(
                &self,
                keys: &[$key],
                out: &mut [Option<$value>],
            ) -> Result<(), $crate::IndexError> {
                $index::get_many(self, keys, out)
            }

            fn try_insert_many(&self, records: &[($key, $value)]) -> $crate::InsertMany {
                $index::try_insert_many(self, records)
            }

            fn stats(&self) -> Result<$crate::Stats, $crate::IndexError> {
                $index::stats(self)
            }

            fn check(&self) -> Result<u64, $crate::IndexError> {
                $index::check(self)
            }

            fn recovery_report(&self) -> $crate::RecoveryReport {
                $index::recovery_report(self)
            }

            $($($more)*)?
        }

        impl<$key, $value, $medium $(, const $number: $type)*>
            $crate::PmIndex<$key, $value, $medium>
            for $index<$key, $value, $medium $(, $number)*>
        where
            $key: $crate::Key,
            $value: $crate::Value,
            $medium: $crate::Medium,
        {
            const NAME: &'static str = $name;

            fn create(
                pool: &std::sync::Arc<$crate::Pool<$medium>>,
                name: &str,
            ) -> Result<Self, $crate::IndexError> {
                $index::create(pool, name)
            }

            fn open(
                pool: &std::sync::Arc<$crate::Pool<$medium>>,
                name: &str,
            ) -> Result<Self, $crate::IndexError> {
                $index::open(pool, name)
            }

            fn close(self) -> Result<(), $crate::IndexError> {
                $index::close(self)
            }

            fn blocks(&self) -> Result<Vec<u64>, $crate::IndexError> {
                $index::blocks(self)
            }
        }
    };
}
