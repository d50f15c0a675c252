//! The clients' tokens: a file with a digest of each, read again when it changes.

use std::fs::{File, Metadata};
use std::io::{Read, Seek, Write};
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::{PoisonError, RwLock};

use fencepost_core::hex;
use fencepost_view::answer::{AnswerVersion, ServeTokenAnswer};
use nix::fcntl::{Flock, FlockArg};
use nix::libc::O_NONBLOCK;
use nix::unistd::geteuid;
use sha2::{Digest, Sha256};

use crate::args::Global;
use crate::exit::{Code, Failure};
use crate::{place, report, show};

/// Variable that holds the only token, if there is no file.
pub const VARIABLE: &str = "FENCEPOST_SERVE_TOKEN";

/// What the client of the variable is called.
const OF_VARIABLE: &str = "environment";

const TOKEN_BYTES: usize = 32;
const NAME_BYTES_MAX: usize = 64;
const FILE_BYTES_MAX: u64 = 1024 * 1024;
const GROUP_AND_OTHERS: u32 = 0o077;

type TokenDigest = [u8; 32];

/// Who may ask.
#[derive(Debug)]
pub struct Tokens {
    file: Option<PathBuf>,
    known: RwLock<KnownTokens>,
}

#[derive(Debug)]
struct KnownTokens {
    clients: Vec<Client>,
    /// The file as it was when it was last read, be it invalid then.
    stamp: Option<FileStamp>,
}

/// A client by its name and the digest of its token.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Client {
    pub name: String,
    digest: TokenDigest,
}

/// Changes when the file does.
type FileStamp = (u64, u64, u64, i64, i64);

impl Tokens {
    /// The tokens of the file, or the one of the environment.
    pub fn find(file: Option<&Path>) -> Result<Option<Self>, Failure> {
        let Some(path) = file else {
            let token = place::text_variable(VARIABLE)?;
            let client = |token: String| Client { name: OF_VARIABLE.to_string(), digest: digest(&token) };
            let known = |token| KnownTokens { clients: vec![client(token)], stamp: None };
            return Ok(token.map(|token| Self { file: None, known: RwLock::new(known(token)) }));
        };
        let (clients, stamp) = read(path)?;
        if clients.is_empty() {
            return Err(wrong(path, "has no token. Add one: fencepost serve token NAME --token-file FILE"));
        }
        let known = RwLock::new(KnownTokens { clients, stamp: Some(stamp) });
        Ok(Some(Self { file: Some(path.to_path_buf()), known }))
    }

    /// The client that has this token.
    pub fn client(&self, token: &str) -> Option<Client> {
        self.reread();
        let digest = digest(token);
        let known = self.known.read().unwrap_or_else(PoisonError::into_inner);
        // Every digest is compared, in constant time.
        known
            .clients
            .iter()
            .filter(|client| is_same(&client.digest, &digest))
            .fold(None, |_, client| Some(client.clone()))
    }

    /// Whether a client's token still counts.
    pub fn has(&self, client: &Client) -> bool {
        self.reread();
        self.known.read().unwrap_or_else(PoisonError::into_inner).clients.contains(client)
    }

    /// Reads the file again if it has changed. An invalid one changes nothing.
    fn reread(&self) {
        let Some(path) = &self.file else { return };
        let stamp = std::fs::metadata(path).ok().as_ref().map(stamp);
        if self.known.read().unwrap_or_else(PoisonError::into_inner).stamp == stamp {
            return;
        }
        let mut known = self.known.write().unwrap_or_else(PoisonError::into_inner);
        if known.stamp == stamp {
            return;
        }
        match read(path) {
            Ok((clients, stamp)) => *known = KnownTokens { clients, stamp: Some(stamp) },
            Err(failure) => {
                known.stamp = stamp;
                report::say(&show::flat(&format!("{} The tokens from before still count.", failure.message())));
            }
        }
    }
}

/// `serve token`: adds a client and prints its token.
pub fn add(global: &Global, name: &str, path: &Path) -> Result<Code, Failure> {
    check_name(name).map_err(|why| Failure::Usage(format!("{name:?} is not a client's name: {why}.")))?;
    let cannot = |what: &str, error: std::io::Error| {
        Failure::Other(format!("Cannot {what} {}: {error}. No token was added.", path.display()))
    };
    let open = File::options().read(true).append(true).create(true).mode(0o600).custom_flags(O_NONBLOCK).open(path);
    let file = open.map_err(|error| cannot("open", error))?;
    let mut file =
        Flock::lock(file, FlockArg::LockExclusive).map_err(|(_, error)| cannot("lock", std::io::Error::from(error)))?;
    let text = checked_text(path, &mut file)?;
    if parse(path, &text)?.iter().any(|client| client.name == name) {
        return Err(wrong(
            path,
            &format!(
                "has a token for {name} already, which is not shown again. Nothing was changed. To replace it, remove its line first."
            ),
        ));
    }
    let token = random_hex(TOKEN_BYTES)?;
    let separator = if text.is_empty() || text.ends_with('\n') { "" } else { "\n" };
    let line = format!("{separator}{name} sha256:{}\n", hex::encode(&digest(&token)));
    file.write_all(line.as_bytes())
        .and_then(|()| fencepost_sys::flush(&file))
        .map_err(|error| cannot("write", error))?;
    match global.json {
        true => show::json(&ServeTokenAnswer { v: AnswerVersion, name: name.to_string(), token, file: shown(path) }),
        false => show::line(&token),
    }
    Ok(Code::DONE)
}

