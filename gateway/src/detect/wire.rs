//! A cursor over big-endian, length-prefixed fields, as TLS nests them.

/// Reads forward; `None` when the field does not fit.
#[derive(Clone, Copy, Debug)]
pub(super) struct Wire<'a>(&'a [u8]);

impl<'a> Wire<'a> {
    pub(super) fn new(bytes: &'a [u8]) -> Self {
        Self(bytes)
    }

    pub(super) fn is_empty(self) -> bool {
        self.0.is_empty()
    }

    pub(super) fn rest(self) -> &'a [u8] {
        self.0
    }

    pub(super) fn take(&mut self, length: usize) -> Option<&'a [u8]> {
        let (taken, rest) = self.0.split_at_checked(length)?;
        self.0 = rest;
        Some(taken)
    }

    pub(super) fn u8(&mut self) -> Option<u8> {
        self.take(1)?.first().copied()
    }

    pub(super) fn u16(&mut self) -> Option<u16> {
        self.take(2)?.try_into().ok().map(u16::from_be_bytes)
    }

    /// A vector with a one-byte length.
    pub(super) fn vector8(&mut self) -> Option<Self> {
        let length = self.u8()?;
        self.take(length.into()).map(Self)
    }

    /// A vector with a two-byte length.
    pub(super) fn vector16(&mut self) -> Option<Self> {
        let length = self.u16()?;
        self.take(length.into()).map(Self)
    }
}
