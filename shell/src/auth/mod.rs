//! Authentication and the rules files: password file, its verifier off the I/O threads, access control list.

pub mod acl_file;
pub mod hash;
pub mod password_file;
pub mod rate;
pub mod verifier;

pub use acl_file::AclFileError;
pub use password_file::{PasswordFile, PasswordFileError};
pub use rate::KeyedRate;
pub use verifier::{Login, PasswordVerifier, VerifierLimits};
