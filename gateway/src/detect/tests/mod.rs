//! First bytes as attackers and real clients send them; names carry the ids of the attack cases.

mod build;
mod hello;
mod http;
mod quic;
mod splits;
