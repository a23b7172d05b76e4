//! Examines what the broker needs: configuration, files it names, limits of the system, ports, the store.

mod holder;

use std::{
    fmt::Display, io, net::SocketAddr, os::unix::net::UnixStream, path::Path, sync::Arc, time::Duration,
};

use mast_core::tenant::registry::Registry;
use rustix::process::{Resource, getrlimit};
use rustls::pki_types::{CertificateDer, pem::PemObject};

use crate::{
    auth::Checked,
    banner,
    config::{Config, Endpoint, Listener, Sources},
    driver::clock::Clock,
    listen::bind,
    obs::process,
    serve,
    store::{StoreError, check::check, files::Files, files::os::OsFiles},
};
use holder::holder_of;

/// A certificate that ends sooner is worth a remark.
const SOON: Duration = Duration::from_secs(30 * 86_400);
/// Fewer open files than this are a default that nobody chose for a broker.
const FEW_FILES: u64 = 4096;
/// Less free space is worth a remark, in journal files.
const SPARE_SEGMENTS: u64 = 16;

/// How it stands with one thing.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Grade {
    Good,
    /// It works, but perhaps not as wanted.
    Remark,
    /// The broker would not start, or not serve.
    Bad,
}

/// One thing that was looked at.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Finding {
    pub grade: Grade,
    pub topic: &'static str,
    /// What was found, and the way out.
    pub text: String,
}

#[derive(Default)]
struct Findings(Vec<Finding>);

impl Findings {
    fn add(&mut self, grade: Grade, topic: &'static str, text: impl Display) {
        self.0.push(Finding { grade, topic, text: text.to_string() });
    }
}

/// Looks at everything. Nothing is changed, except that a lock file may appear in the store's directory.
pub fn examine(sources: &Sources) -> Vec<Finding> {
    let mut found = Findings::default();
    let config = match sources.load() {
        Ok(config) => config,
        Err(errors) => {
            for error in &errors.0 {
                found.add(Grade::Bad, "configuration", error);
            }
            return found.0;
        }
    };
    let file = config.file.as_deref().map_or("no file, defaults".into(), |f| f.display().to_string());
    found.add(Grade::Good, "configuration", file);
    for advice in banner::advice(&config) {
        found.add(Grade::Remark, "configuration", advice);
    }
    match Checked::read(&config) {
        Err(error) => found.add(Grade::Bad, "authentication", error),
        Ok(checked) => {
            checked.remarks().iter().for_each(|r| found.add(Grade::Remark, "authentication", r));
        }
    }
    certificates(&config, &mut found);
    open_files(&config, &mut found);
    memory(&config, &mut found);
    for listener in &config.listeners {
        endpoint(listener, &mut found);
    }
    for address in &config.admin_addresses {
        port(*address, "admin", "admin.bind", false, &mut found);
    }
    store(&config, &mut found);
    found.0
}

fn certificates(config: &Config, found: &mut Findings) {
    if let Err(error) = serve::load_tls(config) {
        found.add(Grade::Bad, "certificates", error);
        return;
    }
    let mut seen = Vec::new();
    for files in config.listeners.iter().filter_map(|l| l.tls.as_ref()) {
        for path in std::iter::once(&files.cert).chain(&files.client_ca) {
            if !seen.contains(&path) {
                seen.push(path);
                dates(path, found);
            }
        }
    }
}

