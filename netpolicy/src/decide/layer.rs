//! What one layer says about a name, an address, or both. [`super::connect`] lets all layers speak.
//!
//! Order inside a layer: no network, denials, what the mode permits, the address's class. A judgment never depends on
//! another layer, which is what makes layers only narrow.

use std::net::IpAddr;

use super::snapshot::Layer;
use super::special::{Special, special};
use super::{Denial, Speech};
use crate::addr::{AddressBook, Class, Classified, Reach};
use crate::ids::UnixSeconds;
use crate::name::Name;
use crate::policy::{NetworkMode, Place, Protocol, Rule, Selector};
use crate::reason::Reason;

/// The part of a question that stays the same over all layers.
#[derive(Clone, Copy, Debug)]
pub(super) struct Ask {
    pub(super) port: u16,
    pub(super) protocol: Protocol,
    pub(super) now: UnixSeconds,
}

/// Why a layer permits: the line, and how bytes are judged.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct Grant {
    pub(super) rule: Place,
    pub(super) speech: Speech,
}

/// An address with its class.
#[derive(Clone, Debug)]
pub(super) struct Classed {
    pub(super) address: IpAddr,
    pub(super) classified: Classified,
    /// The address and those inside it: a denial of any of them is one of all.
    pub(super) forms: Vec<IpAddr>,
}

impl Classed {
    pub(super) fn new(book: &AddressBook, address: IpAddr) -> Self {
        let classified = book.classify(address);
        // a mapped address is the IPv4 address: what is looked up, judged and dialled has one form
        let address = address.to_canonical();
        Self {
            address,
            classified,
            forms: book.forms(address),
        }
    }

    pub(super) fn class(&self) -> Class {
        self.classified.class
    }
}

impl Layer {
    /// A denial made by this layer.
    pub(super) fn deny(&self, reason: Reason, rule: Option<&Place>) -> Denial {
        let policy = self.policy();
        Denial {
            reason,
            layer: Some(self.kind()),
            policy: Some(policy.name.clone()),
            rule: Some(rule.unwrap_or(&policy.network_at).clone()),
            class: None,
            note: None,
        }
    }

    fn deny_by(&self, reason: Reason, rule: &Rule) -> Denial {
        Denial {
            note: rule.reason.clone(),
            ..self.deny(reason, Some(&rule.at))
        }
    }

    /// Host rules of `allow` that match the name and have not expired.
    pub(crate) fn allows_of(&self, name: &Name, now: UnixSeconds) -> impl Iterator<Item = &Rule> {
        let numbers = self.index.allow.by_name(name).into_iter();
        numbers
            .filter_map(|number| self.policy().allow.get(number))
            .filter(move |rule| rule.in_force(now))
    }

    /// Host rules of `deny` that match the name and have not expired.
    pub(super) fn denies_of(&self, name: &Name, now: UnixSeconds) -> impl Iterator<Item = &Rule> {
        let numbers = self.index.deny.by_name(name).into_iter();
        numbers
            .filter_map(|number| self.policy().deny.get(number))
            .filter(move |rule| rule.in_force(now))
    }

    /// `cidr` rules of `allow` that hold the address and have not expired.
    pub(super) fn nets_of(&self, address: IpAddr, now: UnixSeconds) -> impl Iterator<Item = &Rule> {
        let numbers = self.index.allow.by_address(address).into_iter();
        numbers
            .filter_map(|number| self.policy().allow.get(number))
            .filter(move |rule| rule.in_force(now))
    }

    /// The `deny` entry that forbids this name here, if one does.
    pub(super) fn name_denial(&self, name: &Name, ask: Ask) -> Option<Denial> {
        let rule = self
            .denies_of(name, ask.now)
            .find(|rule| rule.applies(ask.port, ask.protocol, ask.now))?;
        Some(self.deny_by(Reason::NameDenied, rule))
    }

    /// The denial of a name or of anything that it is an alias of.
    pub(super) fn denial_of(&self, name: &Name, aliases: &[Name], ask: Ask) -> Option<Denial> {
        self.name_denial(name, ask).or_else(|| {
            aliases
                .iter()
                .find_map(|alias| Some(self.name_denial(alias, ask)?.by_alias(alias)))
        })
    }

    /// The `deny` entry that forbids this address here, if one does. It also holds for the IPv4 address inside.
    pub(super) fn address_denial(&self, place: &Classed, ask: Ask) -> Option<Denial> {
        let mut numbers = place
            .forms
            .iter()
            .flat_map(|address| self.index.deny.by_address(*address));
        let rule = numbers.find_map(|number| {
            self.policy()
                .deny
                .get(number)
                .filter(|rule| rule.applies(ask.port, ask.protocol, ask.now))
        })?;
        Some(Denial {
            class: Some(place.class()),
            ..self.deny_by(Reason::AddressDenied, rule)
        })
    }

    /// The `deny` entry that forbids every address of this one's family here, if there is one.
    pub(super) fn denies_all_like(&self, address: IpAddr, ask: Ask) -> Option<Denial> {
        let numbers = self.index.deny.by_address(address).into_iter();
        let mut rules = numbers.filter_map(|number| self.policy().deny.get(number));
        let whole = rules.find(|rule| {
            let everything = matches!(&rule.to, Selector::Cidr(net) if net.prefix_len() == 0);
            everything && rule.applies(ask.port, ask.protocol, ask.now)
        });
        whole.map(|rule| self.deny_by(Reason::AddressDenied, rule))
    }

