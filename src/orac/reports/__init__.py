"""Reports on runs: tables, figures, pictures and HTML pages."""
