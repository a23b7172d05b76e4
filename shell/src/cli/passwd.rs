//! `mast passwd`: users of a password file. Takes mosquitto_passwd's flags and file formats; writes argon2id.

use std::{
    io::{BufRead, IsTerminal, Write},
    path::{Path, PathBuf},
};

use clap::Args;
use zeroize::Zeroizing;

use super::{Failure, print};
use crate::auth::{
    hash::StoredHash,
    password_file::{Edit, Edited, edit_text, replace_file},
};

#[derive(Debug, Args)]
pub struct PasswdArgs {
    /// Make a new file; it must not exist yet.
    #[arg(short, conflicts_with = "delete")]
    create: bool,
    /// Take the password from the command line, where others may see it.
    #[arg(short, conflicts_with = "delete", requires = "password")]
    batch: bool,
    /// Delete the user.
    #[arg(short = 'D')]
    delete: bool,
    /// The password file.
    file: PathBuf,
    /// The user.
    user: String,
    /// The password, with -b.
    password: Option<String>,
}

pub fn run(args: PasswdArgs) -> Result<(), Failure> {
    check_user(&args.user)?;
    let text = read(&args.file, args.create)?;
    let (new_text, edited) = if args.delete {
        edit(&text, &Edit::Delete { user: &args.user }, &args.file)?
    } else {
        let password = match args.password {
            Some(password) if args.batch => Zeroizing::new(password.into_bytes()),
            Some(_) => {
                return Err(Failure::usage(
                    "a password on the command line needs -b; without it, it is asked for",
                ));
            }
            None => ask()?,
        };
        if password.is_empty() {
            return Err(Failure::new("the password is empty"));
        }
        let hash = StoredHash::create(&password).map_err(|e| Failure::new(e.to_string()))?;
        edit(&text, &Edit::Set { user: &args.user, hash: &hash }, &args.file)?
    };
    if edited == Edited::NotFound {
        return Err(Failure::new(format!("{}: there is no user {}", args.file.display(), args.user)));
    }
    replace_file(&args.file, &new_text).map_err(|e| io_failure(&args.file, &e))?;
    let done = match edited {
        Edited::Added => "added",
        Edited::Updated => "changed",
        Edited::Deleted | Edited::NotFound => "deleted",
    };
    print(format!("user {} {done}; a running broker takes it over at SIGHUP\n", args.user).as_bytes())
}

fn check_user(user: &str) -> Result<(), Failure> {
    let bad = user.is_empty()
        || user.starts_with('#')
        || user.trim() != user
        || user.chars().any(|c| c == ':' || c.is_control());
    if bad {
        let what = "a user name is not empty, does not begin with #, has no colon and no space at its ends";
        return Err(Failure::usage(what));
    }
    Ok(())
}

fn read(file: &Path, create: bool) -> Result<String, Failure> {
    match std::fs::read_to_string(file) {
        Ok(_) if create => {
            let what = format!("{} exists already: leave -c away to change it", file.display());
            Err(Failure::new(what))
        }
        Ok(text) => Ok(text),
        Err(e) if e.kind() == std::io::ErrorKind::NotFound => Ok(String::new()),
        Err(e) => Err(io_failure(file, &e)),
    }
}

fn edit(text: &str, edit: &Edit<'_>, file: &Path) -> Result<(String, Edited), Failure> {
    edit_text(text, edit)
        .map_err(|(line, problem)| Failure::new(format!("{}:{line}: {problem}", file.display())))
}

fn io_failure(file: &Path, e: &std::io::Error) -> Failure {
    Failure::new(format!("{}: {e}", file.display()))
}

/// Asks twice on a terminal without echo; reads one line otherwise.
fn ask() -> Result<Zeroizing<Vec<u8>>, Failure> {
    if !std::io::stdin().is_terminal() {
        return read_line();
    }
    let _silence = Silence::new().map_err(|e| Failure::new(e.to_string()))?;
    let first = prompt("Password: ")?;
    let second = prompt("Again: ")?;
    if first == second { Ok(first) } else { Err(Failure::new("the two passwords differ")) }
}

fn prompt(text: &str) -> Result<Zeroizing<Vec<u8>>, Failure> {
    let mut err = std::io::stderr().lock();
    let shown = err.write_all(text.as_bytes()).and_then(|()| err.flush());
    let line = read_line();
    let ended = err.write_all(b"\n");
    shown.and(ended).map_err(|e| Failure::new(e.to_string()))?;
    line
}

fn read_line() -> Result<Zeroizing<Vec<u8>>, Failure> {
    let mut line = Zeroizing::new(Vec::new());
    std::io::stdin().lock().read_until(b'\n', &mut line).map_err(|e| Failure::new(e.to_string()))?;
    while line.last().is_some_and(|b| *b == b'\n' || *b == b'\r') {
        line.pop();
    }
    Ok(line)
}

/// The terminal shows nothing that is typed for as long as this lives.
struct Silence {
    before: rustix::termios::Termios,
}

impl Silence {
    fn new() -> std::io::Result<Self> {
        use rustix::termios::{LocalModes, OptionalActions, tcgetattr, tcsetattr};
        let stdin = std::io::stdin();
        let before = tcgetattr(&stdin)?;
        let mut silent = before.clone();
        silent.local_modes.remove(LocalModes::ECHO);
        tcsetattr(&stdin, OptionalActions::Flush, &silent)?;
        Ok(Self { before })
    }
}

impl Drop for Silence {
    fn drop(&mut self) {
        use rustix::termios::{OptionalActions, tcsetattr};
        if let Err(e) = tcsetattr(std::io::stdin(), OptionalActions::Flush, &self.before) {
            eprintln!("mast: the terminal's echo could not be turned on again: {e}; `stty echo` does it");
        }
    }
}
