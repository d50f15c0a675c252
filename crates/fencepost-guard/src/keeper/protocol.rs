//! The protocol between wrapper and keeper: length-prefixed JSON frames over a socket pair.

use std::ffi::OsString;
use std::io::{self, Read, Write};
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::net::UnixStream;
use std::time::Duration;

use fencepost_core::time::{Boot, as_millis};
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

/// An order from the wrapper to the keeper.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum KeeperOrder {
    /// Start the job; answered by `Spawned`, `NotSpawned` or `Stale`.
    Spawn(Box<Spawn>),
    /// A job will follow soon.
    GetReady,
    /// The lease was renewed: the tree may live until then. Has no effect after `DeadlineReached`.
    Deadline(Boot),
    /// Pass a signal on to the job's process group.
    Signal(i32),
    /// Terminate the tree: TERM now, KILL after the grace or just before the deadline, whichever comes first.
    Stop,
    /// Kill the tree now.
    Kill,
    /// Send STOP to the tree; answered by `Frozen`. Has no effect on a tree that is being terminated.
    Freeze,
    /// The lease is confirmed: continue the frozen tree, until this new deadline.
    Thaw(Boot),
}

/// The command that the keeper starts.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Spawn {
    /// The job's name in messages that the keeper writes itself.
    pub label: String,
    pub argv: Vec<OsString>,
    /// Variables to set, or to remove if there is no value, in the wrapper's environment.
    pub env: Vec<(OsString, Option<OsString>)>,
    pub cwd: Option<OsString>,
    /// A file to append standard output to; inherited otherwise.
    pub stdout: Option<OsString>,
    /// A file to append standard error to, which may be the same one; inherited otherwise.
    pub stderr: Option<OsString>,
    /// Without a deadline (a run without a lease), only an order or the wrapper's death terminates the tree.
    pub deadline: Option<Boot>,
    #[serde(with = "as_millis")]
    pub grace: Duration,
    /// Standard input is a terminal and the wrapper is in its foreground: the job becomes the foreground group.
    pub foreground: bool,
    /// Left-over processes are not terminated.
    pub leave_children: bool,
    /// Another command follows: inherited descriptors stay open, and this command's input is empty.
    pub more_to_come: bool,
    /// The run is only observed: the job continues if its wrapper or its keeper dies.
    pub observed: bool,
}

/// A report from the keeper to the wrapper.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Report {
    Spawned {
        pid: i32,
    },
    NotSpawned {
        step: SpawnStep,
        errno: i32,
        text: String,
    },
    /// The order to start the job arrived after its deadline. Nothing was started; another order may follow.
    Stale,
    /// The job itself was stopped, by ctrl-Z for example, and not by the keeper.
    ChildStopped {
        signal: i32,
    },
    /// The stopped job runs again. Missing if the job ended before the keeper looked.
    ChildContinued,
    /// The tree is stopped until `Thaw`, `Stop` or `Kill`.
    Frozen,
    /// No renewal came in time: TERM was sent; KILL follows before the deadline.
    DeadlineReached,
    ChildEnded {
        exit: JobExit,
    },
    /// The job ended and left these processes; they are being terminated.
    LeftOvers {
        processes: Vec<NamedProcess>,
    },
    /// The tree is empty except for processes that could not be killed. After this last report the keeper exits,
    /// unless another command follows.
    Empty {
        escaped: Vec<NamedProcess>,
    },
}

/// The step of a spawn that failed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum SpawnStep {
    Directory,
    Output,
    Command,
}

/// How the job ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum JobExit {
    Code(i32),
    Signal(i32),
}

/// A process as shown to people.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct NamedProcess {
    pub pid: i32,
    pub uid: u32,
    pub name: String,
}

/// The result of reading from the channel.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum ChannelRead<T> {
    Message(T),
    Nothing,
    /// The other side is gone or sent an invalid frame.
    Closed,
}

/// One end of the channel. Reading and writing never block: the other side may be stopped for hours.
#[derive(Debug)]
pub(crate) struct Channel {
    socket: UnixStream,
    incoming: Vec<u8>,
    outgoing: Vec<u8>,
}

impl Channel {
    pub(crate) fn pair() -> io::Result<(Self, Self)> {
        let (one, other) = UnixStream::pair()?;
        Ok((Self::new(one)?, Self::new(other)?))
    }

    fn new(socket: UnixStream) -> io::Result<Self> {
        socket.set_nonblocking(true)?;
        Ok(Self { socket, incoming: Vec::new(), outgoing: Vec::new() })
    }

    pub(crate) fn fd(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }

