//! Other settings while calls are open: a call goes on by those that it began with.

mod calls;
mod recorded;
