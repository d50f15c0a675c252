//! Explores.
use fencepost_core::lease::Honest;
use fencepost_sim::explore::*;
use fencepost_sim::worlds;
fn main() {
    let only = std::env::args().nth(1);
    for c in worlds::ALL {
        if only.as_ref().is_some_and(|o| o != c.name) { continue; }
    let t = std::time::Instant::now();
    let r = explore::<Honest>(&c);
    println!("{:<20} {:>9} states, depth {}, {:?}", c.name, r.states, r.depth, t.elapsed());
    if let Some(f) = r.found { println!("{}\n{}", f.violation, narrate::<Honest>(&c, &f.path)); }
    }
}