    /// Queues a message; [`flush`](Self::flush) sends it.
    pub(crate) fn push(&mut self, message: &impl Serialize) -> io::Result<()> {
        let body = serde_json::to_vec(message)?;
        let length = u32::try_from(body.len()).ok().filter(|&length| length <= FRAME_MAX_BYTES);
        let length = length.ok_or_else(|| io::Error::new(io::ErrorKind::InvalidInput, "the message is too long"))?;
        self.outgoing.extend_from_slice(&length.to_be_bytes());
        self.outgoing.extend_from_slice(&body);
        Ok(())
    }

    /// The number of queued bytes.
    pub(crate) fn backlog(&self) -> usize {
        self.outgoing.len()
    }

    /// Sends as much as the socket accepts now.
    pub(crate) fn flush(&mut self) -> io::Result<()> {
        while !self.outgoing.is_empty() {
            match self.socket.write(&self.outgoing) {
                Ok(sent) => drop(self.outgoing.drain(..sent)),
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Ok(()),
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }

    /// The next message, if it has arrived completely.
    pub(crate) fn receive<T: DeserializeOwned>(&mut self) -> ChannelRead<T> {
        loop {
            match self.take_frame() {
                Ok(Some(frame)) => {
                    return serde_json::from_slice(&frame).map_or(ChannelRead::Closed, ChannelRead::Message);
                }
                Ok(None) => {}
                Err(_) => return ChannelRead::Closed,
            }
            let mut buffer = [0; 4096];
            match self.socket.read(&mut buffer) {
                Ok(0) => return ChannelRead::Closed,
                Ok(length) => self.incoming.extend_from_slice(&buffer[..length]),
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return ChannelRead::Nothing,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(_) => return ChannelRead::Closed,
            }
        }
    }

    fn take_frame(&mut self) -> io::Result<Option<Vec<u8>>> {
        let Some((head, rest)) = self.incoming.split_first_chunk::<LENGTH_BYTES>() else { return Ok(None) };
        let length = u32::from_be_bytes(*head);
        if length > FRAME_MAX_BYTES {
            return Err(io::ErrorKind::InvalidData.into());
        }
        let length = length as usize;
        if rest.len() < length {
            return Ok(None);
        }
        let frame = rest[..length].to_vec();
        self.incoming.drain(..LENGTH_BYTES + length);
        Ok(Some(frame))
    }
}

const LENGTH_BYTES: usize = 4;

/// Linux takes at most 2 MiB or so of arguments by default, and each byte of them costs up to four here.
const FRAME_MAX_BYTES: u32 = 64 << 20;

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::ffi::OsStringExt;

    fn spawn() -> KeeperOrder {
        let argv = vec![OsString::from("true"), OsString::from_vec(vec![0xff, b'a'])];
        KeeperOrder::Spawn(Box::new(Spawn { argv, grace: Duration::from_secs(10), ..Spawn::default() }))
    }

    #[test]
    fn orders_arrive_whole_and_in_order_whatever_bytes_they_hold() {
        let (mut one, mut other) = Channel::pair().unwrap();
        one.push(&spawn()).unwrap();
        one.push(&KeeperOrder::Deadline(Boot(7))).unwrap();
        one.flush().unwrap();
        assert_eq!(other.receive(), ChannelRead::Message(spawn()));
        assert_eq!(other.receive(), ChannelRead::Message(KeeperOrder::Deadline(Boot(7))));
        assert_eq!(other.receive::<KeeperOrder>(), ChannelRead::Nothing);
        drop(one);
        assert_eq!(other.receive::<KeeperOrder>(), ChannelRead::Closed);
    }

    #[test]
    fn a_message_larger_than_the_socket_arrives_piece_by_piece() {
        let (mut one, mut other) = Channel::pair().unwrap();
        let long = Report::NotSpawned { step: SpawnStep::Command, errno: 2, text: "x".repeat(3 << 20) };
        one.push(&long).unwrap();
        let mut rounds = 0;
        let received = loop {
            one.flush().unwrap();
            match other.receive::<Report>() {
                ChannelRead::Nothing => rounds += 1,
                received => break received,
            }
        };
        assert_eq!(received, ChannelRead::Message(long));
        assert!(rounds > 1, "the message was meant not to fit");
    }

    #[test]
    fn nonsense_is_as_good_as_a_closed_channel() {
        let (mut one, mut other) = Channel::pair().unwrap();
        one.socket.write_all(&[0, 0, 0, 2, b'{', b'{']).unwrap();
        assert_eq!(other.receive::<KeeperOrder>(), ChannelRead::Closed);
        let (mut one, mut other) = Channel::pair().unwrap();
        one.socket.write_all(&[0xff; 8]).unwrap();
        assert_eq!(other.receive::<KeeperOrder>(), ChannelRead::Closed);
    }
}
