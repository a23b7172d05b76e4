//! The life of the broker process: start-up, signals, reload, drain. What speaks MQTT is an [`Engine`].

use std::{
    collections::BTreeMap,
    future::Future,
    path::{Path, PathBuf},
    sync::Arc,
};

use crate::{
    admin::api::wire::Door,
    auth::{AuthError, AuthState, Checked},
    banner,
    config::{Config, ConfigErrors, EXIT_CONFIG, Listener, Sources},
    listen::{
        bind::{self, BindError, Bound},
        tls::{PreparedTls, TlsError, TlsListener},
    },
    obs::{
        Health, Metrics,
        health::Component,
        http::{self, HttpBindError, HttpState},
        http_door::HttpDoor,
        log::{self, LogError, LogHandle},
        notify, process,
        signals::{Request, Signals},
    },
};

/// A listener whose sockets are bound, to be served.
pub struct OpenListener {
    pub settings: Listener,
    pub sockets: Bound,
    /// Reloaded in place: ask it at every handshake.
    pub tls: Option<Arc<TlsListener>>,
}

/// All that an engine is given.
pub struct Context {
    pub config: Arc<Config>,
    pub listeners: Vec<OpenListener>,
    pub auth: Arc<AuthState>,
    pub metrics: Metrics,
    pub health: Health,
    /// Where the engine puts its administration once it runs.
    pub admin: Door,
}

/// True while everything that must turn does.
pub type Pulse = Box<dyn Fn() -> bool + Send>;

/// What serves the listeners: shard threads, store, acceptors. It registers its metrics and its health components
/// when it is started, and may take its time to become ready.
pub trait Engine {
    /// Does what takes time after the start, such as restoring, and then lets clients in. Only then is the broker
    /// ready.
    fn ready(&mut self) -> impl Future<Output = Result<(), String>> {
        async { Ok(()) }
    }

    /// What the service manager's watchdog asks.
    fn pulse(&self) -> Pulse {
        Box::new(|| true)
    }

    /// Takes over a configuration that was checked. Certificates, passwords and rules are already in use. Gives
    /// remarks for the log, such as keys that need a restart.
    fn reload(&mut self, config: &Arc<Config>) -> Vec<String>;

    /// Stops accepting, tells clients, flushes what must not be lost. It has `config.node.drain_timeout`; after
    /// that the future is dropped.
    fn drain(&mut self) -> impl Future<Output = ()>;

    /// Resolves, with the reason, when the engine cannot go on. Must be safe to drop and call again.
    fn failed(&mut self) -> impl Future<Output = String>;
}

