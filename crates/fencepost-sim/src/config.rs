//! The bounds of one exploration: how long it lasts, what clocks there are, and how much the adversary may do.

use std::time::Duration;

/// One corner of the world, to be explored completely.
#[derive(Clone, Copy, Debug)]
pub struct LeaseSetting {
    pub name: &'static str,
    pub ttl: Duration,
    pub grace: Duration,
    /// True time stops at every multiple of this, and at every timer in between.
    pub quantum_ms: u64,
    /// True time never passes this.
    pub horizon_ms: u64,
    /// Whether the store has a clock. Without one, observers go by what they have seen themselves.
    pub store_has_clock: bool,
    /// Whether the store begins with nothing in it, not even its identity.
    pub store_is_new: bool,
    pub clocks: [HostClock; 2],
    /// Whether children end by themselves.
    pub children_end: bool,
    /// How long each run waits for a lease that is held.
    pub wait: Option<Duration>,
    /// The commands that the runs are, one after the other, on a fenced resource. Empty: the runs of a job.
    pub commands: &'static [Fenced],
    pub budget: LeaseBudget,
    pub flaw: Option<LeaseFlaw>,
}

/// A command on a fenced resource.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Fenced {
    /// The token of the run that it is run for.
    pub token: u64,
    /// Whether the writer named it, so that it runs once under its token.
    pub is_named: bool,
}

/// How a host's own clocks relate to true time.
#[derive(Clone, Copy, Debug)]
pub struct HostClock {
    /// What its boot clock shows at the beginning. Two hosts never agree, so that no comparison goes unpunished.
    pub boot_ms: u64,
    /// How many milliseconds it counts in a true second.
    pub rate: u64,
}

/// How often each kind of misfortune may still happen.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct LeaseBudget {
    /// Runs that are started, on either host.
    pub triggers: u8,
    /// Wrappers, keepers or whole hosts that die.
    pub crashes: u8,
    /// Hosts that fall asleep.
    pub sleeps: u8,
    /// Wrappers that are stopped while the rest of their host goes on.
    pub stalls: u8,
    /// Calls that take their time, each as long as it likes. All others are answered at once.
    pub delays: u8,
    /// Calls whose fate stays unknown: the answer is lost, or the request is late.
    pub losses: u8,
    /// Calls that certainly did nothing.
    pub refusals: u8,
    /// Swaps of the record by another client: a record by hand, or a request that the holder stop.
    pub foreign: u8,
    /// Restores of an earlier state of the store.
    pub rollbacks: u8,
}

/// A known bug of the shell or of a store, as a switch of the world. The bugs of the rules are in
/// [`mutants`](crate::mutants).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LeaseFlaw {
    /// A claim is written without comparing versions.
    PlainWrite,
    /// The boot clock stands still while its host sleeps.
    ClockStopsInSleep,
    /// Nothing enforces the deadline while a store call is out.
    BlockedLoop,
    /// A tree that wakes late runs on while the wrapper finds out whose lease it is.
    NoFreeze,
    /// The holder counts as dead as soon as its wrapper is, though its tree is still being ended.
    KeeperForgotten,
    /// Processes are looked for on the host that asks, as two containers on one database would.
    ForeignProcesses,
    /// The lease is released when TERM is sent, not when the tree is gone.
    EarlyRelease,
    /// A skip is counted in the lease itself.
    SkipsInRecord,
    /// What an observer saw is forgotten when its process ends.
    NoSightings,
    /// A restored store gives out its version numbers again.
    VersionsRepeat,
    /// A release removes the record.
    ReleaseDeletes,
    /// The driver hands over a lost swap as one whose record is gone.
    LostSwapIsLostLease,
    /// The driver hands over a lost swap as a won one.
    LostSwapIsWon,
    /// The driver hands over a swap of unknown fate as a won one.
    UnknownIsWon,
    /// The driver hands over a swap of unknown fate as one whose record is gone.
    UnknownIsLost,
    /// The driver counts a sighting from before the read.
    ObserverFromRequest,
    /// The fence is judged when a command is started instead of in its claim.
    FenceOutside,
    /// A takeover leaves the fence of the command that died.
    TakeoverKeepsFence,
}

impl LeaseSetting {
    /// The usual proportions: renewal after one quantum, TERM after 47 seconds, dead before 57, expired at 60.
    pub const fn new(name: &'static str, budget: LeaseBudget) -> Self {
        Self {
            name,
            ttl: Duration::from_secs(60),
            grace: Duration::from_secs(10),
            quantum_ms: 20_000,
            horizon_ms: 100_000,
            store_has_clock: true,
            store_is_new: false,
            clocks: [HostClock { boot_ms: 1_000_000, rate: 1000 }, HostClock { boot_ms: 5_000_000, rate: 1000 }],
            children_end: true,
            wait: None,
            commands: &[],
            budget,
            flaw: None,
        }
    }

    pub const fn without_clock(mut self) -> Self {
        self.store_has_clock = false;
        self
    }

    pub const fn until(mut self, horizon_ms: u64) -> Self {
        self.horizon_ms = horizon_ms;
        self
    }

    pub const fn on_new_store(mut self) -> Self {
        self.store_is_new = true;
        self
    }

    /// The first host's clock loses a fiftieth and the second's gains as much: far more than real clocks do.
    pub const fn drifting(mut self) -> Self {
        self.clocks[0].rate = 980;
        self.clocks[1].rate = 1020;
        self
    }

    /// Children run until they are ended.
    pub const fn endless(mut self) -> Self {
        self.children_end = false;
        self
    }

    /// A tenth of the usual lengths.
    pub const fn short(mut self) -> Self {
        self.ttl = Duration::from_secs(6);
        self.grace = Duration::from_secs(1);
        self.quantum_ms = 2_000;
        self
    }

    pub const fn waiting(mut self, seconds: u64) -> Self {
        self.wait = Some(Duration::from_secs(seconds));
        self
    }

    pub const fn on_resource(mut self, commands: &'static [Fenced]) -> Self {
        self.commands = commands;
        self
    }

    /// The command of a run, on a resource. Runs beyond the list have newer tokens.
    pub fn command(&self, run: u8) -> Option<Fenced> {
        let newer = || Fenced { token: 100 + u64::from(run), is_named: false };
        (!self.commands.is_empty()).then(|| self.commands.get(usize::from(run) - 1).copied().unwrap_or_else(newer))
    }

    pub const fn with(mut self, flaw: LeaseFlaw) -> Self {
        self.flaw = Some(flaw);
        self
    }

    pub fn has(&self, flaw: LeaseFlaw) -> bool {
        self.flaw == Some(flaw)
    }
}
