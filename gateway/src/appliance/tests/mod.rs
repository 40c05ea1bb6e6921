//! A whole gateway in namespaces of its own: attach, replace, detach, restart, tampering, floors, control.

mod control;
mod ends;
mod falls;
mod ingress;
mod lab;
mod life;
mod quota;
mod shortage;
mod wiring;
