use palisade_sim::{options::{Options, Profile}, world::World, trace::Story};
fn main() {
    let args: Vec<String> = std::env::args().collect();
    let profile = Profile::parse(&args[1]).unwrap();
    let (a, b): (u64, u64) = (args[2].parse().unwrap(), args[3].parse().unwrap());
    let mutant = args.get(4).map(|m| m.as_str()).unwrap_or("none");
    let tail: usize = args.get(5).and_then(|s| s.parse().ok()).unwrap_or(0);
    let story = if tail > 0 { Story::Keep } else { Story::No };
    let t = std::time::Instant::now();
    let mut bad = 0;
    for seed in a..b {
        let mut o = Options::draw(seed, profile);
        for m in palisade_types::Mutant::ALL { if format!("{m:?}") == mutant { o.mutants = palisade_types::Mutants::only(m); } }
        let r = std::panic::catch_unwind(|| World::run(o, story));
        match r {
            Err(_) => { println!("seed {seed} PANIC"); bad += 1; }
            Ok(Err((v, lines))) => { for l in &lines[lines.len().saturating_sub(tail)..] { println!("{l}"); } println!("seed {seed} {v}"); bad += 1; }
            Ok(Ok(r)) => if seed % 20 == 0 || b - a < 5 { println!("{r}") },
        }
        if bad > 8 { break; }
    }
    println!("{} bad, {:?}", bad, t.elapsed());
}
