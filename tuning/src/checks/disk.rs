//! The directory of the data: what it lies on, and what a durable write costs there.

use std::io;
use std::path::Path;

use super::names;
use crate::Options;
use crate::check::Check;
use crate::parse::{self, Mount};
use crate::probe::{self, Cost};
use crate::root::{Root, Unread};

/// Memory: nothing outlives the host.
const IN_MEMORY: &[&str] = &["tmpfs", "ramfs", "devtmpfs", "rootfs"];
/// Somebody else's disk, behind a network.
const REMOTE: &[&str] = &[
    "nfs",
    "nfs4",
    "cifs",
    "smb3",
    "smbfs",
    "9p",
    "afs",
    "ceph",
    "lustre",
    "gpfs",
    "fuse.sshfs",
    "fuse.glusterfs",
];
/// What the log is made for: overwriting a written block moves nothing and writes no metadata.
const KNOWN: &[&str] = &["ext4", "xfs"];
/// Overwriting writes elsewhere.
const COPY_ON_WRITE: &[&str] = &["btrfs", "zfs", "bcachefs", "f2fs", "nilfs2"];

/// Half of the 20 ms within which 99 of 100 acquisitions should be answered, in microseconds.
const P99_WANTED: u64 = 10_000;
/// Two heartbeats, a fifth of the shortest silence that starts an election, in microseconds.
const P99_MAX: u64 = 200_000;

/// The least log a node can be configured for: four segments of 32 MiB.
const SPACE_MIN: u64 = 128 << 20;
/// What the log may grow to by default (`log_bytes_max`).
const SPACE_WANTED: u64 = 8 << 30;

/// All checks of the directory; `path` is the nearest directory that exists.
pub(super) fn checks(root: &Root, dir: &Path, path: &Path, options: Options) -> Vec<Check> {
    let mut checks = vec![file_system(root, dir, path), space(path)];
    checks.extend(costs(path, options));
    checks
}

/// The directory cannot be looked at.
pub(super) fn unreachable(dir: &Path, error: &io::Error) -> Check {
    Check::bad("data directory", format!("{}: {error}", dir.display()), "the log of a node lies there")
        .remedy("name a directory this user may enter", "nothing to undo")
}

/// The type of the file system.
fn file_system(root: &Root, dir: &Path, path: &Path) -> Check {
    const TABLE: &str = "/proc/self/mountinfo";
    const WHY: &str = "the log lives from durable overwrites in place";
    let text = path.to_string_lossy();
    match root.parse(TABLE, |table| parse::mount_of(table, &text)) {
        Ok(mount) => {
            let mut check = judge(&mount);
            if !dir.exists() {
                check.found = format!("{} (looked at {text}: the directory is not there yet)", check.found);
            }
            check
        }
        Err(Unread::Strange { .. }) => {
            let absent = Unread::strange(TABLE, &format!("nothing about {text}"));
            Check::unread(names::FILE_SYSTEM, &absent, WHY)
        }
        Err(error) => Check::unread(names::FILE_SYSTEM, &error, WHY),
    }
}

fn judge(mount: &Mount) -> Check {
    let is = |list: &[&str]| list.contains(&mount.kind.as_str());
    let has = |option: &str| mount.options.iter().any(|o| o == option);
    let found = format!("{} on {}", mount.kind, mount.source);
    let (name, back) = (names::FILE_SYSTEM, "move the directory back while the node is stopped");
    let elsewhere = "put the data directory on ext4 or XFS on a local disk";
    if has("ro") {
        let remedy = format!("mount -o remount,rw {}", mount.point);
        return Check::bad(name, format!("{found}, read-only"), "a node must write")
            .remedy(remedy, format!("mount -o remount,ro {}", mount.point));
    }
    if has("nobarrier") || has("barrier=0") {
        let why =
            "without barriers fdatasync does not reach the disk: a power cut loses what was acknowledged";
        return Check::bad(name, format!("{found}, without barriers"), why)
            .remedy("take nobarrier or barrier=0 out of /etc/fstab and mount again", "put it back");
    }
    if is(IN_MEMORY) {
        let why = "it lies in memory: a restart of the host loses the log, and a node that lost its log \
                   may not vote again under the same id";
        return Check::bad(name, found, why).remedy(elsewhere, back);
    }
    if is(REMOTE) {
        let why =
            "behind a network a sync is as slow and as reliable as the network, and two hosts may mount it";
        return Check::bad(name, found, why).remedy(elsewhere, back);
    }
    if is(KNOWN) {
        return Check::good(name, found, "durable overwrites in place, without writing metadata");
    }
    if mount.kind == "overlay" {
        let why = "a container's own layer goes with the container: a node that lost its log may not \
                   vote again under the same id";
        return Check::advice(name, found, why).remedy(
            "mount a volume on ext4 or XFS at the data directory",
            "unmount it while the node is stopped",
        );
    }
    if is(COPY_ON_WRITE) {
        let why = "it writes every overwrite elsewhere and updates metadata at each sync";
        return Check::advice(name, found, why).remedy(elsewhere, back);
    }
    Check::advice(name, found, "nothing is known of it here: made and tested on ext4 and XFS")
        .remedy(elsewhere, back)
}

