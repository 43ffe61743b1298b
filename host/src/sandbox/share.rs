//! Whose turn it is: a fair share of the processor for every tenant, plugin and call.
//!
//! A guest runs on one of as many slots as there are worker threads, and holds it for one turn at a time. Where slots are
//! short, the next one goes to the tenant that was served longest ago, there to the plugin that was served longest ago, and
//! there to the call that has waited longest. So sixteen calls that compute without end take half of the turns from one
//! that does, if that one is another plugin's or another tenant's, and not sixteen of seventeen.
//!
//! What this does not bound is how long a turn lasts: that is [`turn`](super::turn)'s affair. A guest that waits for the
//! network, a file or a clock holds no slot, and a call that waits before its first turn is over takes and gives back a free
//! slot without being entered anywhere.

use std::collections::{HashMap, VecDeque};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::Waker;
use std::time::{Duration, Instant};

/// How long a slot that was handed over may lie idle. Whoever holds the future of a call may stop polling it, for instance
/// to wait for something else first, and its slot must not wait with it. A worker that is busy with guests comes round in
/// milliseconds.
pub(super) const LAPSE: Duration = Duration::from_millis(20);

/// The slots of one sandbox, and who waits for one.
#[derive(Debug, Default)]
pub(super) struct Share(Mutex<Lines>);

#[derive(Debug, Default)]
struct Lines {
    slots: usize,
    free: usize,
    /// Calls that wait.
    waiting: usize,
    /// Counts what was handed out, and so tells what was served longer ago.
    clock: u64,
    /// Those that have a call in line, or had one that still runs: a handful, at most one for each running call.
    tenants: Vec<Tenant>,
    /// Calls that wait, and those that were handed a slot and have not taken it yet.
    calls: HashMap<u64, Entry>,
    next_call: u64,
}

#[derive(Debug)]
struct Tenant {
    name: Arc<str>,
    served: u64,
    plugins: Vec<Plugin>,
}

#[derive(Debug)]
struct Plugin {
    name: Arc<str>,
    served: u64,
    /// Calls that were in line at some time and have not ended.
    members: usize,
    waiting: VecDeque<u64>,
}

/// A call in line.
#[derive(Debug)]
struct Entry {
    waker: Waker,
    /// When it was handed a slot, where it was.
    granted: Option<Instant>,
}

impl Share {
    fn fit(&self, workers: usize) {
        let mut lines = self.lines();
        let more = workers.saturating_sub(lines.slots);
        lines.slots += more;
        lines.free += more;
        drop(lines);
        self.hand_out();
    }

    fn lines(&self) -> MutexGuard<'_, Lines> {
        // Nothing in here panics between two changes that belong together.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Hands the free slots to those who are next.
    fn hand_out(&self) {
        // Woken outside of the lock: waking may run code of whoever waits.
        loop {
            let next = self.lines().grant(Instant::now());
            let Some(waker) = next else { return };
            waker.wake();
        }
    }
}

impl Lines {
    /// Hands a free slot to the call that is next, and says whom to wake.
    fn grant(&mut self, now: Instant) -> Option<Waker> {
        if self.free == 0 || self.waiting == 0 {
            return None;
        }
        let tenant = self
            .tenants
            .iter_mut()
            .filter(|tenant| tenant.is_waiting())
            .min_by_key(|tenant| tenant.served)?;
        let plugin = tenant
            .plugins
            .iter_mut()
            .filter(|plugin| !plugin.waiting.is_empty())
            .min_by_key(|plugin| plugin.served)?;
        let call = plugin.waiting.pop_front()?;
        self.clock += 1;
        tenant.served = self.clock;
        plugin.served = self.clock;
        self.waiting -= 1;
        self.free -= 1;
        let entry = self.calls.get_mut(&call)?;
        entry.granted = Some(now);
        Some(entry.waker.clone())
    }

    /// Takes back slots that were handed over and not taken for [`LAPSE`]. Whoever had them comes back to the line when it
    /// is polled again.
    fn reclaim(&mut self, now: Instant) {
        let before = self.calls.len();
        self.calls.retain(|_, entry| {
            entry
                .granted
                .is_none_or(|granted| now.saturating_duration_since(granted) < LAPSE)
        });
        self.free += before - self.calls.len();
    }