    /// Whether this layer lets a flow to the name pass, addresses aside. Permission goes by the name; aliases can only
    /// take it away.
    pub(super) fn judge_name(
        &self,
        name: &Name,
        aliases: &[Name],
        ask: Ask,
    ) -> Result<Grant, Denial> {
        let policy = self.policy();
        if policy.network == NetworkMode::None {
            return Err(self.deny(Reason::NetworkNone, None));
        }
        if let Some(denial) = self.denial_of(name, aliases, ask) {
            return Err(denial);
        }
        self.local_alias_gate(aliases, ask.now)?;
        let rules: Vec<&Rule> = self.allows_of(name, ask.now).collect();
        self.local_name_gate(name, &rules)?;
        match (pick(rules.iter().copied(), ask), policy.network) {
            (Some(grant), _) => Ok(grant),
            (None, NetworkMode::Internet) => Ok(Grant {
                rule: policy.network_at.clone(),
                speech: Speech::Unsaid,
            }),
            (None, _) => Err(self.nearest_miss(&rules, ask, Reason::NameNotAllowed)),
        }
    }

    /// Local names need a rule that names them and `private: true`, in every mode; some are no names at all.
    pub(super) fn local_name_gate(&self, name: &Name, rules: &[&Rule]) -> Result<(), Denial> {
        let open = match special(name) {
            None => true,
            Some(Special::Local) => self.policy().private && !rules.is_empty(),
            Some(Special::NotDns) => false,
        };
        if open {
            Ok(())
        } else {
            Err(self.deny(Reason::NameNotAllowed, rules.first().map(|rule| &rule.at)))
        }
    }

    /// No alias leads to a local name that may not be asked for by itself.
    pub(super) fn local_alias_gate(
        &self,
        aliases: &[Name],
        now: UnixSeconds,
    ) -> Result<(), Denial> {
        for alias in aliases {
            let rules: Vec<&Rule> = self.allows_of(alias, now).collect();
            self.local_name_gate(alias, &rules)
                .map_err(|denial| denial.by_alias(alias))?;
        }
        Ok(())
    }

    /// The most helpful reason when some rule names the destination but none applies.
    fn nearest_miss(&self, rules: &[&Rule], ask: Ask, otherwise: Reason) -> Denial {
        let on_port = rules
            .iter()
            .find(|rule| !ask.protocol.has_ports() || rule.ports.contains(ask.port));
        match (on_port, rules.first()) {
            (Some(rule), _) => self.deny(Reason::ProtocolNotAllowed, Some(&rule.at)),
            (None, Some(rule)) => self.deny(Reason::PortNotAllowed, Some(&rule.at)),
            (None, None) => self.deny(otherwise, None),
        }
    }

    /// Whether the class of an address is open in this layer. Classes that are never open were refused before.
    pub(super) fn class_gate(
        &self,
        place: &Classed,
        ask: Ask,
        book: &AddressBook,
    ) -> Result<(), Reason> {
        let private = self.policy().private;
        match place.class() {
            Class::Public => Ok(()),
            Class::Private | Class::Host if private => Ok(()),
            Class::Special
                if private
                    && place.classified.reach == Reach::PrivateByCidr
                    && self.names_special(place.address, ask, book) =>
            {
                Ok(())
            }
            Class::Private => Err(Reason::AddressPrivate),
            Class::Host => Err(Reason::AddressHost),
            Class::Special => Err(Reason::AddressSpecial),
            Class::Metadata => Err(Reason::AddressMetadata),
            Class::Loopback => Err(Reason::AddressLoopback),
            Class::Multicast => Err(Reason::AddressMulticast),
            Class::Gateway => Err(Reason::AddressGateway),
        }
    }

    /// A `cidr` rule names a special range only if it begins and ends in special space: `0.0.0.0/0` names nothing.
    fn names_special(&self, address: IpAddr, ask: Ask, book: &AddressBook) -> bool {
        self.nets_of(address, ask.now)
            .filter(|rule| rule.applies(ask.port, ask.protocol, ask.now))
            .any(|rule| {
                let Selector::Cidr(net) = &rule.to else {
                    return false;
                };
                [net.network(), net.broadcast()]
                    .into_iter()
                    .all(|edge| book.classify(edge).class == Class::Special)
            })
    }

    /// The `cidr` entries that permit this address here, if any.
    pub(super) fn net_grant(&self, address: IpAddr, ask: Ask) -> Option<Grant> {
        pick(self.nets_of(address, ask.now), ask)
    }

    /// Why no `cidr` entry permits this address here.
    pub(super) fn address_miss(&self, place: &Classed, ask: Ask) -> Denial {
        let rules: Vec<&Rule> = self.nets_of(place.address, ask.now).collect();
        Denial {
            class: Some(place.class()),
            ..self.nearest_miss(&rules, ask, Reason::AddressNotAllowed)
        }
    }
}

/// Of rules that match: those that apply here, and how they want bytes judged.
fn pick<'a>(rules: impl Iterator<Item = &'a Rule>, ask: Ask) -> Option<Grant> {
    let mut grant: Option<Grant> = None;
    for rule in rules.filter(|rule| rule.applies(ask.port, ask.protocol, ask.now)) {
        let speech = Speech::of(rule, ask.port, ask.protocol);
        match &mut grant {
            Some(grant) => grant.speech = grant.speech.within_layer(speech),
            None => {
                grant = Some(Grant {
                    rule: rule.at.clone(),
                    speech,
                });
            }
        }
    }
    grant
}
