//! Several replicas of one proxy behind a balancer: in memory, with the test as the balancer.

mod chains;
mod heirs;
mod lost;
mod principals;
mod replicas;
mod same;
mod scenarios;
mod strangers;