    fn plugin(&mut self, tenant: &str, plugin: &str) -> Option<&mut Plugin> {
        let tenant = self.tenants.iter_mut().find(|line| &*line.name == tenant)?;
        let mut plugins = tenant.plugins.iter_mut();
        plugins.find(|line| &*line.name == plugin)
    }

    /// One member more in the line of a plugin of a tenant. A new line counts as served now: whoever leaves and comes
    /// again gains nothing by it.
    fn join(&mut self, tenant: &Arc<str>, plugin: &Arc<str>) {
        let served = self.clock;
        let at = self.tenants.iter().position(|line| line.name == *tenant);
        let at = at.unwrap_or_else(|| {
            self.tenants.push(Tenant {
                name: tenant.clone(),
                served,
                plugins: Vec::new(),
            });
            self.tenants.len() - 1
        });
        let plugins = &mut self.tenants[at].plugins;
        match plugins.iter_mut().find(|line| line.name == *plugin) {
            Some(line) => line.members += 1,
            None => plugins.push(Plugin {
                name: plugin.clone(),
                served,
                members: 1,
                waiting: VecDeque::new(),
            }),
        }
    }

    /// One member less; the last one closes the line.
    fn leave(&mut self, tenant: &str, plugin: &str) {
        let Some(at) = self.tenants.iter().position(|line| &*line.name == tenant) else {
            return;
        };
        let plugins = &mut self.tenants[at].plugins;
        if let Some(index) = plugins.iter().position(|line| &*line.name == plugin) {
            plugins[index].members -= 1;
            if plugins[index].members == 0 {
                plugins.swap_remove(index);
            }
        }
        if plugins.is_empty() {
            self.tenants.swap_remove(at);
        }
    }
}

impl Tenant {
    fn is_waiting(&self) -> bool {
        self.plugins.iter().any(|plugin| !plugin.waiting.is_empty())
    }
}

/// The place of one call among all, for as long as the call lives.
#[derive(Debug)]
pub(super) struct Seat {
    share: Arc<Share>,
    tenant: Arc<str>,
    plugin: Arc<str>,
    /// Whether the call was ever in line, and so is a member of its plugin's.
    is_member: bool,
    /// Its number, where it is in line or was handed a slot.
    call: Option<u64>,
    has_slot: bool,
}

impl Seat {
    pub(super) fn new(share: Arc<Share>, tenant: Arc<str>, plugin: Arc<str>) -> Self {
        Self {
            share,
            tenant,
            plugin,
            is_member: false,
            call: None,
            has_slot: false,
        }
    }

    /// Makes as many slots as `workers`, where there are fewer: as many guests as can run at a time.
    pub(super) fn fit(&self, workers: usize) {
        self.share.fit(workers);
    }

    /// Whether the call is in line, or was handed a slot that it has not taken.
    pub(super) fn is_waiting(&self) -> bool {
        self.call.is_some()
    }

    /// Whether the call has a slot now, for one turn. Where it has not, it is in line, and `waker` is woken when it is next.
    pub(super) fn take(&mut self, waker: &Waker) -> bool {
        let share = self.share.clone();
        let mut lines = share.lines();
        if let Some(call) = self.call {
            match lines.calls.get_mut(&call) {
                Some(entry) if entry.granted.is_none() => {
                    entry.waker.clone_from(waker);
                    return false;
                }
                Some(_) => {
                    lines.calls.remove(&call);
                    self.call = None;
                    self.has_slot = true;
                    return true;
                }
                // It came too late: the slot was passed on.
                None => self.call = None,
            }
        }
        if lines.free > 0 && lines.waiting == 0 {
            lines.free -= 1;
            self.has_slot = true;
            return true;
        }
        self.queue(&mut lines, waker);
        drop(lines);
        share.hand_out();
        false
    }

    /// The turn is over, and the guest has nothing to compute until it is woken.
    pub(super) fn rest(&mut self) {
        if std::mem::take(&mut self.has_slot) {
            self.share.lines().free += 1;
            self.share.hand_out();
        }
    }

