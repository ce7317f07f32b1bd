//! The rules of the house that the compiler does not know: who may import whom, what the pure crates
//! may not name, and how large a file may grow. ARCHITECTURE.md states them; this test refuses.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

/// A crate: its folder, whether it is pure, and which of our crates it may import.
struct Layer {
    name: &'static str,
    dir: &'static str,
    pure: bool,
    imports: &'static [&'static str],
}

const LAYERS: &[Layer] = &[
    Layer { name: "palisade-types", dir: "src/types", pure: true, imports: &[] },
    Layer { name: "palisade-raft", dir: "raft", pure: true, imports: &["palisade-types"] },
    Layer { name: "palisade-wal", dir: "wal", pure: true, imports: &["palisade-types"] },
    Layer { name: "palisade-machine", dir: "src/machine", pure: true, imports: &["palisade-types"] },
    Layer { name: "palisade-wire", dir: "net/wire", pure: true, imports: &["palisade-types"] },
    Layer {
        name: "palisade-client-core",
        dir: "net/client-core",
        pure: true,
        imports: &["palisade-types", "palisade-wire"],
    },
    Layer {
        name: "palisade-shard",
        dir: "src/shard",
        pure: true,
        imports: &["palisade-types", "palisade-raft", "palisade-wal", "palisade-machine", "palisade-wire"],
    },
    Layer {
        name: "palisade-client",
        dir: "net/client",
        pure: false,
        imports: &["palisade-types", "palisade-wire", "palisade-client-core"],
    },
    Layer { name: "palisade-fence", dir: "net/fence", pure: false, imports: &["palisade-types"] },
    Layer {
        name: "palisade-gate",
        dir: "net/gate",
        pure: false,
        imports: &["palisade-types", "palisade-fence"],
    },
    Layer {
        name: "palisade-sim",
        dir: "tests/sim",
        pure: false,
        imports: &[
            "palisade-types",
            "palisade-raft",
            "palisade-wal",
            "palisade-machine",
            "palisade-shard",
            "palisade-wire",
            "palisade-client-core",
        ],
    },
    Layer {
        name: "palisade-bench",
        dir: "bench",
        pure: false,
        imports: &["palisade-types", "palisade-wire", "palisade-tuning"],
    },
    Layer { name: "palisade-tuning", dir: "tuning", pure: false, imports: &[] },
    Layer {
        name: "palisade",
        dir: ".",
        pure: false,
        imports: &[
            "palisade-types",
            "palisade-raft",
            "palisade-wal",
            "palisade-wire",
            "palisade-shard",
            "palisade-client",
            "palisade-fence",
            "palisade-gate",
            "palisade-tuning",
        ],
    },
];

/// The most lines of a source file, tests included.
const FILE_LINES_MAX: usize = 700;

fn root() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR"))
}

fn manifest(dir: &str) -> toml::Table {
    let path = root().join(dir).join("Cargo.toml");
    let text = fs::read_to_string(&path).unwrap_or_else(|e| panic!("{}: {e}", path.display()));
    text.parse().unwrap_or_else(|e| panic!("{}: {e}", path.display()))
}

fn dependencies(manifest: &toml::Table, section: &str) -> BTreeSet<String> {
    let table = manifest.get(section).and_then(toml::Value::as_table);
    table.map(|t| t.keys().cloned().collect()).unwrap_or_default()
}

/// All Rust files below a folder, without nested crates and build output.
fn sources(dir: &Path, out: &mut Vec<PathBuf>) {
    let mut entries: Vec<_> = fs::read_dir(dir).into_iter().flatten().flatten().map(|e| e.path()).collect();
    entries.sort();
    for path in entries {
        let name = path.file_name().map(|n| n.to_string_lossy().into_owned()).unwrap_or_default();
        if path.is_dir() {
            if name != "target" && !name.starts_with('.') && !path.join("Cargo.toml").exists() {
                sources(&path, out);
            }
        } else if name.ends_with(".rs") {
            out.push(path);
        }
    }
}

