//! A posture's rules are applied, read back, compared with what was asked, and brought back.
//!
//! Owns: the transaction that carries the elements of attached networks over, and the order of rules and lanes. Invariant:
//! sealing shuts lanes before anything else, opening opens them last.
//! Failure stance: what cannot be read back as asked is an error; what differs is named, and the caller seals.

use netpolicy::ruleset::{Element, InterfaceName, Ruleset};

use super::enforcer::{Enforcer, Posture, plan};
use super::error::{KernelError, Mismatch};
use super::members::{Member, State};
use super::survey::{LinkSeen, Survey, survey};
use super::{inspect, links, policy_routing, sysctl};

/// How often verification looks: a difference that lasts is one; networks that come and go under a look are none.
const VERIFY_ATTEMPTS: usize = 3;

impl Enforcer {
    /// Applies the ruleset of a posture with the elements of all attached networks, in one transaction, and reads it
    /// back. Held SYNs may be lost; established flows stay.
    pub fn apply(&self, posture: Posture) -> Result<(), KernelError> {
        let gone = self.gone()?;
        let mut state = self.state();
        state.gone = gone;
        let rules = self.rules(&state, posture);
        // Sealing shuts lanes first, whatever becomes of the rest; opening opens them last.
        if posture == Posture::Sealed {
            state.firewall.replace_lanes(&state.lanes(posture))?;
        }
        state.firewall.replace(&rules)?;
        state.posture = posture;
        if posture == Posture::Enforcing {
            state.write_lanes()?;
        }
        self.check_rules(&state)
    }

    /// Compares settings, policy rules, routes, addresses, links and every kernel rule with what was asked.
    ///
    /// `Ok(Err(_))` names the first difference; `Err` means that it could not be looked at.
    pub fn verify(&self) -> Result<Result<(), Mismatch>, KernelError> {
        for _ in 1..VERIFY_ATTEMPTS {
            let expected = {
                let state = self.state();
                match self.check_rules(&state) {
                    Err(KernelError::Mismatch(mismatch)) => return Ok(Err(mismatch)),
                    result => result?,
                }
                self.expected(&state)
            };
            if let Some(mismatch) = self.inner.ns.run(sysctl::verify)? {
                return Ok(Err(mismatch));
            }
            // A network that came or went meanwhile makes an old picture differ; look again.
            if inspect::inspect(&expected, &self.look()?).is_ok() {
                return Ok(Ok(()));
            }
        }
        // the last look stands still: nothing comes or goes before it is over
        let state = self.state();
        Ok(inspect::inspect(&self.expected(&state), &self.look()?))
    }

    fn expected(&self, state: &State) -> inspect::Expected {
        let wanted = |member: &Member| inspect::Wanted {
            v4: member.v4,
            v6: member.v6,
        };
        inspect::Expected {
            service4: self.inner.config.service4,
            service6: self.inner.config.service6,
            members: state
                .members
                .iter()
                .map(|(link, member)| (link.clone(), wanted(member)))
                .collect(),
            moving: state.moving.clone(),
            marks: policy_routing::marks(self.backend()),
        }
    }

    /// Brings settings, routes, links and the rules of the posture in force back. What cannot be brought back (a link
    /// that was deleted) still differs afterwards: verify again.
    pub fn repair(&self) -> Result<(), KernelError> {
        let posture = self.posture();
        self.apply(posture)?;
        self.prepare()?;
        let members: Vec<_> = self
            .state()
            .members
            .values_mut()
            .map(|m| {
                // a route that is put back fits the whole link
                m.fitted = None;
                (m.index, self.pair(m.v4, m.v6))
            })
            .collect();
        self.inner.ns.route(|handle| async move {
            for (index, pair) in members {
                if let Err(error) = links::furnish_outer(&handle, index, &pair).await {
                    tracing::warn!(%error, index, "a link could not be repaired");
                }
            }
            Ok(())
        })
    }

    /// Deletes links of ours that nobody owns: neither members nor on their way to or from it. Returns their names.
    ///
    /// For a gateway that has adopted what it wants of an earlier one's.
    pub fn clear_leftovers(&self) -> Result<Vec<String>, KernelError> {
        // seen first, asked afterwards: what is being made meanwhile was announced before it could be seen
        let seen = self.look()?;
        let left: Vec<(u32, String)> = {
            let state = self.state();
            let owned = |name: &str| {
                name.parse().is_ok_and(|name: InterfaceName| {
                    state.members.contains_key(&name) || state.moving.contains(&name)
                })
            };
            let left = |link: &LinkSeen| links::is_ours(&link.name) && !owned(&link.name);
            let links = seen.links.into_iter();
            links
                .filter(left)
                .map(|link| (link.index, link.name))
                .collect()
        };
        for (index, _) in &left {
            let index = *index;
            self.inner
                .ns
                .route(move |handle| async move { links::delete_numbered(&handle, index).await })?;
        }
        Ok(left.into_iter().map(|(_, name)| name).collect())
    }

    /// The rules in force as text, behind the name of what holds them.
    pub fn rules_text(&self) -> String {
        let state = self.state();
        let rules = self.rules(&state, state.posture);
        state.firewall.text(&rules, &state.lanes(state.posture))
    }

    pub(super) fn look(&self) -> Result<Survey, KernelError> {
        self.inner
            .ns
            .route(|handle| async move { survey(&handle).await })
    }

    pub(super) fn rules(&self, state: &State, posture: Posture) -> Ruleset {
        let plan = plan(&self.inner.config, self.inner.queue);
        let rules = match posture {
            Posture::Sealed => Ruleset::sealed(&plan),
            Posture::Enforcing => Ruleset::enforcing(&plan),
        };
        let elements: Vec<Element> = state
            .members
            .iter()
            .flat_map(|(link, member)| member.elements(link))
            .collect();
        rules.with_elements(&elements)
    }

    fn check_rules(&self, state: &State) -> Result<(), KernelError> {
        let lanes = state.lanes(state.posture);
        let rules = self.rules(state, state.posture);
        state.firewall.check(&rules, &lanes)
    }
}
