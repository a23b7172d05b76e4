//! Which process listens on a TCP port, from /proc.

/// A process.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Holder {
    pub pid: u32,
    pub name: String,
}

/// The state LISTEN in /proc/net/tcp.
const LISTEN: &str = "0A";

/// The process that listens on `port`; `None` if there is none, or it is another user's.
pub fn holder_of(port: u16) -> Option<Holder> {
    let tables = ["/proc/net/tcp", "/proc/net/tcp6"];
    let inodes: Vec<String> = tables
        .iter()
        .filter_map(|table| std::fs::read_to_string(table).ok())
        .flat_map(|table| table.lines().filter_map(|line| inode(line, port)).collect::<Vec<_>>())
        .map(|inode| format!("socket:[{inode}]"))
        .collect();
    for process in std::fs::read_dir("/proc").ok()?.flatten() {
        let Some(pid) = process.file_name().to_str().and_then(|n| n.parse().ok()) else { continue };
        // Another user's files cannot be read.
        let Ok(files) = std::fs::read_dir(process.path().join("fd")) else { continue };
        let holds = |file: &std::fs::DirEntry| {
            std::fs::read_link(file.path())
                .is_ok_and(|to| inodes.iter().any(|i| to.as_os_str() == i.as_str()))
        };
        if files.flatten().any(|f| holds(&f)) {
            let name = std::fs::read_to_string(process.path().join("comm")).unwrap_or_default();
            return Some(Holder { pid, name: name.trim().to_owned() });
        }
    }
    None
}

/// The inode of a line of /proc/net/tcp that is a listener on `port`.
fn inode(line: &str, port: u16) -> Option<String> {
    let mut fields = line.split_whitespace().skip(1);
    let local = fields.next()?;
    let state = fields.nth(1)?;
    let (_, hex) = local.rsplit_once(':')?;
    let listens = state == LISTEN && u16::from_str_radix(hex, 16).ok()? == port;
    listens.then(|| fields.nth(5).map(str::to_owned))?
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_holder_of_a_port_is_found_and_a_free_port_has_none() {
        let socket = std::net::TcpListener::bind("127.0.0.1:0").expect("bind");
        let port = socket.local_addr().expect("address").port();
        assert_eq!(holder_of(port).map(|h| h.pid), Some(std::process::id()));
        drop(socket);
        assert_eq!(holder_of(port), None);
    }
}
