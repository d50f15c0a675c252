//! The phase of a run's command.

/// The command that the keeper was ordered to run. It may act before the keeper reports that it has started.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum ChildPhase {
    /// No command: none was ordered yet, or the last one has ended and another may follow.
    Idle,
    /// The command that runs before the child.
    Preparing(TreeState),
    /// The child. In the terminal's foreground, ctrl-C reaches only the child.
    Working { tree: TreeState, foreground: bool },
}

/// The state of a command's processes, as last reported by the keeper.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum TreeState {
    /// Ordered, or running.
    Running,
    /// Stopped by job control.
    Stopped,
    /// Being terminated: the keeper reports nothing until no process is left.
    Ending,
    /// The keeper acted on the deadline: it froze the tree, or began to terminate it.
    AtDeadline,
    /// The keeper acted on the deadline of a tree that was being terminated already.
    EndingAtDeadline,
}

impl ChildPhase {
    pub fn is_preparing(self) -> bool {
        matches!(self, Self::Preparing(_))
    }

    pub fn is_foreground(self) -> bool {
        matches!(self, Self::Working { foreground: true, .. })
    }

    pub fn tree(self) -> Option<TreeState> {
        match self {
            Self::Idle => None,
            Self::Preparing(tree) | Self::Working { tree, .. } => Some(tree),
        }
    }

    /// The same command with a new state of its tree.
    pub fn with(self, change: fn(TreeState) -> TreeState) -> Self {
        match self {
            Self::Idle => Self::Idle,
            Self::Preparing(tree) => Self::Preparing(change(tree)),
            Self::Working { tree, foreground } => Self::Working { tree: change(tree), foreground },
        }
    }
}

impl TreeState {
    pub fn stop(self) -> Self {
        if self == Self::Running { Self::Stopped } else { self }
    }

    pub fn go_on(self) -> Self {
        if self == Self::Stopped { Self::Running } else { self }
    }

    pub fn end(self) -> Self {
        match self {
            Self::Running | Self::Stopped | Self::Ending => Self::Ending,
            Self::AtDeadline | Self::EndingAtDeadline => Self::EndingAtDeadline,
        }
    }

    /// Notes that the keeper acted on the deadline.
    pub fn reach_deadline(self) -> Self {
        match self {
            Self::Running | Self::Stopped | Self::AtDeadline => Self::AtDeadline,
            Self::Ending | Self::EndingAtDeadline => Self::EndingAtDeadline,
        }
    }

    /// Notes a new deadline, which the keeper has not acted on.
    pub fn renew(self) -> Self {
        match self {
            Self::Running | Self::Stopped | Self::Ending => self,
            Self::AtDeadline => Self::Running,
            Self::EndingAtDeadline => Self::Ending,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_tree_that_is_being_ended_stays_so_whatever_happens_to_its_deadline() {
        let ending = TreeState::Running.reach_deadline().end();
        assert_eq!((ending, ending.renew()), (TreeState::EndingAtDeadline, TreeState::Ending));
        assert_eq!(TreeState::Stopped.end().go_on().stop().reach_deadline().renew(), TreeState::Ending);
    }

    #[test]
    fn a_renewed_tree_is_watched_again() {
        assert_eq!(TreeState::Running.reach_deadline().renew(), TreeState::Running);
        assert_eq!(TreeState::Stopped.renew(), TreeState::Stopped);
    }

    #[test]
    fn an_idle_phase_has_no_tree_to_change() {
        assert_eq!(ChildPhase::Idle.with(TreeState::end).tree(), None);
        let working = ChildPhase::Working { tree: TreeState::Running, foreground: true };
        assert_eq!(working.with(TreeState::stop), ChildPhase::Working { tree: TreeState::Stopped, foreground: true });
    }
}
