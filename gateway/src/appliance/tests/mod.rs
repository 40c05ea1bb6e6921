//! A whole gateway in namespaces of its own: attach, replace, detach, restart, tampering, floors, control.

mod belonging;
mod broker;
mod control;
mod ends;
mod falls;
mod ingress;
mod lab;
mod life;
mod lingering;
mod machine;
mod many;
mod places;
mod quota;
mod replacing;
mod restarts;
mod selftest;
mod selftest_contained;
mod selftest_rows;
mod shortage;
mod tampering;
mod wiring;