/// Tells for how long the certificates of a file are good.
fn dates(path: &Path, found: &mut Findings) {
    let place = path.display();
    let now = i64::try_from(Clock::wall().0 / 1000).unwrap_or(i64::MAX);
    let certificates: Vec<_> = match CertificateDer::pem_file_iter(path) {
        Ok(all) => all.flatten().collect(),
        Err(error) => return found.add(Grade::Bad, "certificates", format!("{place}: {error}")),
    };
    for der in &certificates {
        let Ok((_, certificate)) = x509_parser::parse_x509_certificate(der) else {
            found.add(Grade::Remark, "certificates", format!("{place}: a certificate is not understood"));
            continue;
        };
        let validity = certificate.validity();
        let (from, to) = (validity.not_before.timestamp(), validity.not_after.timestamp());
        let subject = certificate.subject().to_string();
        let subject = crate::obs::log::ClientText::new(&subject, 256);
        if now > to {
            let text =
                format!("{place}: {subject} ended {}; put a new one there, then SIGHUP", validity.not_after);
            found.add(Grade::Bad, "certificates", text);
        } else if now < from {
            let text = format!(
                "{place}: {subject} begins only {}; is this machine's clock right?",
                validity.not_before
            );
            found.add(Grade::Bad, "certificates", text);
        } else if to.saturating_sub(now) < SOON.as_secs() as i64 {
            let text = format!("{place}: {subject} ends soon, {}; renew it", validity.not_after);
            found.add(Grade::Remark, "certificates", text);
        } else {
            found.add(
                Grade::Good,
                "certificates",
                format!("{place}: {subject} until {}", validity.not_after),
            );
        }
    }
}

fn open_files(config: &Config, found: &mut Findings) {
    let hard = getrlimit(Resource::Nofile).maximum.unwrap_or(u64::MAX);
    let reserve = config.limits.reserved_files as u64;
    let room = hard.saturating_sub(reserve);
    let wanted = config.limits.max_connections as u64;
    let way_out = "raise it with LimitNOFILE= in the unit, or in limits.conf";
    if room == 0 {
        let text =
            format!("the hard limit {hard} leaves none beside limits.reserved_files ({reserve}); {way_out}");
        found.add(Grade::Bad, "open files", text);
    } else if wanted > room {
        let text =
            format!("limits.max_connections is {wanted}, but the hard limit {hard} leaves {room}; {way_out}");
        found.add(Grade::Bad, "open files", text);
    } else if hard < FEW_FILES {
        let text = format!("the hard limit {hard} leaves {room} connections; {way_out}");
        found.add(Grade::Remark, "open files", text);
    } else {
        found.add(Grade::Good, "open files", format!("up to {room} connections"));
    }
}

fn memory(config: &Config, found: &mut Findings) {
    let system = process::memory_budget();
    let budget = if config.limits.memory_budget == 0 { system } else { Some(config.limits.memory_budget) };
    let (Some(budget), Some(system)) = (budget, system) else {
        return found.add(
            Grade::Remark,
            "memory",
            "the system does not tell; there is no protection against its end",
        );
    };
    if budget > system {
        let text = format!(
            "limits.memory_budget is {} MiB, but only {} MiB may be used here; lower it",
            budget >> 20,
            system >> 20
        );
        found.add(Grade::Bad, "memory", text);
    } else {
        found.add(Grade::Good, "memory", format!("{} MiB may be used", budget >> 20));
    }
}

fn endpoint(listener: &Listener, found: &mut Findings) {
    match &listener.endpoint {
        Endpoint::Tcp { addresses, optional_v6 } => {
            let key = format!("listener.{}", listener.name);
            for address in addresses {
                let optional = *optional_v6 && address.is_ipv6();
                port(*address, &listener.name, &key, optional, found);
            }
        }
        Endpoint::Unix { path, .. } => {
            let place = path.display();
            let parent = path.parent().filter(|p| !p.as_os_str().is_empty()).unwrap_or(Path::new("."));
            match (UnixStream::connect(path), std::fs::symlink_metadata(path)) {
                (Ok(_), _) => {
                    let text = format!("{place}: a process listens there; stop it, or choose another path");
                    found.add(Grade::Bad, "ports", text);
                }
                (Err(_), Ok(file)) if !std::os::unix::fs::FileTypeExt::is_socket(&file.file_type()) => {
                    let text = format!("{place}: a file that is no socket is in the way; remove it");
                    found.add(Grade::Bad, "ports", text);
                }
                (Err(_), _) if !parent.is_dir() => {
                    let text = format!("{place}: its directory does not exist; create it");
                    found.add(Grade::Bad, "ports", text);
                }
                (Err(_), _) => found.add(Grade::Good, "ports", format!("{place} is free")),
            }
        }
    }
}

