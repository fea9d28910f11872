"""The command line: options, subcommands and exit statuses."""
