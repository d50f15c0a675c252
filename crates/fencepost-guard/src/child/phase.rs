//! How far the command of a run is.

/// What the keeper was told to run. The command may act before the wrapper hears that it has started.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum ChildPhase {
    /// Nothing: no command was ordered yet, or the one before has ended and another may follow.
    Idle,
    /// The command that runs before the child.
    Preparing(TreeState),
    /// The child. In the terminal's foreground, ctrl-C reaches it alone.
    Working { tree: TreeState, foreground: bool },
}

/// How the processes of a command stand, as far as the keeper has reported.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum TreeState {
    /// Ordered, or running.
    Running,
    /// Stopped by job control.
    Stopped,
    /// Being ended: the keeper reports nothing until it is empty.
    Ending,
    /// The keeper acted on the deadline: it froze the tree, or began to end it.
    AtDeadline,
    /// The same of a tree that was being ended already.
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

    /// The same command, with its tree as it stands now.
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

    /// The keeper acted on the deadline.
    pub fn reach_deadline(self) -> Self {
        match self {
            Self::Running | Self::Stopped | Self::AtDeadline => Self::AtDeadline,
            Self::Ending | Self::EndingAtDeadline => Self::EndingAtDeadline,
        }
    }

    /// There is another deadline, which the keeper has not acted on.
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