fn sources_of(layer: &Layer) -> Vec<PathBuf> {
    let mut out = Vec::new();
    if layer.dir == "." {
        for dir in ["src", "tests"] {
            sources(&root().join(dir), &mut out);
        }
    } else {
        sources(&root().join(layer.dir), &mut out);
    }
    assert!(!out.is_empty(), "{} has no sources", layer.name);
    out
}

/// The lines of a file before its test module, comments stripped.
fn code_lines(text: &str) -> impl Iterator<Item = (usize, &str)> {
    text.lines()
        .enumerate()
        .take_while(|(_, line)| !line.starts_with("#[cfg(test)]\nmod ") && !line.starts_with("mod tests"))
        .map(|(n, line)| (n + 1, line.split("//").next().unwrap_or("")))
}

/// Whether a line names a word, and not just one that begins with it.
fn names(line: &str, word: &str) -> bool {
    line.match_indices(word).any(|(at, _)| {
        let next = line[at + word.len()..].chars().next();
        !word.ends_with(|c: char| c.is_alphanumeric())
            || !next.is_some_and(|c| c.is_alphanumeric() || c == '_')
    })
}

#[test]
fn every_crate_imports_only_what_its_layer_may() {
    let ours: BTreeSet<&str> = LAYERS.iter().map(|l| l.name).collect();
    let mut wrong = Vec::new();
    for layer in LAYERS {
        for import in dependencies(&manifest(layer.dir), "dependencies") {
            if ours.contains(import.as_str()) && !layer.imports.contains(&import.as_str()) {
                wrong.push(format!("{} imports {import}", layer.name));
            }
        }
    }
    assert!(wrong.is_empty(), "against ARCHITECTURE.md, section Layers: {wrong:?}");
}

#[test]
fn every_crate_of_the_workspace_is_in_a_layer() {
    let members = manifest(".")["workspace"]["members"].as_array().cloned().unwrap_or_default();
    let dirs: BTreeSet<&str> = LAYERS.iter().map(|l| l.dir).collect();
    for member in members {
        let member = member.as_str().unwrap_or_default().to_owned();
        assert!(dirs.contains(member.as_str()), "{member} is in no layer of tests/tidy.rs");
    }
}

#[test]
fn pure_crates_are_no_std_and_name_no_clock_file_thread_or_foreign_runtime() {
    const BANNED: &[&str] = &[
        "std::time",
        "std::fs",
        "std::net",
        "std::thread",
        "std::io",
        "std::process",
        "std::env",
        "glommio",
        "tokio",
        "rand::",
        "async fn",
        ".await",
        "RandomState",
    ];
    const BANNED_DEPENDENCIES: &[&str] = &["glommio", "tokio", "rand", "libc", "axum", "getrandom"];
    let mut wrong = Vec::new();
    for layer in LAYERS.iter().filter(|l| l.pure) {
        let lib = fs::read_to_string(root().join(layer.dir).join("src/lib.rs"))
            .expect("a pure crate has src/lib.rs");
        assert!(lib.contains("#![no_std]"), "{} is not no_std", layer.name);
        for import in dependencies(&manifest(layer.dir), "dependencies") {
            if BANNED_DEPENDENCIES.contains(&import.as_str()) {
                wrong.push(format!("{} depends on {import}", layer.name));
            }
        }
        let code = root().join(layer.dir).join("src");
        for path in sources_of(layer).into_iter().filter(|p| p.starts_with(&code)) {
            let text = fs::read_to_string(&path).unwrap_or_default();
            for (n, line) in code_lines(&text) {
                for word in BANNED.iter().filter(|w| names(line, w)) {
                    wrong.push(format!("{}:{n}: {word}", path.display()));
                }
            }
        }
    }
    assert!(wrong.is_empty(), "pure crates decide, they do not do: {wrong:#?}");
}

