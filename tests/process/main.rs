//! Real processes on a real kernel: what no simulation covers. Each test runs on ports and in
//! directories of its own, waits for what it expects with a deadline, and leaves no process behind.
//! Clusters run one at a time: several on two cores would test the scheduler.

mod check;
mod cut_off;
mod demo;
mod doctor;
mod examples;
mod gate;
mod hosts;
mod identity;
mod kill;
mod lock;
mod modes;
mod network;
mod observe;
mod operator;
mod readme;
mod reads;
mod resources;
mod seccomp;
mod sessions;
mod sets;
mod signed;
mod snapshots;
mod statuses;
mod supervisor;
mod support;
mod terminal;
mod tour;
mod transfer;
mod values;
mod watch;
mod words;
mod zombie;
