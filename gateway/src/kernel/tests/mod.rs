//! Tests in fresh namespaces, as root: what the kernel does, not what we asked of it.

mod connect;
mod death;
mod door;
mod frames;
mod gate;
mod lab;
mod lanes;
mod links;
mod rules;
mod runs;
mod sessions;
mod shapes;
mod xt;
