"""What the benchmark commands share.

``results_file``
    ``Schema`` (columns, text columns and key of a CSV file), ``ResultsFile(path, schema)``
    (append-only and locked; ``lines``, ``keys``, ``add``), ``read_rows(path, schema)``,
    ``complete_lines(path, columns)``, ``write_text(path, text)``,
    ``JsonResults(path, run)`` (named parts in a JSON file) and ``read_json_results(path)``.
``runner``
    ``run(datasets, plan, file, n_jobs=...)`` runs what a ``Plan`` has open on each ``Item`` and
    appends the rows. ``run_jobs`` is its pool of processes, ``open_fits`` selects fits that are
    not in the file. ``LostWorkersError``.
``cli``
    ``run_command(work)`` (exit status), ``positive_int`` (option type),
    ``add_run_options(group, ...)`` (``--jobs``, ``--output``, ``--retry-failed``,
    ``--report-only``, ``--docs``, ``--quiet``).
``environment``
    ``commit``, ``versions``, ``versions_of``, ``n_cores``, ``describe_machine``,
    ``describe_run``, ``source_fingerprint``.
``report_tables``
    ``Table``, ``Column`` and ``Cell``; ``as_terminal``, ``as_markdown`` and ``as_latex`` write a
    table; ``plain_markdown(header, rows)`` for tables of trusted text; number formats (``number``,
    ``signed``, ``plus_minus``, ``seconds``, ``short``, ``p_value``, ``span``); escaping
    (``printable``, ``printable_lines``, ``escape_markdown``, ``markdown_code``).
``docs_tables``
    ``write_block(path, name, text)``, ``fill_block``, ``block_of``: text between two comments of
    a docs page.
"""
