//! The seed of a store draws how its lives end, and nothing else does.

use super::*;

fn options(harness: Harness) -> Options {
    Options {
        harness,
        seed: 0,
        cycles: 1,
        cycles_a_store: 1,
        flush: None,
        own_flush: None,
        retention: None,
        bound: false,
        pair: false,
        slow_slave: None,
        producers: 4,
        load: None,
        server: "server".into(),
        history: None,
        planted: None,
    }
}

fn endings(seed: u64, harness: Harness, count: usize) -> Vec<Ending> {
    let mut lives = Lives::new(&mut Rng::with_seed(seed), &options(harness));
    (0..count).map(|_| lives.draw().ending).collect()
}

#[test]
fn a_seed_draws_the_same_endings_again_whatever_became_of_the_lives_before() {
    for harness in [Harness::Kill, Harness::Power] {
        for seed in 0..50 {
            let drawn = endings(seed, harness, 40);
            assert_eq!(endings(seed, harness, 13), drawn[..13], "seed {seed}");
            let mut lives = Lives::new(&mut Rng::with_seed(seed), &options(harness));
            for (number, ending) in drawn.into_iter().enumerate() {
                let mut life = lives.draw();
                assert_eq!(life.ending, ending, "seed {seed}, life {number}");
                for _ in 0..seed {
                    let _ = life.survey.u64(..); // a survey draws more where it finds more
                }
            }
        }
        assert_ne!(endings(1, harness, 20), endings(2, harness, 20));
    }
}

#[test]
fn twenty_lives_that_are_killed_meet_every_point_once() {
    for seed in 0..50 {
        let drawn = endings(seed, Harness::Kill, 40);
        for lives in drawn.chunks(20) {
            for point in Point::ALL {
                let at_point = lives.iter().filter(|life| life.kill_at.is_some_and(|(at, _)| at == point));
                assert_eq!(at_point.count(), 1, "seed {seed}, {}", point.name());
            }
            let are_killed = |life: &Ending| life.kill_at.is_none() || life.how == How::Kill;
            assert!(lives.iter().all(are_killed), "seed {seed}: {lives:?}");
        }
    }
    let orders: Vec<_> = (0..50).map(|seed| endings(seed, Harness::Kill, 1)[0].kill_at).collect();
    assert!(orders.windows(2).any(|pair| pair[0] != pair[1]), "each store has an order of its own");
}
