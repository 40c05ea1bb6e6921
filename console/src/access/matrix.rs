//! The role matrix: one row for each action.
//!
//! `Reach` says who: anybody, anybody signed in, a role in the workspace that the path names, an administrator of the
//! instance. `ByToken` says whether an API token may, too; with one it is always the creator's role, in the token's one
//! workspace. Tokens never manage members, workspaces or tokens, and never have an administrator's powers. A token that may
//! only read sees what runs and where it goes; not who does what (the audit log), nor which other tokens there are.

/// A role in a workspace; each may what the ones before it may.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum Role {
    /// Runs jobs.
    Member,
    /// Also members, settings, runners.
    Admin,
    /// Also owners.
    Owner,
}

impl Role {
    /// As the store and the API write it.
    pub const fn word(self) -> &'static str {
        match self {
            Self::Member => "member",
            Self::Admin => "admin",
            Self::Owner => "owner",
        }
    }

    /// From such a word.
    pub fn parse(word: &str) -> Option<Self> {
        [Self::Member, Self::Admin, Self::Owner]
            .into_iter()
            .find(|role| role.word() == word)
    }
}

/// How far somebody must reach for an action.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Reach {
    /// Anybody who reaches the console.
    Open,
    /// Whoever is signed in.
    Person,
    /// This role, or a higher one, in the workspace that the path names.
    Workspace(Role),
    /// An administrator of the instance.
    Instance,
    /// A runner, by its token. Nobody else, and a runner nothing else.
    Runner,
}

/// Whether an API token may.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum ByToken {
    /// None.
    Never,
    /// Every token.
    Read,
    /// A token that may write.
    Write,
}

/// A row of the matrix.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Rule {
    /// Who may.
    pub reach: Reach,
    /// Whether a token may.
    pub by_token: ByToken,
}

