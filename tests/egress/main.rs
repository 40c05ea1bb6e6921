//! Egress: what the doors decide. DNS, TLS, HTTP, honest connects, leases, real names, the explicit proxy, the record.
//!
//! Modules called `denials` hold attacks that must leak through a plain forwarder (`LAB_PLAIN=1`).

mod connects;
mod denials;
mod evasions;
mod http;
mod http3;
mod leases;
mod limits;
mod musl;
mod names;
mod path_sizes;
mod ping;
mod policies;
mod programs;
mod proxy;
mod quic;
mod real;
mod records;
mod streams;
mod tls;
mod traces;
mod udp;
mod udp_denials;
mod udp_paths;
