//! Authentication and the rules files: password file, its verifier off the I/O threads, access control list.

pub mod acl_file;
pub mod gate;
pub mod hash;
pub mod password_file;
pub mod rate;
pub mod state;
pub mod verifier;

pub use acl_file::AclFileError;
pub use gate::{Credentials, Denial, Identity, LoginGate};
pub use password_file::{PasswordFile, PasswordFileError};
pub use rate::KeyedRate;
pub use state::{AuthError, AuthState, Checked};
pub use verifier::{Login, PasswordVerifier, VerifierLimits};
