//! `status --watch`: shows the status again and again on the terminal, until a signal ends it.

use std::io::IsTerminal;
use std::time::Duration;

use fencepost_core::time::Wall;
use fencepost_guard::clock;
use fencepost_guard::signals::{ReceivedSignal, Signals};
use fencepost_view::status::StatusAnswer;
use fencepost_view::text::{second_in, short};
use nix::libc::{SIGINT, SIGTSTP};
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::sys::signal::{Signal, raise};

use super::{Style, answer, page};
use crate::args::{Global, StatusOptions};
use crate::exit::{Code, Failure};
use crate::show;

/// The shortest pause between two looks.
const PAUSE_MIN: Duration = Duration::from_millis(200);

/// Another screen without a cursor: what was on the terminal before comes back afterwards.
const ENTER: &str = "\x1b[?1049h\x1b[?25l";
const LEAVE: &str = "\x1b[?25h\x1b[?1049l";
const CLEAR: &str = "\x1b[H\x1b[2J";

pub fn run(global: &Global, options: &StatusOptions, every: Duration) -> Result<Code, Failure> {
    if !std::io::stdout().is_terminal() {
        return Err(Failure::Usage(
            "--watch needs a terminal, and standard output is none. Print the status once with: fencepost status"
                .to_string(),
        ));
    }
    // The first look fails as `status` does: there is nothing to show yet.
    let mut last = answer(global, options)?;
    let mut signals =
        Signals::listen().map_err(|error| Failure::Other(format!("Cannot listen to signals: {error}")))?;
    let screen = Screen::enter();
    let mut trouble = None;
    loop {
        screen.show(&frame(global, options, &last, trouble.as_ref()));
        if let Some(signal) = wait(&mut signals, every.max(PAUSE_MIN), &screen) {
            drop(screen);
            return Ok(if signal == SIGINT { Code::DONE } else { Code::of_signal(signal) });
        }
        match answer(global, options) {
            Ok(answer) => (last, trouble) = (answer, None),
            Err(failure) => trouble = Some(failure.message().to_string()),
        }
    }
}

/// The page. If the store or the configuration cannot be read any more, the last one with its age.
fn frame(
    global: &Global,
    options: &StatusOptions,
    (status, at): &(StatusAnswer, Wall),
    trouble: Option<&String>,
) -> String {
    let style = Style::detect(global);
    let page = page(status, options, &style, *at);
    let Some(why) = trouble else { return page };
    let age = short(clock::now().wall.since(*at));
    let zone = status.jobs.first().map(|job| job.more.zone.clone()).unwrap_or_else(fencepost_core::zone::Zone::utc);
    let shown = second_in(*at, &zone);
    let warning = show::flat(&format!("This is the state of {shown}, {age} ago. It cannot be read now: {why}"));
    format!("{}\n\n{page}", style.red(&warning))
}

/// Waits for the next look. Returns the signal that ends the command, if one came.
fn wait(signals: &mut Signals, pause: Duration, screen: &Screen) -> Option<i32> {
    let until = clock::boot_now() + pause;
    loop {
        let left = until.since(clock::boot_now());
        if left.is_zero() {
            return None;
        }
        let timeout = PollTimeout::try_from(left.min(Duration::from_secs(60))).unwrap_or(PollTimeout::ZERO);
        let _ = poll(&mut [PollFd::new(signals.fd(), PollFlags::POLLIN)], timeout);
        for signal in signals.pending() {
            match signal {
                ReceivedSignal::End(signal) => return Some(signal),
                ReceivedSignal::Other(SIGTSTP) => screen.leave_while_stopped(),
                ReceivedSignal::Continued => return None,
                ReceivedSignal::Other(_) => {}
            }
        }
    }
}

/// The terminal while it shows the status. It is restored at the end.
struct Screen;

impl Screen {
    fn enter() -> Self {
        show::write(ENTER);
        Self
    }

    /// Shows as many lines as the terminal has.
    fn show(&self, page: &str) {
        let rows = show::terminal_rows().unwrap_or(usize::MAX);
        let lines: Vec<&str> = page.trim_end().lines().take(rows).collect();
        show::write(&format!("{CLEAR}{}", lines.join("\r\n")));
    }

    /// Stops this process on ctrl-Z, with the terminal as it was before.
    fn leave_while_stopped(&self) {
        show::write(LEAVE);
        let _ = raise(Signal::SIGSTOP);
        show::write(ENTER);
    }
}

impl Drop for Screen {
    fn drop(&mut self) {
        show::write(LEAVE);
    }
}
