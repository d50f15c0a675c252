//! A lease held until standard input ends (`lease hold`).

use std::io::{self, Read};
use std::os::fd::{AsFd, BorrowedFd};

use fencepost_core::run::{Exit, Grant, Input, Output};
use fencepost_core::time::Boot;
use nix::errno::Errno;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};

use crate::drive::{GuardedWork, Note};

/// Standard input in place of a child: the lease is held while it is open.
#[derive(Debug)]
pub struct Stdin {
    input: io::Stdin,
    deadline: Option<Boot>,
    is_open: bool,
    granted: Option<Grant>,
}

impl Stdin {
    pub fn new() -> Self {
        Self { input: io::stdin(), deadline: None, is_open: false, granted: None }
    }

    /// The grant since the last call.
    pub fn take_grant(&mut self) -> Option<Grant> {
        self.granted.take()
    }

    fn end(&mut self) -> Vec<Input> {
        if !std::mem::take(&mut self.is_open) {
            return Vec::new();
        }
        vec![Input::ChildEnded(Exit::Code(0)), Input::TreeEmpty { escaped: Vec::new() }]
    }

    fn is_readable(&self) -> bool {
        let mut fds = [PollFd::new(self.input.as_fd(), PollFlags::POLLIN)];
        match poll(&mut fds, PollTimeout::ZERO) {
            Ok(ready) => ready > 0,
            Err(Errno::EINTR) => false,
            Err(_) => true,
        }
    }
}

impl Default for Stdin {
    fn default() -> Self {
        Self::new()
    }
}

impl GuardedWork for Stdin {
    fn perform(&mut self, output: Output, _tell: &mut dyn FnMut(Note)) -> Vec<Input> {
        match output {
            Output::Spawn { grant } => {
                self.deadline = grant.as_ref().map(|grant| grant.deadline);
                self.granted = grant;
                self.is_open = true;
                vec![Input::Spawned]
            }
            Output::Extend(deadline) | Output::Thaw(deadline) => {
                self.deadline = Some(deadline);
                Vec::new()
            }
            Output::Stop | Output::Kill | Output::Forward(_) => self.end(),
            // A held lease has no prepare command and no upstreams.
            Output::Prepare { .. } | Output::Inspect { .. } | Output::Survey => Vec::new(),
            Output::Call(_) | Output::Consult(_) | Output::Tell(_) | Output::Finish(_) => Vec::new(),
        }
    }

    fn hear(&mut self, _tell: &mut dyn FnMut(Note)) -> Vec<Input> {
        if !self.is_open || !self.is_readable() {
            return Vec::new();
        }
        match self.input.lock().read(&mut [0; 4096]) {
            Ok(0) | Err(_) => self.end(),
            Ok(_) => Vec::new(),
        }
    }

    fn signalled(&mut self, _signal: i32, _tell: &mut dyn FnMut(Note)) -> Vec<Input> {
        Vec::new()
    }

    /// There is no keeper: the caller learns of the loss by this process's exit, before the lease can pass on.
    fn check(&mut self, deadline: Option<Boot>, now: Boot, _tell: &mut dyn FnMut(Note)) -> Vec<Input> {
        if deadline.is_none_or(|deadline| now < deadline) || !self.is_open {
            return Vec::new();
        }
        let mut inputs = vec![Input::DeadlineReached];
        inputs.extend(self.end());
        inputs
    }

    fn due(&self, deadline: Boot) -> Option<Boot> {
        self.is_open.then_some(deadline)
    }

    fn fds(&self) -> Vec<BorrowedFd<'_>> {
        self.is_open.then(|| self.input.as_fd()).into_iter().collect()
    }
}
