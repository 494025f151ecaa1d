//! Sorting with little code. The sort of the standard library is compiled for each type and each comparison, 6 KB each
//! time. Here all lists share the sort of their places, and a type adds only the exchange of its items. For lists for which no
//! message waits.

use std::cmp::Ordering;
use std::mem;

/// Sorts a list; items that are equal keep their order.
pub fn sort<T: Ord>(items: &mut [T]) {
    sort_by(items, T::cmp);
}

/// Sorts a list by a key, which is computed for each comparison; items with the same key keep their order.
pub fn sort_by_key<T, K: Ord>(items: &mut [T], key: impl Fn(&T) -> K) {
    sort_by(items, |one, two| key(one).cmp(&key(two)));
}

/// Sorts a list by a comparison; items that are equal keep their order.
pub fn sort_by<T>(items: &mut [T], compare: impl Fn(&T, &T) -> Ordering) {
    let mut origins = origins(items.len(), &|one, two| compare(&items[one], &items[two]));
    for start in 0..origins.len() {
        // The items of a cycle move one after the other. Then each place of the cycle is its own origin.
        let mut place = start;
        loop {
            let origin = mem::replace(&mut origins[place], place);
            if origin == start {
                break;
            }
            items.swap(place, origin);
            place = origin;
        }
    }
}

/// For each place of the sorted list, the place where its item is now.
fn origins(count: usize, compare: &dyn Fn(usize, usize) -> Ordering) -> Vec<usize> {
    let mut places: Vec<usize> = (0..count).collect();
    places.sort_by(|one, two| compare(*one, *two));
    places
}

#[cfg(test)]
mod tests {
    use proptest::collection::vec;
    use proptest::prelude::any;
    use proptest::{prop_assert_eq, proptest};

    use super::*;

    proptest! {
        #[test]
        fn a_list_is_sorted_as_the_standard_library_sorts_it(items in vec((0u8..20, any::<u8>()), 0..200)) {
            let mut expected = items.clone();
            expected.sort_by_key(|item| item.0);
            let mut sorted = items.clone();
            sort_by_key(&mut sorted, |item| item.0);
            prop_assert_eq!(&sorted, &expected);
            expected.sort();
            sort(&mut sorted);
            prop_assert_eq!(&sorted, &expected);
        }
    }
}
