"""What the commands share: results files, runs, options, tables, timing and child processes."""
