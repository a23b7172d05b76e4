//! Facts about the process that the configuration's defaults depend on, as plain data for the tests.

use std::{collections::BTreeMap, path::PathBuf};

/// Environment variables and user of this process.
#[derive(Debug, Clone, Default)]
pub struct Place {
    pub variables: BTreeMap<String, String>,
    pub is_root: bool,
}

impl Place {
    /// Of the running process.
    pub fn current() -> Self {
        use std::os::unix::fs::MetadataExt;
        // Variables that are not text cannot be ours.
        let variables = std::env::vars_os()
            .filter_map(|(k, v)| Some((k.into_string().ok()?, v.into_string().ok()?)))
            .collect();
        let is_root = std::fs::metadata("/proc/self").is_ok_and(|m| m.uid() == 0);
        Self { variables, is_root }
    }

    fn get(&self, name: &str) -> Option<&str> {
        self.variables.get(name).map(String::as_str).filter(|v| !v.is_empty())
    }

    /// The data directory where none is configured; `None` when there is not even a home.
    pub fn data_dir(&self) -> Option<PathBuf> {
        // systemd may pass several directories, separated by colons; the first is the unit's main one.
        if let Some(dir) = self.get("STATE_DIRECTORY") {
            return dir.split(':').next().map(PathBuf::from);
        }
        if self.is_root {
            return Some(PathBuf::from("/var/lib/mast"));
        }
        let state = self.get("XDG_STATE_HOME").map(PathBuf::from).filter(|p| p.is_absolute());
        let state = state.or_else(|| self.get("HOME").map(|h| PathBuf::from(h).join(".local/state")));
        state.map(|s| s.join("mast"))
    }

    /// The name of this node where none is configured.
    pub fn node_name(&self) -> String {
        let host = std::fs::read_to_string("/proc/sys/kernel/hostname").unwrap_or_default();
        let host = host.trim();
        if host.is_empty() { "mast".into() } else { host.into() }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn place(is_root: bool, variables: &[(&str, &str)]) -> Place {
        let variables = variables.iter().map(|(k, v)| ((*k).to_owned(), (*v).to_owned())).collect();
        Place { variables, is_root }
    }

    #[test]
    fn the_data_directory_follows_service_manager_then_root_then_xdg() {
        let dir = |p: Place| p.data_dir().map(|d| d.display().to_string());
        assert_eq!(
            dir(place(false, &[("STATE_DIRECTORY", "/var/lib/x:/y"), ("HOME", "/h")])),
            Some("/var/lib/x".into())
        );
        assert_eq!(dir(place(true, &[("HOME", "/root")])), Some("/var/lib/mast".into()));
        assert_eq!(dir(place(false, &[("XDG_STATE_HOME", "/s"), ("HOME", "/h")])), Some("/s/mast".into()));
        assert_eq!(
            dir(place(false, &[("XDG_STATE_HOME", "relative"), ("HOME", "/h")])),
            Some("/h/.local/state/mast".into())
        );
        assert_eq!(dir(place(false, &[])), None);
    }
}
