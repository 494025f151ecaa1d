//! Everything that differs between systems: one interface, with an implementation for Unix and one for Windows.
//!
//! | part | content | Unix | Windows |
//! |---|---|---|---|
//! | [`child`] | a server with all its descendants | process group, adopted orphans, parent-death signal (Linux) | job object that ends with this process |
//! | [`signals`] | requests to stop and to reload | SIGTERM, SIGINT, SIGHUP | Ctrl-C, Ctrl-Break, close and shutdown; no reload |
//! | [`files`] | private files, their owner, their identity | modes, user ids, inodes | access lists of the user's profile |
//! | [`sockets`] | local sockets, options of connections | Unix sockets | named pipes |
//! | [`streams`] | standard input and output of this process | pipes and sockets of the event loop | threads |
//! | [`terminal`] | keys that are read without waiting for a line end | `termios` | nothing |
//! | [`service`] | reports the state of this process to the service manager | systemd | nothing |
//! | [`desktop`] | opens a file as the desktop does | `xdg-open`, `open` | `explorer` |
//!
//! The two implementations have the same functions. No other module has code for one system.

pub mod child;

#[cfg(unix)]
mod unix;
#[cfg(windows)]
mod windows;

#[cfg(unix)]
use self::unix as system;
#[cfg(windows)]
use self::windows as system;

pub use self::system::{desktop, files, service, signals, sockets, streams, terminal};
