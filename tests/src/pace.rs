//! How much of the machine a test gets, so that a promise in seconds is judged by the product and not by its neighbours.
//!
//! A thread of the test works for a moment again and again, and compares how long that took with the processor's time
//! that it cost. A promise is stretched by the quotient: by nothing on a machine of one's own, by three where three
//! others want the same core.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

/// Processor's time of one piece of work, and the pause after it: a tenth of a core.
const WORK: Duration = Duration::from_millis(1);
const PAUSE: Duration = Duration::from_millis(9);

/// As often as a promise is taken at most.
const MOST: u32 = 4;

#[derive(Debug, Default)]
struct Seen {
    over: AtomicBool,
    /// Microseconds of work, and those that the work took by the clock on the wall.
    worked: AtomicU64,
    took: AtomicU64,
}

/// Watches the machine from its making until it is dropped.
#[derive(Debug)]
pub struct Pace(Arc<Seen>);

impl Pace {
    /// Begins to watch.
    pub fn watch() -> Self {
        let seen = Arc::new(Seen::default());
        let own = seen.clone();
        std::thread::spawn(move || {
            while !own.over.load(Ordering::Relaxed) {
                let took = work() + rest();
                own.worked.fetch_add(micros(WORK), Ordering::Relaxed);
                own.took.fetch_add(micros(took), Ordering::Relaxed);
            }
        });
        Self(seen)
    }

    /// What a promise comes to at the pace of this machine since the beginning; never less than the promise, and never
    /// more than four of it: the product itself may be what is slow.
    pub fn stretches(&self, promise: Duration) -> Duration {
        let worked = self.0.worked.load(Ordering::Relaxed).max(1);
        let took = self.0.took.load(Ordering::Relaxed).max(worked);
        let stretched = promise.saturating_mul(u32::try_from(took).unwrap_or(u32::MAX))
            / u32::try_from(worked).unwrap_or(u32::MAX);
        stretched.min(promise * MOST)
    }
}

impl Drop for Pace {
    fn drop(&mut self) {
        self.0.over.store(true, Ordering::Relaxed);
    }
}

/// How long one piece of work takes.
fn work() -> Duration {
    let (began, due) = (Instant::now(), processor_time() + WORK);
    while processor_time() < due {
        std::hint::spin_loop();
    }
    began.elapsed()
}

/// How much later than asked for the pause ends.
fn rest() -> Duration {
    let began = Instant::now();
    std::thread::park_timeout(PAUSE);
    began.elapsed().saturating_sub(PAUSE)
}

fn processor_time() -> Duration {
    let mut now = libc::timespec {
        tv_sec: 0,
        tv_nsec: 0,
    };
    // SAFETY: the pointer is to a whole timespec that lives during the call
    let read = unsafe { libc::clock_gettime(libc::CLOCK_THREAD_CPUTIME_ID, &raw mut now) };
    assert_eq!(read, 0, "{}", std::io::Error::last_os_error());
    let seconds = u64::try_from(now.tv_sec).unwrap_or_default();
    Duration::new(seconds, u32::try_from(now.tv_nsec).unwrap_or_default())
}

fn micros(time: Duration) -> u64 {
    u64::try_from(time.as_micros()).unwrap_or(u64::MAX)
}
