//! Answers that wait: pulls for a message, questions for dispatch, sends for the flush.

use rocketpy_model::PhysicalOffset;
use shuttle::sync::atomic::{AtomicU64, Ordering};
use shuttle::sync::{Arc, mpsc};
use shuttle::thread;

use crate::dispatch::Log;
use crate::error::FlushError;
use crate::held_state::{HeldState, Waits};
use crate::turn::{Flushing, Target, Turns};
use crate::wake::Wake;
use crate::{EVER, join};

const ASKERS: u64 = 3;

type Answer = mpsc::Sender<()>;

const PULLS: usize = 0;
const QUESTIONS: usize = 1;

/// Pulls, and questions with the offset for which they wait.
#[derive(Default)]
struct Requests {
    pulls: Vec<Answer>,
    questions: Vec<(u64, Answer)>,
}

impl Waits<2> for Requests {
    fn first(&self) -> [u64; 2] {
        let first_question = self.questions.iter().map(|(end, _)| *end).min();
        [if self.pulls.is_empty() { u64::MAX } else { 0 }, first_question.unwrap_or(u64::MAX)]
    }
}

/// A store, its one queue, and what is held.
struct Broker {
    log: Log,
    /// Messages in the queue that are readable.
    readable: AtomicU64,
    held: HeldState<Requests, 2>,
}

impl Broker {
    /// Answers all pulls that wait.
    fn arrived(&self) {
        self.readable.fetch_add(1, Ordering::SeqCst);
        let pulls = self.held.reached(PULLS, 0, |requests| std::mem::take(&mut requests.pulls));
        pulls.into_iter().flatten().for_each(|answer| answer.send(()).expect("it waits"));
    }

    /// Answers the questions that dispatch covers.
    fn dispatched(&self, to: PhysicalOffset) {
        let covered = self.held.reached(QUESTIONS, to.get(), |requests| {
            requests.questions.extract_if(.., |(end, _)| *end <= to.get()).collect::<Vec<_>>()
        });
        covered.into_iter().flatten().for_each(|(_, answer)| answer.send(()).expect("it waits"));
    }

    /// Asks a question that is answered once dispatch is at `end`.
    fn ask(&self, end: PhysicalOffset) {
        let is_over = || self.log.backlog.dispatched() >= end;
        let (answer, answered) = mpsc::channel();
        let add = |requests: &mut Requests| {
            requests.questions.push((end.get(), answer));
            Ok::<_, ()>(())
        };
        let look = |requests: &mut Requests, ()| {
            let was_over = is_over();
            if was_over {
                requests.questions.retain(|(other, _)| *other != end.get());
            }
            was_over
        };
        if !is_over() && !self.held.hold(add, look).expect("there is room") {
            answered.recv().expect("it is answered");
        }
        assert!(is_over(), "the answer leaves nothing out");
    }

    /// Pulls the first message of the queue.
    fn pull(&self) {
        let is_over = || self.readable.load(Ordering::SeqCst) > 0;
        let (answer, answered) = mpsc::channel();
        let add = |requests: &mut Requests| {
            requests.pulls.push(answer);
            Ok::<_, ()>(())
        };
        let look = |requests: &mut Requests, ()| {
            let was_over = is_over();
            if was_over {
                requests.pulls.clear(); // the only one
            }
            was_over
        };
        if !is_over() && !self.held.hold(add, look).expect("there is room") {
            answered.recv().expect("it is answered");
        }
        assert!(is_over(), "there is a message");
    }
}

/// A pull, and questions after an append, beside dispatch.
pub(crate) fn requests() {
    let held = HeldState::new(Requests::default());
    let broker = Arc::new(Broker { log: Log::new(), readable: AtomicU64::new(0), held });
    let dispatcher = Arc::clone(&broker);
    let dispatcher = thread::spawn(move || {
        dispatcher.log.dispatch(|| dispatcher.arrived(), |end| dispatcher.dispatched(end));
    });
    let puller = Arc::clone(&broker);
    let puller = thread::spawn(move || puller.pull());
    let askers = (0..ASKERS - 1).map(|_| {
        let broker = Arc::clone(&broker);
        thread::spawn(move || broker.ask(broker.log.append()))
    });
    join(askers.chain([puller]).collect());
    broker.log.wake.stop();
    dispatcher.join().expect("it ends");
}