#[test]
fn only_the_clock_modules_ask_the_system_for_the_time() {
    const ASKS: &[&str] = &["Instant::now", "SystemTime::now", "clock_gettime"];
    const MAY: &[&str] =
        &["src/clock.rs", "src/server/sys.rs", "net/client/src/clock.rs", "net/client/src/sys.rs"];
    let mut wrong = Vec::new();
    for layer in LAYERS.iter().filter(|l| l.name == "palisade" || l.name == "palisade-client") {
        for path in sources_of(layer) {
            let name = path.strip_prefix(root()).unwrap_or(&path).to_string_lossy().into_owned();
            if MAY.contains(&name.as_str()) || name.starts_with("tests/") || name.contains("/tests/") {
                continue;
            }
            let text = fs::read_to_string(&path).unwrap_or_default();
            for (n, line) in code_lines(&text) {
                if ASKS.iter().any(|w| line.contains(w)) {
                    wrong.push(format!("{name}:{n}"));
                }
            }
        }
    }
    assert!(wrong.is_empty(), "ask clock.rs: {wrong:#?}");
}

#[test]
fn unsafe_code_lives_in_the_named_modules_only() {
    let mut wrong = Vec::new();
    for layer in LAYERS {
        for path in sources_of(layer) {
            let text = fs::read_to_string(&path).unwrap_or_default();
            let name = path.strip_prefix(root()).unwrap_or(&path).to_string_lossy().into_owned();
            let allows = text.contains(concat!("allow(", "unsafe_code)"))
                || text.contains(concat!("expect(", "unsafe_code"));
            let may = ["/sys.rs", "/seccomp.rs", "net/client/src/clock.rs"];
            if allows && !may.iter().any(|m| name.ends_with(m)) && name != "tests/tidy.rs" {
                wrong.push(name);
            }
        }
    }
    assert!(wrong.is_empty(), "unsafe belongs in the modules of system calls: {wrong:?}");
}

#[test]
fn files_stay_small_and_hold_no_leftovers() {
    const LEFTOVERS: &[&str] =
        &[concat!("TO", "DO"), concat!("FIX", "ME"), concat!("XX", "X"), concat!("for", " now")];
    let mut wrong = Vec::new();
    for layer in LAYERS {
        for path in sources_of(layer) {
            let text = fs::read_to_string(&path).unwrap_or_default();
            let lines = text.lines().count();
            if lines > FILE_LINES_MAX {
                wrong.push(format!("{}: {lines} lines", path.display()));
            }
            for word in LEFTOVERS.iter().filter(|w| text.contains(**w)) {
                wrong.push(format!("{}: {word}", path.display()));
            }
        }
    }
    assert!(wrong.is_empty(), "{wrong:#?}");
}

#[test]
fn every_crate_keeps_the_lints_of_the_workspace() {
    for layer in LAYERS {
        let lints =
            manifest(layer.dir).get("lints").and_then(|l| l.get("workspace")).and_then(toml::Value::as_bool);
        assert_eq!(lints, Some(true), "{} does not take the lints of the workspace", layer.name);
    }
}

#[test]
fn every_test_that_a_report_names_is_there() {
    let named = tests_named("tests/REPORTS.md", "| U");
    assert!(named >= 20, "only {named} tests are named");
}

#[test]
fn every_test_that_exceeds_a_limit_is_there() {
    let named = tests_named("tests/LIMITS.md", "| ");
    assert!(named >= 35, "only {named} tests are named");
}

#[test]
fn every_fault_of_the_catalogue_is_held_or_left_out_with_a_reason() {
    const TABLE: &str = "tests/FAULTS.md";
    let named = tests_named(TABLE, "| B") + tests_named(TABLE, "| C");
    assert!(named >= 120, "only {named} tests are named");
    let text = fs::read_to_string(root().join(TABLE)).expect("the table");
    let (held, left_out) = text.split_once("## Left out").expect("two tables");
    let cells = |row: &str| row.split('|').map(|cell| cell.trim().to_owned()).collect::<Vec<_>>();
    let rows = |table: &str| table.lines().filter(|l| l.starts_with("| ")).map(cells).collect::<Vec<_>>();
    let (held, left_out) = (rows(held), rows(left_out));
    assert!(held.iter().all(|row| row.len() == 5 && !row[3].is_empty()), "a row is held by a test");
    assert!(
        left_out.iter().all(|row| row.len() == 6 && !row[3].is_empty()),
        "a row is left out for a reason"
    );
    let mut numbers: Vec<String> = held.iter().chain(&left_out).map(|row| row[1].clone()).collect();
    numbers.retain(|number| number != "Row");
    let mut all: Vec<String> =
        (1..=50).map(|n| format!("B{n}")).chain((1..=30).map(|n| format!("C{n}"))).collect();
    numbers.sort();
    all.sort();
    assert_eq!(numbers, all, "each row once, in one of the tables");
    rules_and_mutants_are_there(&text);
}

