//! Jobs: whole runs through a real engine. Exit codes, streams, the network of a run, what stays behind.

mod attacks;
mod browser;
mod command;
mod commits;
mod door;
mod elsewhere;
mod input;
mod killed;
mod mute;
mod network;
mod packages;
mod person;
mod place;
mod pulled;
mod restart;
mod rootless;
mod secrets;
mod selftest;
mod socket;
mod stop;
mod uninstall;
mod up;
mod world;
