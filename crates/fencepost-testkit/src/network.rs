//! Networks between clients and a server: one that delays and loses messages, one that cuts a chosen exchange, one that
//! holds answers back.

use std::io::{Read, Write};
use std::net::{IpAddr, Ipv4Addr, Shutdown, SocketAddr, TcpListener, TcpStream, UdpSocket};
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::Duration;

use crate::http::message;

/// Accepts connections on a free port, each on a thread of its own, until it is dropped.
pub struct Loopback {
    pub port: u16,
    address: SocketAddr,
    ended: Arc<AtomicBool>,
}

impl Loopback {
    pub fn start(serve: impl Fn(TcpStream) + Send + Sync + 'static) -> Self {
        Self::on(TcpListener::bind(("127.0.0.1", 0)).unwrap(), serve)
    }

    fn on(listener: TcpListener, serve: impl Fn(TcpStream) + Send + Sync + 'static) -> Self {
        let address = listener.local_addr().unwrap();
        let loopback = Self { port: address.port(), address, ended: Arc::default() };
        let (ended, serve) = (Arc::clone(&loopback.ended), Arc::new(serve));
        thread::spawn(move || {
            for stream in listener.incoming().flatten() {
                if ended.load(Ordering::SeqCst) {
                    return;
                }
                let serve = Arc::clone(&serve);
                thread::spawn(move || serve(stream));
            }
        });
        loopback
    }

    /// Connects every client with the server, and hands both ends to `carry`.
    fn before(server: u16, carry: impl Fn(&TcpStream, &TcpStream) + Send + Sync + 'static) -> Self {
        Self::start(move |client| {
            let Ok(upstream) = TcpStream::connect(("127.0.0.1", server)) else { return };
            let _ = (client.set_nodelay(true), upstream.set_nodelay(true));
            carry(&client, &upstream);
            let _ = (client.shutdown(Shutdown::Both), upstream.shutdown(Shutdown::Both));
        })
    }

    pub fn url(&self, path: &str) -> String {
        format!("http://127.0.0.1:{}{path}", self.port)
    }
}

impl Drop for Loopback {
    fn drop(&mut self) {
        self.ended.store(true, Ordering::SeqCst);
        let _ = TcpStream::connect(self.address);
    }
}

/// Ports below those that systems give to clients and to servers without a wish.
const PORTS: std::ops::Range<u32> = 12_000..32_000;

/// A port that a server can be started on. A port of the system's own choice would be given to a client of another test
/// before the server is there.
pub fn free_port() -> u16 {
    static TAKEN: AtomicU32 = AtomicU32::new(0);
    // Processes that run side by side begin far from each other.
    let first = std::process::id().wrapping_mul(7919);
    let candidates = (0..PORTS.len()).map(|_| first.wrapping_add(TAKEN.fetch_add(1, Ordering::SeqCst)));
    let mut ports = candidates.map(|number| PORTS.start + number % PORTS.len() as u32).map(|port| port as u16);
    ports.find(|port| TcpListener::bind(("127.0.0.1", *port)).is_ok()).expect("a free port")
}

/// What happens to a message of the client.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Weather {
    #[default]
    Fair,
    /// One message of seven is lost before it arrives, one has its answer lost, one is late; HTTP loses the end of
    /// another answer.
    Foul,
    /// No message is carried, and no connection is closed.
    Silent,
}

/// State that the connections of a proxy share with the test.
#[derive(Default)]
struct Sky {
    weather: Mutex<Weather>,
    messages: AtomicU64,
    connections: AtomicU64,
    spoken: Mutex<Vec<u8>>,
    ended: AtomicBool,
}

impl Sky {
    fn weather(&self) -> Weather {
        *self.weather.lock().unwrap()
    }

    /// Counts a message, and rolls 0 to 6 for it: in the same order in every run, as far as the threads are.
    fn roll(&self) -> u64 {
        let number = self.messages.fetch_add(1, Ordering::SeqCst) + 1;
        if self.weather() == Weather::Foul { (number.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 33) % 7 } else { 6 }
    }
}

/// Delays and loses messages between clients and a server.
pub struct Proxy {
    pub port: u16,
    sky: Arc<Sky>,
    _loopback: Loopback,
}

impl Proxy {
    /// For protocols in which the client speaks again only after it was answered.
    pub fn start(server: u16) -> Self {
        Self::with(server, carry_pieces)
    }

    /// For HTTP: knows where a message ends.
    pub fn of_http(server: u16) -> Self {
        Self::with(server, |sky, client, server| {
            let _ = carry_messages(sky, client, server);
        })
    }

    fn with(server: u16, carry: fn(&Arc<Sky>, &TcpStream, &TcpStream)) -> Self {
        let sky = Arc::new(Sky::default());
        let shared = Arc::clone(&sky);
        let loopback = Loopback::before(server, move |client, server| {
            shared.connections.fetch_add(1, Ordering::SeqCst);
            carry(&shared, client, server);
        });
        Self { port: loopback.port, sky, _loopback: loopback }
    }

