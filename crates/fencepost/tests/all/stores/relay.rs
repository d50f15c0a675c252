//! Stands between fencepost and a server: on an address that is not this machine's own by name, or holding answers back.

use std::io::{Read, Write};
use std::net::{IpAddr, Ipv4Addr, Shutdown, TcpListener, TcpStream, UdpSocket};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Mutex};
use std::thread;

/// Carries bytes to a server on this machine. Each answer is announced, and waits until it is let go.
pub struct Relay {
    pub port: u16,
    pub arrived: Receiver<()>,
    go: Sender<()>,
}

impl Relay {
    pub fn holding(server: u16) -> Self {
        let listener = TcpListener::bind(("127.0.0.1", 0)).unwrap();
        let port = listener.local_addr().unwrap().port();
        let ((announce, arrived), (go, gate)) = (channel(), channel());
        let gate = Arc::new(Mutex::new(gate));
        thread::spawn(move || {
            for client in listener.incoming().flatten() {
                let (announce, gate) = (announce.clone(), Arc::clone(&gate));
                carry(client, server, move || {
                    let _ = announce.send(());
                    let _ = gate.lock().unwrap().recv();
                });
            }
        });
        Self { port, arrived, go }
    }

    /// Lets the answer go that was announced last.
    pub fn let_go(&self) {
        self.go.send(()).unwrap();
    }
}

/// Carries bytes to a server on this machine from an address of this machine that is not a loopback address: to fencepost it
/// is another host. `None` on a machine without a network.
pub fn from_another_host(server: u16) -> Option<(IpAddr, u16)> {
    // Nothing is sent; the system only chooses the address to send from.
    let socket = UdpSocket::bind((Ipv4Addr::UNSPECIFIED, 0)).ok()?;
    socket.connect("192.0.2.1:9").ok()?;
    let address = socket.local_addr().ok()?.ip();
    let listener = TcpListener::bind((address, 0)).ok().filter(|_| !address.is_loopback())?;
    let port = listener.local_addr().ok()?.port();
    thread::spawn(move || {
        for client in listener.incoming().flatten() {
            carry(client, server, || {});
        }
    });
    Some((address, port))
}

/// Carries bytes both ways, and calls `before_answer` before each piece of an answer.
fn carry(client: TcpStream, server: u16, before_answer: impl Fn() + Send + 'static) {
    let Ok(server) = TcpStream::connect(("127.0.0.1", server)) else { return };
    let (asked, asking) = (client.try_clone().unwrap(), server.try_clone().unwrap());
    thread::spawn(move || copy(asked, asking, || {}));
    thread::spawn(move || copy(server, client, before_answer));
}

fn copy(mut from: TcpStream, mut to: TcpStream, before: impl Fn()) {
    let mut buffer = [0; 64 * 1024];
    while let Ok(read @ 1..) = from.read(&mut buffer) {
        before();
        if to.write_all(&buffer[..read]).is_err() {
            break;
        }
    }
    let _ = (from.shutdown(Shutdown::Both), to.shutdown(Shutdown::Both));
}
