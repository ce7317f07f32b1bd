//! The log of the process: structured lines on stderr. Lines of libraries that use the `log` crate,
//! glommio's among them, come out the same way. A panic is logged and ends the process: with one
//! thread of several gone, a node would be neither up nor down.

use tracing_subscriber::EnvFilter;

/// Starts logging with a filter such as `info` or `palisade=debug`; RUST_LOG wins. Does nothing when
/// something else in the process has started it already.
pub(crate) fn start(filter: &str) {
    let (filter, refused) = match EnvFilter::try_from_default_env() {
        Ok(from_environment) => (from_environment, None),
        Err(_) => match EnvFilter::try_new(filter) {
            Ok(filter) => (filter, None),
            Err(error) => (EnvFilter::new("info"), Some(error)),
        },
    };
    let lines = tracing_subscriber::fmt()
        .with_env_filter(filter)
        .with_writer(std::io::stderr)
        // No colours, also at a terminal: this build of the library has none, and stops whoever asks for them.
        .with_ansi(false)
        .with_thread_names(true);
    // Fails only when a logger is there already: then that one is used.
    let started = lines.try_init().is_ok();
    if let Some(error) = refused {
        tracing::warn!(%error, "the log filter is malformed; `info` is used");
    }
    if started {
        end_on_panic();
    }
}

fn end_on_panic() {
    let before = std::panic::take_hook();
    std::panic::set_hook(Box::new(move |info| {
        tracing::error!(%info, "a bug: this node ends now");
        before(info);
        std::process::abort();
    }));
}
