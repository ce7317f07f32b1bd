//! What the rounds found, and what may be said of it: medians over the rounds that count, and ratios
//! within a round, because the machine differs more between rounds than within one.

use crate::compare::works::Arrangement;
use crate::told::Told;

/// A round in which anything else used more cores than this does not count.
pub(crate) const OTHERS_MAX: f64 = 0.2;
/// What Palisade is called.
pub(crate) const PALISADE: &str = "Palisade";

/// What one system did of one work in one round.
#[derive(Clone, Debug)]
pub(crate) struct Row {
    pub(crate) system: &'static str,
    pub(crate) version: String,
    pub(crate) arrangement: Arrangement,
    pub(crate) work: &'static str,
    pub(crate) round: u32,
    pub(crate) operations_per_s: f64,
    pub(crate) p50_us: u64,
    pub(crate) p99_us: u64,
    /// CPU time of all servers together.
    pub(crate) server_cpu_us_per_op: f64,
    /// CPU time of the load generator, which shares the machine with the servers.
    pub(crate) own_cpu_us_per_op: f64,
    /// Cores used by what is neither server nor load generator.
    pub(crate) others_cores: f64,
    /// Cores the hypervisor gave to other guests.
    pub(crate) steal_cores: f64,
    /// Of watchers only. An operation is an event told to one of them, and its latency counts from when
    /// the change was due.
    pub(crate) telling: Option<Telling>,
}

/// How the changes of a watched key were told.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Telling {
    /// Changes made.
    pub(crate) changes: u64,
    /// Those that every watcher was told of.
    pub(crate) to_all: u64,
    /// From when a change was due to its last watcher.
    pub(crate) last_p50_us: u64,
    pub(crate) last_max_us: u64,
}

impl Telling {
    pub(crate) fn of(told: &Told) -> Telling {
        Telling {
            changes: told.made(),
            to_all: told.complete(),
            last_p50_us: told.to_last.value_at_quantile(0.5),
            last_max_us: told.to_last.max(),
        }
    }

    /// The end of a line about the run.
    pub(crate) fn text(&self) -> String {
        let Telling { changes, to_all, last_p50_us, last_max_us } = self;
        format!("  told to all {to_all}/{changes}  last p50 {last_p50_us} us  max {last_max_us} us")
    }
}

impl Row {
    /// Whether the machine was quiet enough.
    pub(crate) fn counts(&self) -> bool {
        self.others_cores <= OTHERS_MAX
    }

    /// One line of JSON.
    pub(crate) fn json(&self) -> String {
        let tenth = |x: f64| (x * 10.0).round() / 10.0;
        let hundredth = |x: f64| (x * 100.0).round() / 100.0;
        let mut line = serde_json::json!({
            "system": self.system,
            "version": self.version,
            "connections_to": self.arrangement.name(),
            "work": self.work,
            "round": self.round,
            "operations_per_s": self.operations_per_s.round(),
            "p50_us": self.p50_us,
            "p99_us": self.p99_us,
            "server_cpu_us_per_op": tenth(self.server_cpu_us_per_op),
            "generator_cpu_us_per_op": tenth(self.own_cpu_us_per_op),
            "others_cores": hundredth(self.others_cores),
            "steal_cores": hundredth(self.steal_cores),
            "counted": self.counts(),
        });
        if let Some(telling) = &self.telling {
            line["changes"] = telling.changes.into();
            line["changes_told_to_all"] = telling.to_all.into();
            line["to_last_p50_us"] = telling.last_p50_us.into();
            line["to_last_max_us"] = telling.last_max_us.into();
        }
        line.to_string()
    }
}

/// A number of a row that is compared.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Figure {
    Rate,
    P50,
    P99,
    ServerCpu,
    OwnCpu,
    /// From when a change was due to the last of its watchers.
    LastP50,
    LastMax,
}

impl Figure {
    /// Not a number where a row has none.
    pub(crate) fn of(self, row: &Row) -> f64 {
        let telling = |of: fn(&Telling) -> u64| row.telling.as_ref().map_or(f64::NAN, |t| of(t) as f64);
        match self {
            Figure::Rate => row.operations_per_s,
            Figure::P50 => row.p50_us as f64,
            Figure::P99 => row.p99_us as f64,
            Figure::ServerCpu => row.server_cpu_us_per_op,
            Figure::OwnCpu => row.own_cpu_us_per_op,
            Figure::LastP50 => telling(|t| t.last_p50_us),
            Figure::LastMax => telling(|t| t.last_max_us),
        }
    }
}

/// A median with its extremes.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Spread {
    pub(crate) median: f64,
    pub(crate) min: f64,
    pub(crate) max: f64,
}

