//! Authentication and the rules files: the chain of authenticators (client certificate, token, password), password
//! files and their verifier off the I/O threads, access control lists.

pub mod acl_file;
pub mod bans;
pub mod certificate;
pub mod flapping;
pub mod gate;
pub mod hash;
pub mod http;
pub mod jwks_url;
pub mod jwt;
pub mod jwt_keys;
pub mod logins;
pub mod password_file;
pub mod rate;
pub mod rights;
pub mod state;
pub mod successes;
pub mod verifier;

pub use acl_file::{AclFileError, is_filter};
pub use bans::{Ban, BanSource, Banned, Bans, Suspect};
pub use certificate::{CertificateNameError, CertificateNames, CertificateRule};
pub use flapping::FlapDetector;
pub use gate::{Circumstances, Credentials, Denial, Identity, LoginGate, User};
pub use logins::Logins;
pub use password_file::{PasswordFile, PasswordFileError};
pub use rate::KeyedRate;
pub use state::{AuthError, AuthState, Checked, StoredUser};
pub use verifier::{Login, PasswordVerifier, VerifierLimits};
