//! A change that somebody asked for: their rights looked at again, the change, and its audit entry in one transaction.
//!
//! The guard says who asks for what ([`scope`]); every store function that changes something on request uses [`change!`]
//! instead of `transact!`. Outside of a request (the console's own work, tests) it is a plain transaction. Whoever takes
//! rights away holds [`super::Lock::Accounts`], and a change holds it shared from the look to its commit: it is made before
//! they are gone, or not at all. Failure stance: an entry that cannot be written undoes its change.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use super::audit::Told;
use super::secrets::Kept;
use super::users::{Changed, Claim};
use super::workspaces::Membership;
use super::{Store, StoreError, on, replays};
use crate::access::Role;
use crate::clock::Millis;

tokio::task_local! {
    static ASKED: Arc<Change>;
}

/// What somebody needs for a change, as the store can look it up again.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Needs {
    /// Nothing: the change proves its right itself (a link, a password).
    Nothing,
    /// To be signed in.
    Person,
    /// A role in a workspace.
    Role(Role, String),
    /// To administer the instance.
    Instance,
}

/// Who asks for a change, and as what it is told.
#[derive(Debug)]
pub struct Change {
    /// When it was asked for.
    pub now: Millis,
    /// Whose rights are needed.
    pub user: Option<String>,
    /// The id of the session or token.
    pub credential: Option<String>,
    /// What is needed.
    pub needs: Needs,
    /// The entry, if it succeeds.
    pub told: Told<'static>,
    /// The claim on the caller's `Idempotency-Key`.
    pub key: Option<replays::Claimed>,
    /// Whom it is about, if only the change itself knows.
    subject: Mutex<Option<String>>,
    made: AtomicBool,
}

impl Change {
    /// A change that is about to be asked for.
    pub const fn new(told: Told<'static>, needs: Needs, now: Millis) -> Self {
        Self {
            now,
            user: None,
            credential: None,
            needs,
            told,
            key: None,
            subject: Mutex::new(None),
            made: AtomicBool::new(false),
        }
    }

    /// Whether it was made, and told.
    pub fn made(&self) -> bool {
        self.made.load(Ordering::Acquire)
    }

    /// It was committed.
    pub(super) fn note_made(&self) {
        self.made.store(true, Ordering::Release);
    }

    /// Whom or what it is about.
    pub fn subject(&self) -> String {
        let subject = self.subject.lock().unwrap_or_else(PoisonError::into_inner);
        subject
            .clone()
            .unwrap_or_else(|| self.told.subject.to_string())
    }

    /// Whether what the store says now is enough.
    pub(super) fn check(
        &self,
        standing: Option<(bool, Option<String>, i64)>,
    ) -> Result<(), StoreError> {
        let (admin, role) = match standing {
            Some((admin, role, 1..)) => (admin, role),
            _ if self.needs == Needs::Nothing => return Ok(()),
            _ => return Err(StoreError::SignedOut),
        };
        let enough = match &self.needs {
            Needs::Nothing | Needs::Person => true,
            Needs::Instance => admin,
            Needs::Role(needed, _) => role
                .as_deref()
                .and_then(Role::parse)
                .is_some_and(|role| role >= *needed),
        };
        if enough {
            Ok(())
        } else {
            Err(StoreError::NotAllowed)
        }
    }

    /// Who hears that it was made: whoever sees what it is about. What exactly was changed they read for themselves.
    pub(super) fn topic(&self) -> Option<String> {
        match &self.needs {
            Needs::Role(_, workspace) => Some(format!("workspace/{workspace}")),
            Needs::Instance => Some("instance".to_owned()),
            Needs::Nothing | Needs::Person => self.user.as_ref().map(|user| format!("user/{user}")),
        }
    }

    /// The workspace to look in.
    pub(super) fn place(&self) -> &str {
        match &self.needs {
            Needs::Role(_, workspace) => workspace,
            Needs::Nothing | Needs::Person | Needs::Instance => "",
        }
    }
}

/// Does something on behalf of who asks for this change.
pub async fn scope<T>(change: Arc<Change>, act: impl Future<Output = T>) -> T {
    ASKED.scope(change, act).await
}

/// The change that this task was asked for.
pub(super) fn asked() -> Option<Arc<Change>> {
    ASKED.try_with(Arc::clone).ok()
}

/// Says whom the change is about; store functions that make an id say so before their transaction ends.
pub fn about(subject: impl Into<String>) {
    if let Some(change) = asked() {
        *change
            .subject
            .lock()
            .unwrap_or_else(PoisonError::into_inner) = Some(subject.into());
    }
}

/// Whether what a transaction came to is a change.
pub trait Effect {
    /// Whether it is.
    fn changed(&self) -> bool;
}

macro_rules! effect {
    ($($kind:ty: $is:expr;)*) => { $(impl Effect for $kind {
        fn changed(&self) -> bool {
            ($is)(self)
        }
    })* };
}