/// Sends in the order of their ends.
#[derive(Default)]
struct Sends(Vec<(u64, Answer)>);

impl Sends {
    fn take_covered(&mut self, flushed: PhysicalOffset) -> Vec<(u64, Answer)> {
        self.0.extract_if(.., |(end, _)| *end <= flushed.get()).collect()
    }
}

impl Waits<1> for Sends {
    fn first(&self) -> [u64; 1] {
        [self.0.iter().map(|(end, _)| *end).min().unwrap_or(u64::MAX)]
    }
}

/// A log whose sends are answered when a flush covers them.
struct Flushed {
    turns: Turns,
    end: AtomicU64,
    flushed: AtomicU64,
    /// The flush thread sleeps here.
    wake: Wake,
    held: HeldState<Sends, 1>,
}

impl Flushed {
    fn send(&self) {
        let end = PhysicalOffset(self.end.fetch_add(10, Ordering::SeqCst) + 10);
        let (answer, answered) = mpsc::channel();
        let add = |sends: &mut Sends| {
            sends.0.push((end.get(), answer));
            Ok::<_, ()>(())
        };
        let covered = self.held.hold(add, |sends, ()| sends.take_covered(self.flushed()));
        answer_all(covered.expect("there is room"));
        self.wake.wake();
        answered.recv().expect("it is answered");
        assert!(self.flushed() >= end, "an answer follows its flush");
    }

    fn flush_all(&self) {
        self.turns.flush_to(self.end(), EVER, self, &|| ()).expect("nothing fails");
    }

    /// The life of the flush thread.
    fn run(&self) {
        let behind = || self.flushed() < self.end();
        loop {
            if behind() {
                self.flush_all();
            } else if self.wake.is_stopped() {
                return;
            } else {
                self.wake.sleep(EVER, behind);
            }
        }
    }
}

fn answer_all(sends: Vec<(u64, Answer)>) {
    sends.into_iter().for_each(|(_, answer)| answer.send(()).expect("it waits"));
}

impl Flushing for Flushed {
    fn flushed(&self) -> PhysicalOffset {
        PhysicalOffset(self.flushed.load(Ordering::SeqCst))
    }

    fn end(&self) -> PhysicalOffset {
        PhysicalOffset(self.end.load(Ordering::SeqCst))
    }

    fn target(&self) -> Target {
        Target { to: self.end(), stored_at_ms: 0 }
    }

    fn check(&self) -> Result<(), FlushError> {
        Ok(())
    }

    fn flush(&self, target: Target) -> Result<(), FlushError> {
        self.flushed.store(target.to.get(), Ordering::SeqCst);
        let covered = self.held.reached(0, target.to.get(), |sends| sends.take_covered(target.to));
        answer_all(covered.unwrap_or_default());
        Ok(())
    }

    fn panicked(&self) {}
}

/// Sends beside the flush thread, and beside flushes that no send asked for.
pub(crate) fn sends() {
    let log = Arc::new(Flushed {
        turns: Turns::default(),
        end: AtomicU64::new(0),
        flushed: AtomicU64::new(0),
        wake: Wake::default(),
        held: HeldState::new(Sends::default()),
    });
    let flusher = Arc::clone(&log);
    let flusher = thread::spawn(move || flusher.run());
    let others = Arc::clone(&log);
    let others = thread::spawn(move || (0..2).for_each(|_| others.flush_all()));
    let senders = (0..ASKERS - 1).map(|_| {
        let log = Arc::clone(&log);
        thread::spawn(move || log.send())
    });
    join(senders.chain([others]).collect());
    log.wake.stop();
    flusher.join().expect("it ends");
}
