//! Several replicas of one proxy behind a balancer: in memory, with the test as the balancer.

mod lost;
mod replicas;
mod same;
mod scenarios;
mod strangers;
