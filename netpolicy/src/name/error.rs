//! Why a text, a label sequence or an authority names no host.
//!
//! One variant per malformed form, so that a record, a policy mistake and a test can tell them apart. The text says
//! what is wrong; [`NameError::hint`] says what to write instead and is kept apart, because a sandbox gets the first
//! only. Characters are shown escaped: an error text must not carry a terminal sequence out of a hostile name.

use crate::addr::AddressError;

/// Why a text or label sequence names no host. Display says what is wrong, lower case.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum NameError {
    /// Nothing, or only the root.
    #[error("the name is empty")]
    Empty,
    /// Two dots in a row, a dot at the beginning, more than one at the end, or an empty DNS label.
    #[error("the name has an empty label")]
    EmptyLabel,
    /// RFC 1035: 63 octets at most.
    #[error("a label of {length} octets is longer than 63")]
    LabelTooLong {
        /// Octets of the A-label.
        length: usize,
    },
    /// RFC 1035: 253 octets at most in text.
    #[error("a name of {length} octets is longer than 253")]
    TooLong {
        /// Octets seen so far.
        length: usize,
    },
    /// Not a letter, digit, hyphen or underscore.
    #[error("{0:?} cannot stand in a name")]
    BadCharacter(char),
    /// An octet above 127 in wire text or in a DNS label.
    #[error("octet {0:#04x} cannot stand in a name on the wire")]
    NotAscii(u8),
    /// A DNS label that holds a dot; joined with its neighbours it would read as another name.
    #[error("a label holds a dot")]
    DotInLabel,
    /// `-a.example`
    #[error("a label begins with a hyphen")]
    LeadingHyphen,
    /// `a-.example`
    #[error("a label ends with a hyphen")]
    TrailingHyphen,
    /// The last label is numeric, so some program would read the name as an address.
    #[error("this reads as an address, not as a name")]
    LooksLikeAddress,
    /// `%2e`
    #[error("percent coding cannot stand in a name")]
    PercentCoding,
    /// `fe80::1%eth0`
    #[error("a zone id cannot be given")]
    ZoneId,
    /// Brackets outside `[IPv6]` or `[IPv6]:port`.
    #[error("brackets do not fit here")]
    Brackets,
    /// The text between brackets is no IPv6 address.
    #[error("the text in brackets is no address: {0}")]
    Bracketed(#[source] AddressError),
    /// IPv6 without the brackets that an authority needs.
    #[error("an IPv6 address stands in brackets here")]
    Unbracketed,
    /// A colon where only a name is expected.
    #[error("a port cannot stand here")]
    UnexpectedPort,
    /// A slash or backslash: a URL or path.
    #[error("a URL or path cannot stand here")]
    Url,
    /// `user@host`
    #[error("a user name cannot stand before a host")]
    UserInfo,
    /// Space, tab, line end, or a Unicode blank.
    #[error("a blank cannot stand in a name")]
    Blank,
    /// A `*` that is not the whole first label of a pattern.
    #[error("'*' can only be the whole first label, as in *.example.com")]
    Wildcard,
    /// `*` alone.
    #[error("'*' alone names every host")]
    WildcardAlone,
    /// A code point that IDNA drops: the name would look like another one.
    #[error("the invisible character {0:?} cannot stand in a name")]
    Invisible(char),
    /// A label written in compatibility characters (full-width, circled) that becomes plain ASCII.
    #[error("a label in look-alike characters reads as {0:?}")]
    FoldsToAscii(String),
    /// An `xn--` label that is no valid A-label, or is mixed with non-ASCII.
    #[error("{0:?} is no valid A-label")]
    BadALabel(String),
    /// Unicode that IDNA (UTS 46, non-transitional) does not permit in a host name.
    #[error("the name holds characters that IDNA does not permit in a host name")]
    Idna,
    /// `host:`
    #[error("the port is empty")]
    PortEmpty,
    /// Sign, blank, letter, leading zero.
    #[error("a port is a plain decimal number without leading zeros")]
    PortSyntax,
    /// 0 or above 65535.
    #[error("a port is between 1 and 65535")]
    PortRange,
}

impl NameError {
    /// What to write instead, for the author of a policy or configuration.
    pub const fn hint(&self) -> Option<&'static str> {
        Some(match self {
            Self::Empty => "write a host name such as example.com",
            Self::EmptyLabel => "write example.com, or *.example.com for every name below it",
            Self::LabelTooLong { .. } | Self::TooLong { .. } => {
                "a label has at most 63 octets and a name 253, counted in its xn-- form"
            }
            Self::BadCharacter(_) | Self::NotAscii(_) | Self::DotInLabel => {
                "a name has letters, digits, '-' and '_' between its dots"
            }
            Self::LeadingHyphen | Self::TrailingHyphen => "hyphens stand between letters or digits",
            Self::LooksLikeAddress => {
                "write addresses as `cidr:`, in plain dotted decimal (203.0.113.7) or IPv6 text"
            }
            Self::PercentCoding => "write the decoded name",
            Self::ZoneId => {
                "leave out '%' and what follows; link-local addresses cannot be reached"
            }
            Self::Brackets | Self::Bracketed(_) | Self::Unbracketed => {
                "write [2001:db8::1]:443 in a URL or authority, 2001:db8::1 without brackets as `cidr:`"
            }
            Self::UnexpectedPort => "write the port under `ports:`",
            Self::Url => "write the host only; paths belong under `http:`",
            Self::UserInfo => "leave out everything up to '@'; credentials belong under `secrets:`",
            Self::Blank => "remove the blank",
            Self::Wildcard => {
                "*.example.com is every name below example.com at any depth; add example.com itself if it is meant"
            }
            Self::WildcardAlone => "write `network: internet` for every public destination",
            Self::Invisible(_) => "retype the name; it holds a character that cannot be seen",
            Self::FoldsToAscii(_) => "write the name in plain ASCII",
            Self::BadALabel(_) => "write the name in Unicode and let Sallyport make the xn-- form",
            Self::Idna => "check for symbols, mixed writing directions and joiners out of place",
            Self::PortEmpty => "write the port or leave out the colon",
            Self::PortSyntax | Self::PortRange => "write a number such as 443",
        })
    }
}
