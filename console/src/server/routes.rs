//! Every route at a glance: what it needs, and which handler answers it. A route has its path and method from the
//! handler's own description, so a route that is not described does not exist.
//!
//! To add one: describe the handler with `#[utoipa::path]`, name its [`Action`], add the line here.

use axum::Router;
use axum::middleware::from_fn_with_state;
use http::StatusCode;
use utoipa::openapi::{OpenApi, PathItem};
use utoipa_axum::router::{OpenApiRouter, UtoipaMethodRouter};
use utoipa_axum::routes;

use super::app::App;
use super::problem::Problem;
use super::{front, guard};
use crate::access::Action;
use crate::api;

/// The table.
pub fn table() -> Table {
    runners(work(accounts()))
}

/// The instance, its people, their workspaces and tokens.
fn accounts() -> Table {
    Table::default()
        .add(Action::ReadAbout, routes!(api::about::read))
        .add(Action::ReadDescription, routes!(api::about::description))
        .add(Action::ClaimInstance, routes!(api::owner::claim))
        .add(Action::SignIn, routes!(api::session::sign_in))
        .add(Action::LeaveForProvider, routes!(api::providers::leave))
        .add(
            Action::ComeBackFromProvider,
            routes!(api::providers::come_back),
        )
        .add(Action::ReadSelf, routes!(api::session::read))
        .add(Action::SignOut, routes!(api::session::sign_out))
        .add(
            Action::ChangePassword,
            routes!(api::session::change_password),
        )
        .add(Action::ListDevices, routes!(api::devices::list))
        .add(Action::EndDevice, routes!(api::devices::end))
        .add(Action::SignOutEverywhere, routes!(api::devices::end_all))
        .add(Action::ListUsers, routes!(api::users::list))
        .add(Action::AddUser, routes!(api::users::add))
        .add(Action::ChangeUser, routes!(api::users::change))
        .add(Action::ListWorkspaces, routes!(api::workspaces::list))
        .add(Action::AddWorkspace, routes!(api::workspaces::add))
        .add(Action::ReadWorkspace, routes!(api::workspaces::read))
        .add(Action::RenameWorkspace, routes!(api::workspaces::rename))
        .add(Action::ListMembers, routes!(api::members::list))
        .add(Action::AddMember, routes!(api::members::add))
        .add(Action::ChangeMember, routes!(api::members::change))
        .add(Action::RemoveMember, routes!(api::members::remove))
        .add(Action::ListTokens, routes!(api::tokens::list))
        .add(Action::AddToken, routes!(api::tokens::add))
        .add(Action::EndToken, routes!(api::tokens::end))
        .add(Action::AskCode, routes!(api::codes::begin))
        .add(Action::ReadCode, routes!(api::codes::state))
        .add(Action::LookAtCode, routes!(api::codes::look))
        .add(Action::RefuseCode, routes!(api::codes::refuse))
        .add(Action::ApproveCode, routes!(api::codes::approve))
        .add(Action::EndOwnToken, routes!(api::codes::end_own))
        .add(
            Action::ListMemberTokens,
            routes!(api::tokens::list_of_member),
        )
        .add(Action::EndMemberToken, routes!(api::tokens::end_of_member))
}

/// What workspaces keep and do.
fn work(table: Table) -> Table {
    table
        .add(Action::ListNotifications, routes!(api::notifications::list))
        .add(Action::AddNotification, routes!(api::notifications::add))
        .add(Action::EndNotification, routes!(api::notifications::end))
        .add(Action::TestNotification, routes!(api::notifications::test))
        .add(
            Action::ListDeliveries,
            routes!(api::notifications::deliveries),
        )
        .add(Action::ListSecrets, routes!(api::secrets::list))
        .add(Action::AddSecret, routes!(api::secrets::add))
        .add(Action::ReadSecret, routes!(api::secrets::read))
        .add(Action::ChangeSecret, routes!(api::secrets::change))
        .add(Action::EndSecret, routes!(api::secrets::end))
        .add(Action::ReadAudit, routes!(api::audit::list))
        .add(Action::ReadWholeAudit, routes!(api::audit::whole))
        .add(Action::FollowEvents, routes!(api::events::follow))
        .add(Action::ListJobs, routes!(api::jobs::list))
        .add(Action::AddJob, routes!(api::jobs::add))
        .add(Action::AskReach, routes!(api::jobs::reached))
        .add(Action::ReadJob, routes!(api::jobs::read))
        .add(Action::ChangeJob, routes!(api::jobs::change))
        .add(Action::RemoveJob, routes!(api::jobs::remove))
        .add(Action::AddHook, routes!(api::hooks::add))
        .add(Action::RemoveHook, routes!(api::hooks::remove))
        .add(Action::CallHook, routes!(api::hooks::call))
        .add(Action::TriggerJob, routes!(api::runs::trigger))
        .add(Action::ListRuns, routes!(api::runs::list))
        .add(Action::AddRun, routes!(api::runs::add))
        .add(Action::ReadRun, routes!(api::runs::read))
        .add(Action::CancelRun, routes!(api::runs::cancel))
        .add(Action::RetryRun, routes!(api::runs::retry))
        .add(Action::ReadOutput, routes!(api::evidence::output))
        .add(Action::SaveOutput, routes!(api::evidence::raw))
        .add(Action::ReadSteps, routes!(api::evidence::steps))
        .add(Action::ReadFlows, routes!(api::evidence::flows))
        .add(
            Action::ReadDestinations,
            routes!(api::evidence::destinations),
        )
        .add(Action::ReadDiff, routes!(api::evidence::diff))
        .add(Action::ReadNow, routes!(api::now::read))
        .add(Action::ListFlows, routes!(api::flows::list))
        .add(Action::ReadGateway, routes!(api::gateway::read))
        .add(Action::ReadChecklist, routes!(api::checklist::read))
        .add(Action::ReadPolicySchema, routes!(api::policies::schema))
        .add(Action::AskCheck, routes!(api::policies::checked))
        .add(Action::AskExplain, routes!(api::policies::explained))
        .add(Action::AskDiff, routes!(api::policies::differ))
        .add(Action::AskTests, routes!(api::tries::tested))
        .add(Action::AskReplay, routes!(api::tries::replayed))
        .add(Action::ListSources, routes!(api::sources::list))
        .add(Action::ReadPolicy, routes!(api::sources::in_force))
        .add(Action::Propose, routes!(api::sources::propose))
}