macro_rules! matrix {
    ($($(#[$about:meta])* $action:ident $word:literal: $reach:expr, $by_token:ident;)*) => {
        /// Everything that can be asked of the API.
        #[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
        pub enum Action { $($(#[$about])* $action,)* }

        impl Action {
            /// Its name in the description and the audit log.
            pub const fn word(self) -> &'static str {
                match self { $(Self::$action => $word,)* }
            }
        }

        /// The row of an action.
        pub const fn rule(action: Action) -> Rule {
            match action {
                $(Action::$action => Rule { reach: $reach, by_token: ByToken::$by_token },)*
            }
        }
    };
}

impl Action {
    /// Whether it changes nothing although it is a POST: a question with a body.
    pub const fn only_asks(self) -> bool {
        matches!(
            self,
            Self::LookAtCode
                | Self::AskReach
                | Self::AskCheck
                | Self::AskExplain
                | Self::AskDiff
                | Self::AskTests
                | Self::AskReplay
        )
    }
}

use Reach::{Instance, Open, Person, Runner, Workspace};
use Role::{Admin, Member};

matrix! {
    /// What this is.
    ReadAbout "about.read": Open, Read;
    /// The API's description.
    ReadDescription "description.read": Open, Read;
    /// How this machine's gateway is.
    ReadGateway "gateway.read": Person, Read;
    /// What is to be done for a good installation.
    ReadChecklist "checklist.read": Instance, Never;
    /// The JSON Schema of policies.
    ReadPolicySchema "policy.schema": Open, Read;
    /// Become the first owner.
    ClaimInstance "owner.claim": Open, Never;
    /// Sign in.
    SignIn "session.begin": Open, Never;
    /// Leave for a sign-in provider.
    LeaveForProvider "provider.leave": Open, Never;
    /// Come back from one.
    ComeBackFromProvider "provider.come_back": Open, Never;
    /// Who am I.
    ReadSelf "session.read": Person, Read;
    /// Sign out.
    SignOut "session.end": Person, Never;
    /// Where am I signed in.
    ListDevices "device.list": Person, Never;
    /// Sign one device out.
    EndDevice "device.end": Person, Never;
    /// Sign out everywhere.
    SignOutEverywhere "device.end_all": Person, Never;
    /// Another password.
    ChangePassword "password.change": Person, Never;
    /// Who is there.
    ListUsers "user.list": Instance, Never;
    /// Make a user.
    AddUser "user.add": Instance, Never;
    /// Deactivate a user, make an administrator.
    ChangeUser "user.change": Instance, Never;
    /// My workspaces; a token's own.
    ListWorkspaces "workspace.list": Person, Read;
    /// Make a workspace.
    AddWorkspace "workspace.add": Person, Never;
    /// One workspace.
    ReadWorkspace "workspace.read": Workspace(Member), Read;
    /// Another name for a workspace.
    RenameWorkspace "workspace.rename": Workspace(Admin), Never;
    /// Who is in a workspace.
    ListMembers "member.list": Workspace(Member), Read;
    /// Add somebody to a workspace.
    AddMember "member.add": Workspace(Admin), Never;
    /// Give a member another role.
    ChangeMember "member.change": Workspace(Admin), Never;
    /// Remove a member (an admin), or leave (everybody).
    RemoveMember "member.remove": Workspace(Member), Never;
    /// My tokens in a workspace.
    ListTokens "token.list": Workspace(Member), Write;
    /// Make a token.
    AddToken "token.add": Workspace(Member), Never;
    /// Revoke a token.
    EndToken "token.end": Workspace(Member), Never;
    /// Ask a person to be let in.
    AskCode "code.ask": Open, Never;
    /// What became of that.
    ReadCode "code.read": Open, Never;
    /// What asks to be let in.
    LookAtCode "code.look": Person, Never;
    /// Say no to it.
    RefuseCode "code.refuse": Person, Never;
    /// Say yes to it, in a workspace.
    ApproveCode "code.approve": Workspace(Member), Never;
    /// End the token that is sent along.
    EndOwnToken "token.end_own": Person, Read;
    /// Whom a workspace tells.
    ListNotifications "notification.list": Workspace(Admin), Never;
    /// Tell somebody.
    AddNotification "notification.add": Workspace(Admin), Never;
    /// Tell somebody nothing any more.
    EndNotification "notification.end": Workspace(Admin), Never;
    /// Send a test.
    TestNotification "notification.test": Workspace(Admin), Never;
    /// What was sent to somebody.
    ListDeliveries "delivery.list": Workspace(Admin), Never;
    /// Names of a workspace's secrets.
    ListSecrets "secret.list": Workspace(Member), Read;
    /// One secret, without its value.
    ReadSecret "secret.read": Workspace(Member), Read;
    /// Keep a secret.
    AddSecret "secret.add": Workspace(Member), Write;
    /// Another value or other hosts.
    ChangeSecret "secret.change": Workspace(Member), Write;
    /// Delete a secret.
    EndSecret "secret.end": Workspace(Member), Write;
    /// A member's tokens in a workspace.
    ListMemberTokens "token.list_of_member": Workspace(Admin), Never;
    /// Revoke a member's token.
    EndMemberToken "token.end_of_member": Workspace(Admin), Never;
    /// What was changed in a workspace, and by whom.
    ReadAudit "audit.read": Workspace(Admin), Write;
    /// What was changed anywhere.
    ReadWholeAudit "audit.read_all": Instance, Never;
    /// What happens, as it happens, where I may look.
    FollowEvents "event.follow": Person, Read;
    /// The jobs of a workspace.
    ListJobs "job.list": Workspace(Member), Read;
    /// One job.
    ReadJob "job.read": Workspace(Member), Read;
    /// Make a job.
    AddJob "job.add": Workspace(Member), Write;
    /// Change a job.
    ChangeJob "job.change": Workspace(Member), Write;
    /// Remove a job.
    RemoveJob "job.remove": Workspace(Member), Write;
    /// What a network setting reaches.
    AskReach "job.reach": Workspace(Member), Read;
    /// Give a job a webhook.
    AddHook "job.webhook_add": Workspace(Member), Never;
    /// Take a job's webhook away.
    RemoveHook "job.webhook_remove": Workspace(Member), Never;
    /// Call a webhook: the secret in the address is all that counts.
    CallHook "job.webhook_call": Open, Read;
    /// Run a job.
    TriggerJob "job.run": Workspace(Member), Write;
    /// Run something that is no job.
    AddRun "run.add": Workspace(Member), Write;
    /// The runs of a workspace.
    ListRuns "run.list": Workspace(Member), Read;
    /// One run.
    ReadRun "run.read": Workspace(Member), Read;
    /// End a run.
    CancelRun "run.cancel": Workspace(Member), Write;
    /// Run again what a run ran.
    RetryRun "run.retry": Workspace(Member), Write;
    /// What a run printed.
    ReadOutput "run.output": Workspace(Member), Read;
    /// What a run printed, to save.
    SaveOutput "run.output_raw": Workspace(Member), Read;
    /// What happened to a run.
    ReadSteps "run.steps": Workspace(Member), Read;
    /// What a run's network saw.
    ReadFlows "run.flows": Workspace(Member), Read;
    /// Where a run went.
    ReadDestinations "run.destinations": Workspace(Member), Read;
    /// How a run's network differs from another's.
    ReadDiff "run.diff": Workspace(Member), Read;
    /// What the networks of a workspace's runs saw lately.
    ListFlows "flow.list": Workspace(Member), Read;
    /// What is going on.
    ReadNow "now.read": Workspace(Member), Read;
    /// Mistakes and warnings of a policy.
    AskCheck "policy.check": Workspace(Member), Read;
    /// What would become of a destination.
    AskExplain "policy.explain": Workspace(Member), Read;
    /// What changes between two policies.
    AskDiff "policy.diff": Workspace(Member), Read;
    /// A policy's own tests.
    AskTests "policy.test": Workspace(Member), Read;
    /// What a policy would have made of recorded flows.
    AskReplay "policy.replay": Workspace(Member), Read;
    /// Policies in git.
    ListSources "policy.sources": Workspace(Member), Read;
    /// A policy in git, as it is in force.
    ReadPolicy "policy.read": Workspace(Member), Read;
    /// Propose a change of a policy in git.
    Propose "policy.propose": Workspace(Member), Write;
    /// How large the store is, and how long it keeps what.
    ReadStore "store.read": Instance, Never;
    /// Which runners are there.
    ListRunners "runner.list": Instance, Never;
    /// Make a runner.
    AddRunner "runner.add": Instance, Never;
    /// Revoke a runner.
    EndRunner "runner.end": Instance, Never;
    /// Be a runner.
    PullHello "pull.hello": Runner, Never;
    /// Take a run.
    PullClaim "pull.claim": Runner, Never;
    /// Keep runs.
    PullKeep "pull.keep": Runner, Never;
    /// Begin a run.
    PullBegin "pull.begin": Runner, Never;
    /// Tell about a run.
    PullTell "pull.tell": Runner, Never;
    /// End a run.
    PullFinish "pull.finish": Runner, Never;
}