/// The absolute path of the token file.
fn shown(path: &Path) -> String {
    std::path::absolute(path).unwrap_or_else(|_| path.to_path_buf()).display().to_string()
}

/// Random bytes, as hexadecimal digits.
pub fn random_hex(bytes: usize) -> Result<String, Failure> {
    let mut random = vec![0; bytes];
    getrandom::fill(&mut random).map_err(|error| {
        Failure::Other(format!("The system gives no random numbers: {error}. Nothing was changed."))
    })?;
    Ok(hex::encode(&random))
}

/// Whether two secrets are equal, in a time that does not depend on where they differ.
pub fn is_same(a: &[u8], b: &[u8]) -> bool {
    a.len() == b.len() && std::hint::black_box(a.iter().zip(b).fold(0, |different, (a, b)| different | (a ^ b))) == 0
}

/// Opens a file that holds a secret, and refuses one that others can read.
pub fn open_private(path: &Path, what: &str) -> Result<File, Failure> {
    let refused = |why: String| Failure::Usage(format!("The {what} {} {why}", path.display()));
    let file = File::options().read(true).custom_flags(O_NONBLOCK).open(path);
    let file = file.map_err(|error| refused(format!("cannot be read: {error}.")))?;
    let found = file.metadata().map_err(|error| refused(format!("cannot be read: {error}.")))?;
    refuse_shared(path, what, &found)?;
    Ok(file)
}

fn refuse_shared(path: &Path, what: &str, found: &Metadata) -> Result<(), Failure> {
    let refused = |why: String| Failure::Usage(format!("The {what} {} {why}", path.display()));
    if !found.is_file() {
        return Err(refused("is not a regular file.".to_string()));
    }
    if found.uid() != geteuid().as_raw() && found.uid() != 0 {
        return Err(refused(format!("belongs to user {}, who is neither root nor you.", found.uid())));
    }
    if found.mode() & GROUP_AND_OTHERS != 0 {
        return Err(refused(format!(
            "is refused, because others than its owner can read or write it. Try: chmod 600 {}",
            path.display()
        )));
    }
    Ok(())
}

fn read(path: &Path) -> Result<(Vec<Client>, FileStamp), Failure> {
    let mut file = open_private(path, TOKEN_FILE)?;
    let stamp = file.metadata().map(|found| stamp(&found));
    let stamp = stamp.map_err(|error| wrong(path, &format!("cannot be read: {error}.")))?;
    let text = checked_text(path, &mut file)?;
    Ok((parse(path, &text)?, stamp))
}

const TOKEN_FILE: &str = "token file";

fn wrong(path: &Path, why: &str) -> Failure {
    Failure::Usage(format!("The {TOKEN_FILE} {} {why}", path.display()))
}

fn checked_text(path: &Path, file: &mut File) -> Result<String, Failure> {
    let found = file.metadata().map_err(|error| wrong(path, &format!("cannot be read: {error}.")))?;
    refuse_shared(path, TOKEN_FILE, &found)?;
    let mut text = String::new();
    let read = file.rewind().and_then(|()| file.take(FILE_BYTES_MAX).read_to_string(&mut text));
    read.map_err(|_| wrong(path, "is not UTF-8 text."))?;
    Ok(text)
}

fn parse(path: &Path, text: &str) -> Result<Vec<Client>, Failure> {
    let mut clients: Vec<Client> = Vec::new();
    for (line, text) in text.lines().enumerate() {
        let text = text.trim();
        if text.is_empty() || text.starts_with('#') {
            continue;
        }
        // The line itself is not shown: it may hold a token by mistake.
        let wrong = |why: &str| wrong(path, &format!("has a mistake in line {}: {why}.", line + 1));
        let (name, digest) = text.split_once(char::is_whitespace).ok_or_else(|| wrong("it is NAME sha256:DIGEST"))?;
        check_name(name).map_err(wrong)?;
        let digits = digest.trim().strip_prefix("sha256:").ok_or_else(|| wrong("the digest begins with sha256:"))?;
        let digest = hex::decode(digits).and_then(|bytes| TokenDigest::try_from(bytes).ok());
        let digest = digest.ok_or_else(|| wrong("the digest has 64 hexadecimal digits"))?;
        if clients.iter().any(|client| client.name == name) {
            return Err(wrong("the name is there already"));
        }
        clients.push(Client { name: name.to_string(), digest });
    }
    Ok(clients)
}

fn check_name(name: &str) -> Result<(), &'static str> {
    let is_good = |byte: u8| byte.is_ascii_alphanumeric() || b"._-".contains(&byte);
    match name {
        "" => Err("it is empty"),
        _ if name.len() > NAME_BYTES_MAX => Err("it may have 64 characters"),
        _ if !name.bytes().all(is_good) => Err("it may have letters, digits, dots, dashes and underscores"),
        _ => Ok(()),
    }
}

fn digest(token: &str) -> TokenDigest {
    Sha256::digest(token.as_bytes()).into()
}

fn stamp(found: &Metadata) -> FileStamp {
    (found.dev(), found.ino(), found.len(), found.mtime(), found.mtime_nsec() ^ (found.ctime_nsec() << 1))
}