    pub fn set(&self, weather: Weather) {
        *self.sky.weather.lock().unwrap() = weather;
    }

    pub fn url(&self) -> String {
        format!("http://127.0.0.1:{}", self.port)
    }

    /// How many times a client spoke after it had been answered: the round trips.
    pub fn messages(&self) -> u64 {
        self.sky.messages.load(Ordering::SeqCst)
    }

    pub fn connections(&self) -> u64 {
        self.sky.connections.load(Ordering::SeqCst)
    }

    /// The bytes that clients have sent in fair weather since the last call; not of HTTP.
    pub fn spoken(&self) -> Vec<u8> {
        std::mem::take(&mut self.sky.spoken.lock().unwrap())
    }
}

impl Drop for Proxy {
    fn drop(&mut self) {
        self.sky.ended.store(true, Ordering::SeqCst);
    }
}

/// Carries bytes as they come. The first piece after an answer begins a message.
fn carry_pieces(sky: &Arc<Sky>, mut client: &TcpStream, mut server: &TcpStream) {
    let (mut answers, mut back) = (server.try_clone().unwrap(), client.try_clone().unwrap());
    let (answered, muted) = (Arc::new(AtomicBool::new(true)), Arc::new(AtomicBool::new(false)));
    let (heard, mute, above) = (Arc::clone(&answered), Arc::clone(&muted), Arc::clone(sky));
    let returning = thread::spawn(move || {
        let mut buffer = [0; 16384];
        while let Ok(read @ 1..) = answers.read(&mut buffer) {
            heard.store(true, Ordering::SeqCst);
            if above.weather() == Weather::Silent {
                continue;
            }
            if mute.load(Ordering::SeqCst) || back.write_all(&buffer[..read]).is_err() {
                break;
            }
        }
        let _ = back.shutdown(Shutdown::Both);
    });
    let mut buffer = [0; 16384];
    while let Ok(read @ 1..) = client.read(&mut buffer) {
        let is_fresh = answered.swap(false, Ordering::SeqCst);
        // A message in several pieces is not judged again in its middle.
        let die = if is_fresh { sky.roll() } else { 6 };
        match sky.weather() {
            Weather::Fair => sky.spoken.lock().unwrap().extend_from_slice(&buffer[..read]),
            Weather::Silent => continue,
            Weather::Foul => {}
        }
        match die {
            0 => break,
            1 => {
                muted.store(true, Ordering::SeqCst);
                let _ = server.write_all(&buffer[..read]);
                let _ = returning.join();
                break;
            }
            2 => thread::sleep(Duration::from_millis(20)),
            _ => {}
        }
        if server.write_all(&buffer[..read]).is_err() {
            break;
        }
    }
}

/// Carries requests and their answers one after the other until one is lost.
fn carry_messages(sky: &Sky, mut client: &TcpStream, mut server: &TcpStream) -> Option<()> {
    loop {
        let request = message(client)?;
        let (die, weather) = (sky.roll(), sky.weather());
        while weather == Weather::Silent && !sky.ended.load(Ordering::SeqCst) {
            thread::sleep(Duration::from_millis(20));
        }
        if die == 0 || weather == Weather::Silent {
            return None;
        }
        if die == 2 {
            thread::sleep(Duration::from_millis(20));
        }
        server.write_all(&request).ok()?;
        let answer = message(server)?;
        match die {
            1 => return None,
            3 => return client.write_all(&answer[..answer.len() - 1 - answer.len() / 3]).ok().and(None),
            _ => client.write_all(&answer).ok()?,
        }
    }
}

/// Which half of the exchange is lost when a connection is cut.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Cut {
    /// The word never reaches the server.
    Before,
    /// The word reaches the server, and its answer is lost.
    After,
    /// The connection is not cut: the word only arrives late.
    Late,
}

type Act = Box<dyn FnOnce() + Send>;

/// Cuts the first connection on which a client says `word`.
pub struct Scissors {
    pub port: u16,
    pub cut: Arc<AtomicBool>,
    /// What the server said to a word that arrived late.
    pub late: Receiver<Vec<u8>>,
    meanwhile: Arc<Mutex<Option<Act>>>,
    _loopback: Loopback,
}

impl Scissors {
    pub fn start(server: u16, word: &'static [u8], how: Cut) -> Self {
        let (cut, meanwhile) = (Arc::new(AtomicBool::new(false)), Arc::new(Mutex::new(None::<Act>)));
        let (shared, act, (answer, late)) = (Arc::clone(&cut), Arc::clone(&meanwhile), channel());
        let loopback = Loopback::before(server, move |client, server| {
            let act = || (act.lock().unwrap().take().unwrap_or_else(|| Box::new(|| {})))();
            carry_until(client, server, (word, how), &shared, &act, answer.clone());
        });
        Self { port: loopback.port, cut, late, meanwhile, _loopback: loopback }
    }