/// Every "rule X" must be one of the simulator's, every "mutant X" one that is hunted.
fn rules_and_mutants_are_there(text: &str) {
    let read = |file: &str| fs::read_to_string(root().join(file)).unwrap_or_else(|e| panic!("{file}: {e}"));
    let (simulation, hunts, enumerated) =
        (read("tests/SIMULATION.md"), read("tests/sim/tests/mutants.rs"), read("src/types/src/mutant.rs"));
    let (_, rules) = simulation.split_once("## The rules").expect("the rules");
    let (rules, _) = rules.split_once("## Mutants").expect("what follows them");
    let rules: BTreeSet<&str> = rules
        .lines()
        .filter_map(|line| line.strip_prefix("| ")?.split(" |").next())
        .flat_map(|cell| cell.split(", "))
        .collect();
    let words: Vec<&str> = text.split(|c: char| !c.is_ascii_alphanumeric() && c != '_').collect();
    let is_number = |word: &str| {
        let (letter, digits) = word.split_at(word.len().min(1));
        letter.chars().all(|c| c.is_ascii_uppercase()) && digits.parse::<u32>().is_ok()
    };
    for pair in words.windows(2).filter(|pair| is_number(pair[1])) {
        match pair[0] {
            "rule" => assert!(rules.contains(pair[1]), "there is no rule {}", pair[1]),
            "mutant" => assert!(
                enumerated.contains(&format!("    {} = ", pair[1]))
                    && hunts.contains(&format!("hunt(Mutant::{});", pair[1])),
                "mutant {} is hunted nowhere",
                pair[1]
            ),
            _ => {}
        }
    }
}

#[test]
fn every_exit_status_is_in_the_table_with_a_test_that_is_there() {
    let named = tests_named("tests/EXIT_STATUSES.md", "| ");
    assert!(named >= 20, "only {named} tests are named");
    let table = fs::read_to_string(root().join("tests/EXIT_STATUSES.md")).expect("the table");
    let statuses = fs::read_to_string(root().join("src/cli/exit.rs")).expect("the statuses");
    let statuses = statuses.lines().filter_map(|line| line.strip_prefix("pub(crate) const "));
    let numbers: Vec<&str> =
        statuses.filter_map(|rest| rest.rsplit_once(" = ")?.1.strip_suffix(';')).collect();
    assert!(numbers.len() >= 9, "{numbers:?}");
    for number in numbers {
        let row = table.lines().find(|row| {
            let status = row.strip_prefix("| ").and_then(|row| row.split(" |").next()).unwrap_or_default();
            status.split([' ', ',']).any(|word| word == number)
        });
        let held = row.is_some_and(|row| row.contains("`tests/") || row.contains("`src/"));
        assert!(
            held,
            "status {number} of src/cli/exit.rs is not in tests/EXIT_STATUSES.md, or held by no test"
        );
    }
}

/// How many tests the last column of a table names; each must be there.
fn tests_named(table: &str, rows: &str) -> usize {
    let text = fs::read_to_string(root().join(table)).expect("the table");
    let mut named = 0;
    for row in text.lines().filter(|line| line.starts_with(rows)) {
        let held_by = row.trim_end_matches([' ', '|']).rsplit('|').next().expect("a last column");
        let mut file = String::new();
        // Between back ticks stands a file, or a test in the file before it.
        for word in held_by.split('`').skip(1).step_by(2) {
            if word.ends_with(".rs") {
                file = fs::read_to_string(root().join(word)).unwrap_or_else(|e| panic!("{word}: {e}"));
                continue;
            }
            assert!(file.contains(&format!("fn {word}()")), "{word} is not there: {row}");
            named += 1;
        }
    }
    named
}
