//! [`scans!`](crate::scans): the methods of every index with a [`Scan`](crate::Scan).

/// Implements the range reads, over the index's own `fn scan_of(&self, bounds: Bounds<K>) -> Range<..>`:
/// takes the type with its parameters, and that of its ranges.
///
/// ```ignore
/// scans!(Hart<K, V, M, CHUNK: usize, PREFIX: usize>, Range);
/// ```
#[macro_export]
macro_rules! scans {
    (
        $index:ident<$key:ident, $value:ident, $medium:ident $(, $number:ident: $type:ty)*>,
        $range:ident
    ) => {
        impl<$key, $value, $medium $(, const $number: $type)*>
            $index<$key, $value, $medium $(, $number)*>
        where
            $key: pmindex_index::Key,
            $value: pmindex_index::Value,
            $medium: pmindex_core::Medium,
        {
            /// Returns the records with keys in `bounds`, in order, from both ends.
            ///
            /// # Panics
            /// Like `BTreeMap::range`: if the start is after the end, or both are equal and excluded.
            #[track_caller]
            pub fn range(
                &self,
                bounds: impl pmindex_index::KeyRange<$key>,
            ) -> $range<'_, $key, $value, $medium $(, $number)*> {
                self.scan_of($crate::Bounds::of(bounds))
            }

            /// Returns all records, in order.
            pub fn iter(&self) -> $range<'_, $key, $value, $medium $(, $number)*> {
                self.range(..)
            }

            /// Appends up to `limit` records from `from` on, ascending, to `out`.
            ///
            /// # Cost
            /// No flush, no fence. A search, then the leaves, each prefetched while the one before is copied
            /// and its keys are sorted.
            pub fn scan(
                &self,
                from: &$key::Ref,
                limit: usize,
                out: &mut Vec<($key, $value)>,
            ) -> Result<(), pmindex_index::IndexError> {
                use pmindex_index::Noted;
                self.range((std::ops::Bound::Included(from), std::ops::Bound::Unbounded))
                    .append_to(limit, out)
                    .noted(&self.pool)
            }

            /// Reads up to `limit` records with keys in `range`, ascending, in the memory of the former
            /// contents of `out`; returns their number:
            /// [`Index::scan_bounds_into`](pmindex_index::Index::scan_bounds_into).
            ///
            /// # Errors
            /// Those of a scan. Records read before stay in `out`.
            ///
            /// # Panics
            /// Like `BTreeMap::range`: if the start is after the end, or both are equal and excluded.
            #[track_caller]
            pub fn scan_into(
                &self,
                range: impl pmindex_index::KeyRange<$key>,
                limit: usize,
                out: &mut pmindex_index::Records<$key, $value>,
            ) -> Result<usize, pmindex_index::IndexError> {
                use pmindex_index::Noted;
                let bounds = $crate::Bounds::of_kept(range, out);
                self.scan_of(bounds).fill(limit, out).noted(&self.pool)
            }

            /// Returns the least record. Costs a search and a leaf's copy.
            pub fn first_key_value(
                &self,
            ) -> Result<Option<($key, $value)>, pmindex_index::IndexError> {
                use pmindex_index::Noted;
                $crate::Scan::least(|| self.iter()).noted(&self.pool)
            }

            /// Returns the greatest record. Costs a search and a leaf's copy.
            pub fn last_key_value(
                &self,
            ) -> Result<Option<($key, $value)>, pmindex_index::IndexError> {
                use pmindex_index::Noted;
                $crate::Scan::greatest(|| self.iter()).noted(&self.pool)
            }

            /// Returns `true` if the index has no records. Costs as much as [`first_key_value`](Self::first_key_value).
            pub fn is_empty(&self) -> Result<bool, pmindex_index::IndexError> {
                Ok(self.first_key_value()?.is_none())
            }
        }

        impl<'t, $key, $value, $medium $(, const $number: $type)*> IntoIterator
            for &'t $index<$key, $value, $medium $(, $number)*>
        where
            $key: pmindex_index::Key,
            $value: pmindex_index::Value,
            $medium: pmindex_core::Medium,
        {
            type Item = Result<($key, $value), pmindex_index::IndexError>;
            type IntoIter = $range<'t, $key, $value, $medium $(, $number)*>;

            fn into_iter(self) -> Self::IntoIter {
                self.iter()
            }
        }
    };
}
