//! `topology export`: prints the topology as definitions that RabbitMQ's own tools import.

use hatchery::internals::compile::compile;

use crate::{args::Common, definitions::definitions, exit::Exit, load, output::Output};

/// Print the topology as RabbitMQ definitions, for RabbitMQ's own tools
#[derive(clap::Args)]
#[command(after_long_help = "\
Examples:
  topology export --vhost prod > billing.json
  rabbitmqctl import_definitions billing.json

  topology export --no-vhost > billing.json
  curl -u USER -H 'content-type: application/json' --data @billing.json \\
    http://localhost:15672/api/definitions/prod

The virtual host must exist; these definitions do not create it.

Use this for a broker that has none of these objects yet. An import never
changes an existing queue or exchange: RabbitMQ reports success, and leaves the
arguments as they are. An import removes no binding either. To change a
topology, use `topology apply`, which finds the differences. `topology plan`
shows whether an import was complete. Then run `topology apply` all the same:
workers start nothing before it has run once, and it arms the schedules.")]
pub(crate) struct Args {
    /// The virtual host that the objects are in [default: the AMQP URL's]
    #[arg(long, value_name = "NAME")]
    vhost: Option<String>,

    /// Name no virtual host, as POST /api/definitions/NAME requires
    #[arg(long, conflicts_with = "vhost")]
    no_vhost: bool,
}

pub(crate) fn run(common: &Common, args: &Args, output: Output) -> anyhow::Result<Exit> {
    let desired = compile(&load::topology(common, output)?)?;
    let vhost = match &args.vhost {
        _ if args.no_vhost => None,
        Some(name) => Some(name.clone()),
        None => Some(common.amqp_url()?.vhost()),
    };
    output.json(&definitions(&desired, vhost.as_deref()))?;
    Ok(Exit::Done)
}