/// The room below the directory.
fn space(path: &Path) -> Check {
    match rustix::fs::statvfs(path) {
        Ok(fs) => judge_space(fs.f_bavail.saturating_mul(fs.f_frsize)),
        Err(error) => {
            let failed = Unread::Failed { path: path.display().to_string(), error: error.into() };
            Check::unread("free space", &failed, "a full disk ends the node")
        }
    }
}

fn judge_space(free: u64) -> Check {
    const NAME: &str = "free space";
    let why = "a full disk ends the node. The log may grow to log_bytes_max, 8 GiB unless configured; \
               four segments of 32 MiB are the least";
    let found = parse::bytes(free);
    let undo = "nothing to undo, or set the old log_bytes_max";
    if free < SPACE_MIN {
        Check::bad(NAME, found, why).remedy("make room, or use a larger disk", undo)
    } else if free < SPACE_WANTED {
        Check::advice(NAME, found, why).remedy("make room, or set log_bytes_max below what is free", undo)
    } else {
        Check::good(NAME, found, why)
    }
}

/// Whether O_DIRECT works, and what durable writes cost.
fn costs(path: &Path, options: Options) -> Vec<Check> {
    let iterations = if options.measure_disk { options.iterations } else { 1 };
    let probe = match probe::probe(path, iterations) {
        Ok(probe) => probe,
        Err(error) => {
            let found = format!("no file can be made in {}: {error}", path.display());
            return vec![
                Check::bad("o_direct", found, "the node must write there")
                    .remedy("give the directory to the server's user (chown)", "chown it back"),
            ];
        }
    };
    let mut checks = vec![direct(&probe.direct)];
    if options.measure_disk {
        checks.extend([fdatasync(&probe.fdatasync), dsync(&probe.dsync, &probe.fdatasync)]);
    } else {
        let skipped =
            |name| Check::not_applicable(name, "not measured", "the examination was asked not to measure");
        checks.extend([names::FDATASYNC, "o_dsync"].map(skipped));
    }
    checks
}

fn direct(result: &io::Result<()>) -> Check {
    let why = "the log is written past the page cache: the executor opens its files with O_DIRECT and fails \
               without";
    match result {
        Ok(()) => Check::good("o_direct", "works", why),
        Err(error) => Check::bad("o_direct", format!("refused: {error}"), why).remedy(
            "put the data directory on ext4 or XFS on a local disk",
            "move the directory back while the node is stopped",
        ),
    }
}

fn shown(cost: &Cost) -> String {
    format!("p50 {} us, p99 {} us ({} writes of 4 KiB)", cost.p50, cost.p99, cost.writes)
}

fn fdatasync(result: &io::Result<Cost>) -> Check {
    let why = "every acquisition waits for a write and fdatasync on a majority of the nodes. A p99 up to \
               10 ms leaves half of 20 ms for the rest; beyond 200 ms, two heartbeats, the disk is in \
               the way of elections. What a disk or a hypervisor keeps in a cache that a power cut \
               empties does not show here";
    let cost = match result {
        Ok(cost) => cost,
        Err(error) => {
            return Check::bad(names::FDATASYNC, format!("failed: {error}"), why)
                .remedy("see dmesg; use another disk", "move the directory back while the node is stopped");
        }
    };
    let check = match cost.p99 {
        us if us > P99_MAX => Check::bad(names::FDATASYNC, shown(cost), why),
        us if us > P99_WANTED => Check::advice(names::FDATASYNC, shown(cost), why),
        _ => return Check::good(names::FDATASYNC, shown(cost), why),
    };
    check.remedy(
        "measure again while the host is idle; use a disk of its own, best with power-loss protection",
        "move the directory back while the node is stopped",
    )
}

