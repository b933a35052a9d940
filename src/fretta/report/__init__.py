"""Records to tables, figures and one HTML page. Reads a store and nothing else; no torch."""