    /// Sets what happens while the connection is being cut.
    pub fn at_cut(&self, act: impl FnOnce() + Send + 'static) {
        *self.meanwhile.lock().unwrap() = Some(Box::new(act));
    }
}

fn carry_until(
    mut client: &TcpStream,
    mut server: &TcpStream,
    (word, how): (&[u8], Cut),
    cut: &AtomicBool,
    act: &dyn Fn(),
    late: Sender<Vec<u8>>,
) {
    let (mut answers, mut back) = (server.try_clone().unwrap(), client.try_clone().unwrap());
    let (silent, is_late) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicBool::new(false)));
    let (mute, answers_late) = (Arc::clone(&silent), Arc::clone(&is_late));
    let returning = thread::spawn(move || {
        let mut buffer = [0; 4096];
        while let Ok(read @ 1..) = answers.read(&mut buffer) {
            if answers_late.swap(false, Ordering::SeqCst) {
                let _ = late.send(buffer[..read].to_vec());
            }
            if mute.load(Ordering::SeqCst) || back.write_all(&buffer[..read]).is_err() {
                break;
            }
        }
        let _ = back.shutdown(Shutdown::Both);
    });
    let mut buffer = [0; 4096];
    while let Ok(read @ 1..) = client.read(&mut buffer) {
        let said = buffer[..read].windows(word.len()).any(|window| window == word);
        let last = said && !cut.swap(true, Ordering::SeqCst);
        if last && how == Cut::Late {
            act();
            is_late.store(true, Ordering::SeqCst);
            let _ = server.write_all(&buffer[..read]);
            continue;
        }
        silent.store(last, Ordering::SeqCst);
        if !(last && how == Cut::Before) && server.write_all(&buffer[..read]).is_err() {
            break;
        }
        if last {
            break;
        }
    }
    let is_unanswered = is_late.load(Ordering::SeqCst);
    if is_unanswered {
        let _ = server.shutdown(Shutdown::Write);
    }
    if is_unanswered || (how == Cut::After && silent.load(Ordering::SeqCst)) {
        let _ = returning.join();
    }
    if silent.load(Ordering::SeqCst) {
        act();
    }
}

/// Carries bytes to a server. Each answer is announced, and waits until it is let go.
pub struct Relay {
    pub port: u16,
    pub arrived: Receiver<()>,
    go: Sender<()>,
    _loopback: Loopback,
}

impl Relay {
    pub fn holding(server: u16) -> Self {
        let ((announce, arrived), (go, gate)) = (channel(), channel());
        let gate = Mutex::new(gate);
        let loopback = Loopback::before(server, move |client, server| {
            carry_both(client, server, || {
                let _ = announce.send(());
                let _ = gate.lock().unwrap().recv();
            });
        });
        Self { port: loopback.port, arrived, go, _loopback: loopback }
    }

    /// Lets the answer go that was announced last.
    pub fn let_go(&self) {
        self.go.send(()).unwrap();
    }
}

/// Carries bytes to a server on this machine from an address of this machine that is not a loopback address: to fencepost it
/// is another host. `None` on a machine without a network.
pub fn from_another_host(server: u16) -> Option<(IpAddr, Loopback)> {
    // The program sends no packet; the system only chooses the address to send from.
    let socket = UdpSocket::bind((Ipv4Addr::UNSPECIFIED, 0)).ok()?;
    socket.connect("192.0.2.1:9").ok()?;
    let address = socket.local_addr().ok()?.ip();
    let listener = TcpListener::bind((address, 0)).ok().filter(|_| !address.is_loopback())?;
    let serve = move |client: TcpStream| {
        let Ok(upstream) = TcpStream::connect(("127.0.0.1", server)) else { return };
        carry_both(&client, &upstream, || {});
    };
    Some((address, Loopback::on(listener, serve)))
}

/// Carries bytes both ways, and calls `before_answer` before each piece of an answer.
fn carry_both(client: &TcpStream, server: &TcpStream, before_answer: impl Fn()) {
    let (asked, asking) = (client.try_clone().unwrap(), server.try_clone().unwrap());
    thread::spawn(move || copy(&asked, &asking, || {}));
    copy(server, client, before_answer);
}

fn copy(mut from: &TcpStream, mut to: &TcpStream, before: impl Fn()) {
    let mut buffer = [0; 64 * 1024];
    while let Ok(read @ 1..) = from.read(&mut buffer) {
        before();
        if to.write_all(&buffer[..read]).is_err() {
            break;
        }
    }
    let _ = (from.shutdown(Shutdown::Both), to.shutdown(Shutdown::Both));
}
