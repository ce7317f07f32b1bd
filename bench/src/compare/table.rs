//! The tables at the end of a comparison.

use std::fmt::Write as _;

use super::results::{Figure, PALISADE, Row, Spread, Standing};
use super::works::{self, Doing, Preset};

/// What the numbers mean.
const LEGEND: &str = "
A round counts if nothing else used more than 0.2 cores. Latency is from acquire to grant. CPU is per
operation: of all servers together, and of the load generator, which shares the machine. Ratios are
Palisade's figure by the peer's: higher is better for the rate, lower for the others. Redis is one node:
no quorum, no fence. A ZooKeeper read is a sync and a get. With watchers an operation is an event told to
one of them, and latency is from when the change was due to that watcher, or to the last of all.";

/// A table for each work, and below it the ratios.
pub(crate) fn render(rows: &[Row]) -> String {
    let mut out = String::new();
    for preset in works::all() {
        let standing = Standing::of(preset.name, rows);
        if standing.entrants().is_empty() {
            continue;
        }
        let _ = writeln!(out, "\n{}: {}; median (min-max)", preset.name, what(preset));
        match preset.doing {
            Doing::Mix(_) => table(&standing, &COLUMNS, &mut out),
            Doing::Watch { .. } => table(&standing, &WATCH_COLUMNS, &mut out),
        }
        ratios(&standing, preset.doing, &mut out);
    }
    out.push_str(LEGEND);
    out
}

/// A column: what it is called, how wide it is, what is in it.
type Column = (&'static str, usize, Figure);

const COLUMNS: [Column; 5] = [
    ("operations/s", 21, Figure::Rate),
    ("p50 us", 21, Figure::P50),
    ("p99 us", 21, Figure::P99),
    ("server CPU us", 16, Figure::ServerCpu),
    ("generator CPU us", 16, Figure::OwnCpu),
];

const WATCH_COLUMNS: [Column; 7] = [
    ("events/s", 21, Figure::Rate),
    ("p50 us", 21, Figure::P50),
    ("p99 us", 21, Figure::P99),
    ("to the last, p50 us", 21, Figure::LastP50),
    ("to the last, max us", 21, Figure::LastMax),
    ("server CPU us", 16, Figure::ServerCpu),
    ("generator CPU us", 16, Figure::OwnCpu),
];

fn what(preset: &Preset) -> String {
    let Preset { sessions, connections, .. } = preset;
    match preset.doing {
        Doing::Mix(mix) => {
            format!("{mix:?}, {sessions} sessions over {connections} connections").to_lowercase()
        }
        Doing::Watch { per_second } => {
            format!("{sessions} watchers of a key over {connections} connections, {per_second} changes/s")
        }
    }
}

fn table(standing: &Standing<'_>, columns: &[Column], out: &mut String) {
    let _ = write!(out, "  {:<22} {:>6}", "", "rounds");
    for (name, width, _) in columns {
        let _ = write!(out, "  {name:>width$}");
    }
    out.push('\n');
    for entrant in standing.entrants() {
        let (counted, all) = standing.rounds(entrant);
        let name = format!("{} ({})", entrant.0, entrant.1.name());
        let _ = write!(out, "  {name:<22} {:>6}", format!("{counted}/{all}"));
        for (_, width, figure) in columns {
            let cell = standing.spread(entrant, *figure).map_or("-".to_owned(), show);
            let _ = write!(out, "  {cell:>width$}");
        }
        if let Some((told, made)) = standing.told(entrant) {
            let _ = write!(out, "  {told} of {made} changes told to all");
        }
        out.push('\n');
    }
}

/// The rate of changes is given, so that of events is no achievement and chooses no arrangement.
fn ratios(standing: &Standing<'_>, doing: Doing, out: &mut String) {
    const FIGURES: [(&str, Figure); 3] =
        [("operations/s", Figure::Rate), ("p50", Figure::P50), ("server CPU", Figure::ServerCpu)];
    const WATCH_FIGURES: [(&str, Figure); 3] =
        [("p50", Figure::P50), ("to the last, p50", Figure::LastP50), ("server CPU", Figure::ServerCpu)];
    let figures = match doing {
        Doing::Mix(_) => FIGURES,
        Doing::Watch { .. } => WATCH_FIGURES,
    };
    let peers = match doing {
        Doing::Mix(_) => standing.peers(),
        Doing::Watch { .. } => standing.entrants().into_iter().filter(|e| e.0 != PALISADE).collect(),
    };
    for peer in peers {
        for (name, figure) in figures {
            let ratios = standing.ratios(peer, figure);
            let Some(spread) = Spread::of(ratios.iter().map(|(_, ratio)| *ratio)) else { continue };
            let each: Vec<_> = ratios.iter().map(|(round, ratio)| format!("{round}: {ratio:.2}")).collect();
            let _ = writeln!(
                out,
                "  {PALISADE} / {} ({}), {name}: {:.2} (by round {})",
                peer.0,
                peer.1.name(),
                spread.median,
                each.join(", ")
            );
        }
    }
}

fn show(spread: Spread) -> String {
    format!("{:.0} ({:.0}-{:.0})", spread.median, spread.min, spread.max)
}

#[cfg(test)]
mod tests {
    use super::super::results::tests::{row, told};
    use super::super::works::Arrangement::Leader;
    use super::*;

    #[test]
    fn a_table_has_medians_and_ratios_and_says_what_did_not_count() {
        let rows = [
            row(PALISADE, Leader, 1, 100.0, 0.0),
            row(PALISADE, Leader, 2, 120.0, 0.0),
            row("etcd", Leader, 1, 50.0, 0.0),
            row("etcd", Leader, 2, 40.0, 0.3),
        ];
        let text = render(&rows);
        assert!(text.contains("solo: cycle, 1 sessions over 1 connections"), "{text}");
        assert!(text.contains("110 (100-120)"), "{text}");
        assert!(text.contains("1/2") && text.contains("50 (50-50)"), "{text}");
        assert!(text.contains("Palisade / etcd (leader), operations/s: 2.00 (by round 1: 2.00)"), "{text}");
    }

    #[test]
    fn a_table_of_watchers_has_the_last_of_them_and_no_ratio_of_rates() {
        let rows = [
            told(PALISADE, 1, 40, 0.0),
            told(PALISADE, 2, 40, 0.0),
            told("etcd", 1, 38, 0.0),
            told("etcd", 2, 40, 0.9),
        ];
        let text = render(&rows);
        assert!(
            text.contains("watch-2000x20: 2000 watchers of a key over 20 connections, 5 changes/s"),
            "{text}"
        );
        assert!(text.contains("80 of 80 changes told to all"), "{text}");
        assert!(text.contains("38 of 40 changes told to all"), "the noisy round is left out: {text}");
        assert!(text.contains("Palisade / etcd (all nodes), to the last, p50: 1.00"), "{text}");
        assert!(!text.contains("operations/s:"), "{text}");
    }
}
