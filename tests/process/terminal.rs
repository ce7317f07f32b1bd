//! A command under a lock at the terminal of a shell: keyboard, Ctrl-Z, `fg`, Ctrl-C and the background work as
//! without the wrapper.

use std::fs::File;
use std::io::{Read, Write};
use std::process::{Child, Command, Stdio};
use std::sync::mpsc::{Receiver, channel};

use rustix::pty::{OpenptFlags, ioctl_tiocgptpeer, openpt, unlockpt};

use crate::support::{Cluster, PATIENCE, one_cluster};

/// An interactive shell on a terminal of its own.
struct Shell {
    shell: Child,
    keyboard: File,
    screen: Receiver<Vec<u8>>,
    unread: String,
}

impl Shell {
    fn start(cluster: &Cluster) -> Shell {
        let flags = OpenptFlags::RDWR | OpenptFlags::NOCTTY | OpenptFlags::CLOEXEC;
        let keyboard = openpt(flags).expect("a terminal");
        unlockpt(&keyboard).expect("a terminal of ours");
        let terminal = File::from(ioctl_tiocgptpeer(&keyboard, flags).expect("its other side"));
        let keyboard = File::from(keyboard);
        // Its session is a new one, with this terminal.
        let mut command = Command::new("setsid");
        command.args(["--ctty", "--wait", "bash", "--norc", "--noprofile", "-i"]);
        command.env("PALISADE_ENDPOINTS", cluster.endpoints().join(","));
        command.env("P", env!("CARGO_BIN_EXE_palisade")).env("PS1", "ready> ").env("TERM", "dumb");
        command.stdin(Stdio::from(terminal.try_clone().expect("a descriptor")));
        command
            .stdout(Stdio::from(terminal.try_clone().expect("a descriptor")))
            .stderr(Stdio::from(terminal));
        let shell = command.spawn().expect("setsid(1) and bash(1)");
        let (out, screen) = channel();
        let mut reader = keyboard.try_clone().expect("a descriptor");
        std::thread::spawn(move || {
            let mut bytes = [0; 4096];
            // An error says that nobody has the terminal any more.
            while let Ok(n @ 1..) = reader.read(&mut bytes) {
                if out.send(bytes[..n].to_vec()).is_err() {
                    break;
                }
            }
        });
        let mut shell = Shell { shell, keyboard, screen, unread: String::new() };
        shell.sees("ready> ");
        shell
    }

    fn types(&mut self, keys: &str) {
        self.keyboard.write_all(keys.as_bytes()).expect("the terminal takes it");
    }

    /// Reads on until this is on the screen.
    fn sees(&mut self, text: &str) {
        while !self.unread.contains(text) {
            match self.screen.recv_timeout(PATIENCE) {
                Ok(bytes) => self.unread.push_str(&String::from_utf8_lossy(&bytes)),
                Err(e) => panic!("{e}: no {text:?} in: {}", self.unread),
            }
        }
        let end = self.unread.find(text).map_or(0, |at| at + text.len());
        self.unread.drain(..end);
    }

    /// Runs a script under the lock k, which says "up" first. What is typed shows on the screen as well, so the
    /// scripts print no word as it stands in them.
    fn locks(&mut self, script: &str, behind: &str) {
        self.types(&format!("$P lock --advisory k -- sh -c 'echo u''p; {script}'{behind}\n"));
        self.sees("up\r\n");
    }
}

impl Drop for Shell {
    fn drop(&mut self) {
        // A shell that has gone with a hang-up to its jobs leaves nothing behind.
        let _ = self.keyboard.write_all(b"\x03\nexit\nexit\n");
        let _ = self.shell.kill();
        let _ = self.shell.wait();
    }
}

#[test]
fn the_keyboard_and_the_keys_for_stopping_and_ending_are_the_commands() {
    let _one = one_cluster();
    let cluster = Cluster::start();
    let mut shell = Shell::start(&cluster);
    shell.locks("read a; echo first:$a; read b; echo second:$b; exec sleep 1000", "");
    shell.types("one\n");
    shell.sees("first:one");
    shell.types("\x1a");
    shell.sees("Stopped");
    shell.sees("ready> ");
    shell.types("fg\n");
    // The shell has echoed what it runs.
    shell.sees("sleep 1000");
    shell.types("two\n");
    shell.sees("second:two");
    shell.types("\x03");
    shell.sees("ready> ");
    shell.types("echo status:$?\n");
    shell.sees("status:130");
    shell.sees("ready> ");

    // In the background it is stopped when it wants to read.
    shell.locks("read a; echo third:$a", " &");
    shell.types("until jobs | grep -q Stop; do sleep 0.05; done; echo no''w\n");
    shell.sees("now\r\n");
    shell.sees("ready> ");
    shell.types("fg\n");
    shell.sees("third:$a");
    shell.types("three\n");
    shell.sees("third:three");
    shell.sees("ready> ");

    // A command that never ran leaves the keyboard with the shell.
    shell.types("$P lock --advisory k -- /nonexistent; echo status:$?\n");
    shell.sees("status:127");
    shell.sees("ready> ");
}

#[test]
fn nodes_and_demo_run_at_a_terminal_too_in_colour_where_it_is_wanted() {
    let _one = one_cluster();
    let cluster = Cluster::start();
    let mut shell = Shell::start(&cluster);
    shell.types("TERM=xterm $P demo; echo status:$?\n");
    shell.sees("\x1b[1mWITH THE FENCE\x1b[0m");
    shell.sees("status:0");
    shell.sees("ready> ");
    // Its nodes write their log to this terminal.
    shell.types("NO_COLOR=1 TERM=xterm $P demo; echo status:$?\n");
    shell.sees("\r\nWITH THE FENCE\r\n");
    shell.sees("status:0");
}
