//! Small handles. Each that names a reusable slot carries a generation, so that a late completion or a
//! stale reference for a slot's former owner is recognised and dropped.

macro_rules! slot_id {
    ($(#[$doc:meta])* $name:ident) => {
        $(#[$doc])*
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
        pub struct $name {
            /// Slot index, dense and reused.
            pub idx: u32,
            /// Generation of the slot; grows with each reuse.
            pub generation: u32,
        }
    };
}

slot_id! {
    /// A client connection of one shard. The driver assigns it; the slot may be reused once
    /// `Input::Closed` for it was handled.
    ConnId
}
slot_id! {
    /// A session of one shard.
    SessionId
}
slot_id! {
    /// An outstanding operation of one shard (store commit, read, authentication).
    OpId
}

/// A tenant, numbered by the node's registry. Numbers are local to a process: whatever is stored or
/// sent to another node carries the tenant's name.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct TenantId(pub u32);

/// A shard of this node, 0-based.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ShardIx(pub u16);

/// A session's identity for its whole life, on any node and over restarts: drawn once when the session
/// is created. Two sessions under one client id, one after the other, differ in it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct SessionUid(pub u64);
