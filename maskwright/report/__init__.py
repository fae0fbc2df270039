"""HTML reports and charts of runs."""
