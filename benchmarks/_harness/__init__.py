"""What the benchmark commands share.

- ``results_file``: append-only CSV files of rows, JSON files of named parts, atomic writing.
- ``runner``: run the fits that a results file does not have yet, in several processes.
- ``cli``: option types, common options and the exit status of a command.
- ``environment``: commit, versions and machine of a run.
- ``report_tables``: tables in the terminal, in Markdown and in LaTeX; number formats; escaping.
- ``docs_tables``: tables between two comments of a docs page.
- ``labels``: labels of recorded results that have been renamed since.
- ``single_fits``: one row per fit, failed rows and the report of images, speech and graphs.
- ``paired_timing``, ``resources``, ``subprocesses``: time, memory and child processes.
"""
