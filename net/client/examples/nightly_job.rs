//! A nightly job that runs on several hosts and must run once: each tries to take the lock, one gets it,
//! and the file it writes refuses whoever has been replaced.
//!
//!     cargo run --example nightly_job -p palisade-client -- /tmp/report.txt

use std::fs::{File, OpenOptions};
use std::io::{Read, Seek, SeekFrom, Write};
use std::path::Path;
use std::time::Duration;

use palisade_client::blocking::Client;
use palisade_client::{AcquireError, ClientConfig, Fence, Floor};

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let path = std::env::args().nth(1).ok_or("usage: nightly_job FILE")?;
    let endpoints = std::env::var("PALISADE_ENDPOINTS")
        .unwrap_or_else(|_| "127.0.0.1:7401,127.0.0.1:7402,127.0.0.1:7403".to_owned());
    let client = Client::connect(ClientConfig::new(endpoints.split(',')))?;
    let session = client.session().ttl(Duration::from_secs(15)).owner(host()).open()?;
    let guard = match session.fenced("nightly-report", path.as_str()).no_wait().acquire() {
        Ok(guard) => guard,
        Err(AcquireError::Held { holder, .. }) => {
            println!("another host is at it: {holder:?}");
            return Ok(());
        }
        Err(error) => return Err(error.into()),
    };
    guard.on_lost(|reason| {
        // Nothing written from here on would be accepted once a successor has acted: stop.
        eprintln!("stopping: {reason}");
        std::process::exit(84);
    });
    for part in 1..=3 {
        write_fenced(Path::new(&path), guard.fence(), &format!("part {part} of 3"))?;
    }
    println!("written under {}", guard.fence());
    guard.release()?;
    session.close()?;
    Ok(())
}

/// The resource's half: the floor stands in the first line, and checking it, raising it and writing are
/// one step under the file's lock.
fn write_fenced(path: &Path, fence: &Fence, text: &str) -> Result<(), Box<dyn std::error::Error>> {
    let mut file: File = OpenOptions::new().read(true).write(true).create(true).truncate(false).open(path)?;
    file.lock()?;
    let mut old = String::new();
    file.read_to_string(&mut old)?;
    let (first, rest) = old.split_once('\n').unwrap_or(("0", ""));
    let floor = Floor(first.parse()?).admit(fence)?;
    // A database would do all this in one transaction; here a crash in the midst may tear the file.
    let new = format!("{}\n{rest}{text}\n", floor.0);
    file.seek(SeekFrom::Start(0))?;
    file.write_all(new.as_bytes())?;
    file.sync_all()?;
    Ok(())
}

fn host() -> String {
    std::fs::read_to_string("/proc/sys/kernel/hostname").map_or("unknown".to_owned(), |h| h.trim().to_owned())
}
