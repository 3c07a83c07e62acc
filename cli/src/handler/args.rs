//! The options that name a handler.

use std::{ffi::OsString, path::PathBuf, sync::Arc};

use anyhow::Context as _;
use clap::builder::BoolishValueParser;
use hatchery::{
    Handler,
    internals::{
        bounded_file::{self, SMALL},
        secret_url::UrlText,
    },
};

use super::{
    exec::{Exec, HandlerOutput},
    http::{Http, ServiceUrl},
};
use crate::args::{UsageError, shown};

/// The handler: a program or a service.
#[derive(clap::Args)]
#[group(skip)]
pub(crate) struct HandlerArgs {
    /// The program and its arguments, up to the next option of `topology`; after `--exec --`, all arguments
    #[arg(long, value_name = "CMD", num_args = 1.., allow_hyphen_values = true)]
    exec: Vec<OsString>,

    /// Pass the variables with the URLs of broker and Redis, and their passwords, to the program
    #[arg(long, requires = "exec", env = "TOPOLOGY_PASS_URLS", hide_env_values = true)]
    #[arg(value_parser = BoolishValueParser::new())]
    pass_urls: bool,

    /// Where the output of the program goes [default: log]
    #[arg(long, value_name = "WHERE", requires = "exec", env = "TOPOLOGY_HANDLER_OUTPUT", hide_env_values = true)]
    handler_output: Option<HandlerOutput>,

    /// The service that each event is posted to; @FILE reads the URL from a file
    #[arg(long, value_name = "URL", env = "TOPOLOGY_HTTP", hide_env_values = true)]
    http: Option<UrlText>,

    /// Certificate authorities to trust for the service, in PEM, besides the system's
    #[arg(long, value_name = "PATH", requires = "http", env = "TOPOLOGY_HTTP_CA", hide_env_values = true)]
    http_ca: Option<PathBuf>,
}

impl HandlerArgs {
    /// Builds the handler, if the options name one. A wrong program, URL or certificate is found now, before a worker consumes.
    pub(crate) fn handler(&self) -> anyhow::Result<Option<Arc<dyn Handler>>> {
        let Some(url) = &self.http else {
            if self.exec.is_empty() {
                return Ok(None);
            }
            let output = self.handler_output.unwrap_or_default();
            return Ok(Some(Arc::new(Exec::new(&self.exec)?.pass_urls(self.pass_urls).output(output))));
        };
        let url = match url.secret().strip_prefix('@') {
            Some(path) => UrlText::in_file(path).with_context(|| format!("--http: cannot read {}", shown(path)))?,
            None => url.clone(),
        };
        let url = ServiceUrl::new(url.secret().trim()).map_err(|error| UsageError(format!("--http: {error}")))?;
        let Some(path) = &self.http_ca else { return Ok(Some(Arc::new(Http::new(url)?))) };
        let authorities =
            bounded_file::read(path, SMALL).with_context(|| format!("--http-ca: cannot read {}", path.display()))?;
        Ok(Some(Arc::new(Http::trusting(url, &authorities).context("--http-ca")?)))
    }
}
