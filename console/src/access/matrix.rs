//! The role matrix.

/// Everything that can be asked of the API.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Action {
    /// What this is.
    ReadAbout,
    /// The API's description.
    ReadDescription,
}

/// How far somebody must reach for an action.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Reach {
    /// Anybody who reaches the console.
    Open,
}

/// A row of the matrix.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Rule {
    /// Who may.
    pub reach: Reach,
}

/// The row of an action.
pub const fn rule(action: Action) -> Rule {
    match action {
        Action::ReadAbout | Action::ReadDescription => Rule { reach: Reach::Open },
    }
}

impl Action {
    /// Its name in the description.
    pub const fn word(self) -> &'static str {
        match self {
            Self::ReadAbout => "about.read",
            Self::ReadDescription => "description.read",
        }
    }
}
