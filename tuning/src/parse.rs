//! Texts of the kernel into values. Pure: no file is read here.

/// A limit of the process; `u64::MAX` where there is none.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Limit {
    /// What holds.
    pub(crate) soft: u64,
    /// Up to where the process may raise it by itself.
    pub(crate) hard: u64,
}

/// A line of the mount table.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Mount {
    /// Where.
    pub(crate) point: String,
    /// The type of the file system.
    pub(crate) kind: String,
    /// The device.
    pub(crate) source: String,
    /// The options, of the mount and of the file system.
    pub(crate) options: Vec<String>,
}

/// `0-3,8` as numbers.
pub(crate) fn cpu_list(text: &str) -> Option<Vec<usize>> {
    let mut cpus = Vec::new();
    for part in text.trim().split(',').filter(|p| !p.is_empty()) {
        let (first, last) = part.split_once('-').unwrap_or((part, part));
        let (first, last): (usize, usize) = (first.trim().parse().ok()?, last.trim().parse().ok()?);
        if last < first || last - first > 1 << 16 {
            return None;
        }
        cpus.extend(first..=last);
    }
    cpus.sort_unstable();
    cpus.dedup();
    (!cpus.is_empty()).then_some(cpus)
}

/// The bracketed word of `always [madvise] never`.
pub(crate) fn chosen(text: &str) -> Option<String> {
    let (_, rest) = text.split_once('[')?;
    let (word, _) = rest.split_once(']')?;
    Some(word.to_owned())
}

/// Major and minor version of a kernel release.
pub(crate) fn release(text: &str) -> Option<(u32, u32)> {
    let mut parts = text.split(|c: char| !c.is_ascii_digit());
    Some((parts.next()?.parse().ok()?, parts.next()?.parse().ok()?))
}

/// A row of `/proc/self/limits`.
pub(crate) fn limit(text: &str, name: &str) -> Option<Limit> {
    let value = |word: &str| if word == "unlimited" { Some(u64::MAX) } else { word.parse().ok() };
    let row = text.lines().find_map(|line| line.strip_prefix(name))?;
    let mut words = row.split_whitespace();
    Some(Limit { soft: value(words.next()?)?, hard: value(words.next()?)? })
}

/// A field of `/proc/self/status`.
pub(crate) fn field<'a>(text: &'a str, name: &str) -> Option<&'a str> {
    text.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(':')).map(str::trim)
}

/// Whether the process has a capability, by its number.
pub(crate) fn capability(status: &str, number: u32) -> Option<bool> {
    let mask = u64::from_str_radix(field(status, "CapEff")?, 16).ok()?;
    Some(mask >> number & 1 == 1)
}

/// The first value of a key in `/proc/cpuinfo`.
pub(crate) fn cpuinfo<'a>(text: &'a str, key: &str) -> Option<&'a str> {
    let mut rows = text.lines().filter_map(|line| line.split_once(':'));
    rows.find(|(name, _)| name.trim() == key).map(|(_, value)| value.trim())
}

/// The per cent of its time the host took from this machine since it started.
pub(crate) fn stolen(stat: &str) -> Option<f64> {
    let row = stat.lines().find_map(|line| line.strip_prefix("cpu "))?;
    let times: Option<Vec<u64>> = row.split_whitespace().map(|w| w.parse().ok()).collect();
    let times = times?;
    // user, nice, system, idle, iowait, irq, softirq, steal; guest time is part of user and nice.
    let (all, steal) = (times.get(..8)?.iter().sum::<u64>(), *times.get(7)?);
    (all > 0).then(|| steal as f64 * 100.0 / all as f64)
}

/// The mount a path lies in: of those whose point is above the path the longest, of equals the last.
pub(crate) fn mount_of(mountinfo: &str, path: &str) -> Option<Mount> {
    let holds = |mount: &Mount| {
        let point = mount.point.trim_end_matches('/');
        path.strip_prefix(point).is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
    };
    mountinfo.lines().filter_map(mount).filter(holds).max_by_key(|m| m.point.len())
}

