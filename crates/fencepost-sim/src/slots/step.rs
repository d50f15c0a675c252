//! What may happen next in the world of slots.

use std::fmt;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SlotStep {
    Trigger {
        host: u8,
    },
    /// The swap arrives, and so does its answer.
    Serve {
        host: u8,
    },
    /// The answer does not. The swap did, or not.
    Lose {
        host: u8,
        landed: bool,
    },
    Crash {
        host: u8,
    },
    /// The slot that the trigger waited for has come.
    Wake {
        host: u8,
    },
    /// The item of work is done.
    Effect {
        host: u8,
    },
    End {
        host: u8,
        well: bool,
    },
    /// The run ends before its command starts: the barrier halts it, or its keeper dies.
    Halt {
        host: u8,
    },
    /// The command ends well, while the clock is ahead for a moment.
    EndAhead {
        host: u8,
    },
    Tick,
    Pause,
    Resume,
    /// The job is forgotten.
    Forget,
}

impl fmt::Display for SlotStep {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Trigger { host } => write!(f, "host {host} is triggered, and reads"),
            Self::Serve { host } => write!(f, "the swap of host {host} is made"),
            Self::Lose { host, landed: true } => write!(f, "the swap of host {host} is made, its answer lost"),
            Self::Lose { host, landed: false } => write!(f, "the swap of host {host} is lost, it does not know"),
            Self::Crash { host } => write!(f, "the processes of host {host} die"),
            Self::Effect { host } => write!(f, "the command of host {host} has its effect"),
            Self::End { host, well: true } => write!(f, "the command of host {host} ends well"),
            Self::End { host, well: false } => write!(f, "the command of host {host} fails"),
            Self::Wake { host } => write!(f, "the slot has come that host {host} waits for"),
            Self::Halt { host } => write!(f, "the run of host {host} ends before its command starts"),
            Self::EndAhead { host } => write!(f, "the command of host {host} ends well, its clock ahead"),
            Self::Tick => write!(f, "time passes"),
            Self::Pause => write!(f, "the job is paused"),
            Self::Forget => write!(f, "the job is forgotten"),
            Self::Resume => write!(f, "the job is resumed"),
        }
    }
}
