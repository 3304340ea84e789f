"""Reports about runs: tables, figures, pictures and HTML pages."""