fn mount(line: &str) -> Option<Mount> {
    let (front, back) = line.split_once(" - ")?;
    let (front, back): (Vec<_>, Vec<_>) =
        (front.split_whitespace().collect(), back.split_whitespace().collect());
    let options = front.get(5)?.split(',').chain(back.get(2).unwrap_or(&"").split(','));
    Some(Mount {
        point: unescape(front.get(4)?),
        kind: (*back.first()?).to_owned(),
        source: unescape(back.get(1)?),
        options: options.map(str::to_owned).collect(),
    })
}

/// The mount table writes blanks as `\040`.
fn unescape(text: &str) -> String {
    let mut out = text.to_owned();
    for (code, char) in [("\\040", " "), ("\\011", "\t"), ("\\012", "\n"), ("\\134", "\\")] {
        out = out.replace(code, char);
    }
    out
}

/// The interrupts that have a number, with what they are for.
pub(crate) fn interrupts(text: &str) -> Vec<(u32, &str)> {
    let row = |line| {
        let (number, rest): (&str, &str) = str::split_once(line, ':')?;
        Some((number.trim().parse().ok()?, rest.trim()))
    };
    text.lines().filter_map(row).collect()
}

/// Whether a text names a device, and not just one whose name begins alike.
pub(crate) fn mentions(text: &str, name: &str) -> bool {
    let edge = |c: Option<char>| !c.is_some_and(|c| c.is_ascii_alphanumeric());
    text.match_indices(name)
        .any(|(at, _)| edge(text[..at].chars().next_back()) && edge(text[at + name.len()..].chars().next()))
}

/// `32768 60999`.
pub(crate) fn port_range(text: &str) -> Option<(u16, u16)> {
    let mut words = text.split_whitespace();
    let (low, high) = (words.next()?.parse().ok()?, words.next()?.parse().ok()?);
    (low <= high).then_some((low, high))
}

/// The CPUs a control group may use at once, from its `cpu.max`; `None` in it where there is no bound.
pub(crate) fn cpu_max(text: &str) -> Option<Option<f64>> {
    let (quota, period) = text.split_once(' ')?;
    if quota == "max" {
        return Some(None);
    }
    let (quota, period): (f64, f64) = (quota.parse().ok()?, period.trim().parse().ok()?);
    (period > 0.0).then_some(Some(quota / period))
}

/// Bytes for people.
pub(crate) fn bytes(count: u64) -> String {
    match count {
        u64::MAX => "unlimited".to_owned(),
        n if n >= 10 << 30 => format!("{} GiB", n >> 30),
        n if n >= 1 << 20 => format!("{} MiB", n >> 20),
        n if n >= 1 << 10 => format!("{} KiB", n >> 10),
        n => format!("{n} bytes"),
    }
}