fn dsync(result: &io::Result<Cost>, other: &io::Result<Cost>) -> Check {
    let why = "for comparison: the same promise in one call; the server uses write and fdatasync";
    match (result, other) {
        (Ok(cost), Ok(_)) => Check::good("o_dsync", shown(cost), why),
        (Err(error), _) | (_, Err(error)) => {
            Check::not_applicable("o_dsync", format!("not measured: {error}"), why)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Verdict;
    use crate::root::Fixture;

    fn mounted(kind: &str, options: &str) -> Check {
        let table = format!("27 1 254:0 / / rw,relatime - {kind} /dev/vda {options}\n");
        let fixture = Fixture::new(&[("/proc/self/mountinfo", &table)]);
        file_system(&fixture.root(), Path::new("/"), Path::new("/"))
    }

    #[test]
    fn file_systems() {
        for (kind, verdict) in [
            ("ext4", Verdict::Good),
            ("xfs", Verdict::Good),
            ("overlay", Verdict::Advice),
            ("btrfs", Verdict::Advice),
            ("zfs", Verdict::Advice),
            ("newfs", Verdict::Advice),
            ("tmpfs", Verdict::Bad),
            ("ramfs", Verdict::Bad),
            ("nfs4", Verdict::Bad),
            ("cifs", Verdict::Bad),
        ] {
            assert_eq!(mounted(kind, "rw").verdict, verdict, "{kind}");
        }
        assert_eq!(mounted("ext4", "rw,barrier=0").verdict, Verdict::Bad);
        assert_eq!(mounted("xfs", "rw,nobarrier").verdict, Verdict::Bad);
        assert_eq!(mounted("ext4", "ro").verdict, Verdict::Bad);
    }

    #[test]
    fn a_mount_table_that_is_absent_or_strange_is_said() {
        let look = |f: &Fixture| file_system(&f.root(), Path::new("/"), Path::new("/"));
        assert_eq!(look(&Fixture::new(&[])).verdict, Verdict::Advice);
        let strange = look(&Fixture::new(&[("/proc/self/mountinfo", "strange\n")]));
        assert_eq!(strange.verdict, Verdict::Advice);
        assert!(strange.found.contains("nothing about /"), "{}", strange.found);
    }

    #[test]
    fn a_directory_that_is_not_there_yet_is_said() {
        let fixture = Fixture::new(&[("/proc/self/mountinfo", "27 1 1:0 / / rw - ext4 /dev/vda rw\n")]);
        let check = file_system(&fixture.root(), Path::new("/no such directory"), Path::new("/"));
        assert!(check.verdict == Verdict::Good && check.found.contains("not there yet"));
    }

    #[test]
    fn room() {
        for (free, verdict) in [
            (SPACE_MIN - 1, Verdict::Bad),
            (SPACE_MIN, Verdict::Advice),
            (SPACE_WANTED - 1, Verdict::Advice),
            (SPACE_WANTED, Verdict::Good),
        ] {
            assert_eq!(judge_space(free).verdict, verdict, "{free}");
        }
        assert_eq!(space(Path::new("/no such directory")).verdict, Verdict::Advice);
    }

    #[test]
    fn costs_of_a_sync() {
        let verdict = |p99| fdatasync(&Ok(Cost { p50: 100, p99, writes: 200 })).verdict;
        assert_eq!(verdict(P99_WANTED), Verdict::Good);
        assert_eq!(verdict(P99_WANTED + 1), Verdict::Advice);
        assert_eq!(verdict(P99_MAX), Verdict::Advice);
        assert_eq!(verdict(P99_MAX + 1), Verdict::Bad);
        let no = || io::Error::from_raw_os_error(libc::EIO);
        assert_eq!(fdatasync(&Err(no())).verdict, Verdict::Bad);
        assert_eq!(dsync(&Err(no()), &Err(no())).verdict, Verdict::NotApplicable);
        let cost = Cost { p50: 1, p99: 1, writes: 1 };
        assert_eq!(dsync(&Ok(cost), &Ok(cost)).verdict, Verdict::Good);
    }

    #[test]
    fn direct_writes() {
        assert_eq!(direct(&Ok(())).verdict, Verdict::Good);
        assert_eq!(direct(&Err(io::Error::from_raw_os_error(libc::EINVAL))).verdict, Verdict::Bad);
    }

    #[test]
    fn what_is_not_to_be_measured_is_not() {
        let dir = tempfile::tempdir().unwrap();
        let checks = costs(dir.path(), Options { measure_disk: false, iterations: 200 });
        let skipped = checks.iter().filter(|c| c.verdict == Verdict::NotApplicable).count();
        assert_eq!((checks.len(), skipped), (3, 2));
        let none = costs(&dir.path().join("none"), Options::default());
        assert!(none.len() == 1 && none[0].verdict == Verdict::Bad);
    }
}