fn port(address: SocketAddr, name: &str, key: &str, optional: bool, found: &mut Findings) {
    let Err(error) = bind::tcp(address, 1) else {
        return found.add(Grade::Good, "ports", format!("{name} {address} is free"));
    };
    if error.kind() == io::ErrorKind::AddrInUse {
        return match holder_of(address.port()) {
            Some(holder) if holder.name == "mast" && holder.pid != std::process::id() => {
                let text = format!("{name} {address}: mast itself listens there (process {})", holder.pid);
                found.add(Grade::Remark, "ports", text);
            }
            Some(holder) => {
                let (pid, who) = (holder.pid, &holder.name);
                let text =
                    format!("{name} {address} is taken by {who} (process {pid}); stop it, or change {key}");
                found.add(Grade::Bad, "ports", text);
            }
            None => {
                let text = format!(
                    "{name} {address} is taken by a process that only root may see; `ss -ltnp` as root names it. \
                     Stop it, or change {key}"
                );
                found.add(Grade::Bad, "ports", text);
            }
        };
    }
    if optional && matches!(error.kind(), io::ErrorKind::AddrNotAvailable | io::ErrorKind::Unsupported) {
        return found.add(Grade::Remark, "ports", format!("{name} {address}: this machine has no IPv6"));
    }
    let way_out = match error.kind() {
        io::ErrorKind::PermissionDenied => "; ports below 1024 need CAP_NET_BIND_SERVICE",
        io::ErrorKind::AddrNotAvailable => "; this machine has no such address",
        _ => "",
    };
    found.add(Grade::Bad, "ports", format!("{name} {address}: {error}{way_out}; change {key}"));
}

fn store(config: &Config, found: &mut Findings) {
    let dir = config.data_dir.join("store");
    let place = dir.display();
    if !dir.exists() {
        let mut above = config.data_dir.as_path();
        while !above.exists()
            && let Some(parent) = above.parent()
        {
            above = if parent.as_os_str().is_empty() { Path::new(".") } else { parent };
        }
        return match rustix::fs::access(above, rustix::fs::Access::WRITE_OK) {
            Ok(()) => found.add(Grade::Good, "store", format!("{place} will be made at the first start")),
            Err(_) => {
                let text = format!(
                    "{place} cannot be made: no permission to write to {}; choose another with --data-dir or \
                     node.data_dir",
                    above.display()
                );
                found.add(Grade::Bad, "store", text);
            }
        };
    }
    let checked = OsFiles::new(&dir)
        .map_err(|source| StoreError::Io { place: place.to_string(), what: "use", source })
        .and_then(|files| {
            let names: Vec<&str> = config.tenants.iter().map(String::as_str).collect();
            // A bad name is a finding of its own, at the configuration.
            let registry =
                Registry::new(&names).map_err(|_| StoreError::Options("a tenant's name is bad"))?;
            check(&(Arc::new(files) as Arc<dyn Files>), &registry)
        });
    let report = match checked {
        Ok(report) => report,
        Err(StoreError::Locked { .. }) => {
            let text =
                format!("{place} is in use, so it was not read; a running mast tells by /readyz how it is");
            return found.add(Grade::Remark, "store", text);
        }
        Err(error) => return found.add(Grade::Bad, "store", error),
    };
    let (segments, mib) = (report.segments, report.bytes >> 20);
    let tail = if report.torn { "; its end was cut off by a crash, which is normal" } else { "" };
    found.add(
        Grade::Good,
        "store",
        format!("{place}: {segments} journal files, {mib} MiB, all intact{tail}"),
    );
    let reserve = config.store.reserve_bytes;
    let free = report.free_bytes;
    let way_out = "make room on the disk, or lower store.reserve_bytes";
    if free < reserve {
        let text = format!(
            "{} MiB are free, less than store.reserve_bytes: nothing would be stored; {way_out}",
            free >> 20
        );
        found.add(Grade::Bad, "store", text);
    } else if free - reserve < SPARE_SEGMENTS * config.store.segment_size {
        let text = format!("{} MiB are free beside the reserve; {way_out}", (free - reserve) >> 20);
        found.add(Grade::Remark, "store", text);
    }
}
