//! The decision table, over every combination.

use crate::verdict::{Evidence, Verdict, judge};

#[test]
fn every_row_of_the_table() {
    use Verdict::{Damaged, Suspect, Torn};
    // sealed, hinted, marked, in flight
    let rows = [
        ([false, false, false, false], Damaged),
        ([false, false, false, true], Torn),
        ([false, false, true, false], Damaged),
        ([false, false, true, true], Suspect),
        ([false, true, false, false], Damaged),
        ([false, true, false, true], Damaged),
        ([false, true, true, false], Damaged),
        ([false, true, true, true], Damaged),
        ([true, false, false, false], Damaged),
        ([true, false, false, true], Damaged),
        ([true, false, true, false], Damaged),
        ([true, false, true, true], Damaged),
        ([true, true, false, false], Damaged),
        ([true, true, false, true], Damaged),
        ([true, true, true, false], Damaged),
        ([true, true, true, true], Damaged),
    ];
    for ([sealed, hinted, marked, in_flight], verdict) in rows {
        let evidence = Evidence { sealed, hinted, marked, in_flight };
        assert_eq!(judge(evidence), verdict, "{evidence:?}");
    }
}
