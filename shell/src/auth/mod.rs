//! Authentication and the rules files: the chain of authenticators (client certificate, token, password), password
//! files and their verifier off the I/O threads, access control lists.

pub mod acl_file;
pub mod certificate;
pub mod gate;
pub mod hash;
pub mod jwt;
pub mod jwt_keys;
pub mod logins;
pub mod password_file;
pub mod rate;
pub mod rights;
pub mod state;
pub mod verifier;

pub use acl_file::{AclFileError, is_filter};
pub use certificate::{CertificateNameError, CertificateNames, CertificateRule};
pub use gate::{Credentials, Denial, Identity, LoginGate, User};
pub use logins::Logins;
pub use password_file::{PasswordFile, PasswordFileError};
pub use rate::KeyedRate;
pub use state::{AuthError, AuthState, Checked, StoredUser};
pub use verifier::{Login, PasswordVerifier, VerifierLimits};
