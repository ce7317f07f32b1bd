//! How much a Java virtual machine still compiles: what it runs uncompiled costs many times the CPU.

use std::fs;
use std::path::Path;

/// The unit of /proc's CPU times (USER_HZ), which every architecture of Linux shows as 100.
const TICKS_PER_SECOND: f64 = 100.0;
/// How the compilers' threads are called, in the 15 characters the kernel keeps.
const COMPILERS: [&str; 2] = ["C1 CompilerThre", "C2 CompilerThre"];

/// The CPU time that the compilers of these processes have used so far, in seconds. A compiler thread
/// that has ended is not in it.
pub(crate) fn compiled_seconds(pids: &[u32]) -> f64 {
    let tasks = pids.iter().filter_map(|pid| fs::read_dir(format!("/proc/{pid}/task")).ok());
    let ticks: u64 = tasks.flatten().flatten().filter_map(|task| compiler_ticks(&task.path())).sum();
    ticks as f64 / TICKS_PER_SECOND
}

fn compiler_ticks(task: &Path) -> Option<u64> {
    parse(&fs::read_to_string(task.join("stat")).ok()?)
}

/// User and system time, if the thread is a compiler. Its name stands in parentheses.
fn parse(stat: &str) -> Option<u64> {
    let (head, fields) = stat.rsplit_once(')')?;
    let (_, name) = head.split_once('(')?;
    let mut fields = fields.split_ascii_whitespace().skip(11).map(str::parse::<u64>);
    let (user, system) = (fields.next()?.ok()?, fields.next()?.ok()?);
    COMPILERS.contains(&name).then_some(user + system)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_compilers_count() {
        let of = |name| parse(&format!("42 ({name}) S 17 42 42 0 -1 4194304 1500 0 3 0 250 125 7 9 20 0"));
        assert_eq!(of("C2 CompilerThre"), Some(375));
        assert_eq!(of("CommitProcessor"), None);
        assert_eq!(parse(""), None);
    }
}