effect! {
    (): |(): &Self| true;
    bool: |done: &Self| *done;
    u64: |rows: &Self| *rows > 0;
    String: |_: &Self| true;
    Changed: |done: &Self| *done == Changed::Done;
    Kept: |done: &Self| *done == Kept::Became(Changed::Done);
    Membership: |done: &Self| *done == Membership::Became(Changed::Done);
    Claim: |done: &Self| matches!(done, Claim::Made(_));
}

impl<T> Effect for Option<T> {
    fn changed(&self) -> bool {
        self.is_some()
    }
}

/// What somebody is, by one credential and in one workspace: `(administers, role, credentials that live)`.
pub(super) const STANDING: &str = "SELECT u.instance_admin, \
     (SELECT m.role FROM members m WHERE m.user_id = u.id AND m.workspace_id = $2), \
     (SELECT count(*) FROM sessions s WHERE s.id = $3 AND s.user_id = u.id AND s.expires_at > $4) \
     + (SELECT count(*) FROM tokens t WHERE t.id = $3 AND t.user_id = u.id AND (t.expires_at IS NULL OR t.expires_at > $4)) \
     FROM users u WHERE u.id = $1 AND u.deactivated_at IS NULL \
     AND NOT EXISTS (SELECT 1 FROM identities i WHERE i.user_id = u.id AND i.checked_at <= $4 - 900000)";

impl Store {
    /// Whether a credential of somebody still lives, and whether they administer the instance; `None`: it does not.
    pub async fn stands(
        &self,
        user: &str,
        credential: &str,
        now: Millis,
    ) -> Result<Option<bool>, StoreError> {
        let standing: Option<(bool, Option<String>, i64)> = on!(self, pool => sqlx::query_as(STANDING)
            .bind(user).bind("").bind(credential).bind(now).fetch_optional(pool).await)?;
        Ok(standing
            .filter(|(_, _, live)| *live > 0)
            .map(|(admin, _, _)| admin))
    }

    /// Whether a credential of somebody still lives who is in a workspace.
    pub async fn stands_in(
        &self,
        (user, credential): (&str, &str),
        workspace: &str,
        now: Millis,
    ) -> Result<bool, StoreError> {
        let standing: Option<(bool, Option<String>, i64)> = on!(self, pool => sqlx::query_as(STANDING)
            .bind(user).bind(workspace).bind(credential).bind(now).fetch_optional(pool).await)?;
        Ok(standing.is_some_and(|(_, role, live)| live > 0 && role.is_some()))
    }
}

/// [`transact!`](super::transact) for a change that somebody asks for. What the block comes to is an [`Effect`]; `return`
/// in it rolls back, so nothing is told.
macro_rules! change {
    ($store:expr, $lock:expr, $tx:ident => $body:block) => {{
        let asked = $crate::store::change::asked();
        let shared = matches!($store, $crate::store::Store::Postgres(_));
        let done = $crate::store::transact!($store, $lock, $tx => {
            if let Some(change) = &asked {
                if shared {
                    sqlx::query("SELECT pg_advisory_xact_lock_shared($1)")
                        .bind($crate::store::Lock::Accounts as i64)
                        .execute(&mut *$tx)
                        .await?;
                }
                let standing: Option<(bool, Option<String>, i64)> = sqlx::query_as($crate::store::change::STANDING)
                    .bind(&change.user)
                    .bind(change.place())
                    .bind(&change.credential)
                    .bind(change.now)
                    .fetch_optional(&mut *$tx)
                    .await?;
                change.check(standing)?;
            }
            let done = $body;
            let first = asked.as_ref().filter(|change| !change.made() && $crate::store::change::Effect::changed(&done));
            if let Some(change) = first {
                if let Some(key) = &change.key {
                    // a claim that somebody took over meanwhile: they do it
                    let held = sqlx::query($crate::store::replays::CHANGED)
                        .bind(&key.actor)
                        .bind(&key.digest)
                        .bind(&key.claim)
                        .execute(&mut *$tx)
                        .await?
                        .rows_affected();
                    if held != 1 {
                        return Err($crate::store::StoreError::NotAllowed);
                    }
                }
                if let Some(topic) = change.topic() {
                    let data = serde_json::json!({ "action": change.told.action });
                    $crate::store::events::append_event!($store, $tx, &topic, "changed", &data, change.now);
                }
                if shared {
                    sqlx::query("SELECT pg_advisory_xact_lock($1)")
                        .bind($crate::store::Lock::Audit as i64)
                        .execute(&mut *$tx)
                        .await?;
                }
                let subject = change.subject();
                let told = $crate::store::audit::Told { subject: subject.into(), ..change.told.clone() };
                $crate::store::audit::append!($tx, &told, change.now);
            }
            done
        });
        if let Some(change) = asked.filter(|_| $crate::store::change::Effect::changed(&done)) {
            change.note_made();
        }
        done
    }};
}
pub(crate) use change;

#[cfg(test)]
mod tests {
    use super::super::sessions::NewSession;
    use super::super::testing::each;
    use super::super::users::{Home, NewUser};
    use super::super::workspaces::{MemberChange, Visible};
    use super::*;