impl Spread {
    /// Of numbers in any order; of none there is none.
    pub(crate) fn of(numbers: impl IntoIterator<Item = f64>) -> Option<Spread> {
        let mut sorted: Vec<f64> = numbers.into_iter().collect();
        sorted.sort_by(f64::total_cmp);
        let (min, max) = (*sorted.first()?, *sorted.last()?);
        let middle = sorted.len() / 2;
        let median =
            if sorted.len() % 2 == 1 { sorted[middle] } else { (sorted[middle - 1] + sorted[middle]) / 2.0 };
        Some(Spread { median, min, max })
    }
}

/// A system in one arrangement.
pub(crate) type Entrant = (&'static str, Arrangement);

/// The rows of one work.
pub(crate) struct Standing<'a> {
    rows: Vec<&'a Row>,
}

impl<'a> Standing<'a> {
    pub(crate) fn of(work: &str, rows: &'a [Row]) -> Standing<'a> {
        Standing { rows: rows.iter().filter(|row| row.work == work).collect() }
    }

    /// Who took part: Palisade first, then by name.
    pub(crate) fn entrants(&self) -> Vec<Entrant> {
        let mut entrants: Vec<Entrant> = self.rows.iter().map(|row| (row.system, row.arrangement)).collect();
        entrants.sort_by_key(|(system, at)| (*system != PALISADE, *system, at.name()));
        entrants.dedup();
        entrants
    }

    /// The peers, each in the arrangement that suits it better: the higher median rate of counted rounds.
    pub(crate) fn peers(&self) -> Vec<Entrant> {
        let mut peers: Vec<(Entrant, f64)> = Vec::new();
        for entrant in self.entrants().into_iter().filter(|(system, _)| *system != PALISADE) {
            let rate = self.spread(entrant, Figure::Rate).map_or(0.0, |s| s.median);
            match peers.last_mut() {
                Some(last) if last.0.0 == entrant.0 && rate > last.1 => *last = (entrant, rate),
                Some(last) if last.0.0 == entrant.0 => {}
                _ => peers.push((entrant, rate)),
            }
        }
        peers.into_iter().map(|(entrant, _)| entrant).collect()
    }

    /// How many rounds count, of how many.
    pub(crate) fn rounds(&self, entrant: Entrant) -> (usize, usize) {
        (self.of_entrant(entrant).filter(|row| row.counts()).count(), self.of_entrant(entrant).count())
    }

    /// Of how many changes everybody was told, of how many, in the rounds that count; none where nobody watched.
    pub(crate) fn told(&self, entrant: Entrant) -> Option<(u64, u64)> {
        let counted = self.of_entrant(entrant).filter(|row| row.counts());
        let tellings = counted.filter_map(|row| row.telling.as_ref());
        tellings.map(|t| (t.to_all, t.changes)).reduce(|a, b| (a.0 + b.0, a.1 + b.1))
    }

    /// Over the rounds that count.
    pub(crate) fn spread(&self, entrant: Entrant, figure: Figure) -> Option<Spread> {
        Spread::of(self.of_entrant(entrant).filter(|row| row.counts()).map(|row| figure.of(row)))
    }

    /// Palisade's figure by the peer's, for each round that counts for both; Palisade in the peer's arrangement
    /// if it was measured in that.
    pub(crate) fn ratios(&self, peer: Entrant, figure: Figure) -> Vec<(u32, f64)> {
        let ours = self.entrants().contains(&(PALISADE, peer.1)).then_some(peer.1);
        let ours = self.of_system(PALISADE).filter(|row| ours.is_none_or(|at| at == row.arrangement));
        let ours = ours.filter(|row| row.counts());
        ours.filter_map(|our| {
            let their = self.of_entrant(peer).find(|row| row.round == our.round && row.counts())?;
            let ratio = figure.of(our) / figure.of(their);
            ratio.is_finite().then_some((our.round, ratio))
        })
        .collect()
    }

    fn of_system(&self, system: &'static str) -> impl Iterator<Item = &&'a Row> {
        self.rows.iter().filter(move |row| row.system == system)
    }

    fn of_entrant(&self, (system, arrangement): Entrant) -> impl Iterator<Item = &&'a Row> {
        self.of_system(system).filter(move |row| row.arrangement == arrangement)
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;

    /// A row of which only the rate and the noise matter.
    pub(crate) fn row(system: &'static str, at: Arrangement, round: u32, rate: f64, others: f64) -> Row {
        Row {
            system,
            version: "1".to_owned(),
            arrangement: at,
            work: "solo",
            round,
            operations_per_s: rate,
            p50_us: 1000,
            p99_us: 2000,
            server_cpu_us_per_op: 50.0,
            own_cpu_us_per_op: 20.0,
            others_cores: others,
            steal_cores: 0.0,
            telling: None,
        }
    }

    /// The same of watchers, of whose 40 changes so many were told to all.
    pub(crate) fn told(system: &'static str, round: u32, to_all: u64, others: f64) -> Row {
        let telling = Telling { changes: 40, to_all, last_p50_us: 3000, last_max_us: 7000 };
        let row = row(system, Arrangement::All, round, 10_000.0, others);
        Row { work: "watch-2000x20", telling: Some(telling), ..row }
    }

    #[test]
    fn the_median_of_an_even_number_lies_between() {
        assert_eq!(Spread::of([]), None);
        assert_eq!(Spread::of([3.0, 1.0, 2.0]), Some(Spread { median: 2.0, min: 1.0, max: 3.0 }));
        assert_eq!(Spread::of([4.0, 1.0]), Some(Spread { median: 2.5, min: 1.0, max: 4.0 }));
    }

    #[test]
    fn a_noisy_round_is_marked_and_left_out_of_medians_and_ratios() {
        use Arrangement::Leader;
        let rows = [
            row(PALISADE, Leader, 1, 100.0, 0.0),
            row(PALISADE, Leader, 2, 300.0, 0.05),
            row(PALISADE, Leader, 3, 900.0, 0.21),
            row("etcd", Leader, 1, 50.0, 0.2),
            row("etcd", Leader, 2, 10.0, 0.9),
            row("etcd", Leader, 3, 60.0, 0.0),
        ];
        let standing = Standing::of("solo", &rows);
        let (ours, theirs) = ((PALISADE, Leader), ("etcd", Leader));
        assert_eq!(standing.rounds(ours), (2, 3));
        assert_eq!(standing.spread(ours, Figure::Rate).map(|s| s.median), Some(200.0));
        assert_eq!(standing.spread(theirs, Figure::Rate).map(|s| (s.min, s.max)), Some((50.0, 60.0)));
        assert_eq!(standing.ratios(theirs, Figure::Rate), [(1, 2.0)]);
        assert!(
            rows[2].json().contains(r#""counted":false"#) && rows[3].json().contains(r#""counted":true"#)
        );
    }

    #[test]
    fn a_peer_is_compared_with_palisade_in_the_same_arrangement_if_there_is_one() {
        use Arrangement::{All, Leader};
        let rows = [
            row(PALISADE, Leader, 1, 100.0, 0.0),
            row(PALISADE, All, 1, 40.0, 0.0),
            row("etcd", Leader, 1, 50.0, 0.0),
            row("etcd", All, 1, 80.0, 0.0),
        ];
        let standing = Standing::of("solo", &rows);
        assert_eq!(standing.ratios(("etcd", Leader), Figure::Rate), [(1, 2.0)]);
        assert_eq!(standing.ratios(("etcd", All), Figure::Rate), [(1, 0.5)]);
    }

    #[test]
    fn changes_told_to_all_are_summed_over_the_rounds_that_count() {
        let rows = [told(PALISADE, 1, 40, 0.0), told(PALISADE, 2, 39, 0.0), told(PALISADE, 3, 1, 0.5)];
        let standing = Standing::of("watch-2000x20", &rows);
        let entrant = (PALISADE, Arrangement::All);
        assert_eq!(standing.told(entrant), Some((79, 80)));
        assert_eq!(standing.spread(entrant, Figure::LastMax).map(|s| s.median), Some(7000.0));
        let json = rows[1].json();
        assert!(json.contains(r#""changes":40"#) && json.contains(r#""changes_told_to_all":39"#), "{json}");
        assert!(
            json.contains(r#""to_last_p50_us":3000"#) && json.contains(r#""to_last_max_us":7000"#),
            "{json}"
        );
        let other = row(PALISADE, Arrangement::Leader, 1, 1.0, 0.0);
        assert!(!other.json().contains("changes"), "only watchers are told of changes");
        assert_eq!(Standing::of("solo", &[other]).told((PALISADE, Arrangement::Leader)), None);
    }

    #[test]
    fn a_peer_is_quoted_in_the_arrangement_that_suits_it() {
        use Arrangement::{All, Leader};
        let rows = [
            row("ZooKeeper", Leader, 1, 70.0, 0.0),
            row("ZooKeeper", All, 1, 80.0, 0.0),
            row("etcd", Leader, 1, 40.0, 0.0),
            row("etcd", All, 1, 90.0, 0.5),
            row(PALISADE, Leader, 1, 160.0, 0.0),
        ];
        let standing = Standing::of("solo", &rows);
        assert_eq!(standing.entrants()[0], (PALISADE, Leader));
        assert_eq!(standing.peers(), [("ZooKeeper", All), ("etcd", Leader)]);
        assert_eq!(standing.ratios(("ZooKeeper", All), Figure::Rate), [(1, 2.0)]);
    }
}