    /// The turn is over, and the guest wants another one. The call is in line before its slot goes to whoever is next, which
    /// may be itself; `waker` is woken when it is. The slot is then kept for it: were it free until the call comes, whoever
    /// the runtime polls first would take it, and the order would be the runtime's.
    pub(super) fn pass(&mut self, waker: &Waker) {
        let share = self.share.clone();
        let mut lines = share.lines();
        if std::mem::take(&mut self.has_slot) {
            lines.free += 1;
        }
        self.queue(&mut lines, waker);
        drop(lines);
        share.hand_out();
    }

    /// Slots that others were handed and have left lying go to whoever is next.
    pub(super) fn hurry(&self) {
        self.share.lines().reclaim(Instant::now());
        self.share.hand_out();
    }

    fn queue(&mut self, lines: &mut Lines, waker: &Waker) {
        if !std::mem::replace(&mut self.is_member, true) {
            lines.join(&self.tenant, &self.plugin);
        }
        let call = lines.next_call;
        lines.next_call += 1;
        if let Some(line) = lines.plugin(&self.tenant, &self.plugin) {
            line.waiting.push_back(call);
            lines.waiting += 1;
            lines.calls.insert(
                call,
                Entry {
                    waker: waker.clone(),
                    granted: None,
                },
            );
            self.call = Some(call);
        }
    }
}

