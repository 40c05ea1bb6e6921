//! Who may become a member of which group.
//!
//! A group is one user's in one workspace for as long as it has a member, and a service's name leads to one member: or
//! somebody else's network could put itself where a service is looked for. Pure; the registry asks under its lock.

use netpolicy::ids::NetworkId;

use super::state::State;
use crate::member::ServiceName;

/// Why a network cannot join.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum JoinError {
    /// Another member has the service's name.
    #[error("the group has a service {0} already")]
    Taken(ServiceName),
    /// The group is another user's or another workspace's.
    #[error("the group {0} belongs to another user or workspace")]
    Foreign(NetworkId),
}

/// Whether a network may join its group beside these.
pub fn may_join<'a>(
    there: impl Iterator<Item = &'a State>,
    joining: &State,
) -> Result<(), JoinError> {
    let Some(own) = &joining.member else {
        return Ok(());
    };
    for state in there {
        let Some(member) = state.member.as_ref().filter(|m| m.group == own.group) else {
            continue;
        };
        if (state.owner, &state.workspace) != (joining.owner, &joining.workspace) {
            return Err(JoinError::Foreign(own.group.clone()));
        }
        if member.service == own.service {
            return Err(JoinError::Taken(own.service.clone()));
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::net::{Ipv4Addr, Ipv6Addr};

    use netpolicy::ids::{Generation, PolicyHash};

    use super::*;
    use crate::control::PolicySource;
    use crate::limits::Used;
    use crate::member::Membership;

    fn state(owner: u32, workspace: &str, member: Option<(&str, &str)>) -> State {
        State {
            id: "n".parse().unwrap(),
            run: None,
            workspace: workspace.to_owned(),
            v4: Ipv4Addr::LOCALHOST,
            v6: Ipv6Addr::LOCALHOST,
            link: "sp0".to_owned(),
            via: crate::control::api::Via::Link,
            broker: None,
            member: member.map(|(group, service)| Membership {
                group: group.parse().unwrap(),
                service: service.parse().unwrap(),
                needs: [].into(),
            }),
            owner,
            labels: [].into(),
            source: PolicySource::Preset("none".to_owned()),
            resolved: None,
            policy: PolicyHash([0; 32]),
            generation: Generation(1),
            attached_ms: 1,
            used: Used::default(),
            recorded: crate::record::Recorded::default(),
        }
    }

    #[test]
    fn a_group_takes_only_its_own_users_networks_and_each_service_once() {
        let there = [
            state(7, "w", Some(("shop", "db"))),
            state(8, "w", None),
            state(8, "v", Some(("blog", "db"))),
        ];
        let joins = |joining: &State| may_join(there.iter(), joining);
        let foreign = Err(JoinError::Foreign("shop".parse().unwrap()));
        assert_eq!(joins(&state(7, "w", Some(("shop", "web")))), Ok(()));
        assert_eq!(joins(&state(8, "w", Some(("shop", "web")))), foreign);
        assert_eq!(joins(&state(0, "w", Some(("shop", "web")))), foreign);
        assert_eq!(joins(&state(7, "v", Some(("shop", "web")))), foreign);
        assert_eq!(
            joins(&state(7, "w", Some(("shop", "db")))),
            Err(JoinError::Taken("db".parse().unwrap()))
        );
        assert_eq!(joins(&state(9, "x", Some(("fresh", "db")))), Ok(()));
        assert_eq!(joins(&state(8, "w", None)), Ok(()));
    }
}
