//! Whether a rule is for a client at all.

use super::ordered::Conditions;
use super::policy::Who;
use super::template::Template;

impl Conditions {
    /// Whether all conditions hold. `denies`: of a rule that denies, for which a value that cannot be put in may
    /// be anything.
    pub(super) fn hold(&self, who: &Who<'_>, denies: bool) -> bool {
        let any = |patterns: &[Template], text: &str| {
            patterns.is_empty() || patterns.iter().any(|p| p.fits(who, denies, text))
        };
        let claims = who.claims;
        any(&self.tenants, who.tenant)
            && self.user_fits(who, denies)
            && any(&self.client_ids, who.client_id)
            && (self.groups.is_empty()
                || claims.groups.iter().flat_map(|g| g.iter()).any(|group| any(&self.groups, group)))
            && (self.sources.is_empty()
                || claims.source.is_some_and(|ip| self.sources.iter().any(|n| n.contains(ip))))
            && self
                .attributes
                .iter()
                .all(|(name, want)| claims.attribute(name).is_some_and(|v| want.equals(who, denies, v)))
    }

    /// The empty pattern stands for clients without a user name, and no other pattern does.
    fn user_fits(&self, who: &Who<'_>, denies: bool) -> bool {
        let one = |pattern: &Template| match (who.user, pattern.plain()) {
            (None, Some("")) => true,
            (None, _) | (Some(_), Some("")) => false,
            (Some(user), _) => pattern.fits(who, denies, user),
        };
        self.users.is_empty() || self.users.iter().any(one)
    }
}
