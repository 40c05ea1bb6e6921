//! A whole gateway in namespaces of its own: attach, replace, detach, restart, tampering, floors, control.

mod control;
mod ends;
mod lab;
mod life;
