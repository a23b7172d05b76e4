//! Bodies of the fuzz targets: functions of bytes, so that tests replay the corpora on the stable toolchain.

mod build;
mod decode;
#[cfg(feature = "foreign-codecs")]
mod diff_codecs;
#[cfg(feature = "foreign-codecs")]
mod foreign;
mod roundtrip;
mod session_script;
mod topic_match;

pub use build::Source;
pub use decode::decode;
#[cfg(feature = "foreign-codecs")]
pub use diff_codecs::{EXCEPTIONS, Exception, diff_codecs};
#[cfg(feature = "foreign-codecs")]
pub use foreign::{Foreign, Verdict};
pub use roundtrip::roundtrip;
pub use session_script::{scenario_of, session_script};
pub use topic_match::topic_match;

/// A fuzz target by the name of its binary and corpus.
pub type Target = (&'static str, fn(&[u8]));

/// All targets of this crate.
#[must_use]
pub fn targets() -> Vec<Target> {
    vec![
        ("decode", decode as fn(&[u8])),
        ("roundtrip", roundtrip),
        ("topic_match", topic_match),
        ("session_script", session_script),
        #[cfg(feature = "foreign-codecs")]
        ("diff_codecs", diff_codecs),
    ]
}