/// A list of CPUs for people: `0-3,8`.
pub(crate) fn ranges(cpus: &[usize]) -> String {
    let mut parts: Vec<(usize, usize)> = Vec::new();
    for &cpu in cpus {
        match parts.last_mut() {
            Some((_, last)) if *last + 1 == cpu => *last = cpu,
            _ => parts.push((cpu, cpu)),
        }
    }
    let part = |&(a, b): &(usize, usize)| if a == b { a.to_string() } else { format!("{a}-{b}") };
    parts.iter().map(part).collect::<Vec<_>>().join(",")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lists_of_cpus_read_and_write() {
        assert_eq!(cpu_list("0-3,8\n"), Some(vec![0, 1, 2, 3, 8]));
        for bad in ["", "a", "3-1", "0-99999999", "1-"] {
            assert_eq!(cpu_list(bad), None, "{bad:?}");
        }
        assert_eq!(ranges(&[0, 1, 2, 8, 10, 11]), "0-2,8,10-11");
    }

    #[test]
    fn releases_read_whatever_follows() {
        assert_eq!(release("6.18.44-generic"), Some((6, 18)));
        assert_eq!(release("5.8+"), Some((5, 8)));
        assert_eq!(release("linux"), None);
    }

    #[test]
    fn limits_read_by_their_name() {
        let text = "Limit                     Soft Limit           Hard Limit           Units     \n\
                    Max open files            1024                 unlimited            files     \n\
                    Max locked memory         8388608              8388608              bytes     \n";
        assert_eq!(limit(text, "Max open files"), Some(Limit { soft: 1024, hard: u64::MAX }));
        assert_eq!(limit(text, "Max locked memory"), Some(Limit { soft: 8 << 20, hard: 8 << 20 }));
        assert_eq!(limit(text, "Max core file size"), None);
    }

    #[test]
    fn capabilities_are_bits() {
        let status = "Name:\tx\nCapEff:\t0000000000004000\n";
        assert_eq!((capability(status, 14), capability(status, 21)), (Some(true), Some(false)));
        assert_eq!(capability("Name:\tx\n", 14), None);
    }

    #[test]
    fn the_mount_of_a_path_is_the_longest_that_holds_it() {
        let table = "27 1 254:0 / / rw,relatime - ext4 /dev/vda rw,discard\n\
                     30 27 0:9 / /var rw shared:1 - xfs /dev/vdb rw\n\
                     31 30 0:9 / /var/lib\\040x rw - btrfs /dev/vdc rw\n\
                     32 30 0:7 / /var rw - tmpfs none rw\n";
        let kind = |path| mount_of(table, path).map(|m| m.kind);
        assert_eq!(kind("/srv/data").as_deref(), Some("ext4"));
        assert_eq!(kind("/variety").as_deref(), Some("ext4"));
        assert_eq!(kind("/var/lib x/data").as_deref(), Some("btrfs"));
        assert_eq!(kind("/var").as_deref(), Some("tmpfs"), "the later mount covers the earlier");
        assert_eq!(mount_of("nonsense", "/"), None);
    }

    #[test]
    fn stolen_time_is_a_share_of_all_time() {
        let percent = stolen("cpu  40 10 20 20 0 0 0 10 7 7\ncpu0 1 1 1 1 1 1 1 1 1 1\n").unwrap();
        assert!((percent - 10.0).abs() < 1e-9);
        assert_eq!(stolen("cpu  1 2 3"), None);
        assert_eq!(stolen("cpu  0 0 0 0 0 0 0 0 0 0"), None);
    }

    #[test]
    fn interrupts_are_found_by_the_whole_name_of_a_device() {
        let text =
            "           CPU0\n 38:  0  7  PCI-MSIX-0000:00:03.0   1-edge   virtio2-input.0\nLOC:  1  Local\n";
        let rows = interrupts(text);
        assert_eq!(rows.iter().map(|r| r.0).collect::<Vec<_>>(), [38]);
        assert!(mentions(rows[0].1, "virtio2") && mentions(rows[0].1, "0000:00:03.0"));
        assert!(!mentions(rows[0].1, "virtio") && !mentions(rows[0].1, "virtio21"));
    }

    #[test]
    fn small_texts_read() {
        assert_eq!(chosen("always [madvise] never").as_deref(), Some("madvise"));
        assert_eq!(chosen("always"), None);
        assert_eq!(port_range("32768\t60999"), Some((32768, 60999)));
        assert_eq!(port_range("9 1"), None);
        assert_eq!(cpu_max("max 100000"), Some(None));
        assert_eq!(cpu_max("150000 100000"), Some(Some(1.5)));
        assert_eq!(cpu_max("1 0"), None);
        assert_eq!(cpuinfo("model name\t: A B\nflags\t: x\n", "model name"), Some("A B"));
        assert_eq!(
            (bytes(512 << 10), bytes(64 << 20), bytes(u64::MAX)),
            ("512 KiB".into(), "64 MiB".into(), "unlimited".into())
        );
    }
}
