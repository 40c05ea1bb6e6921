/** Every page at a glance, each loaded when it is first asked for. Who may see which is the console's to say. */
import { createRootRoute, createRoute, createRouter, lazyRouteComponent } from "@tanstack/react-router";
import { Failed } from "./ui/ErrorBoundary";
import { Shell } from "./ui/Shell";
import { NotFoundPage } from "./pages/NotFoundPage";
import { HomePage } from "./pages/HomePage";

const root = createRootRoute({
  component: Shell,
  notFoundComponent: NotFoundPage,
  errorComponent: ({ error, reset }) => <Failed error={error} onRetry={reset} />,
});
const home = createRoute({ getParentRoute: () => root, path: "/", component: HomePage });
const account = createRoute({
  getParentRoute: () => root,
  path: "/account",
  component: lazyRouteComponent(() => import("./pages/AccountPage"), "AccountPage"),
});
const device = createRoute({
  getParentRoute: () => root,
  path: "/device",
  component: lazyRouteComponent(() => import("./pages/DevicePage"), "DevicePage"),
});
const users = createRoute({
  getParentRoute: () => root,
  path: "/admin/users",
  component: lazyRouteComponent(() => import("./pages/UsersPage"), "UsersPage"),
});
const runners = createRoute({
  getParentRoute: () => root,
  path: "/admin/runners",
  component: lazyRouteComponent(() => import("./pages/RunnersPage"), "RunnersPage"),
});
const wholeAudit = createRoute({
  getParentRoute: () => root,
  path: "/admin/audit",
  component: lazyRouteComponent(() => import("./pages/AuditPage"), "WholeAuditPage"),
});

const workspace = createRoute({ getParentRoute: () => root, path: "/w/$workspace" });
const now = createRoute({
  getParentRoute: () => workspace,
  path: "/now",
  component: lazyRouteComponent(() => import("./pages/NowPage"), "NowPage"),
});
const runs = createRoute({
  getParentRoute: () => workspace,
  path: "/runs",
  component: lazyRouteComponent(() => import("./pages/RunsPage"), "RunsPage"),
});
const run = createRoute({
  getParentRoute: () => workspace,
  path: "/runs/$run",
  component: lazyRouteComponent(() => import("./pages/RunPage"), "RunPage"),
});
const jobs = createRoute({
  getParentRoute: () => workspace,
  path: "/jobs",
  component: lazyRouteComponent(() => import("./pages/JobsPage"), "JobsPage"),
});
const newJob = createRoute({
  getParentRoute: () => workspace,
  path: "/jobs/new",
  component: lazyRouteComponent(() => import("./pages/JobPage"), "NewJobPage"),
});
const job = createRoute({
  getParentRoute: () => workspace,
  path: "/jobs/$job",
  component: lazyRouteComponent(() => import("./pages/JobPage"), "JobPage"),
});
const policies = createRoute({
  getParentRoute: () => workspace,
  path: "/policies",
  component: lazyRouteComponent(() => import("./pages/PoliciesPage"), "PoliciesPage"),
});
const secrets = createRoute({
  getParentRoute: () => workspace,
  path: "/secrets",
  component: lazyRouteComponent(() => import("./pages/SecretsPage"), "SecretsPage"),
});
const members = createRoute({
  getParentRoute: () => workspace,
  path: "/members",
  component: lazyRouteComponent(() => import("./pages/MembersPage"), "MembersPage"),
});
const tokens = createRoute({
  getParentRoute: () => workspace,
  path: "/tokens",
  component: lazyRouteComponent(() => import("./pages/TokensPage"), "TokensPage"),
});
const notifications = createRoute({
  getParentRoute: () => workspace,
  path: "/notifications",
  component: lazyRouteComponent(() => import("./pages/NotificationsPage"), "NotificationsPage"),
});
const audit = createRoute({
  getParentRoute: () => workspace,
  path: "/audit",
  component: lazyRouteComponent(() => import("./pages/AuditPage"), "AuditPage"),
});

export const router = createRouter({
  routeTree: root.addChildren([
    home,
    account,
    device,
    users,
    runners,
    wholeAudit,
    workspace.addChildren([now, runs, run, jobs, newJob, job, policies, secrets, members, tokens, notifications, audit]),
  ]),
  defaultPreload: "intent",
  scrollRestoration: false,
});

declare module "@tanstack/react-router" {
  interface Register {
    router: typeof router;
  }
}
