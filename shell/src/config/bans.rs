//! The keys of bans: clients that are not let in (`[[ban]]`), and when a client bans itself by coming and going.

use std::time::Duration;

use mast_core::time::Wall;
use toml_datetime::{Datetime, Offset};

use super::{invalid, kind::Kind, layers::Layers, table::section};
use crate::auth::{Ban, Banned};

section! {
    /// Clients that are not let in, as an array of tables (`[[ban]]`). Each names one of `client_id`, `user` and `address`. Those that come in force by a reload disconnect the clients that they are about.
    BanKeys {
        /// The tenant. Empty: all tenants.
        tenant: Option<String> = "", Kind::Text;
        /// A client id, or a pattern with `*` for any text.
        client_id: Option<String> = "", Kind::Text;
        /// A user.
        user: Option<String> = "", Kind::Text;
        /// An address, or a network such as "192.0.2.0/24".
        address: Option<String> = "", Kind::Text;
        /// When it ends, such as "2027-01-31T12:00:00Z". Empty: never.
        until: Option<String> = "", Kind::Text;
        /// Why, for the log.
        reason: Option<String> = "", Kind::Text;
    }
}

section! {
    /// A client that connects again and again is banned for a while.
    Flapping {
        /// So many connections of one client id within `window` are one too many; 0 turns it off.
        max_connects: u32 = "0", Kind::Int { min: 0, max: 1_000_000 };
        /// The time in which they are counted.
        window: Duration = "1m", Kind::Time { min_ms: 1000, max_ms: 86_400_000 };
        /// For how long it is banned.
        ban: Duration = "5m", Kind::Time { min_ms: 1000, max_ms: 2_592_000_000 };
    }
}

/// Reads all bans.
pub(super) fn bans(layers: &mut Layers, tenants: &[String]) -> Vec<Ban> {
    let mut bans: Vec<Ban> = Vec::new();
    for name in layers.names("ban") {
        let place = ["ban", name.as_str()];
        let read = match BanKeys::build(&layers.section(&place, BanKeys::KEYS)) {
            Ok(keys) => ban(&keys, tenants),
            Err(key) => Err((key, "the value does not fit its key".to_owned())),
        };
        match read {
            Ok(ban) => bans.push(ban),
            Err((key, problem)) => invalid(layers, &[place[0], place[1], key], problem),
        }
    }
    bans
}

fn ban(keys: &BanKeys, tenants: &[String]) -> Result<Ban, (&'static str, String)> {
    if let Some(tenant) = keys.tenant.as_ref().filter(|t| !tenants.contains(t)) {
        return Err(("tenant", format!("no tenant \"{tenant}\"; there are: {}", tenants.join(", "))));
    }
    let who = match (&keys.client_id, &keys.user, &keys.address) {
        (Some(pattern), None, None) if pattern.contains('*') => Banned::Pattern(pattern.clone()),
        (Some(id), None, None) => Banned::Client(id.clone()),
        (None, Some(user), None) => Banned::User(user.clone()),
        (None, None, Some(text)) => Banned::Address(
            text.parse().map_err(|e: crate::listen::proxy::NotACidr| ("address", e.to_string()))?,
        ),
        _ => return Err(("client_id", "name one of client_id, user and address, and no more".to_owned())),
    };
    let until = match &keys.until {
        None => None,
        Some(text) => Some(wall(text).ok_or_else(|| {
            ("until", format!("\"{}\" is no time such as \"2027-01-31T12:00:00Z\"", text.escape_debug()))
        })?),
    };
    Ok(Ban { tenant: keys.tenant.clone(), who, until, reason: keys.reason.clone().unwrap_or_default() })
}

/// A time with its offset from UTC.
fn wall(text: &str) -> Option<Wall> {
    let Datetime { date: Some(date), time: Some(time), offset: Some(offset) } = text.parse().ok()? else {
        return None;
    };
    let minutes = match offset {
        Offset::Z => 0,
        Offset::Custom { minutes } => i64::from(minutes),
    };
    // Days since 1970 of a date of our calendar, counted from March so that leap days come last.
    let (year, month) = (i64::from(date.year), i64::from(date.month));
    let (year, month) = if month <= 2 { (year - 1, month + 9) } else { (year, month - 3) };
    let days = 365 * year + year / 4 - year / 100 + year / 400 + (153 * month + 2) / 5 + i64::from(date.day)
        - 1
        - 719_468;
    let second = i64::from(time.second.unwrap_or(0));
    let seconds =
        days * 86_400 + i64::from(time.hour) * 3600 + i64::from(time.minute) * 60 + second - minutes * 60;
    u64::try_from(seconds).ok().map(|s| Wall(s * 1000))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_time_is_read_with_its_offset() {
        for (text, seconds) in [
            ("1970-01-01T00:00:00Z", Some(0)),
            ("2000-02-29T12:34:56Z", Some(951_827_696)),
            ("2027-01-31T12:00:00+02:00", Some(1_801_389_600)),
            ("2024-03-01T00:00:00Z", Some(1_709_251_200)),
            ("2027-01-31", None),
            ("2027-01-31T12:00:00", None),
            ("tomorrow", None),
        ] {
            assert_eq!(wall(text), seconds.map(|s: u64| Wall(s * 1000)), "{text}");
        }
    }
}
