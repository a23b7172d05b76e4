//! Building a property list.

use super::property::Property;
use super::props::Props;
use super::props_check::bit_of;
use super::sink::Count;
use super::violation::EncodeError;
use alloc::vec::Vec;

/// Collects properties in order. It doesn't know the packet: allowing and repeating them is the caller's duty.
#[derive(Clone, Debug, Default)]
pub struct PropsBuf {
    raw: Vec<u8>,
    seen: u64,
}

impl PropsBuf {
    /// An empty list; allocates with the first property.
    #[must_use]
    pub const fn new() -> PropsBuf {
        PropsBuf { raw: Vec::new(), seen: 0 }
    }

    /// Appends `property`.
    ///
    /// # Errors
    /// [`EncodeError::TooLong`] for a string or binary value over 65,535 bytes; nothing is appended.
    pub fn push(&mut self, property: &Property<'_>) -> Result<(), EncodeError> {
        let mut count = Count::default();
        property.write(&mut count);
        if count.too_long {
            return Err(EncodeError::TooLong);
        }
        self.raw.reserve(count.len);
        property.write(&mut self.raw);
        self.seen |= bit_of(property.id());
        Ok(())
    }

    /// The list so far, for a packet.
    #[must_use]
    pub fn as_props(&self) -> Props<'_> {
        Props::trusted(&self.raw, self.seen)
    }

    /// Empties the list and keeps its memory.
    pub fn clear(&mut self) {
        self.raw.clear();
        self.seen = 0;
    }
}
