//! Explores.
use fencepost_core::lease::Honest;
use fencepost_sim::config::*;
use fencepost_sim::explore::*;
fn main() {
    let n: Vec<u8> = std::env::args().skip(1).map(|a| a.parse().unwrap()).collect();
    let b = Budget { triggers: n[0], crashes: n[1], sleeps: n[2], stalls: n[3], losses: n[4], refusals: n[5], foreign: n[6], rollbacks: n[7], delays: n[11] };
    let mut c = Config::new("x", b).until(u64::from(n[8]) * 1000);
    if n[9] == 0 { c = c.without_clock(); }
    if n[10] == 1 { c = c.drifting(); }
    if n[10] == 2 { c = c.on_new_store(); }
    let t = std::time::Instant::now();
    let r = explore::<Honest>(&c);
    println!("{} states, depth {}, {:?}", r.states, r.depth, t.elapsed());
    if let Some(f) = r.found { println!("{}\n{}", f.violation, narrate::<Honest>(&c, &f.path)); }
}