/// Runners, and what they ask.
fn runners(table: Table) -> Table {
    table
        .add(Action::ReadStore, routes!(api::store::read))
        .add(Action::ListRunners, routes!(api::runners::list))
        .add(Action::AddRunner, routes!(api::runners::add))
        .add(Action::EndRunner, routes!(api::runners::end))
        .add(Action::PullHello, routes!(api::pull::hello))
        .add(Action::PullClaim, routes!(api::pull::claim))
        .add(Action::PullKeep, routes!(api::pull::keep))
        .add(Action::PullBegin, routes!(api::pull::begin))
        .add(Action::PullTell, routes!(api::told::tell))
        .add(Action::PullFinish, routes!(api::told::finish))
}

/// Routes, and what each needs.
#[derive(Default)]
pub struct Table(Vec<(Action, UtoipaMethodRouter<App>)>);

impl Table {
    fn add(mut self, action: Action, route: UtoipaMethodRouter<App>) -> Self {
        self.0.push((action, route));
        self
    }

    /// Path, method and action of every route, beside their description.
    pub fn described(self) -> (OpenApi, Vec<(String, String, Action)>) {
        let mut router = OpenApiRouter::<App>::new();
        let mut actions = Vec::new();
        for (action, route) in self.0 {
            for (path, item) in &route.1.paths {
                actions
                    .extend(methods(item).map(|method| (path.clone(), method.to_owned(), action)));
            }
            router = router.routes(route);
        }
        (router.into_openapi(), actions)
    }

    /// The routes, each behind its guard, and answers for everything else.
    pub fn router(self, app: &App) -> Router {
        let mut router = OpenApiRouter::<App>::new();
        for (action, (schemas, paths, methods)) in self.0 {
            let state = (app.clone(), action, success(paths.paths.values()));
            let guarded = methods.route_layer(from_fn_with_state(state, guard::admit));
            router = router.routes((schemas, paths, guarded));
        }
        let (router, _) = router.split_for_parts();
        front::routes()
            .into_iter()
            .fold(router, |router, (path, route)| router.route(path, route))
            .fallback(async || Problem::not_found())
            .method_not_allowed_fallback(async || {
                Problem::new(
                    StatusCode::METHOD_NOT_ALLOWED,
                    "method_not_allowed",
                    "this does not go with this method",
                )
            })
            .with_state(app.clone())
    }
}

/// The status that a route says it answers with when it was done.
fn success<'a>(items: impl Iterator<Item = &'a PathItem>) -> StatusCode {
    let operations = items.flat_map(|item| {
        [&item.get, &item.post, &item.put, &item.patch, &item.delete]
            .into_iter()
            .flatten()
    });
    let mut statuses = operations.flat_map(|operation| operation.responses.responses.keys());
    let success = statuses.find_map(|status| status.parse().ok().filter(StatusCode::is_success));
    success.unwrap_or(StatusCode::OK)
}

fn methods(item: &PathItem) -> impl Iterator<Item = &'static str> {
    [
        ("get", item.get.is_some()),
        ("post", item.post.is_some()),
        ("put", item.put.is_some()),
        ("patch", item.patch.is_some()),
        ("delete", item.delete.is_some()),
    ]
    .into_iter()
    .filter_map(|(method, there)| there.then_some(method))
}