impl Drop for Seat {
    fn drop(&mut self) {
        let mut lines = self.share.lines();
        if self.has_slot {
            lines.free += 1;
        }
        if let Some(call) = self.call
            && let Some(entry) = lines.calls.remove(&call)
        {
            if entry.granted.is_some() {
                lines.free += 1;
            } else if let Some(line) = lines.plugin(&self.tenant, &self.plugin) {
                line.waiting.retain(|waiting| *waiting != call);
                lines.waiting -= 1;
            }
        }
        if self.is_member {
            lines.leave(&self.tenant, &self.plugin);
        }
        drop(lines);
        self.share.hand_out();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Calls without end that compete for the slots.
    struct Race {
        share: Arc<Share>,
        seats: Vec<(Seat, u64)>,
    }

    impl Race {
        fn new(slots: usize, calls: &[(&str, &str, usize)]) -> Self {
            let share = Arc::new(Share::default());
            share.fit(slots);
            let seat =
                |tenant: &str, plugin: &str| Seat::new(share.clone(), tenant.into(), plugin.into());
            let seats = calls
                .iter()
                .flat_map(|(tenant, plugin, count)| (0..*count).map(move |_| (*tenant, *plugin)))
                .map(|(tenant, plugin)| (seat(tenant, plugin), 0))
                .collect();
            Self { share, seats }
        }

        /// Polls the calls in turn, as a runtime does, `rounds` times. As many turns go on at the same time as there are
        /// `workers`: each ends when its worker polls the next call.
        fn run(&mut self, workers: usize, rounds: usize) {
            let waker = Waker::noop();
            let mut running = VecDeque::new();
            let count = self.seats.len();
            for index in (0..rounds).flat_map(|_| 0..count) {
                if running.len() == workers
                    && let Some(ended) = running.pop_front()
                {
                    let (seat, _): &mut (Seat, u64) = &mut self.seats[ended];
                    seat.pass(waker);
                }
                let (seat, turns) = &mut self.seats[index];
                if !seat.has_slot && seat.take(waker) {
                    *turns += 1;
                    running.push_back(index);
                }
            }
            for ended in running {
                self.seats[ended].0.pass(waker);
            }
        }

        /// The part of all turns that a plugin of a tenant had, in percent.
        fn percent(&self, tenant: &str, plugin: &str) -> u64 {
            let turns = |is_counted: &dyn Fn(&Seat) -> bool| -> u64 {
                let counted = self.seats.iter().filter(|(seat, _)| is_counted(seat));
                counted.map(|(_, turns)| turns).sum()
            };
            let all = turns(&|_| true);
            turns(&|seat| &*seat.tenant == tenant && &*seat.plugin == plugin) * 100 / all
        }
    }

    #[test]
    fn one_call_of_a_plugin_gets_as_much_as_sixteen_of_another() {
        for slots in [1, 2] {
            let mut race = Race::new(slots, &[("", "a", 16), ("", "b", 1)]);
            race.run(slots, 1_000);
            let percent = race.percent("", "b");
            assert!((48..=51).contains(&percent), "{slots} slots: {percent} %");
            // Those of one plugin come in order, and so get the same.
            let turns: Vec<u64> = race.seats[..16].iter().map(|(_, turns)| *turns).collect();
            let (least, most) = (turns.iter().min().unwrap(), turns.iter().max().unwrap());
            assert!(most - least <= 2, "{turns:?}");
        }
    }

    #[test]
    fn tenants_share_before_their_plugins_do() {
        let calls = [("x", "a", 8), ("x", "b", 1), ("y", "a", 1)];
        let mut race = Race::new(1, &calls);
        race.run(1, 1_000);
        let percents = calls.map(|(tenant, plugin, _)| race.percent(tenant, plugin));
        for (percent, expected) in percents.into_iter().zip([25, 25, 50]) {
            assert!(percent.abs_diff(expected) <= 1, "{percents:?}");
        }
    }

    /// A plugin whose calls are short has a new one at every turn, and no more turns for it.
    #[test]
    fn whoever_leaves_and_comes_again_is_not_served_first() {
        let waker = Waker::noop();
        let mut race = Race::new(1, &[("", "a", 1)]);
        let (mut short, mut long) = (0, 0);
        for _ in 0..100 {
            let mut seat = Seat::new(race.share.clone(), "".into(), "b".into());
            while !seat.take(waker) {
                if race.seats[0].0.take(waker) {
                    long += 1;
                    race.seats[0].0.pass(waker);
                }
            }
            short += 1;
            // The other is in line when this one ends.
            race.seats[0].0.take(waker);
        }
        assert!(
            long >= short - 1,
            "{long} turns of one, {short} of the other"
        );
    }

    #[test]
    fn a_short_call_is_entered_nowhere_and_nothing_is_left_behind() {
        let waker = Waker::noop();
        let mut race = Race::new(2, &[("", "a", 2), ("", "b", 2)]);
        assert!(race.seats[0].0.take(waker));
        race.seats[0].0.rest();
        assert!(race.share.lines().tenants.is_empty());
        race.run(2, 10);
        // One of each kind: with a slot, in line, handed a slot, and at rest.
        assert!(race.seats[0].0.take(waker) || race.seats[1].0.take(waker));
        race.seats.clear();
        let lines = race.share.lines();
        assert_eq!(
            (
                lines.slots,
                lines.free,
                lines.waiting,
                lines.calls.len(),
                lines.tenants.len()
            ),
            (2, 2, 0, 0, 0)
        );
    }

    #[test]
    fn a_slot_that_is_not_taken_goes_to_the_next() {
        let waker = Waker::noop();
        let mut race = Race::new(1, &[("", "a", 1), ("", "b", 1), ("", "c", 1)]);
        let [a, b, c] = &mut race.seats[..] else {
            panic!("three calls")
        };
        assert!(a.0.take(waker) && !b.0.take(waker) && !c.0.take(waker));
        let now = Instant::now();
        a.0.rest();
        // It is now the turn of `b`, which does not come; `c` takes it only once that has lapsed.
        race.share.lines().reclaim(now);
        race.share.hand_out();
        assert!(!c.0.take(waker));
        race.share.lines().reclaim(Instant::now() + LAPSE);
        race.share.hand_out();
        assert!(c.0.take(waker));
        // And `b` is in line again when it comes.
        assert!(!b.0.take(waker));
        c.0.rest();
        assert!(b.0.take(waker));
        assert_eq!(race.share.lines().slots, 1);
    }

    #[test]
    fn more_workers_make_more_slots_and_fewer_take_none_away() {
        let share = Share::default();
        for (workers, slots) in [(2, 2), (1, 2), (4, 4)] {
            share.fit(workers);
            let lines = share.lines();
            assert_eq!((lines.slots, lines.free), (slots, slots));
        }
    }
}
