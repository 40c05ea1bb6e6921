//! Wire types of the control API; requests refuse unknown keys, replies may grow.
//!
//! | verb | path | body | reply |
//! |---|---|---|---|
//! | POST | `/v1/networks` | [`AttachRequest`] + descriptor | [`NetworkView`] |
//! | GET | `/v1/networks`, `/v1/networks/{id}` | | [`NetworkView`] (a list) |
//! | DELETE | `/v1/networks/{id}` | | [`Detached`] |
//! | PUT | `/v1/networks/{id}/policy` | [`PolicySource`] | [`PolicyReplaced`] |
//! | GET | `/v1/networks/{id}/flows`, `/v1/flows` (`?follow=1`) | | [`FlowView`] (a list, or lines of [`FlowEvent`]) |
//! | POST | `/v1/networks/{id}/explain` | [`ExplainRequest`] | JSON of the explanation |
//! | POST | `/v1/networks/{id}/ingress` | [`IngressRequest`] | 101, then the stream itself |
//! | POST | `/v1/networks/{id}/capture` | [`CaptureRequest`] | pcapng, as it comes |
//! | GET | `/v1/records?after=SEQ&follow=1` | | journal lines |
//! | GET | `/v1/statements` | | lines of [`Signed`] |
//! | POST | `/v1/own` | [`FourTuple`] | [`Owner`] |
//! | GET | `/v1/health`, `/v1/posture`, `/v1/rules`, `/v1/counters` | | [`Health`], [`PostureView`], text, JSON |
//! | POST | `/v1/selftest` | | [`SelftestReport`] |
//! | POST | `/v1/selftest/containers` (the runner's user) | [`ContainerReport`] | [`PostureView`] |
//! | DELETE | `/v1/selftest/containers` | | [`PostureView`] |
//! | GET | `/v1/sources` | | [`SourceView`](crate::source::SourceView) (a list) |
//! | POST | `/v1/sources/{name}/sync` | [`SyncRequest`](crate::source::view::SyncRequest) | the source |
//! | POST | `/v1/sources/{name}/proposals` | [`ProposalRequest`](crate::source::view::ProposalRequest) | the branch |
//! | POST | `/v1/resolve` | [`ResolveRequest`](crate::source::view::ResolveRequest) | the policy |

mod gateway;
mod network;
mod problem;
mod traffic;

pub use gateway::{
    Check, ContainerReport, Family, Health, Outcome, PostureView, SelftestDone, SelftestReport,
    Variant, Why,
};
pub use network::{
    AttachRequest, Detached, NetworkView, PolicyReplaced, PolicySource, Via, default_workspace,
};
pub use problem::Problem;
pub use traffic::{
    CaptureRequest, ExplainRequest, FlowEvent, FlowView, FourTuple, IngressRequest, Owner, Signed,
};