/// Why the broker did not start, or ended.
#[derive(Debug, thiserror::Error)]
pub enum ServeError {
    #[error("{0}")]
    Config(#[from] ConfigErrors),
    #[error("{0}")]
    Auth(#[from] AuthError),
    #[error("{0}")]
    Tls(#[from] TlsError),
    #[error("{0}")]
    Bind(#[from] BindError),
    #[error("{0}")]
    Http(#[from] HttpBindError),
    #[error("{0}")]
    Log(#[from] LogError),
    #[error("data directory {}: {source}; choose another with --data-dir or node.data_dir", path.display())]
    DataDir { path: PathBuf, source: std::io::Error },
    #[error("cannot start: {0}")]
    Runtime(#[from] std::io::Error),
    #[error("{0}")]
    Engine(String),
}

impl ServeError {
    /// The process's exit code: 78 where the configuration, or a file it names, is to be corrected; else 1.
    pub fn exit_code(&self) -> u8 {
        match self {
            Self::Config(_) | Self::Auth(_) | Self::Tls(_) => EXIT_CONFIG,
            Self::Bind(_)
            | Self::Http(_)
            | Self::Log(_)
            | Self::DataDir { .. }
            | Self::Runtime(_)
            | Self::Engine(_) => 1,
        }
    }
}

/// Runs the broker until it is told to stop. `start` makes the engine, on a thread where it may block.
pub fn run<E: Engine + Send + 'static>(
    sources: &Sources,
    start: impl FnOnce(Context) -> Result<E, String> + Send + 'static,
) -> Result<(), ServeError> {
    let config = Arc::new(sources.load()?);
    let log = log::start(config.node.log_level, config.node.log_format)?;
    log_panics();
    let checked = Checked::read(&config)?;
    remark(checked.remarks());
    let auth = Arc::new(AuthState::new(checked)?);
    let tls = load_tls(&config)?;
    process::limit_resources();
    prepare_data_dir(&config.data_dir)?;
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let served = runtime.block_on(async {
        let mut signals = Signals::new()?;
        let (metrics, health) = (Metrics::default(), Health::default());
        process::register(&metrics, &config.node_name);
        let listening = health.register("listeners");
        let admin = http::bind(&config.admin_addresses)?;
        let listeners = open_listeners(&config, &tls)?;
        banner::starts(&config);
        let doors = banner::doors(&listeners);
        let api = Door::default();
        let state = HttpState {
            metrics: metrics.clone(),
            health: health.clone(),
            token: config.admin.token.clone(),
            door: Arc::clone(&api),
        };
        let max_body = usize::try_from(config.limits.max_admin_body).unwrap_or(usize::MAX);
        let router = http::router(state, max_body);
        let door = HttpDoor::new(&config.limits);
        door.register(&metrics);
        for socket in admin {
            tokio::spawn(serve_admin(Arc::clone(&door), socket, router.clone()));
        }
        let context = Context {
            config: Arc::clone(&config),
            listeners,
            auth: Arc::clone(&auth),
            metrics,
            health,
            admin: api,
        };
        let starting = async {
            let started = tokio::task::spawn_blocking(move || start(context)).await;
            // An error here: the start panicked.
            let mut engine = started.map_err(|e| e.to_string()).and_then(|done| done)?;
            engine.ready().await?;
            Ok::<E, String>(engine)
        };
        let mut reload = false;
        let mut engine = tokio::select! {
            engine = starting => engine.map_err(ServeError::Engine)?,
            // Nobody was let in yet, so there is nothing to drain.
            () = until_stopped(&mut signals, &mut reload) => return Ok(()),
        };
        doors.iter().for_each(banner::Door::log);
        listening.ready();
        notify::tell(notify::Phase::Ready);
        tokio::spawn(notify::watchdog(engine.pulse()));
        let mut reloader = Reloader { sources, config, log, auth, tls };
        if reload {
            reload_all(&mut engine, &mut reloader);
        }
        live(&mut engine, &mut signals, &mut reloader, &listening).await
    });
    // A start that was called off may still be at work; what it writes is written as if it were killed.
    runtime.shutdown_background();
    served
}

/// Panics go to the log, where they are looked for.
fn log_panics() {
    std::panic::set_hook(Box::new(|panic| {
        let place = panic.location().map(ToString::to_string).unwrap_or_default();
        let thread = std::thread::current();
        let thread = thread.name().unwrap_or("unnamed");
        let text = panic.payload_as_str().unwrap_or("no reason given");
        let trace = std::backtrace::Backtrace::capture();
        tracing::error!(thread, place, %trace, "panic: {text}; please report this");
    }));
}

/// Waits for a signal that stops. A reload that is asked for meanwhile is remembered.
async fn until_stopped(signals: &mut Signals, reload: &mut bool) {
    while signals.next().await == Request::Reload {
        *reload = true;
    }
}

async fn serve_admin(door: Arc<HttpDoor>, socket: std::net::TcpListener, router: axum::Router) {
    if let Err(error) = door.serve(socket, router).await {
        tracing::error!(%error, "the metrics and health endpoint ended");
    }
}

/// From ready to stopped.
async fn live<E: Engine>(
    engine: &mut E,
    signals: &mut Signals,
    reloader: &mut Reloader<'_>,
    listening: &Component,
) -> Result<(), ServeError> {
    loop {
        let request = tokio::select! {
            request = signals.next() => request,
            reason = engine.failed() => return Err(ServeError::Engine(reason)),
        };
        match request {
            Request::Reload => reload_all(engine, reloader),
            Request::Drain => break,
            Request::StopNow => return Ok(()),
        }
    }
    notify::tell(notify::Phase::Stopping);
    listening.not_ready("draining");
    let deadline = reloader.config.node.drain_timeout;
    tracing::info!(?deadline, "draining; a second signal stops at once");
    tokio::select! {
        drained = tokio::time::timeout(deadline, engine.drain()) => match drained {
            Ok(()) => tracing::info!("stopped"),
            Err(_) => tracing::warn!("stopped at the drain deadline"),
        },
        () = until_stop_now(signals) => tracing::warn!("stopped at once by a second signal"),
    }
    Ok(())
}

fn reload_all<E: Engine>(engine: &mut E, reloader: &mut Reloader<'_>) {
    notify::tell(notify::Phase::Reloading);
    match reloader.reload() {
        Ok(config) => {
            remark(engine.reload(&config));
            tracing::info!("the configuration was reloaded");
        }
        Err(error) => tracing::error!(%error, "the reload failed; everything stays as it was"),
    }
    notify::tell(notify::Phase::Ready);
}

async fn until_stop_now(signals: &mut Signals) {
    while signals.next().await != Request::StopNow {}
}

fn remark(remarks: Vec<String>) {
    for remark in remarks {
        tracing::warn!("{remark}");
    }
}

type TlsByName = BTreeMap<String, Arc<TlsListener>>;

/// Loads the certificates of all listeners.
pub fn load_tls(config: &Config) -> Result<TlsByName, TlsError> {
    let max_chain = usize::try_from(config.limits.max_cert_chain).unwrap_or(usize::MAX);
    let mut all = TlsByName::new();
    for listener in &config.listeners {
        if let Some(files) = &listener.tls {
            let tls = TlsListener::load(files, listener.ws.is_some(), max_chain)?;
            all.insert(listener.name.clone(), Arc::new(tls));
        }
    }
    Ok(all)
}

fn open_listeners(config: &Config, tls: &TlsByName) -> Result<Vec<OpenListener>, BindError> {
    let open = |settings: &Listener| {
        let sockets = bind::open(settings)?;
        Ok(OpenListener { settings: settings.clone(), sockets, tls: tls.get(&settings.name).cloned() })
    };
    config.listeners.iter().map(open).collect()
}

/// Makes sure that the data directory exists; nobody else may read a new one.
fn prepare_data_dir(path: &Path) -> Result<(), ServeError> {
    use std::os::unix::fs::DirBuilderExt;
    let made = std::fs::DirBuilder::new().recursive(true).mode(0o700).create(path);
    made.map_err(|source| ServeError::DataDir { path: path.to_owned(), source })
}

/// What a reload reads again and puts in place.
struct Reloader<'a> {
    sources: &'a Sources,
    config: Arc<Config>,
    log: LogHandle,
    auth: Arc<AuthState>,
    tls: TlsByName,
}

impl Reloader<'_> {
    /// Reads everything first and changes nothing before all of it is good.
    fn reload(&mut self) -> Result<Arc<Config>, ServeError> {
        let config = Arc::new(self.sources.load()?);
        let checked = Checked::read(&config)?;
        let mut prepared: Vec<(&TlsListener, PreparedTls)> = Vec::new();
        for listener in &config.listeners {
            if let (Some(files), Some(tls)) = (&listener.tls, self.tls.get(&listener.name)) {
                prepared.push((tls, tls.prepare(files)?));
            }
        }
        remark(checked.remarks());
        self.auth.replace(checked)?;
        for (tls, prepared) in prepared {
            tls.apply(prepared);
        }
        self.log.set_level(config.node.log_level)?;
        remark(needs_restart(&self.config, &config));
        self.config = Arc::clone(&config);
        Ok(config)
    }
}

/// Which changes only a restart puts in place.
fn needs_restart(old: &Config, new: &Config) -> Vec<String> {
    let place = |l: &Listener| (l.name.clone(), l.endpoint.clone(), l.tls.is_some(), l.ws.is_some());
    let places = |c: &Config| c.listeners.iter().map(place).collect::<Vec<_>>();
    let changed = [
        ("listener.*", places(old) != places(new)),
        ("node.shards", old.node.shards != new.node.shards),
        ("node.data_dir", old.data_dir != new.data_dir),
        ("admin", old.admin != new.admin),
        ("store", old.store != new.store),
        ("tenants that are gone", old.tenants.iter().any(|name| !new.tenants.contains(name))),
        ("tenant.*.spread", old.tenants == new.tenants && old.placed_tenants() != new.placed_tenants()),
    ];
    let message = |key: &str| format!("changes of {key} are put in place by a restart");
    changed.into_iter().filter(|(_, changed)| *changed).map(|(key, _)| message(key)).collect()
}
