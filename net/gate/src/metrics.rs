//! What the gate counts.

use std::fmt::Write;
use std::sync::atomic::{AtomicU64, Ordering};

/// One counter.
#[derive(Debug, Default)]
pub struct Counter(AtomicU64);

impl Counter {
    pub(crate) fn add(&self) {
        self.0.fetch_add(1, Ordering::Relaxed);
    }

    /// Its value.
    pub fn get(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }
}

macro_rules! metrics {
    ($($(#[doc = $doc:literal])* $name:ident;)*) => {
        /// The counters of a gate.
        #[derive(Debug, Default)]
        pub struct Metrics {
            $($(#[doc = $doc])* pub $name: Counter,)*
        }

        impl Metrics {
            /// As Prometheus reads them.
            pub fn render(&self) -> String {
                let mut text = String::new();
                $(
                    let name = concat!("palisade_gate_", stringify!($name), "_total");
                    let help = concat!($($doc),*);
                    // Writing to a string cannot fail.
                    let _ = writeln!(text, "# HELP {name}{help}\n# TYPE {name} counter\n{name} {}", self.$name.get());
                )*
                text
            }
        }
    };
}

metrics! {
    /// Requests forwarded without a fence, since they change nothing.
    reads;
    /// Writes that the resource says it has done: answered with 2xx, but not 202.
    written;
    /// Writes that the resource answered otherwise.
    rejected;
    /// Writes refused since their fence was superseded.
    superseded;
    /// Writes refused for showing no fence, a bad one, or one of another key.
    refused;
    /// Writes refused for a fence without the signature that is wanted, or with one that does not fit.
    unverified;
    /// Writes of a higher epoch held back by an unknown outcome.
    held_back;
    /// Writes of unknown outcome.
    unknown;
    /// Requests for which the resource could not be reached.
    unreachable;
    /// Requests turned away since too many were under way.
    busy;
    /// Failures of the ledger.
    ledger_failed;
}
