//! Servers on stdio: the relay in memory, child processes, and `milepost wrap` as a process.

mod child;
mod discover_probe;
mod modern_face;
mod one_writer;
mod relay;
mod stderr_progress;
mod tasks;
mod transcripts_in_real_time;
mod wrap;
mod wrap_config;
