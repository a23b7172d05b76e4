//! Who may publish, receive and subscribe to what, and which rule says so.
//!
//! Three lists stand one behind another, and the first rule that matches decides: the ordered rules of the
//! node's operator ([`ordered`]), those of the tenant, and the tenant's list in mosquitto's form
//! ([`mosquitto`]). [`Policy`] is what of this stands for one tenant. [`Policy::resolve`] picks a client's rules
//! once for its session and puts its names into them; [`Principal::check`] is the hot path and allocates nothing.
//!
//! Subscribing is judged more gently than receiving. A filter is refused when nothing could ever be delivered
//! through it: a denial covers it whole, or no rule that allows it has a topic in common with it. Any other
//! filter is accepted, and each delivery is checked with [`Access::Receive`] on its concrete topic.

mod condition;
mod cover;
pub mod denied;
mod glob;
pub mod mosquitto;
pub mod network;
pub mod ordered;
mod policy;
mod principal;
pub mod template;

pub use denied::{Denials, Denied};
pub use mosquitto::{Acl, Grant, Rule, Subject};
pub use network::Network;
pub use ordered::{Action, Conditions, Effect, OrderedRule, QosSet, RuleList};
pub use policy::{Policy, Who};
pub use principal::{Access, Layer, Principal, Request, Verdict};
pub use template::{Template, TemplateError};

#[cfg(test)]
mod tests;