    async fn user(store: &Store, name: &str) -> (String, String) {
        let new = NewUser {
            email: format!("{name}@example.com"),
            name: name.into(),
            password: None,
            instance_admin: false,
        };
        let user = store.add_user(&new, Home::Personal, 1).await.unwrap();
        let session = NewSession {
            user: &user,
            proven: None,
            digest: name.as_bytes(),
            address: "",
            agent: "",
            ends: 1000,
        };
        let session = store.add_session(session, 1).await.unwrap().unwrap();
        (user, session)
    }

    fn asks(who: &(String, String), workspace: &str, now: Millis) -> Arc<Change> {
        let told = Told {
            workspace: Some(workspace.to_owned()),
            actor: Some(who.0.clone()),
            credential: "session".into(),
            address: String::new(),
            action: "workspace.rename",
            subject: "x".into(),
            status: 200,
        };
        let mut change = Change::new(told, Needs::Role(Role::Admin, workspace.to_owned()), now);
        change.user = Some(who.0.clone());
        change.credential = Some(who.1.clone());
        Arc::new(change)
    }

    async fn name(store: &Store, owner: &str, workspace: &str) -> (String, i64) {
        let there = store
            .workspace_of(owner, workspace, Visible::Every)
            .await
            .unwrap()
            .unwrap();
        (there.name, there.version)
    }

    #[tokio::test]
    async fn who_lost_the_right_meanwhile_changes_nothing() {
        each(async |store| {
            let (ada, eve) = (user(&store, "ada").await, user(&store, "eve").await);
            let place = store.add_workspace("A", &ada.0, 2).await.unwrap();
            store
                .add_member(&place, &eve.0, Role::Admin, 2)
                .await
                .unwrap();
            let rename = |version| store.rename_workspace(&place, "B", version);
            let over = scope(asks(&eve, &place, 1000), rename(1)).await;
            assert!(matches!(over, Err(StoreError::SignedOut)), "{over:?}");
            let good = asks(&eve, &place, 5);
            assert_eq!(scope(good.clone(), rename(1)).await.unwrap(), Changed::Done);
            assert!(good.made());
            let member = MemberChange {
                workspace: &place,
                by: &ada.0,
                user: &eve.0,
                role: Some(Role::Member),
            };
            store.change_member(member).await.unwrap();
            let late = asks(&eve, &place, 5);
            let refused = scope(late.clone(), rename(2)).await;
            assert!(
                matches!(refused, Err(StoreError::NotAllowed)) && !late.made(),
                "{refused:?}"
            );
            store.end_session(&eve.0, &eve.1).await.unwrap();
            let refused = scope(asks(&eve, &place, 5), rename(2)).await;
            assert!(matches!(refused, Err(StoreError::SignedOut)), "{refused:?}");
            assert_eq!(name(&store, &ada.0, &place).await, ("B".into(), 2));
            assert_eq!(store.audit_after(None, 0, 10).await.unwrap().len(), 1);
        })
        .await;
    }

    #[tokio::test]
    async fn a_change_and_the_loss_of_its_right_at_once_are_one_after_the_other() {
        each(async |store| {
            let (ada, eve) = (user(&store, "ada").await, user(&store, "eve").await);
            let place = store.add_workspace("A", &ada.0, 2).await.unwrap();
            for turn in 0..20 {
                store
                    .add_member(&place, &eve.0, Role::Admin, 2)
                    .await
                    .unwrap();
                let (_, version) = name(&store, &ada.0, &place).await;
                let out = MemberChange {
                    workspace: &place,
                    by: &ada.0,
                    user: &eve.0,
                    role: None,
                };
                let wanted = format!("N{turn}");
                let (renamed, out) = futures_util::future::join(
                    scope(
                        asks(&eve, &place, 5),
                        store.rename_workspace(&place, &wanted, version),
                    ),
                    store.change_member(out),
                )
                .await;
                assert_eq!(out.unwrap(), Membership::Became(Changed::Done));
                let (is, _) = name(&store, &ada.0, &place).await;
                assert_eq!(is == wanted, renamed.is_ok(), "{renamed:?}");
            }
        })
        .await;
    }

    #[tokio::test]
    async fn a_change_that_cannot_be_told_is_not_made() {
        each(async |store| {
            let ada = user(&store, "ada").await;
            let place = store.add_workspace("A", &ada.0, 2).await.unwrap();
            let run = async |statement: &'static str| {
                on!(&store, pool => sqlx::query(statement).execute(pool).await.map(|_| ()))
                    .unwrap();
            };
            run("ALTER TABLE audit RENAME TO elsewhere").await;
            let change = asks(&ada, &place, 5);
            let failed = scope(change.clone(), store.rename_workspace(&place, "B", 1)).await;
            assert!(failed.is_err() && !change.made());
            assert_eq!(name(&store, &ada.0, &place).await, ("A".into(), 1));
            run("ALTER TABLE elsewhere RENAME TO audit").await;
            let done = scope(change.clone(), store.rename_workspace(&place, "B", 1)).await;
            assert_eq!(done.unwrap(), Changed::Done);
            assert_eq!(store.audit_after(None, 0, 10).await.unwrap().len(), 1);
        })
        .await;
    }
}
